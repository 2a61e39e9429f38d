"""The call that each host call lies in: by the compiled loop if it was built, else call
by call.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    nesting_order,
)
from perfgate.trace.model.events import EventTable
from perfgate.trace.scanner.library import load

# Limit of open calls per thread that do not contain the next one: two or three in
# recordings of profilers.
_MAX_OPEN_CALLS = 64


def enclosing_calls(
    events: EventTable, track: Codes, calls: CodeColumn
) -> tuple[CodeColumn, int]:
    """For each call the innermost one on its thread that contains all of it, and the
    number of truncated calls.

    Calls of one kind nest. Calls of two kinds need not: an annotation begins inside the
    Python function that opens it and outlasts it, so the next call is in the annotation
    only.
    """
    around = np.full(len(events), NOTHING_AROUND, dtype=np.int32)
    order = nesting_order(
        calls[events.duration[calls] > 0], events.start, events.duration, track
    )
    library = load()
    if library is None:
        return around, _enclosing_one_by_one(events, track, order, around)
    types = (np.int64, np.int64, np.uint8, np.int32, np.int32)
    columns = list(
        map(
            np.ascontiguousarray,
            (events.start, events.duration, events.kind, track, order),
            types,
        )
    )
    addresses = [column.ctypes.data for column in columns]
    cut = library.enclosing_calls(
        *addresses, order.size, _MAX_OPEN_CALLS, around.ctypes.data
    )
    if cut < 0:
        raise MemoryError("no memory for open calls")
    return around, int(cut)


def _enclosing_one_by_one(
    events: EventTable, track: Codes, order: CodeColumn, around: CodeColumn
) -> int:
    """The same without the library."""
    starts, ends = events.start.tolist(), events.end.tolist()
    open_calls: list[int] = []
    cut = 0
    for call in order.tolist():
        while open_calls:
            last = open_calls[-1]
            if track[last] == track[call] and ends[last] > starts[call]:
                break
            open_calls.pop()
        near = islice(reversed(open_calls), _MAX_OPEN_CALLS)
        holding = next(
            (outer for outer in near if ends[outer] >= ends[call]), NOTHING_AROUND
        )
        around[call] = holding
        if (
            open_calls
            and holding != open_calls[-1]
            and events.kind[open_calls[-1]] == events.kind[call]
        ):
            cut += 1
        open_calls.append(call)
    return cut
