"""The time of a measurement in turns, and how far it may be exceeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class TimeBudget:
    """The time until ``ends`` (monotonic clock), which is exceeded once if that decides.

    ``needed`` gives the number of units that are expected to decide. Measuring goes on to that number if it takes at most
    ``extra`` more seconds and ends by ``latest``. That is asked once: to look again and again would be to stop when it pleases.
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
        """Whether no further unit begins after ``done`` units, which took ``seconds_each``."""
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
