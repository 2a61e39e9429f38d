"""When a device had nothing to do, and why: exact integer nanoseconds over all its streams.

What the device waited for is read from the event that ends a gap and the call on the host that launched it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from perfgate.document.trace import GapCause
from perfgate.trace.analysis import IntColumn, Intervals, gaps, intersection, joined, union
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.spans import NOT_RECORDED, launch_starts

CAUSES: tuple[GapCause, ...] = get_args(GapCause)

# Calls that return when the device is done: cudaStreamSynchronize, hipDeviceSynchronize, AscendCL@aclrtSynchronizeStream…,
# and copies that wait themselves (samples cuda-hta, msinsight-910B-alexnet-2501).
_WAIT = re.compile(r"synchroni[sz]e|hipMemcpyWithStream$|^(?:cuda|hip)Memcpy$|aclrtMemcpy$", re.IGNORECASE)


class Gap(NamedTuple):
    """A stretch in which nothing was computed, by the recording's clock."""

    start_ns: int
    duration_ns: int
    cause: GapCause


@dataclass(frozen=True)
class DeviceGaps:
    """The gaps of one device in time order, between its first event and the end of its last.

    ``busy_ns`` is the time in which anything ran, on any stream.
    """

    start_ns: int
    end_ns: int
    busy_ns: int
    gaps: tuple[Gap, ...]


def device_gaps(events: EventTable, *, exposed: bool = False) -> DeviceGaps | None:
    """The gaps in which nothing ran on the device of a timeline; None where it shows no work at all.

    ``exposed`` adds the stretches in which only copies or collectives ran.
    """
    work = events.of_kind(*DEVICE_KINDS)
    busy = union(work.intervals)
    if not busy.start.size:
        return None
    start, end = int(busy.start[0]), int(busy.end[-1])
    idle = gaps(busy, (start, end))
    found = [Gap(*gap) for gap in zip(_starts(idle), _lengths(idle), _causes(idle, work, events.of_kind("runtime")))]
    if exposed:
        computing, communication = work.of_kind("compute").intervals, work.of_kind("comm").intervals
        found += _exposed(communication, computing, "communication")
        found += _exposed(work.of_kind("copy").intervals, joined(computing, communication), "copy")
        found.sort()
    return DeviceGaps(start, end, busy.length, tuple(found))


def _causes(idle: Intervals, work: EventTable, runtime: EventTable) -> list[GapCause]:
    launched = launch_starts(work, runtime)
    # Of what starts together the one that was launched first ends the gap.
    first = np.where(launched == NOT_RECORDED, np.iinfo(np.int64).max, launched)
    order = np.lexsort((first, work.start))
    launch = launched[order][np.searchsorted(work.start[order], idle.end)]
    late = launch >= idle.start
    chosen = np.select(
        [launch == NOT_RECORDED, late & _waiting(runtime, idle.start), late],
        [CAUSES.index("unknown"), CAUSES.index("synchronization"), CAUSES.index("host")],
        CAUSES.index("queue"),
    )
    return [CAUSES[code] for code in chosen.tolist()]


def _waiting(runtime: EventTable, times: IntColumn) -> npt.NDArray[np.bool_]:
    codes = [code for code, name in enumerate(runtime.names) if _WAIT.search(name)]
    waits = union(runtime.select(np.isin(runtime.name, codes)).intervals)
    if not waits.start.size:
        return np.zeros(times.size, dtype=np.bool_)
    before = np.searchsorted(waits.start, times, side="right") - 1
    waiting: npt.NDArray[np.bool_] = (before >= 0) & (times <= waits.end[before])
    return waiting


def _exposed(one: Intervals, others: Intervals, cause: GapCause) -> list[Gap]:
    alone = union(one)
    if not alone.start.size:
        return []
    uncovered = gaps(others, (int(alone.start[0]), int(alone.end[-1])))
    both = intersection(alone, uncovered)
    return [Gap(start, length, cause) for start, length in zip(_starts(both), _lengths(both))]


def _starts(intervals: Intervals) -> list[int]:
    starts: list[int] = intervals.start.tolist()
    return starts


def _lengths(intervals: Intervals) -> list[int]:
    lengths: list[int] = (intervals.end - intervals.start).tolist()
    return lengths
