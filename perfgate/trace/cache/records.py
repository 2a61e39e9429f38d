"""A recording as records that hold numbers of columns in place of the columns, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.cache.columns import AnyColumn, ColumnFile, ColumnWriter
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.events import COLUMN_TYPES, EventTable
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import Columns, Packed, PackedReals
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import (
    AllocationTotal,
    Collective,
    CollectiveKernel,
    NamedTotal,
    ProfilerStep,
    RankLink,
    Recording,
    Shapes,
    Timeline,
)
from perfgate.trace.model.steps import MarkedSteps

# The number of the column of a ``Packed``, its lowest and its highest value.
_StoredPacked = tuple[int, int, int]
# The numbers of the columns of times and values, and the unit.
_StoredReadings = tuple[int, int, str]


class _StoredKernels(msgspec.Struct, frozen=True, array_like=True):
    numbers: dict[str, _StoredPacked]
    codes: dict[str, _StoredPacked]
    texts: tuple[str, ...]
    shapes: tuple[Shapes, ...]
    words: tuple[tuple[str, ...], ...]
    counters: tuple[str, ...]


class _StoredTimeline(msgspec.Struct, frozen=True, array_like=True):
    """As ``Timeline``; ``events`` are columns in the order of COLUMN_TYPES, ``names`` a position in the recording's lists.

    ``marks`` are those of steps that are worked out when one is asked for.
    """

    rank: int | None
    device: int | None
    events: list[int]
    names: int
    tracks: tuple[tuple[str, str], ...]
    kernels: _StoredKernels | None
    steps: tuple[ProfilerStep, ...] | None
    marks: tuple[ProfilerStep, ...] | None
    step_table: tuple[ProfilerStep, ...] | None
    collectives: tuple[Collective, ...] | None
    collective_kernels: tuple[CollectiveKernel, ...] | None
    memory: dict[str, float]
    rank_links: tuple[RankLink, ...] | None
    types: tuple[NamedTotal, ...] | None
    calls: tuple[NamedTotal, ...] | None
    operators: tuple[NamedTotal, ...] | None
    allocations: tuple[AllocationTotal, ...] | None
    groups: dict[str, tuple[int, ...]]
    readings: dict[str, _StoredReadings]


class StoredRecording(msgspec.Struct, frozen=True, array_like=True):
    """As ``Recording``, without its path."""

    format: str
    timelines: list[_StoredTimeline]
    names: list[tuple[str, ...]]
    software: dict[str, str]
    settings: dict[str, str]
    environment: dict[str, str]
    absent: dict[str, Message]
    notes: tuple[Message, ...]


def stored(recording: Recording, columns: ColumnWriter) -> StoredRecording:
    """The records of a recording; its columns are added to ``columns``. Raises ValueError for data that cannot be stored."""
    names = _Names()
    return StoredRecording(
        format=recording.format,
        timelines=[_stored_timeline(timeline, columns, names) for timeline in recording.timelines],
        names=names.lists,
        software=dict(recording.software),
        settings=dict(recording.settings),
        environment=dict(recording.environment),
        absent=dict(recording.absent),
        notes=recording.notes,
    )


def restored(record: StoredRecording, columns: ColumnFile, path: Path) -> Recording:
    """The recording of some records, read at ``path``."""
    return Recording(
        path=path,
        format=record.format,
        timelines=tuple(
            _timeline(timeline, columns, record.names, _Reread(path, place))
            for place, timeline in enumerate(record.timelines)
        ),
        software=record.software,
        settings=record.settings,
        environment=record.environment,
        absent=record.absent,
        notes=record.notes,
    )


class _Names:
    """The lists of names of all timelines, each once: those of one file have them in common."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, ...]] = []
        self._places: dict[int, int] = {}

    def place(self, names: tuple[str, ...]) -> int:
        if id(names) not in self._places:
            self._places[id(names)] = len(self.lists)
            self.lists.append(names)
        return self._places[id(names)]


