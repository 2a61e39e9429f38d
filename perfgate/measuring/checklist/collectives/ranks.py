"""``python -m torch.distributed.run … -m perfgate.measuring.checklist.collectives.ranks FOLDER``:
one rank of a job.

The job lives as long as its standard input is held open: a rank that finds it closed
exits at once, at any point, and a rank with a killed launcher exits with it, even while
it holds the interpreter's lock. So no rank outlives the process that started it,
however that one ended.
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist

from perfgate.measuring.checklist.collectives.job import (
    OPERATIONS,
    PLAN_FILE,
    Operation,
    OperationSamples,
    Plan,
    RankReport,
    failure_file,
    report_file,
)
from perfgate.system.processes import die_with_parent

_WARM_UPS = 3
_FEWEST = 3
# A rank holds an input and an output, the backend as much again.
_MEMORY_SHARES = 8
_WORK_SIZE = 384
_WORK_PRODUCTS = 8
_ELEMENT = 4  # bytes of a float32


class _Rank:
    """This process: its number, how many there are, and its device."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.number = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cpu")
        if plan.kind != "cpu":
            if plan.extension:
                importlib.import_module(plan.extension)
            self.device = torch.device(plan.kind, int(os.environ["LOCAL_RANK"]))
            self.module: Any = getattr(torch, plan.kind)
            self.module.set_device(self.device)
        # Kept until the group is destroyed: the group's own thread releases the last
        # message, needs the interpreter for that, and the interpreter waits for it
        # while destroying the group (a deadlock seen with gloo of torch 2.7).
        self.met = torch.zeros(1, device=self.device)

    def synchronize(self) -> None:
        """Wait for the device; on a CPU every call is done when it returns."""
        if self.device.type != "cpu":
            self.module.synchronize()

    def free_bytes(self) -> int:
        """The memory this rank may use."""
        if self.device.type != "cpu":
            return int(self.module.mem_get_info()[0])
        _, _, available = Path("/proc/meminfo").read_text().partition("MemAvailable:")
        return int(available.split()[0]) * 1024 // self.size

    def agreed(self, number: float, how: Any) -> float:
        """The largest or smallest of the numbers of all ranks."""
        tensor = torch.tensor([number], dtype=torch.float32, device=self.device)
        dist.all_reduce(tensor, op=how)
        return float(tensor.item())


class _Prepared(NamedTuple):
    """One operation on its tensors: ``run`` it, and ask whether the result is right
    after ``fill``.
    """

    run: Callable[[], Any]
    fill: Callable[[], Any]
    right: Callable[[], bool]


def main(folder: Path) -> None:
    """Run the plan in the folder, and leave the report there."""
    end_with_job()
    plan = msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
    rank = _Rank(plan)
    dist.init_process_group(
        plan.backend, timeout=datetime.timedelta(seconds=plan.timeout_seconds)
    )
    try:
        report = _report(rank)
    finally:
        dist.destroy_process_group()
    report_file(folder, rank.number).write_bytes(msgspec.json.encode(report))


def _report(rank: _Rank) -> RankReport:
    largest = rank.agreed(rank.free_bytes(), dist.ReduceOp.MIN) / _MEMORY_SHARES
    sizes = [size for size in rank.plan.sizes if size <= largest]
    timed = []
    refused: dict[str, str] = {}
    for operation in OPERATIONS:
        if why := _refusal(rank, operation):
            refused[operation] = why
        else:
            timed += _time_sizes(rank, operation, sizes)
    arrived, worked = _meet(rank)
    return RankReport(
        rank=rank.number,
        timed=timed,
        arrived_ns=arrived,
        worked_ns=worked,
        refused=refused,
    )


def _refusal(rank: _Rank, operation: Operation) -> str:
    """The reason if the backend lacks an operation, else empty: every rank gets the
    same answer, and no message is sent.
    """
    try:
        _PREPARE[operation](rank, 1).run()
    except (RuntimeError, NotImplementedError) as error:
        return str(error).partition("\n")[0][:200] or type(error).__name__
    rank.synchronize()
    return ""


