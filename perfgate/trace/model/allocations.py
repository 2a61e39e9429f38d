"""Device memory allocated by operators: in total, and at the peak of all held memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfgate.trace.model.arithmetic import Codes, FloatColumn, IntColumn
from perfgate.trace.model.packed import NO_NUMBER
from perfgate.trace.model.recording import AllocationTotal


def allocation_totals(
    names: Sequence[str], operator: Codes, size: FloatColumn, start: IntColumn, end: IntColumn
) -> tuple[AllocationTotal, ...]:
    """The allocations of a device by operator, in the order in which they first allocated.

    Each has the position of its operator in ``names``, its bytes, and its begin and end in nanoseconds. NO_NUMBER stands for
    the start of one that existed before the recording and for the end of one that outlives it.
    """
    if not operator.size:
        return ()
    end = np.where(end == NO_NUMBER, np.iinfo(np.int64).max, end)
    # At equal times releases come first: their memory is free for the allocations of that moment.
    times, changes = np.concatenate((end, start)), np.concatenate((-size, size))
    order = np.argsort(times, kind="stable")
    peak = times[order][np.argmax(np.cumsum(changes[order]))]
    held = (start <= peak) & (end > peak)
    largest = np.zeros(len(names))
    np.maximum.at(largest, operator, size)
    present, first = np.unique(operator, return_index=True)
    present = present[np.argsort(first)]
    columns = zip(
        (names[position] for position in present.tolist()),
        np.bincount(operator)[present].tolist(),
        np.bincount(operator, weights=size)[present].tolist(),
        largest[present].tolist(),
        np.bincount(operator[held], weights=size[held], minlength=len(names))[present].tolist(),
    )
    return tuple(AllocationTotal(*column) for column in columns)
