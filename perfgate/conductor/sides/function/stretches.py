"""Long stretches of calls, for the mean call and for rare slow calls, which the few
calls of a pair hardly meet.

Each start loads both sides anew, unless they stay loaded. Their processes take turns of
many calls: as a service makes them, with their garbage collected and without moving in
memory. Both sides make equally many, so that what happens in every n-th call of a
process happens on both sides alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.conductor.engine import Engine, Lots, Quads, QuadTurns, Start, TimeBudget
from perfgate.conductor.failure import TurnError
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.plan import (
    SURE_LOOKS,
    of_the_slower,
    seconds_of_block,
)
from perfgate.conductor.sides.function.warm import WarmPlace
from perfgate.conductor.sides.function.workload import (
    FunctionTurns,
    PairedMeasurement,
    WorkloadSides,
)
from perfgate.document.run import PAIRS_PER_ROUND, TIME_SPENT, ErrorDetail
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

# A side's calls in one process: 1,000, or the calls of a second, but no more than fit
# into a hundred blocks (5 s by default), which all shapes share.
STRETCH_CALLS, MOST_CALLS = 1000, 4000
SHORT_SECONDS, MOST_BLOCKS = 1.0, 100
# Quads of a start. A stretch of more than half of that has the quads of two shorter
# stretches: another start would take too long. So have sides that stay loaded, because
# another stretch has no new processes.
QUADS, QUADS_OF_LONG = 8, 16
_TURNS_OF_A_SIDE = 2  # in a quad
# Lines are sampled if head stalls at least this often in a start, and this many times
# as often as base, until enough calls stalled.
FEWEST_STALLS, MORE_STALLS, ENOUGH_STALLS = 3, 2, 4
LOCATING_SECONDS = 3.0
_SHORTEST = 1e-6  # seconds of a call


class StretchPlan(NamedTuple):
    """The quads of a start, and the calls of a turn by shape."""

    quads: int
    calls: dict[str, int]

    @classmethod
    def of(
        cls,
        call_seconds: Mapping[str, float],
        *,
        block_seconds: float,
        resident: bool = False,
    ) -> StretchPlan:
        """The plan for shapes, by the seconds of a call, of sides that are loaded for a
        start or stay ``resident``.
        """
        most_seconds = MOST_BLOCKS * block_seconds
        seconds = most_seconds / len(call_seconds)
        calls = {}
        planned = 0.0
        for shape, call in call_seconds.items():
            calls[shape] = min(
                MOST_CALLS, max(STRETCH_CALLS, SHORT_SECONDS / call), seconds / call
            )
            planned += calls[shape] * call
        quads = QUADS_OF_LONG if resident or planned > most_seconds / 2 else QUADS
        turns = quads * _TURNS_OF_A_SIDE
        return cls(
            quads,
            {shape: max(1, math.ceil(count / turns)) for shape, count in calls.items()},
        )


def seconds_of_calls(warm: WarmedUp, block_seconds: float) -> dict[str, float]:
    """About how long a call of each shape takes.

    A block with more than the fewest calls lasts ``block_seconds``; the other shapes
    share the rest of ``call_seconds``.
    """
    quick = {
        shape: block_seconds / calls
        for shape, calls in warm.block_calls.items()
        if calls > FEWEST_CALLS
    }
    slow = [shape for shape in warm.block_calls if shape not in quick]
    rest = max(0.0, warm.call_seconds - sum(quick.values()))
    for shape in slow:
        quick[shape] = max(rest / len(slow), _SHORTEST)
    return {shape: quick[shape] for shape in warm.block_calls}


def measure_stretches(
    sides: WorkloadSides,
    *,
    looks: Sequence[int],
    is_decided: Callable[[], bool],
    quads: int,
) -> None:
    """Measure stretches of a workload until, at a look, ``is_decided`` or the quads are
    used up.

    ``looks`` are numbers of quads, of which earlier jobs measured ``quads``. As with
    pairs, two looks are worth their time on any machine, and no further one begins
    beyond the budget. Calls of SLOW_CALL_SECONDS have none, nor have sides of which the
    device holds one: processes that take no turns may meet different machines. A start
    that fails ends it.
    """
    if sides.bench.holds_one or _has_slow_calls(sides.measured):
        return
    if quads >= looks[0] and is_decided():
        return
    clock = sides.observer.monotonic
    stretches = StretchTurns(sides, quads)
    starts = stretches.starts()
    engine = Engine(
        stretches,
        starts,
        looks,
        is_decided,
        TimeBudget(clock() + sides.bench.config.gate.budget),
        deadline=sides.deadline,
        sure_looks=SURE_LOOKS,
        whole_looks=True,
        clock=clock,
    )
    with closing(stretches):
        is_in_time = engine.run()
    if not is_in_time and stretches.done < looks[0]:
        stretches.fail_at(next(starts), ErrorDetail(kind="timeout", message=TIME_SPENT))


def _has_slow_calls(pairs: PairedMeasurement) -> bool:
    """Whether a call of every shape takes SLOW_CALL_SECONDS together, on both sides."""
    return all(
        _typical_seconds(replicates) >= SLOW_CALL_SECONDS
        for replicates in (pairs.base, pairs.head)
    )


def _typical_seconds(replicates: Sequence[Replicate]) -> float:
    """The sum of the median calls of the shapes."""
    walls: dict[str, list[np.ndarray]] = {}
    for replicate in replicates:
        for shape, columns in replicate.shapes.items():
            walls.setdefault(shape, []).append(unpack(columns.times.wall))
    return sum(float(np.median(np.concatenate(each))) for each in walls.values()) / 1e9


class StretchTurns(FunctionTurns):
    """Runs stretches, start after start; ``done`` counts quads, including earlier
    jobs'.
    """

    def __init__(self, sides: WorkloadSides, done: int) -> None:
        super().__init__(sides)
        self.done = done
        # Of all starts, by the first.
        self._plan: StretchPlan | None = None
        self._starts = self._quads = 0
        self._block_seconds = seconds_of_block(
            self.bench.config.gate, resident=self.is_resident
        )

    def starts(self) -> Iterator[Start]:
        round_number = self.sides.round_number
        lot = random.Random(
            f"{self.bench.config.measure.seed}/{self.name}/{round_number}/stretches"
        )
        lots = Lots(lot)
        for number in count(round_number * PAIRS_PER_ROUND):
            yield Start(
                number,
                arm="stretch",
                layout_seed=lot.randrange(1, 65536),
                second_starts=next(lots.second_starts),
                second_leads=lots.second_leads,
            )

    def start(self, start: Start, /) -> Quads:
        self._start = start
        self.blocks = 0
        self.sides.before_start()
        text = sentence(
            "{workload}: a long stretch of calls, start {number}",
            workload=self.name,
            number=self._starts + 1,
        )
        self.bench.say(text)
        block_seconds = self._block_seconds
        checkouts = self.sides.base, self.sides.head
        places = [WarmPlace(checkouts[side]) for side in start.order]
        origins = self.warm.get(places, start, block_seconds=block_seconds)
        members = {
            side: self.member(origin, origin.worker)
            for side, origin in zip(start.order, origins)
        }
        seconds = [seconds_of_calls(origin.warm, block_seconds) for origin in origins]
        self._members = members[0], members[1]
        if self._plan is None:
            # By the slower side, within reason.
            first, second = seconds
            slower = {
                shape: of_the_slower(first[shape], second[shape])
                for shape in first
                if shape in second
            }
            self._plan = StretchPlan.of(
                slower, block_seconds=block_seconds, resident=self.is_resident
            )
        return Quads.exactly(self._plan.quads)

    def quad(self, quad: QuadTurns) -> bool:
        assert self._plan is not None, "a start plans"
        for shape, calls in self._plan.calls.items():
            for side in quad.turns():
                number = self._quads + quad.index
                request = BlockRequest(
                    shape, calls, number, self.blocks, as_served=True
                )
                self.run_block(self._members[side], request)
        return True

    def finish(self) -> None:
        if self.blocks:
            assert self._plan is not None, "a start plans"
            base, head = self._members
            of_base = self.collect(base, self._start, 0)
            of_head = self.collect(head, self._start, 1)
            self.measured.base.append(of_base)
            self.measured.head.append(_with_lines(of_base, of_head, head))
            self._starts += 1
            self._quads += self._plan.quads
            self.done += self._plan.quads
        self.close()

    def fail(self, error: TurnError) -> bool:
        self.warm.close()
        self.fail_at(self._start, error.detail)
        return False


def _with_lines(of_base: Replicate, of_head: Replicate, head: Member) -> Replicate:
    """The head's replicate with the lines at which its calls stall, for shapes that
    stall more often than base's.
    """
    stalled_at = {}
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


class _Stalled(NamedTuple):
    """The calls of a stretch above ``limit``, in seconds: as the gate defines it, but
    of the whole stretch.
    """

    stalled: int
    calls: int
    limit: float

    @classmethod
    def of(cls, columns: BlockColumns) -> _Stalled:
        wall = unpack(columns.times.wall) / 1e9
        limit = STALL_FACTOR * float(np.median(wall))
        return cls(int(np.count_nonzero(wall > limit)), int(wall.size), limit)
