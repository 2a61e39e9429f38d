"""Long stretches of calls, for the mean of a call and for its rare slow ones, which the few calls of a pair hardly meet.

Each start loads both sides anew, and their processes take turns of many calls: as a service makes them, with their garbage
collected and without moving in memory. Both sides make equally many, so that what happens in every n-th call of a process
happens on both sides alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.conductor.engine.order import balanced_coins
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.pairs import MOST_LONGER
from perfgate.conductor.sides.function.plan import SURE_LOOKS, PairPlan
from perfgate.conductor.sides.function.warm import WarmPlace, WarmWorkers
from perfgate.conductor.sides.function.workload import WorkloadSides
from perfgate.conductor.workers.worker import WorkerError
from perfgate.document.run import PAIRS_PER_ROUND, TIME_SPENT, ErrorDetail, FailedPair
from perfgate.document.samples import STALL_FACTOR, BlockColumns, Replicate, unpack
from perfgate.locale import sentence
from perfgate.protocol import (
    FEWEST_CALLS,
    SLOW_CALL_SECONDS,
    BlockRequest,
    LocateStallsRequest,
    StallsLocated,
    WarmedUp,
)
from perfgate.system.interrupts import safe_point

# A side's calls in one process: 1,000, or those of a second, but no more than fit into a hundred blocks (5 s by default), which
# all shapes share.
STRETCH_CALLS, MOST_CALLS = 1000, 4000
SHORT_SECONDS, MOST_BLOCKS = 1.0, 100
# Quads of a start. A stretch of more than half of that has as many as two shorter ones: another start would take too long.
QUADS, QUADS_OF_LONG = 8, 16
_TURNS_OF_A_SIDE = 2  # in a quad
_FEWEST_CALLS_OF_TURN = 1
# Lines are sampled if head stalls at least so often in a start, and so many times as often as base, until enough calls stalled.
FEWEST_STALLS, MORE_STALLS, ENOUGH_STALLS = 3, 2, 4
LOCATING_SECONDS = 3.0
_SHORTEST = 1e-6  # seconds of a call


class StretchPlan(NamedTuple):
    """The quads of a start, and the calls of a turn by shape."""

    quads: int
    calls: dict[str, int]

    @classmethod
    def of(cls, call_seconds: Mapping[str, float], *, block_seconds: float) -> StretchPlan:
        """The plan for shapes with calls of so many seconds."""
        most_seconds = MOST_BLOCKS * block_seconds
        seconds = most_seconds / len(call_seconds)
        wanted = {
            shape: min(MOST_CALLS, max(STRETCH_CALLS, SHORT_SECONDS / call), seconds / call)
            for shape, call in call_seconds.items()
        }
        planned = sum(calls * call_seconds[shape] for shape, calls in wanted.items())
        quads = QUADS_OF_LONG if planned > most_seconds / 2 else QUADS
        turns = quads * _TURNS_OF_A_SIDE
        return cls(
            quads, {shape: max(_FEWEST_CALLS_OF_TURN, math.ceil(calls / turns)) for shape, calls in wanted.items()}
        )


def seconds_of_calls(warm: WarmedUp, block_seconds: float) -> dict[str, float]:
    """About how long a call of each shape takes.

    A block with more than the fewest calls lasts ``block_seconds``; the other shapes share the rest of ``call_seconds``.
    """
    quick = {shape: block_seconds / calls for shape, calls in warm.block_calls.items() if calls > FEWEST_CALLS}
    slow = [shape for shape in warm.block_calls if shape not in quick]
    rest = max(0.0, warm.call_seconds - sum(quick.values()))
    return {shape: quick[shape] if shape in quick else max(rest / len(slow), _SHORTEST) for shape in warm.block_calls}


def measure_stretches(
    sides: WorkloadSides, *, looks: Sequence[int], is_decided: Callable[[], bool], quads: int = 0
) -> None:
    """Measure stretches of a workload until, at a look, ``is_decided`` or the quads are used up.

    ``looks`` are numbers of quads, of which earlier jobs measured ``quads``. As with pairs, two looks are worth their time on
    any machine, and no further one begins beyond the budget. Calls of SLOW_CALL_SECONDS have none. A start that fails ends it.
    """
    stretches = _Stretches(sides)
    clock = sides.observer.monotonic
    budget_ends = clock() + sides.bench.config.gate.budget
    for number, look in enumerate(looks):
        while quads < look:
            if clock() > sides.deadline:
                if quads < looks[0]:
                    stretches.fail(ErrorDetail(kind="timeout", message=TIME_SPENT))
                return
            sides.before_start()
            added = stretches.run_start()
            if not added:
                return
            quads += added
        if is_decided() or (number + 1 >= SURE_LOOKS and clock() > budget_ends):
            return


@dataclass
class _Stretches:
    """Runs one start after another."""

    sides: WorkloadSides
    plan: StretchPlan | None = None  # of all starts, by the first
    starts: int = 0
    quads: int = 0
    _lot: random.Random = field(init=False)
    _head_leads: Iterator[bool] = field(init=False)
    _head_starts: Iterator[bool] = field(init=False)

    def __post_init__(self) -> None:
        sides = self.sides
        self.bench, self.reference, self.measured = sides.bench, sides.reference, sides.measured
        self.round_number, self.observer = sides.round_number, sides.observer
        self.checkouts = sides.base, sides.head
        seed = self.bench.config.measure.seed
        self._lot = random.Random(f"{seed}/{self.reference.name}/{self.round_number}/stretches")
        self._head_leads = balanced_coins(self._lot, run=2)
        self._head_starts = balanced_coins(self._lot, run=2)
        self.cpus = quietest_cpus(self.bench.config.pair_cpus())

    def run_start(self) -> int:
        """Load both sides and run their stretches; the number of quads, 0 if calls are too slow or a side failed."""
        safe_point()
        name = self.reference.name
        self.bench.say(
            sentence("{workload}: a long stretch of calls, start {number}", workload=name, number=self.starts + 1)
        )
        pair = PairPlan(
            pair=self.round_number * PAIRS_PER_ROUND + self.starts,
            arm="stretch",
            layout_seed=self._lot.randrange(1, 65536),
            twin_seed=0,
            second_starts=next(self._head_starts),
            second_leads_quad=[],
        )
        warm = WarmWorkers(
            self.bench, self.reference, observer=self.observer, cpus=self.cpus, resident=self.bench.is_accelerated
        )
        with closing(warm):
            try:
                return self._run(pair, warm)
            except WorkerError as error:
                self.fail(error.detail)
                return 0

    def fail(self, error: ErrorDetail) -> None:
        pair = self.round_number * PAIRS_PER_ROUND + self.starts
        self.measured.failed.append(FailedPair(pair=pair, arm="stretch", workload=self.reference.name, error=error))

    def _run(self, pair: PairPlan, warm: WarmWorkers) -> int:
        block_seconds = self.bench.config.gate.block_seconds
        members: dict[int, Member] = {}
        seconds: list[dict[str, float]] = []
        order = (1, 0) if pair.second_starts else (0, 1)
        starts = warm.get([WarmPlace(self.checkouts[index]) for index in order], pair, block_seconds=block_seconds)
        for index, start in zip(order, starts):
            members[index] = Member(
                start.worker,
                start,
                workload=self.reference.name,
                observer=self.observer,
                timeout=self.bench.config.measure.step_timeout,
            )
            seconds.append(seconds_of_calls(start.warm, block_seconds))
        if min(member.call_seconds for member in members.values()) >= SLOW_CALL_SECONDS:
            return 0
        if self.plan is None:
            self.plan = _plan_of(*seconds, block_seconds=block_seconds)
        self._run_quads(self.plan, members)
        of_base, of_head = members[0].replicate(pair, 0, self.cpus), members[1].replicate(pair, 1, self.cpus)
        self.measured.base.append(of_base)
        self.measured.head.append(self._with_lines(of_base, of_head, members[1]))
        self.measured.uncounted = self.measured.uncounted or members[0].uncounted or members[1].uncounted
        self.starts += 1
        self.quads += self.plan.quads
        return self.plan.quads

    def _with_lines(self, of_base: Replicate, of_head: Replicate, head: Member) -> Replicate:
        """The head's replicate with the lines at which its calls stall, for shapes that stall more often than base's."""
        stalled_at: dict[str, dict[str, int]] = {}
        for shape, columns in of_head.shapes.items():
            before, after = _Stalled.of(of_base.shapes[shape]), _Stalled.of(columns)
            if after.stalled < max(FEWEST_STALLS, MORE_STALLS * before.stalled):
                continue
            calls = math.ceil(ENOUGH_STALLS * after.calls / after.stalled)
            request = LocateStallsRequest(shape, after.limit, calls, LOCATING_SECONDS)
            samples = head.ask(request, StallsLocated, "sampling slow calls of").samples
            if samples:
                stalled_at[shape] = samples
        return msgspec.structs.replace(of_head, stalled_at=stalled_at)

    def _run_quads(self, stretch: StretchPlan, members: Mapping[int, Member]) -> None:
        """Run the quads of every shape, by turns A B B A or B A A B."""
        sequence = 0
        for quad in range(self.quads, self.quads + stretch.quads):
            order = (1, 0, 0, 1) if next(self._head_leads) else (0, 1, 1, 0)
            for shape, calls in stretch.calls.items():
                for index in order:
                    turn = BlockRequest(shape=shape, calls=calls, quad=quad, sequence=sequence, as_served=True)
                    members[index].run_block(turn)
                    sequence += 1


class _Stalled(NamedTuple):
    """The calls of a stretch above ``limit``, in seconds: as the gate defines it, but of the whole stretch."""

    stalled: int
    calls: int
    limit: float

    @classmethod
    def of(cls, columns: BlockColumns) -> _Stalled:
        wall = unpack(columns.wall) / 1e9
        limit = STALL_FACTOR * float(np.median(wall))
        return cls(int(np.count_nonzero(wall > limit)), int(wall.size), limit)


def _plan_of(first: Mapping[str, float], second: Mapping[str, float], *, block_seconds: float) -> StretchPlan:
    """The plan for the seconds of a call on both sides: by those of the slower one, within reason."""
    planned: dict[str, float] = {}
    for shape in first.keys() & second.keys():
        faster, slower = sorted((first[shape], second[shape]))
        planned[shape] = min(slower, MOST_LONGER * faster)
    shared = {shape: planned[shape] for shape in first if shape in planned}
    return StretchPlan.of(shared, block_seconds=block_seconds)
