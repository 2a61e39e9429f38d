"""The engine of turns: starts of both sides and quads within them, until they decide or the time is spent.

Every difference between two sides comes from here: pairs, long stretches, turns of jobs and of the checklist are its clients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from perfgate.conductor.engine.budget import TimeBudget
from perfgate.conductor.engine.client import Client, Quads, Standing
from perfgate.conductor.engine.order import QuadTurns, Start, order_of
from perfgate.conductor.engine.outlook import Pace, Reach, foresee, worth_of
from perfgate.conductor.failure import TurnError
from perfgate.system.interrupts import safe_point

# Fresh processes differ even on equal code, so a FAIL needs at least this many starts.
FEWEST_STARTS = 2
# Maximum attempts per quad.
MOST_TAKES = 5


@dataclass
class Engine:
    """Lets the sides of ``client`` take turns.

    ``is_decided`` is asked at ``looks``, numbers of the client's units. The first ``sure_looks`` are reached whatever the
    budget, if that is before ``sure_until`` (of ``clock``); with ``whole_looks`` the budget is tested at looks only. Nothing
    starts after ``deadline`` (of ``clock``).
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

    def reach(self, pace: Pace) -> Reach:
        """The quads and starts that fit into the budget and the looks, by the times of those so far."""
        return foresee(
            pace,
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
            quads = self.client.start(
                start, Standing(self.next_look, self.seconds_each)
            )
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
        """Whether a failure or the last look ended it, or a look that has just been reached."""
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
        """Whether the next quad belongs to another start: this one has taken long enough by the time of its start.

        The last quads before a look, or before the time is up, do not if another start takes longer than they do; but one
        start alone cannot decide, however long another takes.
        """
        worth = worth_of(start.number - (self._first_start or 0)) * self._start_seconds
        if index < quads.fewest or self.clock() - began <= worth:
            return False
        quads_to_look = self.next_look - self._done_at_start - index
        seconds = min(
            quads_to_look * self._seconds_of_a_quad, self.budget.ends - self.clock()
        )
        return start.number + 1 < FEWEST_STARTS or seconds >= self._start_seconds

    @property
    def _seconds_of_a_quad(self) -> float:
        return self._quad_seconds / max(1, self._quads)