# Fields of both records of a timeline that hold no columns.
_PLAIN = (
    "rank",
    "device",
    "step_table",
    "collectives",
    "collective_kernels",
    "rank_links",
    "types",
    "calls",
    "operators",
    "allocations",
)


def _stored_timeline(timeline: Timeline, columns: ColumnWriter, names: _Names) -> _StoredTimeline:
    steps = timeline.steps
    marks = steps.marks if isinstance(steps, MarkedSteps) else None
    return _StoredTimeline(
        events=[columns.add(getattr(timeline.events, name)) for name in COLUMN_TYPES],
        names=names.place(timeline.events.names),
        tracks=timeline.events.tracks,
        kernels=None if timeline.kernels is None else _stored_kernels(timeline.kernels, columns),
        steps=None if steps is None or marks is not None else tuple(steps),
        marks=marks,
        memory=dict(timeline.memory),
        groups=dict(timeline.groups),
        readings={
            name: (columns.add(readings.time), columns.add(readings.value), readings.unit)
            for name, readings in timeline.readings.items()
        },
        **{name: getattr(timeline, name) for name in _PLAIN},
    )


def _timeline(
    record: _StoredTimeline, columns: ColumnFile, names: Sequence[tuple[str, ...]], reread: _Reread
) -> Timeline:
    events = EventTable(
        **{name: columns.column(number) for name, number in zip(COLUMN_TYPES, record.events)},
        names=names[record.names],
        tracks=record.tracks,
    )
    steps = record.steps if record.marks is None else MarkedSteps(events, record.marks)
    return Timeline(
        events=events,
        kernels=None if record.kernels is None else _kernels(record.kernels, columns, reread),
        steps=steps,
        memory=record.memory,
        groups=record.groups,
        readings={
            name: Readings(columns.column(time), columns.column(value), unit)
            for name, (time, value, unit) in record.readings.items()
        },
        **{name: getattr(record, name) for name in _PLAIN},
    )


def _stored_kernels(kernels: Sequence[object], columns: ColumnWriter) -> _StoredKernels:
    table = KernelTable.of(kernels)  # type: ignore[arg-type]

    def packed(columns_by_name: Columns[AnyColumn]) -> dict[str, _StoredPacked]:
        return {
            name: (columns.add(column.values), column.low, column.high)
            for name, column in columns_by_name.packed.items()
        }

    return _StoredKernels(
        numbers=packed(table.numbers),
        codes=packed(table.codes),
        texts=table.texts,
        shapes=table.shapes,
        words=table.words,
        counters=tuple(table.counters.names),
    )


def _kernels(record: _StoredKernels, columns: ColumnFile, reread: _Reread) -> KernelTable:
    def packed(stored_columns: dict[str, _StoredPacked]) -> dict[str, Packed]:
        return {name: Packed(columns.column(at), low, high) for name, (at, low, high) in stored_columns.items()}

    reread.names = record.counters
    return KernelTable(
        Columns(packed(record.numbers), Packed.unpacked),
        Columns(packed(record.codes), Packed.codes),
        record.texts,
        record.shapes,
        record.words,
        CounterColumns(reread) if record.counters else CounterColumns(),
    )


class _Reread:
    """The counters of a timeline's kernels, read from the recording: they are most of a table, and most questions need none."""

    def __init__(self, path: Path, place: int) -> None:
        self._path, self._place = path, place
        self.names: tuple[str, ...] = ()

    def read(self, names: Sequence[str]) -> list[PackedReals]:
        columns = self._counters.columns(*names)
        if set(columns) != set(names):
            raise DocumentError("{path}: has changed while it was being read; ask again", path=self._path)
        return [PackedReals(columns[name]) for name in names]

    @cached_property
    def _counters(self) -> CounterColumns:
        from perfgate.trace.readers.damaged import salvage

        return KernelTable.of(salvage(self._path).timelines[self._place].kernels or ()).counters
