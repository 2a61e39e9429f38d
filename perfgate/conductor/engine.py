"""The engine of turns: starts of both sides and quads within them, until they decide or
the time is spent.

Every difference between two sides comes from here: pairs, long stretches, turns of jobs
and of the checklist are its clients.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from perfgate.conductor.failure import TurnError
from perfgate.document.samples import Arm
from perfgate.system.interrupts import safe_point


def balanced_coins(lot: random.Random, *, run: int) -> Iterator[bool]:
    """Toss coins of which every ``run``, an even number, hold as many heads as tails."""
    while True:
        coins = [True, False] * (run // 2)
        lot.shuffle(coins)
        yield from coins


def order_of(second_leads: bool, *, turns: int = 4) -> tuple[int, ...]:
    """The sides of a quad's turns, 0 or 1: A B or B A, and of four turns A B B A or B A
    A B; of one turn the first side.

    An even drift cancels out over four turns, and over two quads of two turns.
    """
    if turns == 1:
        return (0,)
    half = (1, 0) if second_leads else (0, 1)
    return (*half, *half[::-1]) if turns == 4 else half


@dataclass(frozen=True)
class Start:
    """The draws for one start of both sides; ``number`` counts the starts of earlier
    jobs too.

    ``second_leads`` says for each quad whether the second side has its first turn. In a
    start of base against base (``arm`` aa) the second side is loaded into the layout of
    ``twin_seed``, as other code would be.
    """

    number: int
    second_starts: bool
    second_leads: Iterable[bool]
    arm: Arm = "ab"
    layout_seed: int = 0
    twin_seed: int = 0

    @property
    def order(self) -> tuple[int, ...]:
        """The sides in the order in which they are started."""
        return order_of(self.second_starts, turns=2)


@dataclass(frozen=True)
class QuadTurns:
    """Two or four turns, half of each side. ``index`` is its number within its start.

    A quad that does not count is taken again, up to ``is_last_take``, which counts in
    any case.
    """

    index: int
    order: tuple[int, ...]
    take: int = 0
    is_last_take: bool = False

    def turns(self) -> Iterator[int]:
        """The side of each turn. An interruption ends the quad between two turns."""
        for side in self.order:
            safe_point()
            yield side


@dataclass
class Lots:
    """The coins of a measurement that draws its starts one by one."""

    lot: random.Random
    starts_run: int = 2
    second_leads: Iterator[bool] = field(init=False)
    second_starts: Iterator[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.second_leads = balanced_coins(self.lot, run=2)
        self.second_starts = balanced_coins(self.lot, run=self.starts_run)

    def starts(self, first: int = 0) -> Iterator[Start]:
        """Draw starts, numbered from ``first``."""
        number = first
        while True:
            yield Start(number, next(self.second_starts), self.second_leads)
            number += 1


# Fresh processes differ even on equal code, so a FAIL needs at least this many starts.
FEWEST_STARTS = 2
# Maximum attempts per quad.
MOST_TAKES = 5
# The first starts are short, so that an early look rests on several; of later starts
# three quarters of the time are turns.
_EARLY_STARTS = 2
_LATER_WORTH = 3.0
_SHORTEST = 1e-9


@dataclass(frozen=True)
class Quads:
    """The quads of a start: from ``fewest`` to ``most``, by the time that the start
    took.

    A start that ``is_whole`` has ``most`` quads even if the time is spent meanwhile.
    With ``most`` 0 every turn is a separate process.
    """

    fewest: int
    most: int
    is_whole: bool = False

    @classmethod
    def exactly(cls, count: int) -> Quads:
        return cls(count, count, is_whole=True)


class Client(Protocol):
    """Something that is measured in turns.

    Every method may raise TurnError, which ends the start.
    """

    @property
    def done(self) -> int:
        """The units of evidence so far, in which looks are counted: pairs, quads or
        turns.
        """

    def start(self, start: Start, /) -> Quads:
        """Start both sides in the order of ``start``, and wait until they are warm.

        Return how many quads follow; a start without any ends the measurement.
        """

    def quad(self, quad: QuadTurns) -> bool:
        """Let the sides take the turns of a quad; return whether it counts, else it is
        taken again.
        """

    def finish(self) -> None:
        """Keep what the start measured.

        Sides may go on running until the next start.
        """

    def fail(self, error: TurnError) -> bool:
        """Record the failure of a start; return whether others follow."""


@dataclass
class TimeBudget:
    """The time until ``ends`` (monotonic clock), which is exceeded once if that
    decides.

    ``needed`` gives the number of units that are expected to decide. Measuring goes on
    to that number if it takes at most ``extra`` more seconds and ends by ``latest``.
    That is asked once: to look again and again would be to stop when it pleases.
    """

    ends: float = math.inf
    extra: float = math.inf
    latest: float = math.inf
    needed: Callable[[], int | None] = lambda: None
    left_out: float = 0.0
    _extended_to: int | None = None

    def leave_out(self, seconds: float) -> None:
        """Spend seconds outside this budget."""
        self.ends += seconds
        self.left_out += seconds

    def is_spent(self, now: float, done: int, seconds_each: float | None) -> bool:
        """Whether no further unit begins after ``done`` units, which took
        ``seconds_each``.
        """
        if now <= self.ends:
            return False
        if self._extended_to is None:
            self._extended_to = self._extension(now, done, seconds_each)
        return done >= self._extended_to or now > self.latest

    def _extension(self, now: float, done: int, seconds_each: float | None) -> int:
        if seconds_each is None or now >= self.latest:
            return done
        needed = self.needed()
        if needed is None:
            return done
        seconds = (needed - done) * seconds_each
        is_affordable = seconds <= self.extra and now + seconds <= self.latest
        return needed if is_affordable else done


@dataclass
class Engine:
    """Lets the sides of ``client`` take turns.

    ``is_decided`` is asked at ``looks``, numbers of the client's units. The first
    ``sure_looks`` are reached whatever the budget, if that is before ``sure_until`` (of
    ``clock``); with ``whole_looks`` the budget is tested at looks only. Nothing starts
    after ``deadline`` (of ``clock``).
    """

    client: Client
    starts: Iterator[Start]
    looks: Sequence[int]
    is_decided: Callable[[], bool]
    budget: TimeBudget = field(default_factory=TimeBudget)
    turns: int = 4
    deadline: float = math.inf
    sure_looks: int = 0
    sure_until: float = math.inf
    whole_looks: bool = False
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._left_out_before = self.budget.left_out
        self._done_before = self._done_at_start = self.client.done
        self._looks_passed = sum(look <= self.client.done for look in self.looks)
        self._ended = False
        self._first_start: int | None = None
        self._quads = 0
        self._start_seconds = self._quad_seconds = 0.0

    @property
    def next_look(self) -> int:
        return self.looks[min(self._looks_passed, len(self.looks) - 1)]

    @property
    def seconds(self) -> float:
        """The time spent so far, without what the budget leaves out."""
        left_out = self.budget.left_out - self._left_out_before
        return self.clock() - self._began - left_out

    @property
    def seconds_each(self) -> float | None:
        """How long a unit takes, with its share of the starts; None before the first."""
        done = self.client.done - self._done_before
        return self.seconds / done if done else None

    @property
    def is_late(self) -> bool:
        return self.clock() > self.deadline

    def run(self) -> bool:
        """Take starts to the end; return False if they ended at the deadline."""
        while not self._has_decided():
            if self._time_is_up():
                return not self.is_late
            self.take_start(next(self.starts))
        return True

    def reach(self, each: Quads, *, layouts: int) -> Reach:
        """The quads and starts that fit into the budget and the looks, by the times of
        those so far.
        """
        return foresee(
            each,
            layouts=layouts,
            quads=self.looks[-1] - self._done_before,
            seconds=self.budget.ends - self._began,
            start_seconds=self._start_seconds,
            quad_seconds=self._seconds_of_a_quad,
        )

    def take_start(self, start: Start) -> None:
        """Take one start with its quads."""
        safe_point()
        if self._first_start is None:
            self._first_start = start.number
        self._done_at_start = self.client.done
        began = self.clock()
        try:
            quads = self.client.start(start)
            self._start_seconds = self.clock() - began
            self._take_quads(start, quads)
            self.client.finish()
        except TurnError as error:
            self._ended = not self.client.fail(error)

    def _take_quads(self, start: Start, quads: Quads) -> None:
        second_leads = iter(start.second_leads)
        began = self.clock()
        self._ended = not quads.most
        for index in range(quads.most):
            if self._has_decided():
                return
            if not quads.is_whole and (
                self._time_is_up() or self._is_start_over(start, index, quads, began)
            ):
                return
            self._take_quad(
                QuadTurns(index, order_of(next(second_leads), turns=self.turns))
            )

    def _take_quad(self, quad: QuadTurns) -> None:
        for take in range(MOST_TAKES):
            began = self.clock()
            counts = self.client.quad(
                replace(quad, take=take, is_last_take=take == MOST_TAKES - 1)
            )
            self._quad_seconds += self.clock() - began
            self._quads += 1
            if counts:
                return

    def _has_decided(self) -> bool:
        """Whether a failure or the last look ended it, or a look that has just been
        reached.
        """
        done = self.client.done
        if not self._ended and done >= self.next_look:
            self._looks_passed = sum(look <= done for look in self.looks)
            self._ended = self.is_decided() or self._looks_passed == len(self.looks)
        return self._ended

    def _time_is_up(self) -> bool:
        if self.is_late:
            return True
        if self._looks_passed < self.sure_looks and self.clock() <= self.sure_until:
            return False
        done = self.client.done
        if self.whole_looks and done not in self.looks:
            return False
        return self.budget.is_spent(self.clock(), done, self.seconds_each)

    def _is_start_over(
        self, start: Start, index: int, quads: Quads, began: float
    ) -> bool:
        """Whether the next quad belongs to another start: this one has taken long
        enough by the time of its start.

        The last quads before a look, or before the time is up, do not if another start
        takes longer than they do; but one start alone cannot decide, however long
        another takes. A start that costs nothing, as of a command, has one quad, too.
        """
        worth = worth_of(start.number - (self._first_start or 0)) * self._start_seconds
        if index < max(1, quads.fewest) or self.clock() - began <= worth:
            return False
        quads_to_look = self.next_look - self._done_at_start - index
        seconds = min(
            quads_to_look * self._seconds_of_a_quad, self.budget.ends - self.clock()
        )
        return start.number + 1 < FEWEST_STARTS or seconds >= self._start_seconds

    @property
    def _seconds_of_a_quad(self) -> float:
        return self._quad_seconds / max(1, self._quads)


# --- how many quads and starts fit into a time


class Reach(NamedTuple):
    """Quads of a job, of how many starts, and the seconds for them: an earlier check's
    part, or what it will have in the end.

    The quads and starts of an earlier check have the first numbers.
    """

    quads: int = 0
    starts: int = 0
    seconds: float = 0.0


def worth_of(start: int) -> float:
    """How many times as long as the start itself its turns take, of the start with this
    number.
    """
    return 1.0 if start < _EARLY_STARTS else _LATER_WORTH


def foresee(
    each: Quads,
    *,
    quads: int,
    seconds: float,
    start_seconds: float,
    quad_seconds: float,
    layouts: int = 1,
) -> Reach:
    """What fits into ``seconds``, up to ``quads``, with ``each`` start repeated for
    each of ``layouts``.

    A start that begins is paid in part if the time ends meanwhile.
    """
    quad_seconds = max(quad_seconds, _SHORTEST)
    if not each.most:
        fitting = min(int(seconds / quad_seconds), quads)
        return Reach(fitting, fitting, fitting * quad_seconds)
    taken = spent = 0.0
    starts = 0
    while taken < quads and spent < seconds:
        wanted = int(worth_of(starts) * start_seconds / quad_seconds)
        quads_each = min(each.most, max(each.fewest, wanted))
        seconds_each = layouts * (start_seconds + quads_each * quad_seconds)
        share = min(1.0, (seconds - spent) / seconds_each, (quads - taken) / quads_each)
        taken += share * quads_each
        spent += share * seconds_each
        starts += int(share)
    return Reach(int(taken), max(1, starts), spent)
