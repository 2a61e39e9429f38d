"""One pair by perfgate's own machinery, and everything about it that may explain its
effect.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from conditions import Condition
from models import SOURCES
from table import LOW_QUANTILES
from workloads import VARIANTS, write_checkouts, write_harness

from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.plan import draw_plans
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import ForkServer, Worker
from perfgate.config import (
    Config,
    GateSettings,
    MeasureSettings,
    StoreSettings,
    WorkloadReference,
)
from perfgate.document.samples import BlockColumns, Replicate, unpack
from perfgate.judging.gate.evidence.process import statistics

ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h


@dataclass
class _Served:
    bench: Bench
    stack: ExitStack
    number: int
    pairs: int = 0


class Lab:
    """Measures pairs under conditions; fork servers are kept per environment and
    renewed after some pairs.

    Address layout and hash seed belong to the server, so a bias that only one server
    has shows as a spread between servers.
    """

    def __init__(self, scratch: Path, *, seed: int) -> None:
        self.seed = seed
        self.clock = Clock()
        self._scratch = scratch
        self._roots = {
            name: write_checkouts(scratch / "checkouts", name, seed=seed)
            for name in SOURCES
        }
        self._harness = {
            name: write_harness(scratch / "harness" / name, name) for name in SOURCES
        }
        self._served: dict[str, _Served] = {}
        self._servers = 0

    def close(self) -> None:
        for served in self._served.values():
            served.stack.close()

    def measure(
        self, condition: Condition, workload: str, number: int
    ) -> tuple[dict[str, Any], list[Replicate]]:
        """Measure pair ``number`` and return its record and both replicates."""
        served = self._bench(condition)
        lot = random.Random(f"{self.seed}/{number}")
        variant = (
            (condition.variant or lot.randint(1, VARIANTS))
            if condition.head == "variant"
            else 0
        )
        base = Checkout(root=self._roots[workload][0], harness=self._harness[workload])
        head = Checkout(
            root=self._roots[workload][variant],
            harness=self._head_harness(condition, workload, number),
        )
        reference = WorkloadReference(f"{workload}-{number}", "workload.py", "workload")
        gate = msgspec.structs.replace(
            served.bench.config.gate,
            quads=condition.quads,
            block_seconds=condition.block_seconds,
        )
        served.bench.config = replace(served.bench.config, gate=gate)
        self.clock.reset()
        measured = PairedMeasurement()
        started, began = time.time(), time.perf_counter()
        sides = WorkloadSides(served.bench, reference, base, head, measured)
        measure_pairs(
            sides,
            looks=[1],
            is_decided=lambda: True,
            budget_ends=None,
            draw=0,
            first=0,
            traces=None,
            sizes=None,
        )
        seconds = time.perf_counter() - began
        served.pairs += 1
        record: dict[str, Any] = {
            "pair": number, "condition": condition.name, "workload": workload, "head": condition.head, "variant": variant,
            "quads": condition.quads, "block_seconds": condition.block_seconds, "server": served.number,
            "started": started, "seconds": seconds, "load": os.getloadavg()[0], "parts": dict(self.clock.seconds),
        }  # fmt: skip
        if measured.failed:
            return {**record, "failed": measured.failed[0].error.message}, []
        replicates = [measured.base[0], measured.head[0]]
        plan = draw_plans(
            served.bench.config.measure.seed,
            reference.name,
            pairs=1,
            aa_pairs=0,
            first_look=1,
            round_number=0,
            draw=0,
            resident=False,
        )[0]
        record |= {
            "layout_seed": plan.layout_seed,
            "head_starts": plan.second_starts,
            **_effects(replicates),
        }
        return record, replicates

    def _head_harness(self, condition: Condition, workload: str, number: int) -> Path:
        lot = random.Random(f"{self.seed}/{number}/twin")
        folder = self._scratch / "harness" / f"{workload}-twin"
        if condition.head == "twin-functions":
            return write_harness(
                folder, workload, dead_functions=lot.randrange(5, 120), seed=number
            )
        if condition.head == "twin-objects":
            return write_harness(
                folder, workload, objects=lot.randrange(20, 2000), seed=number
            )
        return self._harness[workload]

    def _bench(self, condition: Condition) -> _Served:
        served = self._served.get(condition.server)
        if served is not None and served.pairs >= condition.pairs_per_server:
            served.stack.close()
            served = None
        if served is None:
            self._servers += 1
            stack = ExitStack()
            logs = Path(tempfile.mkdtemp(prefix="logs-", dir=self._scratch))
            with (
                _environment(condition.environment),
                _personality(randomize=condition.randomize),
            ):
                bench = stack.enter_context(
                    open_bench(
                        _config(self._scratch, condition.environment),
                        logs=logs,
                        say=lambda _: None,
                    )
                )
            # A server lives as long as the condition says.
            bench.servers.start_next = lambda *_, **__: None  # type: ignore[method-assign]
            served = self._served[condition.server] = _Served(
                bench, stack, self._servers
            )
        return served


class Clock:
    """Conductor's seconds by what it waited for.

    It wraps the conductor's handles in this process only.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._untimed = ask, fork, close = Worker.ask, ForkServer.fork, Worker.close
        Worker.ask = self._timed(ask, lambda _, request, *_rest: type(request).__name__)  # type: ignore[method-assign]
        ForkServer.fork = self._timed(fork, lambda *_: "fork")  # type: ignore[method-assign]
        Worker.close = self._timed(close, lambda *_: "close")  # type: ignore[method-assign]

    def stop(self) -> None:
        """Give the handles back as they were."""
        Worker.ask, ForkServer.fork, Worker.close = self._untimed  # type: ignore[method-assign]

    def reset(self) -> None:
        self.seconds.clear()

    def _timed(self, function: Any, name: Any) -> Any:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[name(*arguments)] += time.perf_counter() - began

        return timed


