"""Find the steady state: warm up until the speed of the calls stops changing, and say so when it never does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import timed_call
from perfgate.stats.summary import median_deviation

# A window is 10 calls or 50 ms, whichever is longer; three in a row must agree.
WINDOW_CALLS = 10
WINDOW_NS = 50_000_000
WINDOWS_THAT_AGREE = 3
AGREEMENT = 0.01
NOISE_FACTOR = 2.0

# 300 calls in windows of 10. Counted in windows, because 300 calls of 50 us are over before the first window is.
CAP_WINDOWS = 30
CAP_SECONDS = 30.0


@dataclass(frozen=True)
class SteadyState:
    """What the search took. ``steady`` False is an answer too; ``call_ns`` is the median of the last window."""

    calls: int
    steady: bool
    first_call_ns: int
    call_ns: float


def find_steady_state(call: Callable[[], Any], device: Device, *, cap_seconds: float = CAP_SECONDS) -> SteadyState:
    """Call until the medians of the last three windows agree within max(1 %, twice their noise).

    The noise of a window is the median absolute deviation of its calls over its median. The first call, with its lazy
    initialisation, stands outside every window. Ends unsteady after 30 windows or ``cap_seconds``
    of the device's clock.
    """
    deadline = device.clock_ns() + int(cap_seconds * 1e9)
    first_call_ns = timed_call(call, device)
    windows: list[npt.NDArray[np.int64]] = []
    calls, steady = 1, False
    while not steady and len(windows) < CAP_WINDOWS and (not windows or device.clock_ns() < deadline):
        windows.append(_window(call, device, deadline))
        calls += windows[-1].size
        steady = len(windows) >= WINDOWS_THAT_AGREE and agree(windows[-WINDOWS_THAT_AGREE:])
    return SteadyState(calls, steady, first_call_ns, float(np.median(windows[-1])))


def _window(call: Callable[[], Any], device: Device, deadline: int) -> npt.NDArray[np.int64]:
    """Time one window; the deadline may cut it short, but not below one call."""
    started = device.clock_ns()
    times = [timed_call(call, device)]
    while len(times) < WINDOW_CALLS or device.clock_ns() - started < WINDOW_NS:
        if device.clock_ns() >= deadline:
            break
        times.append(timed_call(call, device))
    return np.asarray(times, dtype=np.int64)


def agree(windows: list[npt.NDArray[np.int64]]) -> bool:
    """Whether the medians of the windows lie within max(1 %, twice their median noise) of each other."""
    medians = [float(np.median(window)) for window in windows]
    noise = float(np.median([median_deviation(window) / max(1.0, m) for window, m in zip(windows, medians)]))
    spread = (max(medians) - min(medians)) / max(1.0, float(np.median(medians)))
    return spread <= max(AGREEMENT, NOISE_FACTOR * noise)
