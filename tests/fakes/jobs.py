"""Documents of jobs as the conductor writes them: its turns and its encoders, around programs that take no time.

A server, ranks and a command of base and head whose times are drawn, each judged by the settings of ``SETTINGS``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from perfgate.conductor.load.plan import plan_load
from perfgate.conductor.load.record import Exchange, Load
from perfgate.conductor.sides.command.command import CommandSide
from perfgate.conductor.sides.job_turns import JobTurns, MeasuredJob, SideName
from perfgate.conductor.sides.kinds import SIDES, record_of, with_numbers
from perfgate.conductor.sides.program import ProgramEnd
from perfgate.conductor.sides.ranks.ranks import RanksSide, Report
from perfgate.conductor.sides.server.server import ServerSide
from perfgate.conductor.sides.side import Side, SidePlace
from perfgate.config import parse_config
from perfgate.document.job import PYTHON_LINES, CollectiveCount, CpuTime, JobKind, RankCounts, TurnResult
from perfgate.document.run import RunDocument
from perfgate.job_settings import JobReference
from perfgate.load_settings import LoadSettings
from tests.fakes.documents import make_run
from tests.fakes.records import changed

SETTINGS: dict[JobKind, str] = {
    "command": """
[workloads.bench]
command = "python bench.py"
numbers.step = { json = "step", unit = "ms" }
numbers.rate = { json = "rate", unit = "items/s", better = "higher" }
""",
    "server": """
[workloads.chat]
serve = "python serve.py --port $PORT"
load = { concurrency = 2, requests = 4, output = 4 }
""",
    "ranks": """
