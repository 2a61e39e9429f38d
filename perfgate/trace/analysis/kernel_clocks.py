"""The core clock at which the kernels of a device ran, by type."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perfgate.trace.model.arithmetic import NO_NUMBER, Intervals
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.readings import Readings

# Units of the column Accelerator Core that do not run at the core clock: the device's CPU and its random number generator.
_OTHER_CLOCKS = ("AI_CPU", "DSA_SQE")


class KernelClock(NamedTuple):
    """All kernels of one type: their nanoseconds, and their clock in hertz: the mean over that time, and the lowest."""

    op: str
    time_ns: int
    hertz: float
    lowest: float


def kernel_clocks(table: KernelTable, clock: Readings) -> list[KernelClock]:
    """The types that run on the cores, most time first; empty if the table has no start times of kernels."""
    other_units = [
        code for code, text in enumerate(table.texts) if text.upper() in _OTHER_CLOCKS
    ]
    on_cores = ~np.isin(table.codes["core"], other_units)
    rows = table.select(on_cores & (table.start != NO_NUMBER) & (table.duration > 0))
    if not len(rows):
        return []
    hertz = clock.lowest_during(Intervals(rows.start, rows.start + rows.duration))
    codes, place = np.unique(rows.group, return_inverse=True)
    times = np.bincount(place, weights=rows.duration)
    means = np.bincount(place, weights=rows.duration * hertz) / times
    lowest = np.full(codes.size, np.inf)
    np.minimum.at(lowest, place, hertz)
    clocks = []
    for code, time, mean, least in zip(
        codes.tolist(), times.tolist(), means.tolist(), lowest.tolist()
    ):
        clocks.append(KernelClock(rows.texts[code], round(time), mean, least))
    return sorted(clocks, key=lambda row: (-row.time_ns, row.op))
