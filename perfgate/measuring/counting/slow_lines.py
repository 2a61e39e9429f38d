"""Which lines slow calls wait or compute at: samples of the stack, taken only once a call lasts longer than calls do."""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType

from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.device import Call, Device

# Seconds between two samples of one call, and the slow calls that are enough.
SAMPLE_EVERY = 0.002
ENOUGH_STALLS = 4


def locate_stalls(
    call: Call,
    device: Device,
    lines: SourceLines,
    *,
    longer_than: float,
    calls: int,
    seconds: float,
) -> dict[str, int]:
    """The samples of each line of the project in those of at most ``calls`` calls that take ``longer_than`` seconds.

    It takes no more than about ``seconds``. A timer interrupts slow calls, so none of them is timed. Only the main thread can
    set the handler of a signal.
    """
    samples: Counter[str] = Counter()
    stalls = 0
    is_stall = False

    def sample(_signal: int, frame: FrameType | None) -> None:
        nonlocal is_stall
        is_stall = True
        line = lines.of(frame)
        if line is not None:
            samples[line] += 1

    before = signal.signal(signal.SIGALRM, sample)
    ends = device.clock_ns() + int(seconds * 1e9)
    try:
        for _ in range(calls):
            is_stall = False
            signal.setitimer(signal.ITIMER_REAL, longer_than, SAMPLE_EVERY)
            try:
                call()
                device.synchronize()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            stalls += is_stall
            if stalls >= ENOUGH_STALLS or device.clock_ns() > ends:
                break
    finally:
        signal.signal(signal.SIGALRM, before)
    return dict(samples)
