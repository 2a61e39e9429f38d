"""Pauses of a profiler between the cycles of one recording, in which it recorded
nothing.
"""

from __future__ import annotations

import itertools

import numpy as np

from perfgate.trace.model.arithmetic import IntColumn, Intervals, gaps
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.faults import believed
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.steps import step_marks

# The span of a whole cycle (libkineto: output_json.cpp, handleTraceSpan).
_CYCLE = lazy_pattern(r"PyTorch Profiler \(\d+\)")
_NONE = np.zeros(0, dtype=np.int64)


def pauses(events: EventTable) -> Intervals:
    """The longest time without any event around each border between two cycles.

    A border lies between two steps of which the second does not have the next number,
    or between the spans of two cycles. If operators ran there, the mark of a step was
    lost.
    """
    events = believed(events)
    begin, end = _borders(events)
    if not begin.size:
        return Intervals(_NONE, _NONE)
    operators = np.sort(events.start[events.is_kind("host_op")])
    recorded = events.select(~events.is_kind("other"))
    empty = gaps(recorded.intervals, (int(events.start.min()), int(events.end.max())))
    chosen: set[int] = set()
    for first, last in zip(begin.tolist(), end.tolist()):
        # Work of the device may end after the last step of the host.
        inside = np.flatnonzero((empty.end > first) & (empty.start < last))
        operated = np.searchsorted(operators, last) - np.searchsorted(operators, first)
        if inside.size and not operated:
            longest = np.argmax(empty.end[inside] - empty.start[inside])
            chosen.add(int(inside[longest]))
    places = np.array(sorted(chosen), dtype=np.int64)
    return Intervals(empty.start[places], empty.end[places])


def _borders(events: EventTable) -> tuple[IntColumn, IntColumn]:
    """The end of the last step, or of the span, before each border, and the begin of
    the next.
    """
    others = np.flatnonzero(events.is_kind("other"))
    cycles = events.select(events.rows_named(others, _CYCLE.fullmatch))
    order = np.argsort(cycles.start, kind="stable")
    starts, ends = cycles.start[order], cycles.end[order]
    are_apart = starts[1:] > ends[:-1]
    begin, end = [*ends[:-1][are_apart].tolist()], [*starts[1:][are_apart].tolist()]
    marks = step_marks(events)
    for before, after in itertools.pairwise(marks):
        if (
            before.number is None
            or after.number is None
            or before.end_ns is None
            or after.start_ns is None
        ):
            continue
        if after.number != before.number + 1 and after.start_ns > before.end_ns:
            begin.append(before.end_ns)
            end.append(after.start_ns)
    return np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64)
