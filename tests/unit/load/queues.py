"""Queues with one server, whose waiting times theory knows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfgate.conductor.load.plan import LoadPlan, PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange

Floats = npt.NDArray[np.float64]


@dataclass
class Queue:
    """Serves requests one after the other, the n-th in ``services[n]`` seconds; it is idle in the ``stalls`` (from, to)."""

    clock: Clock
    services: Floats
    stalls: list[tuple[float, float]] = field(default_factory=list)
    free_at: float = 0.0
    served: int = 0

    async def send(self, request: PlannedRequest) -> Exchange:
        exchange = Exchange.begin(request, self.clock)
        begin = max(exchange.sent, self.free_at)
        for start, end in self.stalls:
            if start <= begin < end:
                begin = end
        self.free_at = begin + float(self.services[self.served])
        self.served += 1
        await self.clock.sleep_until(self.free_at)
        exchange.first = exchange.last = self.clock.now()
        return exchange


def open_plan(times: Floats) -> LoadPlan:
    return LoadPlan(tuple(PlannedRequest(float(time), "", 1, str(number)) for number, time in enumerate(times)), None)


def waiting_times(arrivals: Floats, services: Floats) -> Floats:
    """Seconds between arrival and begin of service: Lindley's recursion w(n + 1) = max(0, w(n) + s(n) - gap(n)), unrolled."""
    steps = np.concatenate([[0.0], np.cumsum(services[:-1] - np.diff(arrivals))])
    waits: Floats = steps - np.minimum.accumulate(steps)
    return waits
