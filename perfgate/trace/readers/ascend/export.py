"""The SQLite export of torch_npu.profiler and msprof: ascend_pytorch_profiler*.db,
msprof_*.db.

Schema 1.0.0 of 2025-01 is recorded (sample msinsight-910B-alexnet-2501), 1.2.0 adds
columns (Huawei, CANN 9.1.0, data in ascend_pytorch_profiler_{Rank_ID}.db). Times are
nanoseconds, memory is bytes, and names are numbers into STRING_IDS. Tables are read
column by column, and each name is classified once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from perfgate.locale import Activity
from perfgate.trace.model.allocations import allocation_totals
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    Codes,
    FloatColumn,
    IntColumn,
    Mask,
    distinct_rows,
    known_number,
    last_rows,
    number_of,
)
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.events import (
    KIND_CODES,
    NO_CORRELATION,
    SHORTEST_WORK_NS,
    EventKind,
    EventTable,
)
from perfgate.trace.model.kernel_names import UNKNOWN_TASK, type_by_name
from perfgate.trace.model.kernel_table import (
    HF32,
    CodedValues,
    KernelTable,
    joined_tables,
    kernel_table,
)
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.recording import (
    AllocationTotal,
    Memory,
    ProfilerStep,
    Shapes,
    Timeline,
)
from perfgate.trace.model.spans import OUTSIDE, span_of
from perfgate.trace.model.steps import profiler_steps, step_marks, windows_of
from perfgate.trace.readers.ascend.about import texts
from perfgate.trace.readers.ascend.columns import (
    NO_TEXT,
    TableColumns,
    flag_of,
    shapes_of,
    words_of,
)
from perfgate.trace.readers.ascend.database import (
    Database,
    ExportTables,
    ExportTexts,
    open_database,
    open_unchanged,
    owned,
)
from perfgate.trace.readers.ascend.export_readings import ExportReadings
from perfgate.trace.readers.ascend.files import Device, FileStamp, stamp_of
from perfgate.trace.readers.ascend.kernels import of_graph
from perfgate.trace.readers.ascend.kinds import (
    HARDWARE,
    dequeued_calls,
    is_unknown_task,
    python_kind,
    task_kind,
)

# ENUM_API_TYPE: the level of a call of CANN, as trace_view.json names it.
_LEVELS = {
    5000: "Runtime",
    5500: "Hccl",
    10000: "Node",
    15000: "Model",
    20000: "AscendCL",
}
# ENUM_API_TYPE of PYTORCH_API.
_MSTX = 50004
_CATEGORIES = {50001: "cpu_op", 50002: "enqueue", 50003: "python_function"}
_NO_CONNECTION = (1 << 32) - 1
_THREAD_BITS = (1 << 32) - 1
_TASK = (
    *("startNs", "endNs", "deviceId", "connectionId", "globalTaskId"),
    *("taskType", "streamId", "taskId", "modelId"),
)
_COLLECTIVE = ("startNs", "endNs", "connectionId", "deviceId", "opName", "opType")
_SHAPES = {"inputs": "inputShapes", "outputs": "outputShapes"}
_WORDS = {
    "input_types": "inputDataTypes",
    "input_formats": "inputFormats",
    "output_types": "outputDataTypes",
    "output_formats": "outputFormats",
}
_NAMED = (
    "name",
    "opType",
    "taskType",
    "opState",
    "hf32Eligible",
    *_SHAPES.values(),
    *_WORDS.values(),
)
# A schema has one name of each group.
_BLOCKS = ("blockDim", "blockNum", "block_dim")
_MIX_BLOCKS = ("mixBlockDim", "mixBlockNum")
_COMMUNICATION = "COMMUNICATION"

# Columns of EventTable from one table; names and tracks index the export's.
_Events = Mapping[str, Codes]


class _Title(NamedTuple):
    """The name, the group and the kind of an event."""

    name: str
    group: str
    kind: EventKind


class Export(NamedTuple):
    """Timelines by device, and the environment and settings that the database names."""

    timelines: list[Timeline]
    environment: dict[str, str]
    settings: dict[str, str]


def read_export(path: Path) -> Export:
    """The content of a database.

    Raises DocumentError, which names the fault, for a damaged or foreign database.
    """
    with open_database(path) as database:
        if not (
            database.has("STRING_IDS")
            and (database.has("TASK") or database.has("PYTORCH_API"))
        ):
            raise database.wrong(
                Activity(
                    "has no tables STRING_IDS and TASK or PYTORCH_API; it is not an export of Ascend's profilers"
                )
            )
        return _Export(path, database).read()


class _Export:
    """The tables of an export that are read once, and a timeline for each of its
    devices.
    """

    def __init__(self, path: Path, database: Database) -> None:
        self._path = path
        self._stamp = stamp_of(path)
        self._database = database
        self._tables = ExportTables(database)
        self._words = self._tables.words
        self._names = Numbering[str]()
        self._tracks = Numbering[tuple[str, str]]()
        self._tasks = self._tables.read("TASK", _TASK, named=("taskType",))
        self._computing = self._tables.read(
            "COMPUTE_TASK_INFO",
            ("globalTaskId", "waitNs", *_BLOCKS, *_MIX_BLOCKS, *_NAMED),
            named=_NAMED,
        )
        self._collectives = self._tables.read(
            "COMMUNICATION_OP", _COLLECTIVE, named=("opName", "opType")
        )
        devices = np.unique(self._tasks.wholes("deviceId")).tolist() or [NO_NUMBER]
        self._devices: list[Device] = list(map(known_number, devices))
        self._readings = ExportReadings(self._tables, alone=len(devices) == 1)

    def read(self) -> Export:
        metadata = {}
        for name, value in self._database.rows("META_DATA", ("name", "value")):
            metadata[str(name)] = str(value)
        settings = {}
        if metadata.get("SCHEMA_VERSION"):
            settings["schema"] = metadata["SCHEMA_VERSION"]
        ranks = self._ranks()
        python = [self._python_calls(), self._ranges()]
        timelines = [
            self._timeline(device, ranks.get(device), python)
            for device in self._devices
        ]
        return Export(timelines, _environment(metadata), settings)

    def _ranks(self) -> dict[Device, int]:
        whole = self._database.whole
        ranks = {}
        for rank_cell, device_cell in self._database.rows(
            "RANK_DEVICE_MAP", ("rankId", "deviceId")
        ):
            rank = whole(rank_cell)
            if rank is not None and rank >= 0:
                ranks[whole(device_cell)] = rank
        return ranks

    def _timeline(
        self, device: Device, rank: int | None, python: Sequence[_Events]
    ) -> Timeline:
        tasks = self._owned(self._tasks, device)
        collectives = self._owned(self._collectives, device)
        number = tasks.wholes("globalTaskId")
        row = np.where(
            number == NO_NUMBER,
            -1,
            last_rows(self._computing.wholes("globalTaskId"), number),
        )
        of_kernels = np.flatnonzero(row >= 0)
        computing = TableColumns((), tasks.rows, {}, ())
        if self._computing.rows:
            computing = self._computing.select(row)
        launched = np.concatenate(
            [tasks.wholes("connectionId"), collectives.wholes("connectionId")]
        )
        parts = [
            self._of_tasks(tasks, computing, row >= 0),
            self._of_collectives(collectives),
            self._cann_calls(launched),
            *python,
        ]
        events = self._table(parts)
        del parts  # the table has its own: free their memory first
        marks = self._marks() or step_marks(events)
        kernels = None
        if self._database.has("COMPUTE_TASK_INFO"):
            work = events.select(
                np.concatenate([of_kernels, tasks.rows + np.arange(collectives.rows)])
            )
            computed = self._computed(
                tasks.select(of_kernels), computing.select(of_kernels)
            )
            kernels = _with_steps(
                joined_tables((computed, self._communicated(collectives))),
                work,
                events,
                marks,
            )
        return Timeline(
            rank=rank,
            device=device,
            events=events,
            kernels=kernels,
            steps=profiler_steps(events, marks),
            memory=Memory(self._peaks(device), self._allocations(device)),
            readings=self._readings.of(device),
        )

    def _table(self, parts: Sequence[_Events]) -> EventTable:
        """All events, one table behind the other."""
        columns: dict[str, Any] = {}
        for name in parts[0]:
            columns[name] = np.concatenate([part[name] for part in parts])
        names, tracks = tuple(self._names), tuple(self._tracks)
        return EventTable(
            **columns, names=names, tracks=tracks, shortest_ns=SHORTEST_WORK_NS
        )

    def _owned(self, columns: TableColumns, device: Device) -> TableColumns:
        return owned(columns, device, alone=len(self._devices) == 1)

    def _type(self, place: int) -> str | None:
        if place == NO_TEXT:
            return None
        return _cell(self._words.texts[place])

    def _of_tasks(
        self, tasks: TableColumns, computing: TableColumns, is_kernel: Mask
    ) -> _Events:
        def title_of(place: int, kind: int, is_kernel: int) -> _Title:
            title = self._words.text(place)
            if is_kernel:
                return _Title(
                    title, self._type(kind) or type_by_name(title), kernel_kind(title)
                )
            plain = task_kind(title, title)
            if plain == "compute" and is_unknown_task(title):
                return _Title(title, f"{UNKNOWN_TASK}{title}", plain)
            if plain == "compute" and self._computing.rows:
                # Parts of a kernel are separate tasks: only tasks in the table of
                # kernels are kernels.
                plain = "other"
            return _Title(title, title, plain)

        name = np.where(is_kernel, computing.place("name"), tasks.place("taskType"))
        kind = np.where(is_kernel, computing.place("opType"), NO_TEXT)
        return self._events(
            tasks,
            (name, kind, is_kernel),
            title_of,
            _Tracks("streamId", _stream),
            tasks.wholes("connectionId"),
        )

    def _of_collectives(self, collectives: TableColumns) -> _Events:
        def title_of(place: int, kind: int) -> _Title:
            title = self._words.text(place)
            return _Title(title, self._type(kind) or type_by_name(title), "comm")

        keys = collectives.place("opName"), collectives.place("opType")
        group = _Tracks("", lambda _: ("Communication", "Group"))
        return self._events(
            collectives, keys, title_of, group, collectives.wholes("connectionId")
        )

    def _cann_calls(self, launched: IntColumn) -> _Events:
        """Calls of CANN; a call that launched work shares its correlation."""

        def title_of(place: int, level: int) -> _Title:
            title = f"{_LEVELS.get(level, 'CANN')}@{self._words.text(place)}"
            return _Title(title, title, "runtime")

        columns = ("startNs", "endNs", "globalTid", "name", "type", "connectionId")
        calls = self._tables.read("CANN_API", columns, named=("name",))
        number = calls.wholes("connectionId")
        joined = np.where(np.isin(number, launched), number, NO_CORRELATION)
        keys = calls.place("name"), calls.wholes("type")
        return self._events(calls, keys, title_of, _threads("CANN"), joined)

    def _python_calls(self) -> _Events:
        # A call that the task queue later dequeues is an operator, as on the timeline.
        queued = dequeued_calls(self._words.texts)

        def title_of(place: int, level: int, has_inputs: int) -> _Title:
            title = self._words.text(place)
            if level == _MSTX:
                return _Title(title, title, "annotation")
            category = _CATEGORIES.get(level, "cpu_op")
            return _Title(
                title,
                title,
                python_kind(
                    category, title, has_inputs=bool(has_inputs) or title in queued
                ),
            )

        columns = ("startNs", "endNs", "globalTid", "name", "type", "inputShapes")
        calls = self._tables.read("PYTORCH_API", columns, named=("name",))
        has_inputs = calls.wholes("inputShapes") != NO_NUMBER
        keys = calls.place("name"), calls.wholes("type"), has_inputs
        return self._events(calls, keys, title_of, _threads("Python"))

    def _ranges(self) -> _Events:
        """The ranges marked by users."""

        def title_of(place: int) -> _Title:
            title = self._words.text(place)
            return _Title(title, title, "annotation")

        ranges = self._tables.read(
            "MSTX_EVENTS",
            ("startNs", "endNs", "globalTid", "message"),
            named=("message",),
        )
        return self._events(
            ranges, [ranges.place("message")], title_of, _threads("Python")
        )

    def _events(
        self,
        columns: TableColumns,
        keys: Sequence[Codes | Mask],
        title_of: Callable[..., _Title],
        track: _Tracks,
        correlation: IntColumn | None = None,
    ) -> _Events:
        """The rows of a table as events; ``title_of`` is called once per combination of
        values in the keys.
        """
        start, duration = self._spans(columns)
        columns_of_keys = [key.astype(np.int64) for key in keys]
        first, number = distinct_rows(columns_of_keys)
        titles = list(map(title_of, *(key[first].tolist() for key in columns_of_keys)))
        place = columns.wholes(track.column)
        first_of, stream = distinct_rows([place])
        tracks = list(map(track.name_of, place[first_of].tolist()))
        if correlation is None:
            correlation = np.full(columns.rows, NO_CORRELATION)
        joins = (correlation >= 0) & (correlation != _NO_CONNECTION)
        return {
            "start": start,
            "duration": duration,
            "track": self._tracks.codes(tracks)[stream],
            "name": self._names.codes(title.name for title in titles)[number],
            "kind": np.array(
                [KIND_CODES[title.kind] for title in titles], dtype=np.uint8
            )[number],
            "correlation": np.where(joins, correlation, NO_CORRELATION),
            "group": self._names.codes(title.group for title in titles)[number],
        }

    def _spans(self, columns: TableColumns) -> tuple[IntColumn, IntColumn]:
        """Start and length; a mark may have no end."""
        start, end = columns.wholes("startNs"), columns.wholes("endNs")
        if (start == NO_NUMBER).any():
            raise self._database.wrong(
                Activity("holds an event without a start; export the profile again")
            )
        return start, np.where(end == NO_NUMBER, 0, np.maximum(end - start, 0))

    def _computed(self, tasks: TableColumns, computing: TableColumns) -> KernelTable:
        """Tasks with the details of each in COMPUTE_TASK_INFO."""
        values = CodedValues()
        start, duration = self._spans(tasks)
        numbers = {
            "start_ns": start,
            "duration_ns": duration,
            "wait_ns": computing.wholes("waitNs"),
            "stream": tasks.wholes("streamId"),
            "task": tasks.wholes("taskId"),
            "model_id": of_graph(tasks.wholes("modelId")),
            "blocks": _first(computing, _BLOCKS),
            "mix_blocks": _first(computing, _MIX_BLOCKS),
        }
        codes = {
            "name": computing.coded("name", str, values.texts),
            "type": computing.coded("opType", _cell, values.texts),
            "core": computing.coded("taskType", _cell, values.texts),
            "state": computing.coded("opState", _cell, values.texts),
            "hf32": computing.coded("hf32Eligible", flag_of, HF32),
        }
        for name, column in _SHAPES.items():
            codes[name] = computing.coded(column, self._shapes, values.shapes)
        for name, column in _WORDS.items():
            codes[name] = computing.coded(column, words_of, values.words)
        source = _TaskCounters(
            self._path, self._stamp, self._words, tasks.wholes("globalTaskId")
        )
        return kernel_table(numbers, codes, values, CounterColumns(source))

    def _communicated(self, collectives: TableColumns) -> KernelTable:
        texts = Numbering([_COMMUNICATION])
        start, duration = self._spans(collectives)
        name = collectives.coded("opName", str, texts)
        kind = collectives.coded("opType", _cell, texts)
        by_name = collectives.coded("opName", type_by_name, texts)
        codes = {
            "name": name,
            "type": np.where(kind == NO_TEXT, by_name, kind),
            "core": np.zeros(start.size, dtype=np.int32),
        }
        return kernel_table(
            {"start_ns": start, "duration_ns": duration}, codes, CodedValues(texts)
        )

    def _shapes(self, text: str) -> Shapes | None:
        cell = _cell(text)
        if cell is None:
            return None
        try:
            return shapes_of(f'"{cell}"')
        except ValueError:
            raise self._database.wrong(
                Activity(
                    "{cell!r} is not a list of shapes; export the profile again",
                    cell=cell,
                )
            ) from None

    def _marks(self) -> list[ProfilerStep]:
        steps = self._database.columns("STEP_TIME", ("id", "startNs", "endNs"))
        start, duration = self._spans(steps)
        end = start + duration
        marks = []
        for number, start_ns, end_ns in zip(
            steps.wholes("id").tolist(), start.tolist(), end.tolist()
        ):
            marks.append(ProfilerStep(known_number(number), start_ns, end_ns))
        return sorted(marks, key=lambda mark: mark.start_ns or 0)

    def _peaks(self, device: Device) -> dict[str, float]:
        """The peak bytes of a device by component."""
        peaks: dict[str, float] = {}
        owners = {device}
        if len(self._devices) == 1:
            owners.add(None)
        for owner, name, value in self._memory():
            size = self._database.number(value)
            if size is not None and owner in owners:
                peaks[name] = max(size, peaks.get(name, size))
        return peaks

    def _memory(self) -> Iterator[tuple[object, str, object]]:
        """Device, component and peak bytes."""
        rows = self._database.rows
        maxima = self._database.maxima
        number = self._database.number
        parts = {
            "allocated": "totalAllocated",
            "reserved": "totalReserved",
            "active": "totalActive",
        }
        for owner, component, *sizes in maxima(
            "MEMORY_RECORD", ("deviceId", "component"), tuple(parts.values())
        ):
            for part, size in zip(parts, sizes):
                yield owner, f"{self._named(component)}.{part}", size
        for owner, kind, ddr, hbm in rows(
            "NPU_MEM", ("deviceId", "type", "ddr", "hbm")
        ):
            if self._named(kind) == "app":
                yield owner, "APP.reserved", (number(ddr) or 0) + (number(hbm) or 0)
        modules = dict(rows("ENUM_MODULE", ("id", "name")))
        for owner, module, size in maxima(
            "NPU_MODULE_MEM", ("deviceId", "moduleId"), ("totalReserved",)
        ):
            if size:
                yield owner, f"module.{modules.get(module, module)}.reserved", size

    def _named(self, number: object) -> str:
        whole = number_of(self._database.whole(number))
        (place,) = self._words.places(np.array([whole])).tolist()
        return self._words.text(place)

    def _allocations(self, device: Device) -> tuple[AllocationTotal, ...] | None:
        """The allocations of each operator on a device; those without an operator are
        left out, as in a CSV table.
        """
        if not self._database.has("OP_MEMORY"):
            return None
        wholes = ("deviceId", "name", "allocationTime", "releaseTime")
        columns = self._owned(
            self._tables.read("OP_MEMORY", wholes, named=("name",), reals=("size",)),
            device,
        )
        is_allocation = (columns.real("size") >= 0) & (columns.wholes("name") >= 0)
        columns = columns.select(np.flatnonzero(is_allocation))
        return allocation_totals(
            self._words.texts,
            columns.wholes("name"),
            columns.real("size"),
            columns.wholes("allocationTime"),
            columns.wholes("releaseTime"),
        )


class _TaskCounters:
    """TASK_PMU_INFO, read on demand."""

    def __init__(
        self, path: Path, stamp: FileStamp, words: ExportTexts, tasks: IntColumn
    ) -> None:
        """``tasks`` are the task ids of the kernels."""
        self._path = path
        self._stamp = stamp
        self._words = words
        self._tasks = tasks

    @property
    def names(self) -> Sequence[str]:
        return tuple(dict.fromkeys(counter.name for counter in self._counters.values()))

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        counters = {
            number: counter
            for number, counter in self._counters.items()
            if counter.name in names
        }
        where = f"WHERE name IN ({', '.join(map(str, counters))})"
        with open_unchanged(self._path, self._stamp) as database:
            rows = database.columns(
                "TASK_PMU_INFO", ("globalTaskId", "name"), reals=("value",), where=where
            )
        task = rows.wholes("globalTaskId")
        number = rows.wholes("name")
        value = rows.real("value")
        tasks = self._tasks
        columns = {name: np.full(tasks.size, np.nan) for name in names}
        if not tasks.size:
            return list(columns.values())
        order = np.argsort(tasks)
        place = np.searchsorted(tasks[order], task).clip(max=order.size - 1)
        kernel = order[place]
        present = tasks[kernel] == task
        for counter, (name, factor) in counters.items():
            own = present & (number == counter)
            columns[name][kernel[own]] = value[own] * factor
        return list(columns.values())

    @cached_property
    def _counters(self) -> dict[int, _Counter]:
        """The counters by the ids of their names."""
        with open_unchanged(self._path, self._stamp) as database:
            numbers = database.distinct("TASK_PMU_INFO", "name")
        places = self._words.places(np.array(numbers, dtype=np.int64)).tolist()
        return {
            number: _counter(self._words.text(place))
            for number, place in zip(numbers, places)
        }


def _with_steps(
    kernels: KernelTable,
    work: EventTable,
    events: EventTable,
    marks: Sequence[ProfilerStep],
) -> KernelTable:
    """Kernels by their start, each with the step that launched it: a column that only
    the CSV tables have.
    """
    owners = span_of(work, windows_of(marks), launches=events.of_kind("runtime"))
    numbers = [number_of(mark.number) for mark in marks]
    step_of = np.array(
        [*numbers, NO_NUMBER]
    )  # the last is for work outside of all steps
    steps = step_of[np.where(owners == OUTSIDE, -1, owners)]
    return replace(kernels, numbers={**kernels.numbers, "step": steps}).select(
        np.argsort(kernels.start, kind="stable")
    )


def _first(columns: TableColumns, names: Sequence[str]) -> IntColumn:
    """The first non-empty value of several columns, row by row."""
    numbers = columns.wholes(names[0])
    for name in names[1:]:
        numbers = np.where(numbers == NO_NUMBER, columns.wholes(name), numbers)
    return numbers


class _Tracks(NamedTuple):
    """The column that determines the tracks of a table's events, and the process and
    thread for each value in it.
    """

    column: str
    name_of: Callable[[int], tuple[str, str]]


def _stream(number: int) -> tuple[str, str]:
    return HARDWARE, f"Stream {known_number(number)}"


def _threads(process: str) -> _Tracks:
    """The threads of a globalTid: process in the upper, thread in the lower 32 bits."""

    def thread(number: int) -> tuple[str, str]:
        return process, f"Thread {0 if number == NO_NUMBER else number & _THREAD_BITS}"

    return _Tracks("globalTid", thread)


def _cell(text: str) -> str | None:
    """A name as a cell of a table: without quotes, None for N/A."""
    cell = text.strip('"')
    if cell == "N/A":
        return None
    return cell


class _Counter(NamedTuple):
    """A counter's name as the tables write it, and the factor for its numbers: times
    are nanoseconds here.
    """

    name: str
    factor: float


def _counter(name: str) -> _Counter:
    if not name.endswith("_time"):
        return _Counter(name, 1.0)
    if not name.endswith("_total_time"):
        return _Counter(f"{name}(us)", 1e-3)
    unit = name.partition("_")[0]
    if unit == "aic":
        unit = "aicore"
    return _Counter(f"{unit}_time(us)", 1e-3)


def _environment(metadata: Mapping[str, str]) -> dict[str, str]:
    try:
        variables = msgspec.json.decode(metadata.get("ENV_VARIABLES", "{}"))
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return texts(variables) if isinstance(variables, dict) else {}
