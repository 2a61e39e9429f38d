"""Time calls one by one (latency) and many in flight (throughput), once their speed is
steady; and two ways in turns.

A step tries its proposals (another precision, layout, batch or a compiled graph), so
that their gain is measured and not promised. Blocks of both run in random ABBA or BAAB
order: a drift of the machine meets both alike.
"""

from __future__ import annotations

import math
import random
import sys
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from perfgate.measuring.devices.device import Call, Device, DeviceEvent
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE, median_deviation

DEPTH = 4
WINDOWS = 5
# Streams have fallen behind if the rate until the device is idle is lower by this
# share.
FALLEN_BEHIND = 0.05


class CallTimes(NamedTuple):
    """Nanoseconds of each call in call order: by the device's timer, and CPU time of
    the calling thread.
    """

    wall: Ints
    cpu: Ints


class CallBudget(NamedTuple):
    """When to stop: after ``calls`` calls and ``seconds``, both reached; at the latest
    after ``most_seconds``.
    """

    calls: int
    seconds: float = 0.0
    most_seconds: float | None = None


def timed_call(call: Call, device: Device) -> int:
    started = device.timer_ns()
    call()
    device.synchronize()
    return device.timer_ns() - started


def compiled_graphs() -> int:
    """The number of graphs that torch's compiler has made in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def time_calls(call: Call, device: Device, budget: CallBudget) -> CallTimes:
    """Time calls in latency mode: each waited for before the next starts.

    At least one call is made.

    Every call is kept, because slow calls form the tail.
    """
    clock = device.clock_ns
    timer = device.timer_ns
    cpu_clock = device.cpu_clock_ns
    synchronize = device.synchronize
    # Eight bytes a call: lists of numbers take five times as much, and a soak looks at
    # the memory of the process.
    wall, cpu = array("q"), array("q")
    begun = clock()
    deadline = begun + int(budget.seconds * 1e9)
    latest = (
        None if budget.most_seconds is None else begun + int(budget.most_seconds * 1e9)
    )
    while True:
        cpu_started = cpu_clock()
        started = timer()
        call()
        synchronize()
        wall.append(timer() - started)
        cpu.append(cpu_clock() - cpu_started)
        ended = clock()
        if (len(wall) >= budget.calls and ended >= deadline) or (
            latest is not None and ended >= latest
        ):
            return CallTimes(
                np.asarray(wall, dtype=np.int64), np.asarray(cpu, dtype=np.int64)
            )


def measure_throughput(
    call: Call,
    device: Device,
    *,
    items: int,
    window_seconds: float,
    windows: int = WINDOWS,
    depth: int = DEPTH,
) -> tuple[Floats, int]:
    """Items per second of each of ``windows`` windows with at most ``depth`` calls in
    flight, and the calls they hold.

    On a device without a queue a call returns when it is done, so one call is in flight
    for any ``depth``, and the device's timer measures the windows.

    The queue is bounded by a ring of events: unbounded, a fast host queues work for
    minutes. A window ends with the first call that completes after its length, so a
    window of long calls holds at least one. Its rate is the items of the calls that
    completed in it over the device time from the mark it began with to the mark it
    ended with.

    The marks are of one stream. If others, which the calls do not wait for, fall behind
    it, the windows are too fast: the rates are then those of all calls until the device
    is idle.
    """
    depth = depth if "queue" in device.capabilities else 1
    marks, ends = _window_marks(
        call, device, depth=depth, span_ns=int(window_seconds * 1e9), windows=windows
    )
    device.synchronize()
    rates: Floats = items * np.diff(ends) / (np.diff(marks) / 1e9)
    until_idle = (
        items
        * (ends[-1] - ends[0] + depth - 1)
        / ((_device_ns(device) - marks[0]) / 1e9)
    )
    of_windows = items * (ends[-1] - ends[0]) / ((marks[-1] - marks[0]) / 1e9)
    if until_idle < of_windows * (1 - FALLEN_BEHIND):
        rates *= until_idle / of_windows
    return rates, ends[-1]


def _device_ns(device: Device) -> int:
    """The time of an idle device."""
    if "queue" not in device.capabilities:
        return device.timer_ns()
    now = device.event()
    now.record()
    now.wait()
    return now.time_ns()


def _window_marks(
    call: Call, device: Device, *, depth: int, span_ns: int, windows: int
) -> tuple[list[int], list[int]]:
    """The device times at which windows begin and end, and how many calls were done by
    then.
    """
    has_queue = "queue" in device.capabilities
    ring: deque[DeviceEvent] = deque()
    marks: list[int] = []
    ends = []
    completed = 0
    while len(marks) <= windows:
        call()
        queued = device.event()
        queued.record()
        ring.append(queued)
        if len(ring) < depth:
            continue
        oldest = ring.popleft()
        oldest.wait()
        completed += 1
        mark = oldest.time_ns() if has_queue else device.timer_ns()
        if not marks or mark - marks[-1] >= span_ns:
            marks.append(mark)
            ends.append(completed)
    return marks, ends


# A window is 10 calls or 50 ms, whichever is longer; three in a row must agree.
WINDOW_CALLS = 10
WINDOW_NS = 50_000_000
WINDOWS_THAT_AGREE = 3
AGREEMENT = 0.01
NOISE_FACTOR = 2.0

# 300 calls in windows of 10. Counted in windows, because 300 calls of 50 us are over
# before the first window is.
CAP_WINDOWS = 30
CAP_SECONDS = 30.0


class SteadyState(NamedTuple):
    """The result of the search for a steady state. ``steady`` False is an answer too;
    ``call_ns`` is the median of the last window.
    """

    calls: int
    steady: bool
    first_call_ns: int
    call_ns: float


def find_steady_state(
    call: Call, device: Device, *, cap_seconds: float = CAP_SECONDS
) -> SteadyState:
    """Call until the medians of the last three windows agree within max(1 %, twice
    their noise).

    The noise of a window is the median absolute deviation of its calls over its median.
    The first call, with its lazy initialisation, stands outside every window. Ends
    unsteady after 30 windows or ``cap_seconds`` of the device's clock.
    """
    deadline = device.clock_ns() + int(cap_seconds * 1e9)
    first_call_ns = timed_call(call, device)
    windows: list[Ints] = []
    calls, steady = 1, False
    while (
        not steady
        and len(windows) < CAP_WINDOWS
        and (not windows or device.clock_ns() < deadline)
    ):
        windows.append(_window(call, device, deadline))
        calls += windows[-1].size
        steady = len(windows) >= WINDOWS_THAT_AGREE and agree(
            windows[-WINDOWS_THAT_AGREE:]
        )
    return SteadyState(calls, steady, first_call_ns, float(np.median(windows[-1])))


def call_again(call: Call, device: Device) -> SteadyState:
    """Make one window of calls that were steady before."""
    first_call_ns = timed_call(call, device)
    window = _window(call, device, device.clock_ns() + int(CAP_SECONDS * 1e9))
    return SteadyState(1 + window.size, True, first_call_ns, float(np.median(window)))


def _window(call: Call, device: Device, deadline: int) -> Ints:
    """Time one window; the deadline may cut it short, but not below one call."""
    started = device.clock_ns()
    times = [timed_call(call, device)]
    while len(times) < WINDOW_CALLS or device.clock_ns() - started < WINDOW_NS:
        if device.clock_ns() >= deadline:
            break
        times.append(timed_call(call, device))
    return np.asarray(times, dtype=np.int64)


def agree(windows: list[Ints]) -> bool:
    """Whether the medians of the windows lie within max(1 %, twice their median noise)
    of each other.
    """
    medians = [float(np.median(window)) for window in windows]
    noise = float(
        np.median(
            [
                median_deviation(window) / max(1.0, m)
                for window, m in zip(windows, medians)
            ]
        )
    )
    spread = (max(medians) - min(medians)) / max(1.0, float(np.median(medians)))
    return spread <= max(AGREEMENT, NOISE_FACTOR * noise)


# Of five quads no signed rank gives a two-sided interval at 95 %; of six it does.
FEWEST_QUADS = 6
MOST_QUADS = 40
_BLOCK_NS = 20_000_000
_WARM_UP_CALLS = 3


class Versus(NamedTuple):
    """How many times as fast the second way is as the first (above 1: faster), and the
    interval at ``CONFIDENCE``.

    ``first_ns`` and ``second_ns`` are the median nanoseconds of a call; ``quads`` the
    pairs of blocks behind the interval.
    """

    speedup: float
    low: float
    high: float
    first_ns: float
    second_ns: float
    quads: int

    @property
    def faster(self) -> bool:
        """Whether the second way is faster beyond doubt."""
        return self.low > 1.0


def compare(
    first: Call,
    second: Call,
    device: Device,
    *,
    seconds: float,
    seed: int = 0,
) -> Versus:
    """Time both ways in turns for about ``seconds``, and at least ``FEWEST_QUADS``
    quads.

    A block is calls for 20 ms, each waited for; both ways make the same number, so that
    a call weighs the same. A quad has the mean over both blocks of each way of the
    median nanoseconds of a call. The speed-up is the Hodges-Lehmann estimate over the
    quads' log ratios of block medians, its interval by the exact signed-rank
    distribution. Warm-up, compilation included, is not timed.
    """
    for _ in range(_WARM_UP_CALLS):
        slowest_ns = max(timed_call(first, device), timed_call(second, device))
    calls = max(1, int(_BLOCK_NS / max(slowest_ns, 1)))
    order = random.Random(seed)
    quads: list[tuple[float, float]] = []
    until = device.clock_ns() + int(seconds * 1e9)
    while len(quads) < FEWEST_QUADS or (
        device.clock_ns() < until and len(quads) < MOST_QUADS
    ):
        swapped = order.random() < 0.5
        outer, inner = (second, first) if swapped else (first, second)
        blocks = [_block(way, device, calls) for way in (outer, inner, inner, outer)]
        around, within = (blocks[0] + blocks[3]) / 2, (blocks[1] + blocks[2]) / 2
        quads.append((within, around) if swapped else (around, within))
    return summarize_turns(np.asarray(quads))


def _block(call: Call, device: Device, calls: int) -> float:
    # The first call finds the caches as the other way left them, and is not counted.
    timed_call(call, device)
    return float(np.median([timed_call(call, device) for _ in range(calls)]))


def time_in_rounds(
    ways: Mapping[str, Callable[[], float]],
    device: Device,
    *,
    seconds: float,
    seed: int,
    fewest: int = FEWEST_QUADS,
    most: float = math.inf,
) -> dict[str, Floats]:
    """Nanoseconds of each way, once a round and in random order, so that disturbances
    affect all ways alike.
    """
    chance = random.Random(seed)
    times: dict[str, list[float]] = {way: [] for way in ways}
    until = device.clock_ns() + int(seconds * 1e9)
    rounds = 0
    while rounds < fewest or (rounds < most and device.clock_ns() < until):
        for way in chance.sample(list(ways), len(ways)):
            times[way].append(ways[way]())
        rounds += 1
    return {way: np.array(numbers) for way, numbers in times.items()}


def summarize_turns(quads: Floats) -> Versus:
    """How both ways compare, from an array of shape (quads, 2): nanoseconds of a call
    in both ways, turn by turn.
    """
    quads = np.maximum(quads, 1.0)  # a coarse clock may not have moved
    differences = np.log(quads[:, 0]) - np.log(quads[:, 1])
    alpha = (1 - CONFIDENCE) / 2
    first_ns, second_ns = np.median(quads, axis=0).tolist()
    return Versus(
        speedup=math.exp(estimate(differences)),
        low=math.exp(lower_bound(differences, alpha)),
        high=math.exp(upper_bound(differences, alpha)),
        first_ns=first_ns,
        second_ns=second_ns,
        quads=len(quads),
    )
