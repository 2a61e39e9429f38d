"""The record of each request of a turn: its clock, its answer, and the target that
answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from perfgate.conductor.load.plan import PlannedRequest

Floats = npt.NDArray[np.float64]

# A server's page about an error may be long, and only its beginning helps.
LONGEST_ERROR = 500
# A timer of the event loop fires up to 1 ms late (epoll counts whole milliseconds) and
# then waits for its CPU: the last 2 ms before an intended start are spent asking the
# loop again and again, while it serves other requests.
_BUSY = 0.002


class Clock:
    """The clock of a load: ``time.perf_counter``; tests simulate one."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.perf_counter()

    async def sleep_until(self, moment: float) -> None:
        """Return once ``now()`` reaches ``moment``, at once if it already has."""
        while (left := moment - self.now()) > 0:
            await asyncio.sleep(left - _BUSY if left > _BUSY else 0)


@dataclass
class Exchange:
    """One request and its answer; while it is under way, a client notes arrivals in it.

    Times are the clock's, and in the end seconds from the beginning of the turn.
    """

    id: str
    # The intended start, and when the request was handed to the connection.
    at: float
    sent: float
    # The arrival of the first text (for plain HTTP: the headers), None without any, and
    # of the last part of the answer, or the time of failure.
    first: float | None = None
    last: float = 0.0
    # The arrivals of all chunks with text: a chunk may hold several tokens, and a token
    # may come without text.
    tokens: list[float] = field(default_factory=list)
    # The server's own count, None without one.
    input_tokens: int | None = None
    output_tokens: int | None = None
    text: str = ""
    # 0 without an HTTP answer.
    status: int = 0
    # Empty on success, else the failure with the beginning of the body.
    error: str = ""
    # The field of ours that the server named in refusing the request.
    rejected: str = ""
    # Input tokens found in the server's cache, None if unknown.
    cached_tokens: int | None = None
    # Of each connection that it went out on, whether earlier requests had used it.
    connections: list[bool] = field(default_factory=list)

    @classmethod
    def begin(cls, request: PlannedRequest, clock: Clock) -> Exchange:
        now = clock.now()
        return cls(request.id, request.at, sent=now, last=now)

    @property
    def resent(self) -> bool:
        """Whether the request met a closed connection and was sent once more."""
        return len(self.connections) > 1

    def failed(self, error: str, now: float) -> Exchange:
        """The exchange that ended by an error now; arrivals before it stay in it."""
        self.last = now
        self.error = shortened(error) or "failed without a message"
        return self

    def count_from(self, begin: float) -> None:
        """Turn times of the clock into seconds after ``begin``; ``at`` is one already."""
        self.sent -= begin
        self.last -= begin
        if self.first is not None:
            self.first -= begin
        self.tokens = [time - begin for time in self.tokens]


class Load(NamedTuple):
    """A turn: its exchanges in the order of the plan, and the seconds from its
    beginning to the end of the last of them.

    ``lateness`` is ``sent - at`` of each exchange in seconds: how late the generator
    itself was.
    """

    exchanges: list[Exchange]
    seconds: float
    lateness: Floats

    @property
    def errors(self) -> list[str]:
        """The errors of the requests that failed."""
        return [exchange.error for exchange in self.exchanges if exchange.error]


# Sends one request and waits for its whole answer. Times of the exchange are the
# clock's; send_load makes them the turn's.
Send = Callable[[PlannedRequest], Awaitable[Exchange]]


class Target(Protocol):
    """Something that requests can be sent to, for one turn at a time."""

    def connect(self, clock: Clock) -> AbstractAsyncContextManager[Send]:
        """Connections of one turn, which end with it.

        Raises MeasuringError if a package is missing.
        """


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "…"


def describe(error: BaseException) -> str:
    """The text of an exception, or its type if it has none, as timeouts do."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
