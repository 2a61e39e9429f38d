"""Counters over time: the clock of a device's cores, the traffic of its memory, and all
else that a profiler recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from perfgate.trace.model.arithmetic import FloatColumn, IntColumn, Intervals
from perfgate.trace.model.patterns import lazy_pattern

# Hertz of the AI core; bytes a second that all memories of a device together read and
# write; bytes that the framework's allocator handed out and holds.
CORE_CLOCK: Final = "core clock"
MEMORY_READ: Final = "memory read"
MEMORY_WRITE: Final = "memory write"
MEMORY_ALLOCATED: Final = "memory allocated"
MEMORY_RESERVED: Final = "memory reserved"
# Nanoseconds from a device's request to read the host's memory until the data are
# there.
PCIE_LATENCY: Final = "PCIe read latency"

Link = Literal["NIC", "RoCE", "HCCS", "PCIe"]
Direction = Literal["sent", "received"]
Level = Literal["readBwLevel", "writeBwLevel", "readOstLevel", "writeOstLevel"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
ACCELERATOR_TRAFFIC: Final = lazy_pattern(r"Accelerator (\d+)/(?:read|write)BwLevel")


def link_traffic(link: Link, direction: Direction) -> str:
    """The counter of the bytes a second that a device carries over a kind of link, all
    its ports together.
    """
    return f"{link} {direction}"


def lost_packets(link: Link) -> str:
    """The counter of the packets that all ports of a kind of link lost so far: bad,
    dropped, or sent again.
    """
    return f"{link} lost packets"


def accelerator_level(number: int, level: Level) -> str:
    """The counter of the traffic of an accelerator other than a device's cores, by a
    level without a unit.
    """
    return f"Accelerator {number}/{level}"


class Readings(msgspec.Struct, frozen=True, eq=False):
    """``time`` are nanoseconds, rising; ``value`` is the reading at each, in ``unit``,
    empty if none is recorded.
    """

    time: IntColumn
    value: FloatColumn
    unit: str = ""

    @staticmethod
    def of(
        time: Iterable[int] | IntColumn,
        value: Iterable[float] | FloatColumn,
        unit: str = "",
    ) -> Readings:
        """The readings in the order of time; one export lists them in another."""
        times = np.asarray(time, dtype=np.int64)
        values = np.asarray(value, dtype=np.float64)
        order = np.argsort(times, kind="stable")
        return Readings(times[order], values[order], unit)

    @staticmethod
    def summed(
        time: IntColumn, value: FloatColumn, source: IntColumn, unit: str
    ) -> Readings:
        """The sums of several sources that are read at the same times; a time at which
        one is missing is left out.
        """
        times, place = np.unique(time, return_inverse=True)
        sums, counts = np.bincount(place, weights=value), np.bincount(place)
        whole = counts == np.unique(source).size
        return Readings(times[whole], sums[whole], unit)

    @staticmethod
    def total(parts: Sequence[Readings]) -> Readings:
        """The sums of counters of one unit that are read at the same times."""
        source = np.repeat(np.arange(len(parts)), [part.time.size for part in parts])
        time = np.concatenate([part.time for part in parts])
        value = np.concatenate([part.value for part in parts])
        return Readings.summed(time, value, source, parts[0].unit)

    def lowest_during(self, intervals: Intervals) -> FloatColumn:
        """The lowest in force in each interval: a reading holds until the next, and the
        first before it too.
        """
        first = np.maximum(
            np.searchsorted(self.time, intervals.start, side="right") - 1, 0
        )
        last = np.maximum(
            np.searchsorted(self.time, intervals.end, side="left") - 1, first
        )
        # reduceat takes pairs of ends; every second of its results is between two of
        # them.
        ends = np.stack([first, last + 1], axis=1).reshape(-1)
        if not ends.size:
            return np.zeros(0)
        lowest: FloatColumn = np.minimum.reduceat(np.append(self.value, np.inf), ends)
        return lowest[::2]

    def mean_within(self, start: int, end: int) -> tuple[float, float, int] | None:
        """The mean of rates in a window, each the mean since the reading before; the
        highest of them, and how many there are.

        None if none lies in it entirely.
        """
        begins, ends = self.time[:-1], self.time[1:]
        overlap = np.minimum(ends, end) - np.maximum(begins, start)
        inside = overlap > 0
        entirely = (begins >= start) & (ends <= end)
        if not (entirely & inside).any():
            return None
        values = self.value[1:][inside]
        return (
            float(np.average(values, weights=overlap[inside])),
            float(values.max()),
            int(inside.sum()),
        )

    def risen_within(self, start: int, end: int) -> float | None:
        """By how much a running total rose in a window, from the reading in force at
        its begin; None without two readings.

        A total that falls was reset, and counts from there.
        """
        first = max(int(np.searchsorted(self.time, start, side="right")) - 1, 0)
        last = int(np.searchsorted(self.time, end, side="right"))
        values = self.value[first:last]
        if values.size < 2:
            return None
        return float(np.diff(values).clip(min=0.0).sum())

    def within(self, start: int, end: int) -> FloatColumn:
        """The readings in a window."""
        first, last = np.searchsorted(self.time, [start, end + 1])
        return self.value[first:last]
