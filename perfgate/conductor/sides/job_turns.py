"""The turns of a job: its sides by lot, quad after quad and start after start, until they decide or the time is spent."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from perfgate.conductor.engine.order import balanced_coins
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.side import Side, SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import JobRecord, Turn
from perfgate.document.run import TIME_SPENT, ErrorDetail, FailedPair
from perfgate.locale import sentence
from perfgate.system.garbage import quiet
from perfgate.system.interrupts import safe_point

SideName = Literal["base", "head"]
NAMES: tuple[SideName, SideName] = ("base", "head")
Sides = Mapping[SideName, Side]
# After so many quads the expected number and its resolution are announced.
FIRST_QUADS = 4
# Two starts of equal code differ too: a FAIL needs at least so many.
FEWEST_STARTS = 2
# So many runs of a command are counted: the second shows whether the count repeats itself.
COUNTED_RUNS = 2
# The budget may be overrun by this share if that decides: after so long a wait a result is worth it.
OVERRUN = 1 / 3
# The first starts are short, so that an early look rests on several; of later ones three quarters of the time are turns.
_EARLY_STARTS, _LATER_WORTH = FEWEST_STARTS, 3.0


# How often a quad is taken at most, and how far apart the numbers of its turns are from one time to the next.
MOST_TAKES = 5
_TAKE = 100_000


class Reach(NamedTuple):
    """Quads of a job, of how many starts, and the seconds for them: an earlier check's part, or what it will have in the end.

    The quads and starts of an earlier check have the first numbers.
    """

    quads: int = 0
    starts: int = 0
    seconds: float = 0.0


@dataclass
class MeasuredJob:
    """The turns of a job as both run documents have them, and the reason if it failed.

    ``stacks`` are those of each side that could be profiled; ``before`` are the turns that these are added to.
    """

    record: JobRecord
    base: list[Turn] = field(default_factory=list)
    head: list[Turn] = field(default_factory=list)
    failed: list[FailedPair] = field(default_factory=list)
    stacks: dict[SideName, SideStacks] = field(default_factory=dict)
    before: Reach = field(default_factory=Reach)


@dataclass
class TurnTaker:
    """Lets two sides take turns into ``measured``, or the only one of a run, which is compared with nothing.

    ``layouts`` holds the sides once, or once for each half of the devices that they swap: then every quad has turns in both
    layouts, and the difference between the halves cancels out. ``looks`` are the numbers of quads after which
    ``is_decided`` is asked. After ``ends`` (of the monotonic clock) no quad begins, unless ``quads_needed``, about so many
    as decide, can be there by ``latest``: then those are taken. ``announce`` is called after the first few quads, when it
    is known how long one takes. ``begin`` is called with the sides that are about to have processes. After the last turn both
    sides are profiled if ``needs_causes`` is true then.
    """

    layouts: Sequence[Sides]
    plan: SidePlan
    measured: MeasuredJob
    looks: Sequence[int]
    is_decided: Callable[[], bool]
    say: Callable[[str], None]
    announce: Callable[[], None]
    ends: float
    seed: int
    begin: Callable[[Sequence[SideName]], None] = lambda _: None
    latest: float = -math.inf
    quads_needed: Callable[[], int | None] = lambda: None
    needs_causes: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._sides = self.layouts[0]
        before = self.measured.before
        self._lots = random.Random(
            f"{self.seed}:{self.measured.record.name}" + (f":{before.quads}" if any(before) else "")
        )
        self._names: tuple[SideName, ...] = tuple(self._sides)
        self._acting: SideName = self._names[0]
        self._leads, self._starts_first = (balanced_coins(self._lots, run=run) for run in (2, 4))
        self._quad, self._taken = before.quads, 0
        self._start = before.starts - 1
        self._began = self.clock()
        self._start_seconds = self._quad_seconds = 0.0
        # To how many quads the budget is overrun. Decided once: to look again and again would be to stop when it pleases.
        self._overrun_to: int | None = None
        # The side that could not be started.
        self.unstarted: SideName | None = None

    @property
    def quads(self) -> int:
        return self._quad

    def reach(self) -> Reach:
        """The expected results when the time is spent or the last look is reached, by the times of the first quads."""
        time_left = self.ends - self._began
        quad_seconds = max(self._quad_seconds / self._taken, 1e-9)
        before = self.measured.before
        quads_left = self.looks[-1] - before.quads
        if not self.plan.most:
            quads = min(int(time_left / quad_seconds), quads_left)
            return Reach(before.quads + quads, before.quads + quads, quads * quad_seconds)
        taken, starts, seconds = 0.0, 0, 0.0
        while taken < quads_left and seconds < time_left:
            wanted = int(_worth_of(starts) * self._start_seconds / quad_seconds)
            quads_each = min(self.plan.most, max(self.plan.fewest, wanted))
            seconds_each = len(self.layouts) * (self._start_seconds + quads_each * quad_seconds)
            share = min(1.0, (time_left - seconds) / seconds_each, (quads_left - taken) / quads_each)
            taken, seconds, starts = taken + share * quads_each, seconds + share * seconds_each, starts + int(share)
        return Reach(before.quads + int(taken), before.starts + max(1, starts), seconds)

    def take(self) -> None:
        """Take turns to the end. A failure ends the job and is in ``measured.failed``."""
        try:
            # A load collects garbage before it is sent. In this context that takes no walk over the heap, in which the side
            # that waits for the load would seem to sleep.
            with quiet():
                while self._quad < self.looks[-1] and not self._time_is_up():
                    if self._take_swap() if len(self.layouts) > 1 else self._take_start():
                        break
            if len(self._names) > 1:
                self._count_runs()
                if self.measured.base and self.needs_causes():
                    self._profile()
        except SideError as error:
            self._fail(error.detail, self._acting if len(self._names) > 1 else None)
        finally:
            self._stop_sides()
        if not self._quad and not self.measured.failed:
            self._fail(ErrorDetail(kind="timeout", message=TIME_SPENT))

    def _count_runs(self) -> None:
        """Let both sides of a command count some runs, and keep that with as many of their last turns."""
        if self.measured.record.kind != "command" or self._taken < COUNTED_RUNS:
            return
        self.say(sentence("{name}: counting the lines of Python of a run", name=self.measured.record.name))
        counts: dict[SideName, dict[str, int]] = {}
        for back in range(1, COUNTED_RUNS + 1):
            # A failed count is not repeated: such a run may take long.
            if all(all(of_side.values()) for of_side in counts.values()):
                for name in self._in_order(self._starts_first):
                    # One side alone, so that a file which appears in its checkout is known to be its own.
                    self.begin([name])
                    counts[name] = dict(self._side(name).count())
            for name, turns in zip(NAMES, (self.measured.base, self.measured.head)):
                turns[-back] = msgspec.structs.replace(turns[-back], counters=counts[name])

    def _take_start(self) -> bool:
        """Start both sides and take the quads of this start. Return whether the job is decided."""
        self._start += 1
        self._stop_sides()
        started = self._start_sides()
        quads_before = self._quad
        while not self._time_is_up():
            taken = self._quad - quads_before
            if self.plan.most and (taken >= self.plan.most or self._is_over(taken, started)):
                break
            self._keep(self._quad_turns(self._quad))
            if self._quad in self.looks and self.is_decided():
                return True
            if self._quad == self.looks[-1]:
                break
        return False

    def _profile(self) -> None:
        """Profile both sides after the last turn, to find causes. A failure costs its profile and nothing else.

        No process of the head lives while base writes its profile.
        """
        for name in ("head", "base"):
            side = self._side(name)
            self.say(sentence("{name}: profiling {side}", name=self.measured.record.name, side=name))
            if not self.plan.most:
                self.begin([name])
            with suppress(SideError):
                if stacks := side.profile(self._quad * self.plan.turns):
                    self.measured.stacks[name] = stacks
            side.stop()

    def _take_swap(self) -> bool:
        """Start both sides on a half of the devices each, then on the other half. Return whether the job is decided.

        A quad counts only with its turns on both halves, so the second half is measured even when the time is spent.
        """
        self._start += 1
        most = min(self.plan.most, next(look for look in self.looks if look > self._quad) - self._quad)
        quads: list[dict[SideName, list[Turn]]] = []
        for half, sides in enumerate(self.layouts):
            self._stop_sides()
            self._sides = sides
            started = self._start_sides()
            for index in range(len(quads) if half else most):
                turns = self._quad_turns(self._quad + index, first_place=half * self.plan.turns)
                if half:
                    quads[index] = {name: [*quads[index][name], *turns[name]] for name in turns}
                    continue
                quads.append(turns)
                if self._is_worth_its_start(len(quads), started) or self._time_is_up():
                    break
        for turns in quads:
            self._keep(turns)
        return self._quad in self.looks and self.is_decided()

    def _start_sides(self) -> float:
        """Start both sides and warm them up; return when that was done."""
        begun = self.clock()
        order = self._in_order(self._starts_first)
        job = self.measured.record.name
        self.say(
            sentence("{name}: starting both sides", name=job)
            if len(order) > 1
            else sentence("{name}: starting", name=job)
        )
        if self.plan.most:
            self.begin(order)
        for names in ([name] for name in order) if self.plan.one_by_one else [order]:
            for name in names:
                self.unstarted = name
                self._side(name).start()
            for name in names:
                self.unstarted = name
                self._side(name).warm_up()
        self.unstarted = None
        self._start_seconds = self.clock() - begun
        return self.clock()

    def _stop_sides(self) -> None:
        for side in self._sides.values():
            side.stop()

    def _is_over(self, quads: int, started: float) -> bool:
        """Whether the next quad belongs to another start.

        The last ones before a look, or before the time is up, do not if another start takes longer than they do; but one start
        alone decides nothing, however long another takes.
        """
        quads_to_look = next(look for look in self.looks if look > self._quad) - self._quad
        seconds = min(quads_to_look * self._quad_seconds / max(1, self._taken), self.ends - self.clock())
        goes_on = self._start + 1 >= FEWEST_STARTS and seconds < self._start_seconds
        return self._is_worth_its_start(quads, started) and not goes_on

    def _is_worth_its_start(self, quads: int, started: float) -> bool:
        worth = _worth_of(self._start - self.measured.before.starts)
        return quads >= self.plan.fewest and self.clock() - started > worth * self._start_seconds

    def _quad_turns(self, quad: int, *, first_place: int = 0) -> dict[SideName, list[Turn]]:
        """The turns of a quad, repeated if one of them is blurred, or if the sides got different requests.

        The second happens if a side discovers in its own turn that its server rejects a field. A repetition has new work on
        both sides, because a server may have earlier answers in its cache.
        """
        # A B B A or B A A B by lot, as one quad or as two that follow each other, so that an even drift cancels out.
        half = self._in_order(self._leads)
        order = (*half, *half[::-1]) if self.plan.turns == 4 else half
        turns, is_blurred = self._take_quad(quad, first_place, 0, order)
        for take in range(1, MOST_TAKES):
            asked_alike = len({tuple(turn.without) for taken in turns.values() for turn in taken}) == 1
            if asked_alike and not is_blurred:
                break
            before = turns
            turns, is_blurred = self._take_quad(quad, first_place, take, order)
            for name, (first, *rest) in turns.items():
                # Only the first turn of a start has texts, and maybe an output.
                texts, output = first.texts or before[name][0].texts, first.output or before[name][0].output
                turns[name] = [msgspec.structs.replace(first, texts=texts, output=output), *rest]
        return turns

    def _take_quad(
        self, quad: int, first_place: int, take: int, order: Sequence[SideName]
    ) -> tuple[dict[SideName, list[Turn]], bool]:
        """Let the sides take the turns of a quad; also return whether one of them is blurred."""
        own_process = not self.plan.most
        turns: dict[SideName, list[Turn]] = {name: [] for name in self._names}
        of_a_side = len(order) // len(self._names)
        is_blurred = False
        self.say(
            sentence(
                "{name}: quad {number} of at most {most}",
                name=self.measured.record.name,
                number=quad + 1,
                most=self.looks[-1],
            )
        )
        quad_began = self.clock()
        for place, name in enumerate(order, first_place):
            safe_point()
            if own_process:
                self.begin([name])
            began = self.clock()
            # Both sides get the same work; every quad another.
            side = self._side(name)
            result = side.turn(take * _TAKE + quad * of_a_side + len(turns[name]))
            is_blurred |= side.is_blurred
            turn = Turn(
                **msgspec.structs.asdict(result),
                workload=self.measured.record.name,
                start=quad if own_process else self._start,
                quad=quad,
                place=place,
                seconds=round(self.clock() - began, 6),
            )
            turns[name].append(turn)
        self._quad_seconds += self.clock() - quad_began
        self._taken += 1
        return turns, is_blurred

    def _keep(self, turns: dict[SideName, list[Turn]]) -> None:
        """Count a quad, once all its turns are there."""
        self.measured.base += turns.get("base", ())
        self.measured.head += turns.get("head", ())
        self._quad += 1
        if self._quad == self.measured.before.quads + FIRST_QUADS:
            self.announce()

    def _side(self, name: SideName) -> Side:
        """The side that acts now, which is the one to blame."""
        self._acting = name
        return self._sides[name]

    def _in_order(self, coins: Iterator[bool]) -> tuple[SideName, ...]:
        return self._names[::-1] if next(coins) else self._names

    def _time_is_up(self) -> bool:
        now = self.clock()
        if now <= self.ends:
            return False
        if self._overrun_to is None:
            self._overrun_to = self._overruns_to(now)
        return self._quad >= self._overrun_to or now > self.latest

    def _overruns_to(self, now: float) -> int:
        """The number of quads if the last of them are worth some more time, else the present number."""
        needed = self.quads_needed() if self._taken and now < self.latest else None
        if needed is None or needed > self.looks[-1]:
            return self._quad
        # With their share of the starts that there were.
        seconds_each = (now - self._began) / self._taken
        return needed if now + (needed - self._quad) * seconds_each <= self.latest else self._quad

    def _fail(self, detail: ErrorDetail, side: SideName | None = None) -> None:
        name = self.measured.record.name
        self.measured.failed.append(FailedPair(pair=self._quad, arm="ab", workload=name, error=detail, side=side))


def _worth_of(start: int) -> float:
    """How many times as long as the start itself its turns take, of the start with this number."""
    return 1.0 if start < _EARLY_STARTS else _LATER_WORTH
