"""Join what ran on a device with the call on the host that launched it."""

from __future__ import annotations

import numpy as np

from perfgate.trace.analysis import IntColumn
from perfgate.trace.events import NO_CORRELATION, EventTable

NOT_RECORDED = -1


def launch_starts(work: EventTable, launches: EventTable) -> IntColumn:
    """Return for each event of a device the nanosecond at which the host began to launch it, or NOT_RECORDED.

    One launch is seen at several levels of the runtime; the first is what the program did. A launch without a length at
    the very moment of its kernel is the profiler's placeholder, as PrivateUse1 runtimes have it (sample
    torch-native-privateuse1), and tells nothing.
    """
    started = np.full(len(work), NOT_RECORDED, dtype=np.int64)
    known = np.flatnonzero(launches.correlation != NO_CORRELATION)
    if not known.size:
        return started
    order = known[np.lexsort((launches.start[known], launches.correlation[known]))]
    numbers, first = np.unique(launches.correlation[order], return_index=True)
    at = np.minimum(np.searchsorted(numbers, work.correlation), numbers.size - 1)
    launch = order[first][at]
    placeholder = (launches.duration[launch] == 0) & (launches.start[launch] == work.start)
    joined = (numbers[at] == work.correlation) & ~placeholder
    started[joined] = launches.start[launch][joined]
    return started


def launched_or_began(work: EventTable, launched: IntColumn) -> IntColumn:
    """Return when each event was launched, and of one whose launch was not recorded when it began itself."""
    return np.where(launched == NOT_RECORDED, work.start, launched)
