"""The timer that stands still during waits for a CPU."""

from __future__ import annotations

from time import perf_counter_ns
from typing import cast

from perfgate.measuring.devices.backends.cpu import open_device
from perfgate.system.processes import RunDelay


class Delays:
    """Waits as the kernel tells them, reading by reading."""

    def __init__(self, *ns: int) -> None:
        self._ns = iter(ns)

    def ns(self) -> int:
        return next(self._ns)


def test_timer_ns__wait_between_its_readings__counts_in_both() -> None:
    device = open_device()
    device._run_delay = cast("RunDelay", Delays(0, 5_000_000, 5_000_000, 5_000_000))

    before = perf_counter_ns()
    timed = device.timer_ns()
    after = perf_counter_ns()

    assert before - 5_000_000 <= timed <= after - 5_000_000
