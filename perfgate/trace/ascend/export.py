"""The SQLite export of torch_npu.profiler and msprof: ascend_pytorch_profiler*.db, msprof_*.db.

Schema 1.0.0 of 2025-01 is recorded (sample msinsight-910B-alexnet-2501), 1.2.0 adds columns (Huawei, CANN 9.1.0, data in
ascend_pytorch_profiler_{Rank_ID}.db). Times are nanoseconds, memory is bytes, and names are numbers into STRING_IDS.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.trace.allocations import Allocations
from perfgate.trace.ascend.about import texts
from perfgate.trace.ascend.database import Database, open_database
from perfgate.trace.ascend.files import Device
from perfgate.trace.ascend.kernels import EAGER_MODEL_ID, Counters, Shapes, split_shapes, split_words
from perfgate.trace.ascend.kinds import HARDWARE, python_kind, task_kind, type_by_name
from perfgate.trace.events import (
    KERNEL_KINDS,
    MAX_NS,
    NO_CORRELATION,
    EventKind,
    EventTable,
    EventTableBuilder,
)
from perfgate.trace.readings import CORE_CLOCK, MEMORY_READ, MEMORY_WRITE, Readings
from perfgate.trace.recording import AllocationTotal, Kernel, Timeline
from perfgate.trace.spans import OUTSIDE, span_of
from perfgate.trace.steps import Mark, profiler_steps, step_marks, windows_of

# ENUM_API_TYPE: the level of a call of CANN, as trace_view.json names it.
_LEVELS = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}
# ENUM_API_TYPE of PYTORCH_API.
_MSTX = 50004
_CATEGORIES = {50001: "cpu_op", 50002: "enqueue", 50003: "python_function"}
_NO_CONNECTION = (1 << 32) - 1
_THREAD_BITS = (1 << 32) - 1
_MEGAHERTZ = 1e6
_TASK_COLUMNS = (
    "startNs",
    "endNs",
    "deviceId",
    "connectionId",
    "globalTaskId",
    "taskType",
    "streamId",
    "taskId",
    "modelId",
)
_KERNEL_COLUMNS = (
    *("name", "opType", "taskType", "blockDim", "blockNum", "block_dim", "mixBlockDim", "mixBlockNum", "opState"),
    *("hf32Eligible", "waitNs", "inputShapes", "inputDataTypes", "inputFormats"),
    *("outputShapes", "outputDataTypes", "outputFormats"),
)


class Export(NamedTuple):
    """Timelines by device, and what else the database says."""

    timelines: list[Timeline]
    environment: dict[str, str]
    settings: dict[str, str]


class _Task(NamedTuple):
    """One row of TASK; nanoseconds."""

    start: int
    duration: int
    device: Device
    connection: int | None
    number: int | None
    type: str
    stream: int | None
    task: int | None
    model: int | None


def read_export(path: Path) -> Export:
    """Raises DocumentError, with what is wrong, for a damaged or foreign database."""
    with open_database(path) as database:
        if not (database.has("STRING_IDS") and (database.has("TASK") or database.has("PYTORCH_API"))):
            raise database.wrong(
                "has no tables STRING_IDS and TASK or PYTORCH_API; it is no export of Ascend's profilers"
            )
        return _Export(_Words(database)).read()


class _Words:
    """The database with its STRING_IDS."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._strings = {
            database.whole(number): str(value) for number, value in database.rows("STRING_IDS", ("id", "value"))
        }
        # What the task queue takes out again is an operator, as on the timeline.
        self.queued = {text.removeprefix("Dequeue@") for text in self._strings.values() if text.startswith("Dequeue@")}

    def span(self, start: object, end: object) -> tuple[int, int]:
        """Start and length; startNs of PYTORCH_API is text, and a mark may have no end."""
        begin = self.database.whole(start)
        if begin is None:
            raise self.database.wrong("holds an event without a start; export the profile again")
        last = self.database.whole(end)
        return begin, max((begin if last is None else last) - begin, 0)

    def thread(self, number: object) -> str:
        """The thread of a globalTid: process in the upper, thread in the lower 32 bits."""
        return f"Thread {number & _THREAD_BITS if isinstance(number, int) else 0}"

    def text(self, number: object) -> str:
        """A name by its number, the number itself where it has none."""
        text = self._strings.get(number) if isinstance(number, int) else None
        return str(number) if text is None else text

    def cell(self, number: object) -> str | None:
        """A name as a cell of a table: without quotes, None for N/A."""
        cell = None if number is None else self.text(number).strip('"')
        return None if cell == "N/A" else cell

    def shapes(self, number: object) -> Shapes:
        cell = self.cell(number)
        try:
            return () if cell is None else split_shapes(cell)
        except ValueError:
            raise self.database.wrong(f"{cell!r} is no list of shapes; export the profile again") from None


