"""One server that answers requests in batches, under a policy for starting a batch:
simulated, or driven for real.

Requests are served in the order they came in. A batch consists of the arrivals when the
server begins, up to the policy's size; later requests do not join it. Times are
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from perfgate.stats.arrays import Floats, Ints


class BatchingPolicy(NamedTuple):
    """When a batch starts, once the server is free: when ``fill`` requests are there,
    or the oldest waited ``max_wait``.

    It then takes all that are there, up to ``batch``. One of ``fill`` = 1 never waits.
    """

    name: str
    batch: int
    fill: int
    max_wait: float

    def ready(self, arrivals: Floats) -> list[float]:
        """For every request, when a batch of which it is the oldest may start.

        After the last request no more can come, so the rest may start.
        """
        full = np.minimum(np.arange(arrivals.size) + self.fill - 1, arrivals.size - 1)
        ready: list[float] = np.minimum(
            arrivals[full], arrivals + self.max_wait
        ).tolist()
        return ready


def static(batch: int) -> BatchingPolicy:
    """Wait until a batch is full, however long that takes."""
    return BatchingPolicy("static", batch, batch, float("inf"))


def time_out(batch: int, max_wait: float) -> BatchingPolicy:
    """Wait until a batch is full or its oldest request waited ``max_wait``."""
    return BatchingPolicy("time-out", batch, batch, max_wait)


def continuous(batch: int) -> BatchingPolicy:
    """Start at once with all arrivals; later requests join the next batch."""
    return BatchingPolicy("continuous", batch, 1, 0.0)


class Server(Protocol):
    """A server that answers batches; its clock starts with the first request."""

    def begin(self, ready: float) -> float:
        """Wait until ``ready`` or until the server is free, whichever is later; return
        when that is.
        """

    def answer(self, items: int) -> float:
        """Answer a batch and return when it is done."""


class SimulatedServer:
    """A server with a clock that only its batches move; ``service`` is the seconds of a
    batch by its size.
    """

    def __init__(self, service: Callable[[int], float]) -> None:
        self._service = service
        self._now = 0.0

    def begin(self, ready: float) -> float:
        """Move the clock."""
        self._now = max(self._now, ready)
        return self._now

    def answer(self, items: int) -> float:
        """Move the clock by the batch's seconds."""
        self._now += self._service(items)
        return self._now


class Served(NamedTuple):
    """Every request's arrival, start of its batch and end; and of every batch how many
    requests it held.
    """

    arrivals: Floats
    starts: Floats
    ends: Floats
    sizes: Ints

    @property
    def latencies(self) -> Floats:
        """The seconds from arrival to end of every request."""
        return self.ends - self.arrivals

    @property
    def waits(self) -> Floats:
        """The seconds from arrival to the start of the batch of every request."""
        return self.starts - self.arrivals

    def goodput(self, promised: float) -> float:
        """The requests a second that were answered within this number of seconds after
        their arrival.
        """
        return float(
            (self.latencies <= promised).sum() / (self.ends[-1] - self.arrivals[0])
        )


def serve(arrivals: npt.ArrayLike, policy: BatchingPolicy, server: Server) -> Served:
    """Let the server answer all requests under the policy; ``arrivals`` are in rising
    order.
    """
    times = np.asarray(arrivals, dtype=np.float64)
    came: list[float] = times.tolist()
    ready, count = policy.ready(times), len(came)
    starts = list[float]()
    ends = list[float]()
    sizes = list[int]()
    first, arrived = 0, 0
    while first < count:
        began = server.begin(ready[first])
        while arrived < count and came[arrived] <= began:
            arrived += 1
        size = max(1, min(arrived - first, policy.batch))
        starts.append(began)
        ends.append(server.answer(size))
        sizes.append(size)
        first += size
    items = np.array(sizes, dtype=np.int64)
    return Served(times.copy(), np.repeat(starts, items), np.repeat(ends, items), items)


def simulate(
    arrivals: npt.ArrayLike, policy: BatchingPolicy, service: Callable[[int], float]
) -> Served:
    """The outcome if every batch took exactly ``service`` seconds."""
    return serve(arrivals, policy, SimulatedServer(service))


def highest_rate(
    keeps: Callable[[float], bool], *, most: float, steps: int, halvings: int
) -> float:
    """The highest rate up to ``most`` that still keeps a promise; 0 if there is none.

    A policy that waits for full batches breaks a promise at low rates too, so the
    search starts from the top: the first of ``steps`` equal steps down at which the
    promise is kept, and then by bisection between it and the step above.
    """
    above = most
    for step in range(steps, 0, -1):
        rate = most * step / steps
        if keeps(rate):
            break
        above = rate
    else:
        return 0.0
    if rate == above:
        return most
    for _ in range(halvings):
        middle = (rate + above) / 2
        if keeps(middle):
            rate = middle
        else:
            above = middle
    return rate
