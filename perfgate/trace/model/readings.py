"""Counters over time: the clock of a device's cores, the traffic of its memory, whatever else a profiler recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from perfgate.trace.model.arithmetic import FloatColumn, IntColumn, Intervals

# Hertz of the AI core; bytes a second that all memories of a device together read and write; bytes that the framework's
# allocator handed out and holds.
CORE_CLOCK: Final = "core clock"
MEMORY_READ: Final = "memory read"
MEMORY_WRITE: Final = "memory write"
MEMORY_ALLOCATED: Final = "memory allocated"
MEMORY_RESERVED: Final = "memory reserved"


class Mean(NamedTuple):
    """The mean and the highest of the readings that cover a window, and their number."""

    mean: float
    highest: float
    readings: int


@dataclass(frozen=True, eq=False)
class Readings:
    """``time`` are nanoseconds, rising; ``value`` is the reading at each, in ``unit``, empty if none is recorded."""

    time: IntColumn
    value: FloatColumn
    unit: str = ""

    @staticmethod
    def of(time: Iterable[int] | IntColumn, value: Iterable[float] | FloatColumn, unit: str = "") -> Readings:
        """The readings in the order of time; one export lists them in another."""
        times, values = np.asarray(time, dtype=np.int64), np.asarray(value, dtype=np.float64)
        order = np.argsort(times, kind="stable")
        return Readings(times[order], values[order], unit)

    @staticmethod
    def summed(time: IntColumn, value: FloatColumn, source: IntColumn, unit: str = "") -> Readings:
        """The sums of several sources that are read at the same times; a time at which one is missing is left out."""
        times, place = np.unique(time, return_inverse=True)
        sums, counts = np.bincount(place, weights=value), np.bincount(place)
        whole = counts == np.unique(source).size
        return Readings(times[whole], sums[whole], unit)

    def lowest_during(self, intervals: Intervals) -> FloatColumn:
        """The lowest in force in each interval: a reading holds until the next, and the first before it too."""
        first = np.maximum(np.searchsorted(self.time, intervals.start, side="right") - 1, 0)
        last = np.maximum(np.searchsorted(self.time, intervals.end, side="left") - 1, first)
        # reduceat takes pairs of ends; every second of its results is between two of them.
        ends = np.stack([first, last + 1], axis=1).reshape(-1)
        lowest: FloatColumn = np.minimum.reduceat(np.append(self.value, np.inf), ends)[::2] if ends.size else ends[::2]
        return lowest

    def mean_within(self, start: int, end: int) -> Mean | None:
        """The mean of rates in a window, each the mean since the reading before; None if none lies in it entirely."""
        begins, ends = self.time[:-1], self.time[1:]
        overlap = np.minimum(ends, end) - np.maximum(begins, start)
        inside = overlap > 0
        if not ((begins >= start) & (ends <= end) & inside).any():
            return None
        values = self.value[1:][inside]
        return Mean(float(np.average(values, weights=overlap[inside])), float(values.max()), int(inside.sum()))