class _Export:
    def __init__(self, words: _Words) -> None:
        self._words = words
        self._database = database = words.database
        whole = database.whole
        self._tasks = list(self._read_tasks())
        self._ranks = {
            whole(device): whole(rank) for rank, device in database.rows("RANK_DEVICE_MAP", ("rankId", "deviceId"))
        }
        self._counters = self._read_counters()
        self._kernels = {
            task: kernel for task, *kernel in database.rows("COMPUTE_TASK_INFO", ("globalTaskId", *_KERNEL_COLUMNS))
        }
        devices = {task.device for task in self._tasks} or {None}
        self._devices = sorted(devices, key=lambda device: -1 if device is None else device)

    def read(self) -> Export:
        metadata = {str(name): str(value) for name, value in self._database.rows("META_DATA", ("name", "value"))}
        schema = metadata.get("SCHEMA_VERSION")
        timelines = [self._timeline(device) for device in self._devices]
        return Export(timelines, _environment(metadata), {"schema": schema} if schema else {})

    def _owns(self, device: Device, owner: object) -> bool:
        """Whether a row is a device's; the only device there is owns what names none."""
        return owner == device or (owner is None and len(self._devices) == 1)

    def _timeline(self, device: Device) -> Timeline:
        events, kernels = self._events(device)
        marks = self._marks() or step_marks(events)
        rank = self._ranks.get(device)
        return Timeline(
            rank=rank if rank is not None and rank >= 0 else None,
            device=device,
            events=events,
            kernels=_with_steps(kernels, events, marks) if self._database.has("COMPUTE_TASK_INFO") else None,
            steps=profiler_steps(events, marks),
            memory=self._peaks(device),
            allocations=self._allocations(device),
            readings=dict(self._readings(device)),
        )

    def _events(self, device: Device) -> tuple[EventTable, list[Kernel]]:
        builder = EventTableBuilder()
        kernels: list[Kernel] = []
        launched: set[int | None] = set()
        for task in self._tasks:
            if task.device != device:
                continue
            kind: EventKind = "compute"
            name = group = task.type
            if (kernel := self._kernel(task)) is not None:
                kernels.append(kernel)
                name, group = kernel.name, kernel.type or type_by_name(kernel.name)
            else:
                # Parts of a kernel are tasks of their own: only what the table of kernels names is one.
                kind = task_kind(task.type, task.type)
                kind = "other" if kind == "compute" and self._kernels else kind
            launched.add(task.connection)
            span, track = (task.start, task.duration), (HARDWARE, f"Stream {task.stream}")
            _add(builder, span, track, name, kind, task.connection, group)
        for kernel, connection in self._collectives(device):
            kernels.append(kernel)
            launched.add(connection)
            span, track = (kernel.start_ns or 0, kernel.duration_ns), ("Communication", "Group")
            _add(builder, span, track, kernel.name, "comm", connection, kernel.type)
        self._add_host(builder, launched)
        kernels.sort(key=lambda kernel: kernel.start_ns or 0)
        return builder.table(), kernels

    def _add_host(self, builder: EventTableBuilder, launched: set[int | None]) -> None:
        words, rows = self._words, self._database.rows
        columns = ("startNs", "endNs", "globalTid", "name", "type", "connectionId")
        for start, end, thread, name, level, connection in rows("CANN_API", columns):
            span = words.span(start, end)
            number = self._database.whole(connection)
            title = f"{_LEVELS.get(level, 'CANN')}@{words.text(name)}"
            _add(
                builder, span, ("CANN", words.thread(thread)), title, "runtime", number if number in launched else None
            )
        columns = ("startNs", "endNs", "globalTid", "name", "type", "inputShapes")
        for start, end, thread, name, api, inputs in rows("PYTORCH_API", columns):
            title = words.text(name)
            has_inputs = inputs is not None or title in words.queued
            kind = python_kind(_CATEGORIES.get(api, "cpu_op"), title, has_inputs=has_inputs)
            kind = "annotation" if api == _MSTX else kind
            _add(builder, words.span(start, end), ("Python", words.thread(thread)), title, kind)
        for start, end, thread, message in rows("MSTX_EVENTS", ("startNs", "endNs", "globalTid", "message")):
            title = words.text(message)
            _add(builder, words.span(start, end), ("Python", words.thread(thread)), title, "annotation")

    def _read_tasks(self) -> Iterator[_Task]:
        whole, words = self._database.whole, self._words
        rows = self._database.rows("TASK", _TASK_COLUMNS)
        for start, end, device, connection, number, kind, stream, task, model in rows:
            yield _Task(
                *words.span(start, end),
                device=whole(device),
                connection=whole(connection),
                number=whole(number),
                type=words.text(kind),
                stream=whole(stream),
                task=whole(task),
                model=whole(model),
            )

    def _kernel(self, task: _Task) -> Kernel | None:
        row = self._kernels.get(task.number)
        if row is None:
            return None
        name, kind, core, blocks, blocks_num, blocks_new, mix, mix_num, state, hf32, wait, *tensors = row
        inputs, input_types, input_formats, outputs, output_types, output_formats = tensors
        words, whole = self._words, self._database.whole
        flag = words.cell(hf32)
        return Kernel(
            name=words.text(name),
            type=words.cell(kind),
            core=words.cell(core),
            start_ns=task.start,
            duration_ns=task.duration,
            wait_ns=whole(wait),
            stream=task.stream,
            task=task.task,
            model_id=None if task.model == EAGER_MODEL_ID else task.model,
            state=words.cell(state),
            blocks=whole(_first(blocks, blocks_num, blocks_new)),
            mix_blocks=whole(_first(mix, mix_num)),
            hf32=None if flag is None else flag.upper() == "YES",
            input_shapes=words.shapes(inputs),
            input_dtypes=split_words(words.cell(input_types)),
            input_formats=split_words(words.cell(input_formats)),
            output_shapes=words.shapes(outputs),
            output_dtypes=split_words(words.cell(output_types)),
            output_formats=split_words(words.cell(output_formats)),
            counters=self._counters.get(task.number, {}),
        )

    def _read_counters(self) -> Mapping[int | None, Mapping[str, float]]:
        """TASK_PMU_INFO by the number of the task."""
        positions: dict[str, int] = {}
        values: dict[int | None, array[float]] = {}
        for task, name, value in self._database.rows("TASK_PMU_INFO", ("globalTaskId", "name", "value")):
            title, factor = _counter(self._words.text(name))
            position = positions.setdefault(title, len(positions))
            row = values.setdefault(self._database.whole(task), array("d"))
            row.extend([math.nan] * (position + 1 - len(row)))
            number = self._database.number(value)
            row[position] = math.nan if number is None else number * factor
        for row in values.values():
            row.extend([math.nan] * (len(positions) - len(row)))
        return {task: Counters(positions, row) for task, row in values.items()}

    def _collectives(self, device: Device) -> Iterator[tuple[Kernel, int | None]]:
        columns = ("opName", "startNs", "endNs", "connectionId", "deviceId", "opType")
        for name, start, end, connection, owner, kind in self._database.rows("COMMUNICATION_OP", columns):
            if self._owns(device, owner):
                title = self._words.text(name)
                begin, duration = self._words.span(start, end)
                kernel_type = self._words.cell(kind) or type_by_name(title)
                yield Kernel(title, kernel_type, "COMMUNICATION", begin, duration), self._database.whole(connection)

    def _marks(self) -> list[Mark]:
        marks = []
        for number, start, end in self._database.rows("STEP_TIME", ("id", "startNs", "endNs")):
            begin, duration = self._words.span(start, end)
            marks.append(Mark(self._database.whole(number), begin, begin + duration))
        return sorted(marks, key=lambda mark: mark.start_ns or 0)

    def _peaks(self, device: Device) -> dict[str, float]:
        """The peak bytes of a device by component."""
        peaks: dict[str, float] = {}
        for owner, name, value in self._memory():
            size = self._database.number(value)
            if size is not None and self._owns(device, owner):
                peaks[name] = max(size, peaks.get(name, size))
        return peaks

    def _memory(self) -> Iterator[tuple[object, str, object]]:
        """Device, component and bytes at some time."""
        rows, number = self._database.rows, self._database.number
        columns = ("deviceId", "component", "totalAllocated", "totalReserved", "totalActive")
        for owner, component, *sizes in rows("MEMORY_RECORD", columns):
            for part, size in zip(("allocated", "reserved", "active"), sizes):
                yield owner, f"{self._words.text(component)}.{part}", size
        for owner, kind, ddr, hbm in rows("NPU_MEM", ("deviceId", "type", "ddr", "hbm")):
            if self._words.text(kind) == "app":
                yield owner, "APP.reserved", (number(ddr) or 0) + (number(hbm) or 0)
        modules = dict(rows("ENUM_MODULE", ("id", "name")))
        for owner, module, size in rows("NPU_MODULE_MEM", ("deviceId", "moduleId", "totalReserved")):
            if size:
                yield owner, f"module.{modules.get(module, module)}.reserved", size

    def _allocations(self, device: Device) -> tuple[AllocationTotal, ...] | None:
        """What each operator allocated on a device."""
        if not self._database.has("OP_MEMORY"):
            return None
        listed = Allocations()
        columns = ("deviceId", "name", "size", "allocationTime", "releaseTime")
        for owner, name, value, start, end in self._database.rows("OP_MEMORY", columns):
            size = self._database.number(value)
            if size is not None and size >= 0 and self._owns(device, owner):
                listed.add(self._words.text(name), size, self._database.whole(start), self._database.whole(end))
        return listed.totals()

    def _readings(self, device: Device) -> Iterator[tuple[str, Readings]]:
        """The clock of a device's AI core, and what its memories together read and write."""
        rows, whole, number = self._database.rows, self._database.whole, self._database.number
        clocks = [
            (time, megahertz * _MEGAHERTZ)
            for owner, at, value in rows("AICORE_FREQ", ("deviceId", "timestampNs", "freq"))
            if owner == device and (time := whole(at)) is not None and (megahertz := number(value)) is not None
        ]
        if clocks:
            yield CORE_CLOCK, Readings.of(*zip(*clocks))
        traffic: dict[str, list[tuple[int, float, int]]] = {}
        for owner, at, value, memory, access in rows("HBM", ("deviceId", "timestampNs", "bandwidth", "hbmId", "type")):
            time, rate, source = whole(at), number(value), whole(memory)
            if self._owns(device, owner) and time is not None and rate is not None and source is not None:
                traffic.setdefault(self._words.text(access), []).append((time, rate, source))
        for access, name in (("read", MEMORY_READ), ("write", MEMORY_WRITE)):
            if access in traffic:
                times, rates, sources = (np.array(column) for column in zip(*traffic[access]))
                yield name, Readings.summed(times, rates.astype(np.float64), sources)


