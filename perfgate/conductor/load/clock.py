"""The clock of a load: wall time, or a simulated one in tests."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

# A timer of the event loop fires up to 1 ms late (epoll counts whole milliseconds) and then waits for its CPU: the last 2 ms
# before an intended start are spent asking the loop again and again, while it serves other requests.
_BUSY = 0.002


class Clock(Protocol):
    """A clock that can also wait for a moment."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep_until(self, moment: float) -> None:
        """Return once ``now()`` reaches ``moment``, at once if it already has."""


class WallClock:
    """Seconds of ``time.perf_counter``."""

    def now(self) -> float:
        return time.perf_counter()

    async def sleep_until(self, moment: float) -> None:
        while (left := moment - time.perf_counter()) > 0:
            await asyncio.sleep(left - _BUSY if left > _BUSY else 0)
