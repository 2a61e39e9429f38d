"""Real workers: what the members of a pair say of their operators."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.sides.function.profiles import QUADS, LateOperators, record_traces, with_profile
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference, load_config
from perfgate.document.samples import BlockColumns, ConductorColumns, Replicate, WorkerState
from perfgate.measuring.counting.collect import read_calls
from perfgate.protocol import (
    BlockDone,
    BlockRequest,
    Collected,
    CollectRequest,
    ProfileRequest,
    ProfileTimes,
    ProfileTimesRequest,
    WarmedUp,
    WarmUpRequest,
)
from tests.shared_bench import SharedBench

TIMEOUT = 60.0
WORKLOAD = """
import sys
import torch
from perfgate import Workload

def refuse(model, x):
    if torch.autograd._profiler_enabled():
        raise ValueError("not while I am watched")
    return model(x)

def refuse_profile(model, x):
    if sys.getprofile() is not None:
        raise ValueError("not while I am watched")
    return model(x)

def build(device):
    return torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU()).eval()

def inputs(batch, seed):
    return torch.ones(batch, 128)

well = Workload(build=build, inputs=inputs, batch=32)
shy = Workload(build=build, inputs=inputs, batch=32, call=refuse)
sly = Workload(build=build, inputs=inputs, batch=32, call=refuse_profile)
"""


@pytest.fixture(scope="module")
def bench(shared_bench: SharedBench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("project")
    (root / "workload.py").write_text(WORKLOAD)
    (root / "perfgate.toml").write_text('project = "pair"\nworkload = "workload.py:well"\n')
    with shared_bench.configured(load_config(root)) as bench:
        yield bench


def seen_from_outside(blocks: BlockColumns) -> BlockColumns:
    span = blocks.worker.end_ns[0] - blocks.worker.start_ns[0]
    return msgspec.structs.replace(blocks, conductor=ConductorColumns(seen_ns=[span]))


def measured_pair(
    bench: Bench, stack: ExitStack, name: str
) -> tuple[tuple[Worker, Worker], tuple[Replicate, Replicate]]:
    """Return two warm workers and what they measured in one block each."""
    root = bench.config.root
    reference = WorkloadReference(name=name, file="workload.py", attribute=name)
    workers, replicates = [], []
    for member in ("first", "second"):
        worker, _ = stack.enter_context(
            bench.worker(Checkout(root, root), reference, cpus=bench.cpus[:1], layout_seed=1, log_name=name)
        )
        worker.ask(WarmUpRequest(block_seconds=0.002, cap_seconds=0.2), WarmedUp, timeout=TIMEOUT, doing="warming up")
        block = BlockRequest(shape="default", calls=5, quad=0, sequence=0)
        worker.ask(block, BlockDone, timeout=TIMEOUT, doing="measuring")
        columns = worker.ask(CollectRequest(), Collected, timeout=TIMEOUT, doing="collecting").shapes
        workers.append(worker)
        seen = {shape: seen_from_outside(blocks) for shape, blocks in columns.items()}
        state = WorkerState(layout_seed=1, cpus=[0], start_up=0.1, steady=True)
        replicates.append(Replicate(pair=3, arm="ab", member=member, workload=name, worker=state, shapes=seen))
    return (workers[0], workers[1]), (replicates[0], replicates[1])


def test_with_profile__operators__both_say_what_each_operator_takes(bench: Bench) -> None:
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "well")
        pair = with_profile("operators", workers, replicates, say=pytest.fail, clock=time.monotonic)

    for before, after in zip(replicates, pair):
        assert after.shapes == before.shapes
        assert after.profile.operators.keys() == {"default"}
        times = after.profile.operators["default"]
        assert {"aten::linear", "aten::addmm", "aten::relu", "aten::clamp_min"} <= times.keys()
        assert 0 < times["aten::addmm"] < 5


class Counted:
    """Hands on what is asked of a worker, and counts its turns."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.turns = 0

    def ask(self, request: object, *args: object, **fields: object) -> object:
        self.turns += isinstance(request, ProfileRequest)
        return self.worker.ask(request, *args, **fields)  # type: ignore[call-overload]