def _with_steps(kernels: Sequence[Kernel], events: EventTable, marks: Sequence[Mark]) -> tuple[Kernel, ...]:
    """The kernels with the number of the step that launched each, which the tables of text have."""
    work = events.of_kind(*KERNEL_KINDS)
    owners = span_of(work, windows_of(marks), launches=events.of_kind("runtime"))
    numbers = {
        start: marks[owner].number for start, owner in zip(work.start.tolist(), owners.tolist()) if owner != OUTSIDE
    }
    return tuple(kernel._replace(step=numbers.get(kernel.start_ns)) for kernel in kernels)


def _add(
    builder: EventTableBuilder,
    span: tuple[int, int],
    track: tuple[str, str],
    name: str,
    kind: EventKind,
    connection: int | None = None,
    group: str | None = None,
) -> None:
    joins = connection is not None and 0 <= connection < MAX_NS and connection != _NO_CONNECTION
    correlation = connection if joins and connection is not None else NO_CORRELATION
    builder.add(*span, track=track, name=name, kind=kind, correlation=correlation, group=group)


def _counter(name: str) -> tuple[str, float]:
    """A counter's name as the tables write it, and what its numbers are multiplied by: times are nanoseconds here."""
    if name.endswith("_total_time"):
        return ("aicore_time(us)" if name.startswith("aic_") else f"{name.partition('_')[0]}_time(us)"), 1e-3
    return (f"{name}(us)", 1e-3) if name.endswith("_time") else (name, 1.0)


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _environment(metadata: Mapping[str, str]) -> dict[str, str]:
    try:
        variables = msgspec.json.decode(metadata.get("ENV_VARIABLES", "{}"))
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return texts(variables) if isinstance(variables, dict) else {}
