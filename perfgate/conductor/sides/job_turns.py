"""The turns of a job: a client of the engine for servers, ranks and commands."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from perfgate.conductor.engine import (
    Engine,
    Lots,
    Quads,
    QuadTurns,
    Reach,
    Start,
    TimeBudget,
    order_of,
)
from perfgate.conductor.failure import TurnError
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.side import Side, SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import JobRecord, Turn
from perfgate.document.run import TIME_SPENT, ErrorDetail, FailedPair
from perfgate.locale import sentence
from perfgate.system.garbage import quiet

SideName = Literal["base", "head"]
NAMES: tuple[SideName, SideName] = ("base", "head")
NamedSides = Mapping[SideName, Side]
TurnsOfQuad = dict[SideName, list[Turn]]
# The expected number of quads and its resolution are announced after this many.
FIRST_QUADS = 4
# Runs of a command that are counted: the second shows whether the count repeats itself.
COUNTED_RUNS = 2
# The budget may be overrun by this share if that decides: after such a wait a result is
# worth it.
OVERRUN = 1 / 3
# Seed offset between attempts at a quad.
_TAKE = 100_000
# A start without an end: every turn is a separate process.
_ENDLESS = 10**9


@dataclass
class MeasuredJob:
    """The turns of a job as both run documents have them, and the reason if it failed.

    ``stacks`` has each side that could be profiled; ``before`` are the turns that these
    are added to.
    """

    record: JobRecord
    base: list[Turn] = field(default_factory=list)
    head: list[Turn] = field(default_factory=list)
    failed: list[FailedPair] = field(default_factory=list)
    stacks: dict[SideName, SideStacks] = field(default_factory=dict)
    before: Reach = field(default_factory=Reach)

    @property
    def quads(self) -> int:
        """The quads so far, including an earlier check's."""
        turns = self.base or self.head
        return 1 + turns[-1].quad if turns else self.before.quads