def _effects(sides: list[Replicate]) -> dict[str, Any]:
    blocks = [side.shapes["default"] for side in sides]
    whole = [statistics(one) for one in blocks]
    lows = [low(one) for one in blocks]
    halves = [
        [low(one, range(parity, 10_000, 2)) for one in blocks] for parity in (0, 1)
    ]
    return {
        "effect": lows[1] - lows[0],
        "effect_p50": whole[1].p50 - whole[0].p50,
        "effect_gap": (whole[1].gap - whole[0].gap) / float(np.exp(lows[0])),
        "halves": [head - base for base, head in halves],
        "sides": [
            {
                "low": low,
                "calls": sum(one.calls),
                "timed_seconds": sum(
                    end - start
                    for start, end in zip(one.worker.start_ns, one.worker.end_ns)
                )
                / 1e9,
                "minor_faults": sum(one.worker.minor_faults),
                "switches": sum(one.worker.involuntary_switches),
                "start_up": side.worker.start_up,
                "steady": side.worker.steady,
            }
            for side, one, low in zip(sides, blocks, lows)
        ],
    }


def low(
    blocks: BlockColumns, quads: Container[int] | None = None, *, cpu: bool = False
) -> float:
    """Return the mean log low quantile of all calls, or of those of some quads: the
    statistic of all the findings.
    """
    kept = [quads is None or quad in quads for quad in blocks.quad]
    calls = (
        unpack(blocks.times.cpu if cpu else blocks.times.wall)[
            np.repeat(kept, blocks.calls)
        ]
        / 1e9
    )
    return float(np.mean(np.log(np.quantile(calls, LOW_QUANTILES))))


def _config(root: Path, environment: dict[str, str]) -> Config:
    return Config(
        root=root,
        project="lab",
        device="cpu",
        measure=MeasureSettings(
            pass_env=sorted(environment),
            preload=["torch", "hooks"],
        ),
        gate=GateSettings(looks=[1], aa_pairs=0),
        store=StoreSettings(),
    )


@contextmanager
def _environment(extra: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    path = os.pathsep.join(
        [*filter(None, [before.get("PYTHONPATH")]), str(Path(__file__).parent)]
    )
    os.environ.update({**extra, "PYTHONPATH": path})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _personality(*, randomize: bool) -> Iterator[None]:
    """Have what is started inside run without address space randomisation
    (personality(2)), if asked to.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    before = libc.personality(0xFFFFFFFF)
    libc.personality(before if randomize else before | ADDR_NO_RANDOMIZE)
    try:
        yield
    finally:
        libc.personality(before)
