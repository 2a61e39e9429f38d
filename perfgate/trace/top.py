"""What takes the time of a device or its host, over a whole recording: rows by operator type, name, or shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfgate.document.trace import TopKey, TopKind
from perfgate.errors import UsageError
from perfgate.trace.analysis import (
    IntColumn,
    Intervals,
    counts_by_name,
    self_times,
    totals_by_name,
    union_length,
)
from perfgate.trace.events import DEVICE_KINDS, KINDS, NO_TEXT, EventKind, EventTable
from perfgate.trace.recording import Kernel, Timeline

# What stands for the host's work: operators, else Python functions, else whatever was recorded (plain Chrome traces).
_HOST_KINDS: tuple[tuple[EventKind, ...], ...] = (("host_op",), ("python",), ("runtime", "other"))


@dataclass(frozen=True)
class TopRow:
    """One operator: how often, and nanoseconds over the recording. ``shapes`` are those of its inputs, by shape only."""

    name: str
    kind: TopKind
    count: int
    total_ns: int
    shapes: str | None = None


@dataclass(frozen=True)
class Top:
    """The rows of one timeline, most time first; of its device, or of its host.

    On a device a row's time is that of its events, and ``base_ns`` the time in which anything ran on any stream: shares of
    it can add up to more than one where streams overlap. On the host both are self time.
    """

    side: Literal["device", "host"]
    base_ns: int
    rows: tuple[TopRow, ...]


def top(timeline: Timeline, *, by: TopKey, host: bool) -> Top:
    """Return what took the time of a timeline's device; of its host where that is asked for, or no device was seen.

    Where neither events nor kernels were collected, the profiler's own totals answer by type. Raises UsageError where
    rows by shape are asked for and the recording tells no shapes.
    """
    return (None if host else _top_of_device(timeline, by)) or _top_of_host(timeline, by)


def _top_of_device(timeline: Timeline, by: TopKey) -> Top | None:
    work = timeline.events.of_kind(*DEVICE_KINDS)
    kernels = timeline.kernels or ()
    # The table of kernels is the one that knows the shapes on Ascend; it has no copies.
    if kernels and (not len(work) or (by == "shape" and any(kernel.input_shapes for kernel in kernels))):
        return Top("device", _busy_of_kernels(kernels), _rows_of_kernels(kernels, by))
    if len(work):
        return Top("device", union_length(work.intervals), _rows(work, work.duration, by))
    if by == "type" and timeline.types:
        rows = [TopRow(total.type, "compute", total.count, total.total_ns) for total in timeline.types]
        return Top("device", sum(row.total_ns for row in rows), _sorted(rows))
    return None


def _top_of_host(timeline: Timeline, by: TopKey) -> Top:
    calls = _host_events(timeline.events)
    if not len(calls) and by != "shape" and timeline.operators:
        rows = [TopRow(one.name, "host", one.count, one.host_self_ns) for one in timeline.operators]
        return Top("host", sum(row.total_ns for row in rows), _sorted(rows))
    own = self_times(calls.start, calls.duration, calls.track)
    return Top("host", int(own.sum()), _rows(calls, own, by))


def _host_events(events: EventTable) -> EventTable:
    tables = (events.of_kind(*kinds) for kinds in _HOST_KINDS)
    return next((table for table in tables if len(table)), events.of_kind(*_HOST_KINDS[0]))


def _rows(events: EventTable, time: IntColumn, by: TopKey) -> tuple[TopRow, ...]:
    name = events.name if by == "name" else events.group
    key = name
    if by == "shape":
        if len(events) and not (events.shape != NO_TEXT).any():
            raise _no_shapes()
        key = name * (len(events.names) + 1) + events.shape + 1
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    totals, counts = totals_by_name(row, time, first.size), counts_by_name(row, first.size)
    rows = [
        TopRow(events.names[name[at]], _kind(KINDS[events.kind[at]]), count, total, _shapes(events, at, by))
        for at, count, total in zip(first.tolist(), counts.tolist(), totals.tolist())
    ]
    return _sorted(rows)


def _shapes(events: EventTable, at: int, by: TopKey) -> str | None:
    code = int(events.shape[at])
    return None if by != "shape" or code == NO_TEXT else events.names[code]


def _rows_of_kernels(kernels: Sequence[Kernel], by: TopKey) -> tuple[TopRow, ...]:
    if by == "shape" and not any(kernel.input_shapes for kernel in kernels):
        raise _no_shapes()
    sums: dict[tuple[str, TopKind, str | None], list[int]] = {}
    for kernel in kernels:
        name = kernel.name if by == "name" else kernel.type or kernel.name
        shapes = str([list(shape) for shape in kernel.input_shapes]) if by == "shape" else None
        found = sums.setdefault((name, "comm" if kernel.is_collective else "compute", shapes), [0, 0])
        found[0] += 1
        found[1] += kernel.duration_ns
    rows = [TopRow(name, kind, count, total, shapes) for (name, kind, shapes), (count, total) in sums.items()]
    return _sorted(rows)


def _busy_of_kernels(kernels: Sequence[Kernel]) -> int:
    """Return the time in which any kernel ran; the sum of all where the table does not say when."""
    placed = [
        (kernel.start_ns, kernel.start_ns + kernel.duration_ns) for kernel in kernels if kernel.start_ns is not None
    ]
    if len(placed) < len(kernels):
        return sum(kernel.duration_ns for kernel in kernels)
    spans = np.array(placed, dtype=np.int64)
    return union_length(Intervals(spans[:, 0], spans[:, 1]))


def _sorted(rows: list[TopRow]) -> tuple[TopRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name, row.shapes or "")))


def _kind(kind: EventKind) -> TopKind:
    return kind if kind in ("compute", "copy", "comm") else "host"


def _no_shapes() -> UsageError:
    return UsageError(
        "the recording tells no shapes; record with record_shapes=True (on an NPU also at Level1), or use --by type"
    )
