"""Device memory allocated by operators: in total, and at the peak of all held memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfgate.trace.model.arithmetic import NO_NUMBER, Codes, FloatColumn, IntColumn
from perfgate.trace.model.recording import AllocationTotal


def allocation_totals(
    names: Sequence[str],
    operator: Codes,
    size: FloatColumn,
    start: IntColumn,
    end: IntColumn,
) -> tuple[AllocationTotal, ...]:
    """The allocations of a device by operator, in the order in which they first
    allocated.

    Each has the position of its operator in ``names``, its bytes, and its begin and end
    in nanoseconds. NO_NUMBER stands for the start of one that existed before the
    recording and for the end of one that outlives it.
    """
    if not operator.size:
        return ()
    end = np.where(end == NO_NUMBER, np.iinfo(np.int64).max, end)
    # At equal times releases come first: their memory is free for the allocations of
    # that moment.
    times = np.concatenate((end, start))
    changes = np.concatenate((-size, size))
    order = np.argsort(times, kind="stable")
    total = np.cumsum(changes[order])
    peak = times[order][np.argmax(total)]
    live = (start <= peak) & (end > peak)
    largest = np.zeros(len(names))
    np.maximum.at(largest, operator, size)
    present, first = np.unique(operator, return_index=True)
    counts = np.bincount(operator)
    sizes = np.bincount(operator, weights=size)
    at_peak = np.bincount(operator[live], weights=size[live], minlength=len(names))
    totals = []
    for code in present[np.argsort(first)].tolist():
        total_of = AllocationTotal(
            name=names[code],
            count=int(counts[code]),
            total_bytes=float(sizes[code]),
            largest_bytes=float(largest[code]),
            held_bytes=float(at_peak[code]),
        )
        totals.append(total_of)
    return tuple(totals)