[workloads.train]
torchrun = "train.py"
ranks = 2
""",
}

_QUADS: dict[JobKind, int] = {"command": 16, "server": 32, "ranks": 32}


class Does:
    """What a side of a job does: how much slower than usual it is, what it writes, and how often its ranks meet."""

    def __init__(
        self,
        slowdown: float = 0.0,
        *,
        text: str = "a b c d",
        tokens: int = 4,
        collectives: int = 2,
        loss: float = 2.0,
        usual: float = 1.0,
        lines: int = 1000,
    ) -> None:
        self.slowdown, self.text, self.tokens = slowdown, text, tokens
        self.collectives, self.loss = collectives, loss
        self.lines = lines
        # The share of answers in which rounding has its usual outcome.
        self.usual = usual


class _Clock:
    def __init__(self, does: Does, seed: int) -> None:
        self._does = does
        self._random = np.random.default_rng(seed)
        self._started = False
        self.now = 0.0

    def start(self) -> None:
        self._started = True

    def factor(self) -> float:
        return (1 + self._does.slowdown) * float(np.exp(self._random.normal(0, 0.01)))

    def out_of_turn(self) -> float | None:
        """What the processes did since their last turn, of which the first turn of a start tells nothing."""
        first, self._started = self._started, False
        return None if first else 0.01


class VirtualCommand(CommandSide):
    """A command whose runs took no time and printed two numbers."""

    def __init__(self, reference: JobReference, place: SidePlace, does: Does, seed: int) -> None:
        super().__init__(reference, place)
        self._clock, self._does = _Clock(does, seed), does

    def count(self) -> dict[str, int]:
        return {PYTHON_LINES: self._does.lines}

    def turn(self, number: int) -> TurnResult:
        took = self._clock.factor()
        printed = json.dumps({"step": 10 * took, "rate": 100 / took})
        results = self._results(printed, self._place.log, not_before=0.0)
        return self._turn(ProgramEnd(0, took / 10, took / 20, 1e8), results)


class VirtualServer(ServerSide):
    """A server that answers the planned requests with the same text, each in drawn seconds."""

    def __init__(self, reference: JobReference, place: SidePlace, does: Does, seed: int) -> None:
        super().__init__(reference, place)
        self._clock, self._does = _Clock(does, seed), does
        self._random = np.random.default_rng(100 + seed)

    def start(self) -> None:
        self._clock.start()
        self._is_checked = self._is_probed = False

    def warm_up(self) -> None:
        """It is warm."""

    def stop(self) -> None:
        """It has no process."""

    def turn(self, number: int) -> TurnResult:
        plan = plan_load(self._load_settings, seed=number)
        exchanges = [self._answered(request.id) for request in plan.requests]
        seconds = math.fsum(exchange.last for exchange in exchanges)
        load = Load(exchanges, seconds, np.full(len(exchanges), 1e-5))
        result = self._result(plan, load, 0.5 * seconds)
        cpu = CpuTime(used=0.5 * seconds, waited=0.0, seconds=seconds)
        texts = self._texts()
        return msgspec.structs.replace(result, texts=texts, out_of_turn=self._clock.out_of_turn(), cpu=cpu)

    def _load(self, number: int, settings: LoadSettings) -> Load:
        """The answers whose texts are compared: one that is not usual is like no other."""
        requests = plan_load(settings, seed=number).requests
        drawn = self._random.random((len(requests), 2))
        exchanges = [
            self._answered(request.id, also=f" {other}" if chance >= self._does.usual else "")
            for request, (chance, other) in zip(requests, drawn)
        ]
        return Load(exchanges, 1.0, np.full(len(requests), 1e-5))

    def _answered(self, name: str, also: str = "") -> Exchange:
        first = 0.05 * self._clock.factor()
        gaps = [0.01 * self._clock.factor() for _ in range(self._does.tokens - 1)]
        tokens = [first + sum(gaps[:index]) for index in range(len(gaps) + 1)]
        return Exchange(
            name, 0.0, 1e-5, first, tokens[-1], tokens, 16, self._does.tokens, self._does.text + also, 200, ""
        )


class VirtualRanks(RanksSide):
    """Ranks whose reports are drawn."""

    def __init__(self, reference: JobReference, place: SidePlace, does: Does, seed: int) -> None:
        super().__init__(reference, place)
        self._clock, self._does = _Clock(does, seed), does

    def start(self) -> None:
        self._clock.start()
        self._is_counted = False

    def warm_up(self) -> None:
        """They are warm."""

    def stop(self) -> None:
        """They have no process."""

    def turn(self, number: int) -> TurnResult:
        steps = self._settings.steps
        reports = [
            Report(
                rank=rank,
                steps=[0.02 * self._clock.factor() for _ in range(steps)],
                cpu=0.01 * steps * self._clock.factor(),
                memory=10**8,
                on_device=False,
                losses=[(self._does.loss + step).hex() for step in range(steps)],
                samples=8,
            )
            for rank in range(self._settings.ranks)
        ]
        counts = [] if self._is_counted else [self._counted(report.rank, steps) for report in reports]
        self._is_counted = True
        return msgspec.structs.replace(self._result(reports), out_of_turn=self._clock.out_of_turn(), counts=counts)

    def _counted(self, rank: int, steps: int) -> RankCounts:
        count = steps * self._does.collectives
        return RankCounts(
            rank=rank,
            steps=steps,
            operators=100 * steps,
            syncs=steps,
            calls=count,
            collectives=[CollectiveCount(name="allreduce", count=count, elements=1000 * count)],
            communication=0.002,
            exposed=0.001,
        )


_SIDES: dict[JobKind, Callable[[JobReference, SidePlace, Does, int], Side]] = {
    "command": VirtualCommand,
    "server": VirtualServer,
    "ranks": VirtualRanks,
}


def reference_of(settings: str) -> JobReference:
    """The one job of a perfgate.toml."""
    (reference,) = parse_config(settings, Path("perfgate.toml")).jobs
    return reference


def job_documents(
    settings: str, base: Does, head: Does, *, quads: int | None = None
) -> tuple[RunDocument, RunDocument]:
    """Let both sides take turns, and return the documents that hold them."""
    reference = reference_of(settings)
    kind = reference.kind
    measured = MeasuredJob(record_of(reference))
    ticks = iter(range(10**9))
    # A check of the output is a real program.
    with TemporaryDirectory() as folder:
        places = SidePlace(Path(), {}, Path(folder) / "log")
        sides: dict[SideName, Side] = {
            name: _SIDES[kind](reference, places, does, seed)
            for seed, (name, does) in enumerate({"base": base, "head": head}.items())
        }
        JobTurns(
            [sides],
            SIDES[kind].plan,
            measured,
            (quads or _QUADS[kind],),
            is_decided=lambda: False,
            say=lambda _: None,
            announce=lambda: None,
            seed=1,
            clock=lambda: float(next(ticks)),
        ).take()
    record = with_numbers(measured.record, sides["base"])
    none: dict[str, Any] = {"workloads": [], "steps": [], "replicates": [], "counters": [], "operators": []}
    runs = [make_run(name, **none) for name in sides]
    return (
        changed(runs[0], records=[record], turns=measured.base),
        changed(runs[1], records=[record], turns=measured.head, failed=measured.failed),
    )