@pytest.mark.parametrize(("seconds", "quads"), [(0.1, QUADS), (2.0, 1)], ids=["quick profiler", "slow profiler"])
def test_with_profile__profiler_that_takes_long_to_start__fewer_turns_of_both(
    bench: Bench, seconds: float, quads: int
) -> None:
    ticks = itertools.count(0.0, seconds)
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "well")
        counted = Counted(workers[0]), Counted(workers[1])
        pair = with_profile("operators", counted, replicates, say=pytest.fail, clock=lambda: next(ticks))  # type: ignore[arg-type]

    assert [worker.turns for worker in counted] == [2 * quads, 2 * quads]
    assert all("aten::addmm" in replicate.profile.operators["default"] for replicate in pair)


def test_with_profile__operators_of_a_workload_that_fails_under_the_profiler__pair_without_them_and_a_word(
    bench: Bench,
) -> None:
    said: list[str] = []
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "shy")
        pair = with_profile("operators", workers, replicates, say=said.append, clock=time.monotonic)
        # They still answer.
        reply = workers[0].ask(ProfileTimesRequest(), ProfileTimes, timeout=TIMEOUT, doing="profiling")

    assert pair == replicates
    assert reply.operators == {}
    assert said == ["shy: no operators from pair 3: ValueError: not while I am watched (at workload.py:8)"]


def test_with_profile__subroutines__both_say_what_each_module_and_function_takes(bench: Bench) -> None:
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "well")
        pair = with_profile("subroutines", workers, replicates, say=pytest.fail, clock=time.monotonic)

    for before, after in zip(replicates, pair):
        assert after == msgspec.structs.replace(
            before, profile=msgspec.structs.replace(before.profile, subroutines=after.profile.subroutines)
        )
        times = after.profile.subroutines["default"]
        assert times.keys() == {"module.Sequential", "module.Sequential.*"}
        assert 0 < times["module.Sequential.*"] < times["module.Sequential"] < 5


def test_with_profile__subroutines_of_a_workload_that_fails__pair_without_them_and_a_word(bench: Bench) -> None:
    said: list[str] = []
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "sly")
        pair = with_profile("subroutines", workers, replicates, say=said.append, clock=time.monotonic)
    assert pair == replicates
    assert said == ["sly: no modules and functions from pair 3: ValueError: not while I am watched (at workload.py:13)"]


def test_record_traces__two_workers_in_turns__a_recording_of_each_with_as_many_calls(
    bench: Bench, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "well")
        for head_first in (False, True):
            (kept,) = record_traces(workers, replicates, folder=tmp_path, head_first=head_first, say=pytest.fail)
            assert (kept.pair, kept.shape) == (3, "default")
            base, head = (read_calls(file) for file in (kept.base, kept.head))
            assert base.calls == head.calls == 10
            assert {"aten::linear", "aten::addmm"} <= {base.events.names[at] for at in base.host_ops().name}
            written = [file.stat().st_mtime_ns for file in (kept.base, kept.head)]
            assert (written[0] > written[1]) == head_first


def test_record_traces__workload_that_fails_under_the_profiler__no_trace_and_a_word(
    bench: Bench, tmp_path: Path
) -> None:
    said: list[str] = []
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "shy")
        kept = record_traces(
            workers,
            replicates,
            folder=tmp_path,
            head_first=False,
            say=said.append,
        )
    assert kept == []
    assert said == ["shy: no traces from pair 3: ValueError: not while I am watched (at workload.py:8)"]
    assert list(tmp_path.iterdir()) == []


def test_late_operators__worker_that_cannot_record__pair_without_operators_and_a_word(
    bench: Bench, said: list[str]
) -> None:
    said.clear()
    with ExitStack() as stack:
        workers, replicates = measured_pair(bench, stack, "well")
        late = LateOperators(bench)
        checkout = Checkout(bench.config.root, bench.config.root)
        # The CPU's traces are never analysed later, so its worker refuses.
        late.record(workers, replicates, (checkout, checkout))
        sides = [replicates[0]], [replicates[1]]
        late.put_into(*sides)

    assert sides == ([replicates[0]], [replicates[1]])
    assert [text for text in said if "no operators" in text] == [
        "well: no operators from pair 3: a trace of a device of kind cpu needs no analysis; record_trace writes it"
    ]


def test_analyse__recording_that_is_not_there__error_and_the_bench_goes_on(bench: Bench) -> None:
    checkout = Checkout(bench.config.root, bench.config.root)
    with pytest.raises(WorkerError, match="does not exist"):
        bench.analyse(checkout, [str(bench.recordings(checkout) / "lost")], timeout=TIMEOUT)

    assert bench.testbed().device_kind == "cpu"
