"""The work of a timeline as rows: the hot spots of a whole recording, and the work of an average call or step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from perfgate.document.alignment import Work
from perfgate.document.trace import DiffKey, DiffTotals, TopKey, TopKind
from perfgate.errors import UsageError
from perfgate.trace.analysis.gaps import device_gaps
from perfgate.trace.analysis.lines import heaviest_names, launchers, launching_operators
from perfgate.trace.analysis.operators import row_kind
from perfgate.trace.analysis.stacks import frame, project_places, stacks_of
from perfgate.trace.model.arithmetic import (
    Codes,
    IntColumn,
    Intervals,
    counts_by_name,
    group_rows,
    self_times,
    totals_by_name,
    union_length,
)
from perfgate.trace.model.events import DEVICE_KINDS, KINDS, NO_TEXT, EventKind, EventTable
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import NO_NUMBER
from perfgate.trace.model.recording import Kernel, Timeline
from perfgate.trace.model.stacks import Stacks

if TYPE_CHECKING:
    from perfgate.document.flame import FlameUnit

# The events that represent the host's work: operators, else Python functions, else any events (plain Chrome traces).
_HOST_KINDS: tuple[tuple[EventKind, ...], ...] = (("host_op",), ("python",), ("runtime", "other"))


@dataclass(frozen=True)
class TopOperator:
    """One operator: its count and its nanoseconds over the recording. ``shapes`` are set in rows by shape: those of the inputs.

    In rows by line the name is the launching function, and ``operator`` the operator with most of its time.
    """

    name: str
    kind: TopKind
    count: int
    total_ns: int
    shapes: str | None = None
    operator: str | None = None


@dataclass(frozen=True)
class Top:
    """The rows of one timeline, most time first; of its device, or of its host.

    On a device a row's time is that of its events, and ``base_ns`` the time in which anything ran on any stream: shares of
    it can add up to more than one if streams overlap. On the host both are self time.
    """

    side: Literal["device", "host"]
    base_ns: int
    rows: tuple[TopOperator, ...]


@dataclass(frozen=True)
class UnitWork:
    """The work of a timeline in an average unit: its totals, and rows with nanoseconds and counts of one unit."""

    unit: FlameUnit
    units: int
    totals: DiffTotals
    rows: tuple[Work, ...]


def top(timeline: Timeline, *, by: TopKey, host: bool, longer_ns: int | None = None) -> Top:
    """The rows of a timeline's device with most time; of its host if ``host`` is set or no device was recorded.

    With ``longer_ns`` rows have only single runs that took longer, the host's by self time; shares stay those of all time.
    If neither events nor kernels were collected, the rows by type come from the profiler's own totals. Raises UsageError if
    rows by shape or single runs are requested and the recording has none.
    """
    return (None if host else _top_of_device(timeline, by, longer_ns)) or _top_of_host(timeline, by, longer_ns)


def unit_work(timeline: Timeline, *, by: DiffKey = "operator") -> UnitWork:
    """Kernels come from the device's timeline, else from the profiler's table of them; by line from the timeline alone.

    Raises UsageError if rows by line are requested and no Python functions were recorded.
    """
    stacks = stacks_of(timeline.events)
    device = stacks.on_device.any()
    of_host = host_kinds(stacks.events)
    if by == "line":
        launchers(stacks, DEVICE_KINDS if device else of_host).require_lines()
    rows_of = _UnitRows(stacks).of if by == "operator" else partial(_unit_rows_by_line, stacks)
    rows = [*rows_of(of_host), *rows_of(DEVICE_KINDS)]
    if by == "operator" and not device and timeline.kernels:
        steps = KernelTable.of(timeline.kernels).steps
        rows += _unit_rows_of_kernels(timeline.kernels, max(len(steps), 1))
    has_kernels = device or bool(timeline.kernels)
    gaps = device_gaps(stacks.events) if device else None
    totals = DiffTotals(
        kernel=_seconds(rows, "compute") if has_kernels else None,
        copy=_seconds(rows, "copy") if device else None,
        fused=_seconds(rows, "fused") or None,
        communication=_seconds(rows, "comm") if has_kernels else None,
        gap=None if gaps is None else (gaps.end_ns - gaps.start_ns - gaps.busy_ns) / stacks.units / 1e9,
        host=_seconds(rows, "host") if of_host else None,
    )
    return UnitWork(stacks.unit, stacks.units, totals, tuple(rows))


def _top_of_device(timeline: Timeline, by: TopKey, longer_ns: int | None) -> Top | None:
    work = timeline.events.of_kind(*DEVICE_KINDS)
    if by == "line":
        if not len(work):
            return None
        return Top("device", union_length(work.intervals), _top_rows_by_line(timeline, DEVICE_KINDS, longer_ns))
    kernels = timeline.kernels or ()
    # On Ascend only the table of kernels has the shapes; it has no copies.
    if kernels and (not len(work) or (by == "shape" and (KernelTable.of(kernels).codes["inputs"] != NO_TEXT).any())):
        table = KernelTable.of(kernels)
        untimed = (table.start == NO_NUMBER).any()
        busy = (
            int(table.duration.sum()) if untimed else union_length(Intervals(table.start, table.start + table.duration))
        )
        return Top("device", busy, _top_rows_of_kernels(table, by, longer_ns))
    if len(work):
        return Top("device", union_length(work.intervals), _top_rows(work, work.duration, by, longer_ns))
    if by == "type" and timeline.types:
        _require_single_runs(longer_ns)
        rows = [TopOperator(total.name, "compute", total.count, total.total_ns) for total in timeline.types]
        return Top("device", sum(row.total_ns for row in rows), _most_time_first(rows))
    return None


def _top_of_host(timeline: Timeline, by: TopKey, longer_ns: int | None) -> Top:
    kinds = host_kinds(timeline.events) or _HOST_KINDS[0]
    calls = timeline.events.of_kind(*kinds)
    if by == "line" and not len(calls):
        raise UsageError("the recording has tables alone, and they name no lines; use --by type")
    if not len(calls) and by != "shape" and timeline.operators:
        _require_single_runs(longer_ns)
        rows = [TopOperator(total.name, "host", total.count, total.total_ns) for total in timeline.operators]
        return Top("host", sum(row.total_ns for row in rows), _most_time_first(rows))
    own = self_times(calls.start, calls.duration, calls.track)
    if by == "line":
        return Top("host", int(own.sum()), _top_rows_by_line(timeline, kinds, longer_ns))
    return Top("host", int(own.sum()), _top_rows(calls, own, by, longer_ns))


def _top_rows_by_line(
    timeline: Timeline, kinds: tuple[EventKind, ...], longer_ns: int | None
) -> tuple[TopOperator, ...]:
    """Rows by launching function, else by operator; work without either has a row by its own name."""
    found = launchers(stacks_of(timeline.events, whole=True), kinds)
    found.require_lines()
    if longer_ns is not None:
        found = found.select(found.time > longer_ns)
    work = found.events
    name = found.name
    first, row = group_rows(name, work.kind)
    totals, counts = totals_by_name(row, found.time, first.size), counts_by_name(row, first.size)
    heaviest = found.heaviest(found.operator_or_own, row, first.size)
    rows = [
        TopOperator(work.names[name[position]], row_kind(int(work.kind[position])), count, total, operator=best)
        for position, count, total, best in zip(first.tolist(), counts.tolist(), totals.tolist(), heaviest)
    ]
    return _most_time_first(rows)


def host_kinds(events: EventTable) -> tuple[EventKind, ...]:
    return next((kinds for kinds in _HOST_KINDS if events.is_kind(*kinds).any()), ())


def _require_single_runs(longer_ns: int | None) -> None:
    if longer_ns is not None:
        raise UsageError(
            "the recording has totals of operators and no single runs, so --longer cannot choose among them"
        )


def _top_rows(events: EventTable, time: IntColumn, by: TopKey, longer_ns: int | None) -> tuple[TopOperator, ...]:
    if longer_ns is not None:
        events, time = events.select(time > longer_ns), time[time > longer_ns]
    name = events.name if by == "name" else events.group
    if by == "shape" and len(events) and not (events.shape != NO_TEXT).any():
        raise _no_shapes()
    first, row = group_rows(name, events.shape) if by == "shape" else group_rows(name)
    totals, counts = totals_by_name(row, time, first.size), counts_by_name(row, first.size)
    rows = []
    for position, count, total in zip(first.tolist(), counts.tolist(), totals.tolist()):
        shape = int(events.shape[position])
        rows.append(
            TopOperator(
                name=events.names[name[position]],
                kind=row_kind(int(events.kind[position])),
                count=count,
                total_ns=total,
                shapes=events.names[shape] if by == "shape" and shape != NO_TEXT else None,
            )
        )
    return _most_time_first(rows)


def _top_rows_of_kernels(table: KernelTable, by: TopKey, longer_ns: int | None) -> tuple[TopOperator, ...]:
    if by == "shape" and (table.codes["inputs"] == NO_TEXT).all():
        raise _no_shapes()
    name = table.codes["name"] if by == "name" else table.group
    inputs = table.codes["inputs"] if by == "shape" else np.zeros(len(table), dtype=np.int64)
    return _most_time_first(
        [
            TopOperator(
                name=table.texts[name[first]],
                kind=table[first].kind,
                count=count,
                total_ns=total,
                shapes=str([list(shape) for shape in table[first].input_shapes]) if by == "shape" else None,
            )
            for first, count, total in _added_up(table, name, inputs, longer_ns)
        ]
    )


def _added_up(
    table: KernelTable, name: Codes, inputs: Codes, longer_ns: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """For each name, kind and form of inputs the position of the first kernel, the count, and the nanoseconds."""
    chosen = np.arange(len(table)) if longer_ns is None else np.flatnonzero(table.duration > longer_ns)
    first, row = group_rows(name[chosen], table.kind[chosen], inputs[chosen])
    totals, counts = totals_by_name(row, table.duration[chosen], first.size), counts_by_name(row, first.size)
    return zip(chosen[first].tolist(), counts.tolist(), totals.tolist())


def _most_time_first(rows: Iterable[TopOperator]) -> tuple[TopOperator, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name, row.shapes or "")))


def _no_shapes() -> UsageError:
    return UsageError(
        "the recording has no shapes; record with record_shapes=True (on an NPU also at Level1), or use --by type"
    )


class _UnitRows:
    """Rows of one name, form of inputs and calling function each."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._nearest, self._places = project_places(stacks.events, stacks.called_by)

    def of(self, kinds: tuple[EventKind, ...]) -> list[Work]:
        """The rows of events of some kinds; those of a device with the operator that launched most of it."""
        stacks, events = self._stacks, self._stacks.events
        chosen = np.flatnonzero(events.is_kind(*kinds)).astype(np.int32)
        columns = events.group, events.kind, events.shape, self._nearest
        first, row = group_rows(*(column[chosen] for column in columns))
        times, counts = totals_by_name(row, stacks.own[chosen], first.size), counts_by_name(row, first.size)
        operators: list[str | None] = [None] * first.size
        if kinds == DEVICE_KINDS:
            launching = launching_operators(stacks, chosen)
            operators = heaviest_names(events.names, launching, events.duration[chosen], row, first.size)
        return [
            self._row(position, time / stacks.units, count / stacks.units, operator)
            for position, time, count, operator in zip(
                chosen[first].tolist(), times.tolist(), counts.tolist(), operators
            )
        ]

    def _row(self, position: int, time: float, count: float, operator: str | None) -> Work:
        events = self._stacks.events
        kind, shape, place = KINDS[events.kind[position]], int(events.shape[position]), int(self._nearest[position])
        return Work(
            operator=frame(events.names[events.group[position]], kind).name,
            amount=time,
            calls=count,
            inputs=None if shape == NO_TEXT else events.names[shape],
            line=self._places[place] if place >= 0 else None,
            kind=kind if kind in DEVICE_KINDS else "host",
            launched_by=operator,
        )


