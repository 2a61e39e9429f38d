"""The work of a timeline as rows: the hot spots of a whole recording, and the work of
an average call or step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from perfgate.document.alignment import Work
from perfgate.document.trace import DiffKey, DiffTotals, TopKey, TopKind
from perfgate.errors import UsageError
from perfgate.trace.analysis.gaps import device_gaps
from perfgate.trace.analysis.operators import row_kind
from perfgate.trace.analysis.stacks import (
    Launchers,
    frame,
    heaviest_names,
    launchers,
    launching_operators,
    project_places,
    stacks_of,
)
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    IntColumn,
    Intervals,
    counts_by_name,
    group_rows,
    self_times,
    total_groups,
    totals_by_name,
    union_length,
)
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KINDS,
    NO_TEXT,
    EventKind,
    EventTable,
)
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import NamedTotal, Timeline
from perfgate.trace.model.stacks import Stacks
from perfgate.trace.model.steps import shows_copies

if TYPE_CHECKING:
    from perfgate.document.flame import FlameUnit

# The events that represent the host's work: operators, else Python functions, else any
# events (plain Chrome traces).
_HOST_KINDS: tuple[tuple[EventKind, ...], ...] = (
    ("host_op",),
    ("python",),
    ("runtime", "other"),
)


TopSide = Literal["device", "host"]


class TopOperator(msgspec.Struct, frozen=True):
    """One operator: its count and its nanoseconds over the recording; in rows by shape
    also the shapes of its inputs.

    In rows by line the name is the launching function, and ``operator`` the operator
    with most of its time.
    """

    name: str
    kind: TopKind
    count: int
    total_ns: int
    shapes: str | None = None
    operator: str | None = None


class Top(NamedTuple):
    """The rows of one timeline, most time first; of its device, or of its host.

    On a device a row's time is the time of its events, and ``base_ns`` the time in
    which anything ran on any stream: shares of it can add up to more than one if
    streams overlap. On the host both are self time.
    """

    side: TopSide
    base_ns: int
    rows: tuple[TopOperator, ...]


class UnitWork(NamedTuple):
    """The work of a timeline in an average unit: its totals, and rows with nanoseconds
    and counts of one unit.
    """

    unit: FlameUnit
    units: int
    totals: DiffTotals
    rows: tuple[Work, ...]


def top(
    timeline: Timeline, *, by: TopKey, host: bool, longer_ns: int | None = None
) -> Top:
    """The rows of a timeline's device with most time; of its host if ``host`` is set or
    no device was recorded.

    With ``longer_ns`` rows have only single runs that took longer, the host's by self
    time; shares still refer to all time. If neither events nor kernels were collected,
    the rows by type come from the profiler's own totals. Raises UsageError if rows by
    shape or single runs are requested and the recording has none.
    """
    if not host:
        of_device = _top_of_device(timeline, by, longer_ns)
        if of_device is not None:
            return of_device
    return _top_of_host(timeline, by, longer_ns)


def unit_work(timeline: Timeline, *, by: DiffKey = "operator") -> UnitWork:
    """Kernels come from the device's timeline, else from the profiler's table of them;
    by line from the timeline alone.

    Raises UsageError if rows by line are requested and no Python functions were
    recorded.
    """
    stacks = stacks_of(timeline.events)
    device = bool(stacks.on_device.any())
    of_host = host_kinds(stacks.events)
    has_kernels = device or bool(timeline.kernels)
    if by == "line":
        of_host_lines = launchers(stacks, of_host)
        of_device_lines = launchers(stacks, DEVICE_KINDS)
        if device:
            of_device_lines.require_lines()
        else:
            of_host_lines.require_lines()
        rows = [
            *_unit_rows_by_line(stacks, of_host_lines),
            *_unit_rows_by_line(stacks, of_device_lines),
        ]
    else:
        unit_rows = _UnitRows(stacks)
        rows = [*unit_rows.of(of_host), *unit_rows.of(DEVICE_KINDS)]
        if not device:
            rows += _unit_rows_of_kernels(timeline.kernel_columns)
    totals = DiffTotals(
        kernel=_seconds(rows, "compute", has_kernels),
        copy=_seconds(rows, "copy", device and shows_copies(timeline.events)),
        fused=_seconds(rows, "fused", True) or None,
        communication=_seconds(rows, "comm", has_kernels),
        gap=_idle_seconds(stacks),
        host=_seconds(rows, "host", bool(of_host)),
    )
    return UnitWork(stacks.unit, stacks.units, totals, tuple(rows))


def _seconds(rows: Iterable[Work], kind: str, is_recorded: bool) -> float | None:
    """The time of all rows of a kind, None if it was not recorded."""
    if not is_recorded:
        return None
    return sum(row.amount for row in rows if row.kind == kind) / 1e9


def _idle_seconds(stacks: Stacks) -> float | None:
    """The time of an average unit in which its device was idle; None without a device."""
    gaps = device_gaps(stacks.events)
    if gaps is None:
        return None
    return (gaps.window_ns - gaps.busy_ns) / stacks.units / 1e9


def _top_of_device(timeline: Timeline, by: TopKey, longer_ns: int | None) -> Top | None:
    work = timeline.events.of_kind(*DEVICE_KINDS)
    if by == "line":
        if not len(work):
            return None
        return Top(
            "device",
            union_length(work.intervals),
            _top_rows_by_line(timeline, DEVICE_KINDS, longer_ns),
        )
    table = timeline.kernel_columns
    # On Ascend only the table of kernels has the shapes; it has no copies.
    has_shapes = by == "shape" and (table.codes["inputs"] != NO_TEXT).any()
    if len(table) and (has_shapes or not len(work)):
        return Top(
            "device", _busy_ns(table), _top_rows_of_kernels(table, by, longer_ns)
        )
    if len(work):
        return Top(
            "device",
            union_length(work.intervals),
            _top_rows(work, work.duration, by, longer_ns),
        )
    if by == "type" and timeline.totals.types:
        return _top_of_totals("device", "compute", timeline.totals.types, longer_ns)
    return None


def _busy_ns(table: KernelTable) -> int:
    """The time in which any kernel ran; the sum of their times if the table lacks a
    start.
    """
    if (table.start == NO_NUMBER).any():
        return int(table.duration.sum())
    return union_length(Intervals(table.start, table.start + table.duration))


def _top_of_host(timeline: Timeline, by: TopKey, longer_ns: int | None) -> Top:
    kinds = host_kinds(timeline.events) or _HOST_KINDS[0]
    calls = timeline.events.of_kind(*kinds)
    if by == "line" and not len(calls):
        raise UsageError(
            "the recording has tables alone, and they name no lines; use --by type"
        )
    if not len(calls) and by != "shape" and timeline.totals.operators:
        return _top_of_totals("host", "host", timeline.totals.operators, longer_ns)
    own = self_times(calls.start, calls.duration, calls.track)
    if by == "line":
        return Top(
            "host", int(own.sum()), _top_rows_by_line(timeline, kinds, longer_ns)
        )
    return Top("host", int(own.sum()), _top_rows(calls, own, by, longer_ns))


def _top_of_totals(
    side: TopSide, kind: TopKind, totals: Iterable[NamedTotal], longer_ns: int | None
) -> Top:
    """Rows of the profiler's own totals.

    Raises UsageError if single runs are requested.
    """
    if longer_ns is not None:
        raise UsageError(
            "the recording has totals of operators and no single runs, so --longer cannot choose among them"
        )
    rows = [
        TopOperator(total.name, kind, total.count, total.total_ns) for total in totals
    ]
    return Top(side, sum(row.total_ns for row in rows), _most_time_first(rows))


def _top_rows_by_line(
    timeline: Timeline, kinds: tuple[EventKind, ...], longer_ns: int | None
) -> tuple[TopOperator, ...]:
    """Rows by launching function, else by operator; work without either has a row by
    its own name.
    """
    work = launchers(stacks_of(timeline.events, whole=True), kinds)
    work.require_lines()
    if longer_ns is not None:
        work = work.select(work.time > longer_ns)
    return _most_time_first(_by_line(work))


def _by_line(work: Launchers) -> Iterator[TopOperator]:
    """All work of one kind that one function launched."""
    events, name = work.events, work.name
    first, row = group_rows(name, events.kind)
    totals = totals_by_name(row, work.time, first.size)
    counts = counts_by_name(row, first.size)
    heaviest = work.heaviest(work.operator_or_own, row, first.size)
    for place, count, total, operator in zip(
        first.tolist(), counts.tolist(), totals.tolist(), heaviest
    ):
        kind = row_kind(int(events.kind[place]))
        yield TopOperator(
            events.names[name[place]], kind, count, total, operator=operator
        )


def host_kinds(events: EventTable) -> tuple[EventKind, ...]:
    return next((kinds for kinds in _HOST_KINDS if events.is_kind(*kinds).any()), ())


def _top_rows(
    events: EventTable, time: IntColumn, by: TopKey, longer_ns: int | None
) -> tuple[TopOperator, ...]:
    if longer_ns is not None:
        longer = time > longer_ns
        events, time = events.select(longer), time[longer]
    name = events.group
    if by == "name":
        name = events.name
    columns = [name]
    if by == "shape":
        columns.append(events.shape)
        if len(events) and (events.shape == NO_TEXT).all():
            raise _no_shapes()
    rows = []
    for group in total_groups(time, *columns):
        row = TopOperator(
            name=events.names[name[group.first]],
            kind=row_kind(int(events.kind[group.first])),
            count=group.number,
            total_ns=group.total,
        )
        shape = int(events.shape[group.first])
        if by == "shape" and shape != NO_TEXT:
            row = replace(row, shapes=events.names[shape])
        rows.append(row)
    return _most_time_first(rows)


def _top_rows_of_kernels(
    table: KernelTable, by: TopKey, longer_ns: int | None
) -> tuple[TopOperator, ...]:
    if by == "shape" and (table.codes["inputs"] == NO_TEXT).all():
        raise _no_shapes()
    if longer_ns is not None:
        table = table.select(table.duration > longer_ns)
    name = table.group
    if by == "name":
        name = table.codes["name"]
    columns = [name, table.kind]
    if by == "shape":
        columns.append(table.codes["inputs"])
    rows = []
    for group in total_groups(table.duration, *columns):
        kernel = table[group.first]
        shapes = None
        if by == "shape":
            shapes = str(list(map(list, kernel.inputs.shapes)))
        rows.append(
            TopOperator(
                table.texts[name[group.first]],
                kernel.kind,
                group.number,
                group.total,
                shapes,
            )
        )
    return _most_time_first(rows)


def _most_time_first(rows: Iterable[TopOperator]) -> tuple[TopOperator, ...]:
    return tuple(
        sorted(rows, key=lambda row: (-row.total_ns, row.name, row.shapes or ""))
    )


def _no_shapes() -> UsageError:
    return UsageError(
        "the recording has no shapes; record with record_shapes=True (on an NPU also at Level1), or use --by type"
    )


class _UnitRows:
    """Rows of one name, form of inputs and calling function each."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._nearest, places = project_places(stacks.events, stacks.called_by)
        # The last places stand for none.
        self._places = (*places, None)
        self._shapes = (*stacks.events.names, None)

    def of(self, kinds: tuple[EventKind, ...]) -> list[Work]:
        """The rows of events of some kinds; work of a device has the operator that
        launched most of it.
        """
        stacks, events = self._stacks, self._stacks.events
        chosen = np.flatnonzero(events.is_kind(*kinds)).astype(np.int32)
        columns = events.group, events.kind, events.shape, self._nearest
        first, row = group_rows(*(column[chosen] for column in columns))
        own = stacks.own[chosen]
        if kinds != DEVICE_KINDS:
            # As in rows by line and in ``top``, a call has the time of the launches
            # inside it.
            own = self_times(
                events.start[chosen], events.duration[chosen], events.track[chosen]
            )
        times = totals_by_name(row, own, first.size) / stacks.units
        counts = counts_by_name(row, first.size) / stacks.units
        operators: list[str | None] = [None] * first.size
        if kinds == DEVICE_KINDS:
            launching = launching_operators(stacks, chosen)
            operators = heaviest_names(
                events.names, launching, events.duration[chosen], row, first.size
            )
        places = chosen[first].tolist()
        return list(map(self._row, places, times.tolist(), counts.tolist(), operators))

    def _row(
        self, position: int, time: float, count: float, operator: str | None
    ) -> Work:
        events = self._stacks.events
        kind = int(events.kind[position])
        return Work(
            operator=frame(events.names[events.group[position]], KINDS[kind]).name,
            amount=time,
            calls=count,
            inputs=self._shapes[events.shape[position]],
            line=self._places[self._nearest[position]],
            kind=row_kind(kind),
            launched_by=operator,
        )


def _unit_rows_by_line(stacks: Stacks, launched: Launchers) -> list[Work]:
    """A row for each launching function and kind of event."""
    rows = []
    for line in _by_line(launched):
        function = frame(line.name, "python")
        row = Work(
            operator=function.name,
            amount=line.total_ns / stacks.units,
            calls=line.count / stacks.units,
            line=function.place,
            kind=line.kind,
            launched_by=line.operator,
        )
        rows.append(row)
    return rows


def _unit_rows_of_kernels(table: KernelTable) -> list[Work]:
    """Rows of an average step of a table of kernels."""
    units = max(len(table.steps), 1)
    operator = table.group
    rows = []
    for group in total_groups(
        table.duration, operator, table.kind, table.codes["inputs"]
    ):
        kernel = table[group.first]
        row = Work(
            operator=table.texts[operator[group.first]],
            amount=group.total / units,
            calls=group.number / units,
            inputs=kernel.inputs.notation or None,
            kind=kernel.kind,
        )
        rows.append(row)
    return rows
