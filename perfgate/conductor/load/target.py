"""The target of a load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perfgate.conductor.load.clock import Clock
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Exchange

# Sends one request and waits for its whole answer. Times of the exchange are the clock's; send_load makes them the turn's.
Send = Callable[[PlannedRequest], Awaitable[Exchange]]


class Target(Protocol):
    """Something that requests can be sent to, for one turn at a time."""

    def connect(self, clock: Clock) -> AbstractAsyncContextManager[Send]:
        """Connections of one turn, which end with it. Raises MeasuringError if a package is missing."""