@dataclass
class JobTurns:
    """Lets two sides take turns into ``measured``, or the only side of a run, without a
    comparison.

    ``layouts`` holds the sides, once for most jobs. ``looks`` are the numbers of quads
    after which ``is_decided`` is asked. ``announce`` is called after the first few
    quads, when it is known how long one takes. ``begin`` is called with the sides that
    are about to have processes. After the last turn both sides are profiled if
    ``needs_causes`` is true then.
    """

    layouts: Sequence[NamedSides]
    plan: SidePlan
    measured: MeasuredJob
    looks: Sequence[int]
    is_decided: Callable[[], bool]
    say: Callable[[str], None]
    announce: Callable[[], None]
    seed: int
    budget: TimeBudget = field(default_factory=TimeBudget)
    begin: Callable[[Sequence[SideName]], None] = lambda _: None
    needs_causes: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    # The side that could not be started.
    unstarted: SideName | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        measured = self.measured
        self.sides = self.layouts[0]
        self._job = measured.record.name
        self._names: tuple[SideName, ...] = tuple(self.sides)
        self._acting: SideName = self._names[0]
        self._rejected: TurnsOfQuad | None = None
        self._start = 0
        added = f":{measured.before.quads}" if any(measured.before) else ""
        self._lots = Lots(
            random.Random(f"{self.seed}:{self._job}{added}"), starts_run=4
        )
        self._engine = Engine(
            self,
            self._lots.starts(measured.before.starts),
            self.looks,
            self.is_decided,
            self.budget,
            turns=self.plan.turns,
            clock=self.clock,
        )

    @property
    def done(self) -> int:
        return self.measured.quads

    def take(self) -> None:
        """Take turns to the end.

        A failure ends the job and is in ``measured.failed``.
        """
        try:
            # A load collects garbage before it is sent. In this context that takes no
            # walk over the heap, in which the side that waits for the load would seem
            # to sleep.
            with quiet():
                self._engine.run()
            if len(self._names) > 1 and not self.measured.failed:
                self._count_runs()
                if self.measured.base and self.needs_causes():
                    self._profile()
        except SideError as error:
            self._record_failure(error, self._acting)
        finally:
            self.stop_sides()
        if not self.done and not self.measured.failed:
            self._record_failure(
                TurnError(ErrorDetail(kind="timeout", message=TIME_SPENT))
            )

    def reach(self) -> Reach:
        """The expected results when the time is spent or the last look is reached,
        including an earlier check's.
        """
        before, plan = self.measured.before, self.plan
        each = Quads(plan.fewest, plan.most)
        added = self._engine.reach(each, layouts=len(self.layouts))
        return Reach(
            before.quads + added.quads, before.starts + added.starts, added.seconds
        )

    # --- what the engine asks

    def start(self, start: Start, /) -> Quads:
        self._start = start.number
        self.stop_sides()
        self.start_sides(start)
        return Quads(self.plan.fewest, self.plan.most or _ENDLESS)

    def quad(self, quad: QuadTurns) -> bool:
        turns = self.turns_of(quad, number=self.done)
        if turns is None:
            return False
        self.keep(turns)
        return True

    def finish(self) -> None:
        """The sides of the last start are profiled, so each start stops those before
        it.
        """

    def fail(self, error: TurnError) -> bool:
        self._record_failure(error, self._acting)
        return False

    # --- starts

    def start_sides(self, start: Start) -> None:
        order = self._in_order(second_first=start.second_starts)
        if len(order) > 1:
            self.say(sentence("{name}: starting both sides", name=self._job))
        else:
            self.say(sentence("{name}: starting", name=self._job))
        if self.plan.most:
            self.begin(order)
        if self.plan.one_by_one:
            for name in order:
                self._start_together([name])
        else:
            self._start_together(order)

    def _start_together(self, names: Sequence[SideName]) -> None:
        for name in names:
            self.unstarted = name
            self._side(name).start()
        for name in names:
            self.unstarted = name
            self._side(name).warm_up()
        self.unstarted = None

    def stop_sides(self) -> None:
        for side in self.sides.values():
            side.stop()

    # --- turns

    def turns_of(
        self, quad: QuadTurns, *, number: int, first_place: int = 0
    ) -> TurnsOfQuad | None:
        """The turns of quad ``number`` of the job, None if one is blurred, or if the
        sides got different requests.

        The second happens if a side discovers in its own turn that its server rejects a
        field. Another attempt has new work on both sides, because a server may have
        earlier answers in its cache.
        """
        self.say(
            sentence(
                "{name}: quad {number} of at most {most}",
                name=self._job,
                number=number + 1,
                most=self.looks[-1],
            )
        )
        turns: TurnsOfQuad = {name: [] for name in self._names}
        is_blurred = False
        for place, index in enumerate(quad.turns(), first_place):
            name = self._names[index]
            turns[name].append(
                self._turn(name, quad, number, place, of_side=len(turns[name]))
            )
            is_blurred |= self.sides[name].is_blurred
        if self._rejected is not None:
            self._restore_texts(turns, self._rejected)
        requests: set[tuple[str, ...]] = set()
        for of_side in turns.values():
            requests.update(tuple(turn.without) for turn in of_side)
        if (is_blurred or len(requests) > 1) and not quad.is_last_take:
            self._rejected = turns
            return None
        self._rejected = None
        return turns

    def _turn(
        self, name: SideName, quad: QuadTurns, number: int, place: int, *, of_side: int
    ) -> Turn:
        """One turn.

        Both sides get the same work in a quad; every quad and every attempt has
        another.
        """
        has_own_process = not self.plan.most
        if has_own_process:
            self.begin([name])
        turns_of_a_side = len(quad.order) // len(self._names)
        began = self.clock()
        result = self._side(name).turn(
            quad.take * _TAKE + number * turns_of_a_side + of_side
        )
        return Turn(
            **msgspec.structs.asdict(result),
            workload=self._job,
            start=number if has_own_process else self._start,
            quad=number,
            place=place,
            seconds=round(self.clock() - began, 6),
        )

    @staticmethod
    def _restore_texts(turns: TurnsOfQuad, rejected: TurnsOfQuad) -> None:
        """Only the first turn of a start has texts, and maybe an output, even if its
        quad does not count.
        """
        for name, of_side in turns.items():
            first, before = of_side[0], rejected[name][0]
            texts, output = first.texts or before.texts, first.output or before.output
            of_side[0] = msgspec.structs.replace(first, texts=texts, output=output)

    def keep(self, turns: TurnsOfQuad) -> None:
        """Count a quad, once all its turns are there."""
        self.measured.base += turns.get("base", ())
        self.measured.head += turns.get("head", ())
        if self.done == self.measured.before.quads + FIRST_QUADS:
            self.announce()

    # --- after the last turn

    def _count_runs(self) -> None:
        """Let both sides of a command count some runs, and keep the counts with the
        same number of their last turns.
        """
        taken = self.done - self.measured.before.quads
        if not self.measured.record.is_command or taken < COUNTED_RUNS:
            return
        self.say(
            sentence("{name}: counting the lines of Python of a run", name=self._job)
        )
        counts: dict[SideName, Mapping[str, int]] = {}
        for back in range(1, COUNTED_RUNS + 1):
            # A failed count, with a 0, is not repeated: such a run may take long.
            if not any(0 in of_side.values() for of_side in counts.values()):
                for name in self._in_order(second_first=next(self._lots.second_starts)):
                    # One side alone, so that a file which appears in its checkout is
                    # known to be its own.
                    self.begin([name])
                    counts[name] = self._side(name).count()
            for name, turns in zip(NAMES, (self.measured.base, self.measured.head)):
                turns[-back] = msgspec.structs.replace(
                    turns[-back], counters=dict(counts[name])
                )

    def _profile(self) -> None:
        """Profile both sides after the last turn, to find causes.

        A failure costs its profile only.

        No process of the head lives while base writes its profile.
        """
        for name in ("head", "base"):
            side = self._side(name)
            self.say(sentence("{name}: profiling {side}", name=self._job, side=name))
            if not self.plan.most:
                self.begin([name])
            with suppress(SideError):
                if stacks := side.profile(self.done * self.plan.turns):
                    self.measured.stacks[name] = stacks
            side.stop()

    def _side(self, name: SideName) -> Side:
        """The side that acts now, to which a failure belongs."""
        self._acting = name
        return self.sides[name]

    def _in_order(self, *, second_first: bool) -> Sequence[SideName]:
        names = self._names
        return [names[index] for index in order_of(second_first, turns=len(names))]

    def _record_failure(self, error: TurnError, side: SideName | None = None) -> None:
        if len(self._names) == 1:
            side = None
        failed = FailedPair(
            pair=self.done, arm="ab", workload=self._job, error=error.detail, side=side
        )
        self.measured.failed.append(failed)