def _time_sizes(
    rank: _Rank, operation: Operation, sizes: list[int]
) -> list[OperationSamples]:
    samples = []
    for size in sizes:
        prepared = _PREPARE[operation](rank, size // _ELEMENT // rank.size)
        warm_ups = [_once(rank, prepared) for _ in range(_WARM_UPS)]
        slowest = rank.agreed(max(warm_ups), dist.ReduceOp.MAX) / 1e9
        repetitions = max(
            _FEWEST,
            min(rank.plan.repetitions, int(rank.plan.seconds / max(slowest, 1e-9))),
        )
        nanoseconds = [_once(rank, prepared) for _ in range(repetitions)]
        prepared.fill()
        prepared.run()
        rank.synchronize()
        samples.append(
            OperationSamples(
                operation=operation,
                size=size,
                nanoseconds=nanoseconds,
                right=prepared.right(),
            )
        )
        if slowest > rank.plan.seconds:
            break
    return samples


def _once(rank: _Rank, prepared: _Prepared) -> int:
    """The nanoseconds of one run that all ranks begin together, as far as a barrier can
    make them.
    """
    dist.barrier()
    rank.synchronize()
    started = perf_counter_ns()
    prepared.run()
    rank.synchronize()
    return perf_counter_ns() - started


def _prepare_all_reduce(rank: _Rank, part: int) -> _Prepared:
    """Sum ``size * part`` elements of all ranks; those timed are zero, as a sum in
    place would grow without end.
    """
    data = torch.zeros(rank.size * part, device=rank.device)
    total = rank.size * (rank.size + 1) / 2
    return _Prepared(
        lambda: dist.all_reduce(data),
        lambda: data.fill_(rank.number + 1.0),
        lambda: bool((data == total).all()),
    )


def _prepare_all_gather(rank: _Rank, part: int) -> _Prepared:
    mine = torch.zeros(part, device=rank.device)
    everyone = torch.zeros(rank.size * part, device=rank.device)
    gather = (
        getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    )  # the name since torch 2.13
    expected = torch.arange(1.0, rank.size + 1, device=rank.device).repeat_interleave(
        part
    )
    return _Prepared(
        lambda: gather(everyone, mine),
        lambda: mine.fill_(rank.number + 1.0),
        lambda: bool((everyone == expected).all()),
    )


def _prepare_reduce_scatter(rank: _Rank, part: int) -> _Prepared:
    mine = torch.zeros(part, device=rank.device)
    everyone = torch.zeros(rank.size * part, device=rank.device)
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    # Part c of rank r holds r + 1 + c, so rank c receives the sum of all r + 1, and c
    # of each.
    parts = (
        torch.arange(float(rank.size), device=rank.device).repeat_interleave(part)
        + rank.number
        + 1
    )
    total = rank.size * (rank.size + 1) / 2 + rank.size * rank.number
    return _Prepared(
        lambda: scatter(mine, everyone),
        lambda: everyone.copy_(parts),
        lambda: bool((mine == total).all()),
    )


_PREPARE: dict[Operation, Callable[[_Rank, int], _Prepared]] = {
    "all_reduce": _prepare_all_reduce,
    "all_gather": _prepare_all_gather,
    "reduce_scatter": _prepare_reduce_scatter,
}


def _meet(rank: _Rank) -> tuple[list[int], list[int]]:
    """Let all ranks do the same work and then meet, again and again; note when this one
    was through and how long it worked.
    """
    matrix = torch.ones(_WORK_SIZE, _WORK_SIZE, device=rank.device)
    arrived_ns, worked_ns = [], []
    for _ in range(rank.plan.rounds):
        dist.barrier()
        rank.synchronize()
        started = perf_counter_ns()
        for _ in range(_WORK_PRODUCTS):
            torch.mm(matrix, matrix)
        rank.synchronize()
        arrived = perf_counter_ns()
        dist.all_reduce(rank.met)
        rank.synchronize()
        arrived_ns.append(arrived)
        worked_ns.append(arrived - started)
    return arrived_ns, worked_ns


def end_with_job() -> None:
    """Exit this process once its job is gone."""
    die_with_parent(os.getppid())

    def watch() -> None:
        # A read that returns means that the other end is closed, because it is never
        # written to.
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=watch, name="perfgate-life-line", daemon=True).start()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    try:
        main(FOLDER)
    except Exception as error:
        # The launcher's own report is a table of exit codes.
        failure_file(FOLDER, int(os.environ["RANK"])).write_text(
            f"{type(error).__name__}: {error}"
        )
        raise
