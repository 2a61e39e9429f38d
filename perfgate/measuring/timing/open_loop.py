"""Calls sent at the times they are intended for, whether or not earlier calls are done.

A loop that waits for each call before it sends the next omits the calls due meanwhile,
so a stall counts once although every arrival during it had to wait ("coordinated
omission", Gil Tene; wrk2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.workload.workload import Traffic
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.arrivals import draw

# Fewer calls show no trend.
_FEWEST_FOR_TREND = 30
# A queue that grows without end serves less than comes in; a run that ends with a stall
# does too, but does not grow throughout.
_KEEPS_UP = 0.95
# Calls that arrive too fast are given up after this many times their intended duration.
_PATIENCE = 2.0
_LEAD_NS = 1_000_000


class OpenLoop(NamedTuple):
    """Nanoseconds from the intended start of each call to its end, in the order of
    sending, and when each was intended.

    ``gave_up`` is set if the rest was not sent, because the device was too far behind.
    """

    latencies: Ints
    intended_ns: Ints
    gave_up: bool

    @property
    def saturated(self) -> bool:
        """Whether the queue grew without end: less was served than came in, and calls
        waited longer and longer.
        """
        if self.gave_up:
            return True
        if self.latencies.size < _FEWEST_FOR_TREND:
            return False
        came_in = float(self.intended_ns[-1] - self.intended_ns[0])
        served = float((self.intended_ns + self.latencies).max() - self.intended_ns[0])
        first, second, third = (
            float(np.median(part)) for part in np.array_split(self.latencies, 3)
        )
        return came_in < _KEEPS_UP * served and first < second < third


def run_open_loop(call: Call, device: Device, arrivals: Floats) -> OpenLoop:
    """Send a call at each of these times, in seconds after now and in rising order, and
    wait for all of them.

    A device with a queue takes calls while it works on others. On other devices a long
    call keeps the host from sending the next, but its latency counts from its intended
    start all the same.
    """
    to_host_ns = _host_minus_device(device)
    begun = device.clock_ns() + _LEAD_NS
    intended = begun + np.round(arrivals * 1e9).astype(np.int64)
    latest = begun + int(_PATIENCE * arrivals[-1] * 1e9) + int(1e9)
    marks = []
    for time_ns in intended.tolist():
        device.idle_until(time_ns)
        output = call()
        mark = device.event()
        mark.record()
        marks.append(mark)
        del output
        if device.clock_ns() > latest:
            break
    device.synchronize()
    ends = np.array([mark.time_ns() for mark in marks], dtype=np.int64) + to_host_ns
    sent = intended[: len(marks)]
    return OpenLoop(
        latencies=np.maximum(ends - sent, 1),
        intended_ns=sent,
        gave_up=len(marks) < intended.size,
    )


def _host_minus_device(device: Device) -> int:
    device.synchronize()
    mark = device.event()
    mark.record()
    mark.wait()
    device.synchronize()
    now = device.clock_ns()
    return now - mark.time_ns()


def rate_of(traffic: Traffic) -> float:
    """The requests a second: as given, or as recorded, by the gaps between the first
    and the last.
    """
    if traffic.rate is not None:
        return float(traffic.rate)
    return (len(traffic.arrivals) - 1) / (
        float(traffic.arrivals[-1]) - float(traffic.arrivals[0])
    )


def arrivals(traffic: Traffic, *, count: int, seed: int) -> Floats:
    """When ``count`` requests come in, in seconds after the first, in rising order.

    A recording that is too short starts over, a mean gap after its end.
    """
    if traffic.rate is not None:
        return draw(traffic.rate, burstiness=traffic.burstiness, count=count, seed=seed)
    recorded = np.asarray(traffic.arrivals, dtype=np.float64) - float(
        traffic.arrivals[0]
    )
    length = float(recorded[-1]) + 1 / rate_of(traffic)
    rounds = -(-count // recorded.size)
    return (recorded + length * np.arange(rounds)[:, None]).reshape(-1)[:count]


def calls_of(traffic: Traffic, batch: int, *, count: int, seed: int) -> Floats:
    """When ``count`` calls of ``batch`` items come in: each with the request that
    completes its batch.
    """
    requests = arrivals(traffic, count=count * batch, seed=seed)
    times: Floats = requests[batch - 1 :: batch]
    return times - times[:1]