@dataclass
class SwappingTurns(JobTurns):
    """Sides that swap halves of the devices: the two ``layouts`` hold them on either
    half.

    Every quad has turns in both layouts, so that the difference between the halves
    cancels out. It counts only with both, so the second layout is measured even when
    the time is spent.
    """

    _is_swapped: bool = field(default=False, init=False)
    _halves: tuple[list[TurnsOfQuad], list[TurnsOfQuad]] = field(
        default=([], []), init=False
    )

    def start(self, start: Start, /) -> Quads:
        self.stop_sides()
        self.sides = self.layouts[self._is_swapped]
        quads = super().start(start)
        if self._is_swapped:
            return Quads.exactly(len(self._halves[0]))
        self._halves = [], []
        return Quads(quads.fewest, min(quads.most, self._engine.next_look - self.done))

    def quad(self, quad: QuadTurns) -> bool:
        first_place = self.plan.turns if self._is_swapped else 0
        turns = self.turns_of(
            quad, number=self.done + quad.index, first_place=first_place
        )
        if turns is None:
            return False
        self._halves[self._is_swapped].append(turns)
        return True

    def finish(self) -> None:
        if self._is_swapped:
            for first, second in zip(*self._halves):
                self.keep({name: [*first[name], *second[name]] for name in first})
        elif self._halves[0]:
            self._is_swapped = True
            self._engine.take_start(
                Start(
                    self._start, next(self._lots.second_starts), self._lots.second_leads
                )
            )
            self._is_swapped = False