def _unit_rows_by_line(stacks: Stacks, kinds: tuple[EventKind, ...]) -> list[Work]:
    """A row for each launching function and kind of event."""
    found = launchers(stacks, kinds)
    work, name = found.events, found.name
    first, row = group_rows(name, work.kind)
    times, counts = totals_by_name(row, found.time, first.size), counts_by_name(row, first.size)
    heaviest = found.heaviest(found.operator_or_own, row, first.size)
    rows = []
    for position, time, count, operator in zip(first.tolist(), times.tolist(), counts.tolist(), heaviest):
        function = frame(work.names[name[position]], "python")
        rows.append(
            Work(
                operator=function.name,
                amount=time / stacks.units,
                calls=count / stacks.units,
                line=function.place,
                kind=row_kind(int(work.kind[position])),
                launched_by=operator,
            )
        )
    return rows


def _unit_rows_of_kernels(kernels: Sequence[Kernel], units: int) -> list[Work]:
    table = KernelTable.of(kernels)
    return [
        Work(
            operator=table.texts[table.group[first]],
            amount=total / units,
            calls=count / units,
            inputs=table[first].inputs or None,
            kind=table[first].kind,
        )
        for first, count, total in _added_up(table, table.group, table.codes["inputs"])
    ]


def _seconds(rows: Iterable[Work], kind: str) -> float:
    return sum(row.amount for row in rows if row.kind == kind) / 1e9
