"""The SQLite export of torch_npu.profiler and msprof: ascend_pytorch_profiler*.db, msprof_*.db."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.trace.ascend.about import environment_of
from perfgate.trace.ascend.database import Database, opened
from perfgate.trace.ascend.kernels import EAGER_MODEL_ID, Counters, shapes
from perfgate.trace.ascend.kernels import words as split_words
from perfgate.trace.ascend.kinds import HARDWARE, python_kind, task_kind, type_by_name
from perfgate.trace.events import (
    KERNEL_KINDS,
    MAX_NS,
    NO_CORRELATION,
    EventKind,
    EventTable,
    EventTableBuilder,
)
from perfgate.trace.recording import AllocationTotal, Kernel, Timeline
from perfgate.trace.spans import OUTSIDE, span_of
from perfgate.trace.steps import Mark, profiler_steps, step_marks, windows_of

_THREAD_BITS = (1 << 32) - 1


class Words:
    """The database with its STRING_IDS."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._strings = {
            database.whole(number): str(value) for number, value in database.rows("STRING_IDS", ("id", "value"))
        }
        # What the task queue takes out again is an operator, as on the timeline.
        self.queued = {text[len("Dequeue@") :] for text in self._strings.values() if text.startswith("Dequeue@")}

    def span(self, start: object, end: object) -> tuple[int, int]:
        """Start and length; startNs of PYTORCH_API is text, and a mark may have no end."""
        begin = self.database.whole(start)
        if begin is None:
            raise self.database.wrong("holds an event without a start; export the profile again")
        last = self.database.whole(end)
        return begin, max((begin if last is None else last) - begin, 0)

    def thread(self, number: object) -> int:
        """The thread of a globalTid: process in the upper, thread in the lower 32 bits."""
        return number & _THREAD_BITS if isinstance(number, int) else 0

    def text(self, number: object) -> str:
        """A name by its number, the number itself where it has none."""
        found = self._strings.get(number) if isinstance(number, int) else None
        return str(number) if found is None else found

    def cell(self, number: object) -> str | None:
        """A name as a cell of a table: without quotes, None for N/A."""
        found = None if number is None else self.text(number).strip('"')
        return None if found in (None, "N/A") else found

    def shapes(self, cell: str | None) -> tuple[tuple[int, ...], ...]:
        try:
            return () if cell is None else shapes(cell)
        except ValueError:
            raise self.database.wrong(f"{cell!r} is no list of shapes; export the profile again") from None


KERNEL_COLUMNS = (
    "name", "opType", "taskType", "blockDim", "blockNum", "block_dim", "mixBlockDim", "mixBlockNum", "opState",
    "hf32Eligible", "waitNs", "inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes",
    "outputFormats",
)  # fmt: skip


class Task(NamedTuple):
    """One row of TASK; nanoseconds."""

    start: int
    duration: int
    device: int | None
    connection: int | None
    number: int | None
    type: str
    stream: int | None
    task: int | None
    model: int | None


def kernel_of(words: Words, task: Task, info: list[object], counters: Mapping[str, float]) -> Kernel:
    """The kernel of a task and its row of COMPUTE_TASK_INFO, cells in the order of KERNEL_COLUMNS."""
    name, kind, core, blocks, more_blocks, newest_blocks, mix, more_mix, state, hf32, wait, *tensors = info
    inputs, input_types, input_formats, outputs, output_types, output_formats = (words.cell(cell) for cell in tensors)
    whole = words.database.whole
    model = None if task.model == EAGER_MODEL_ID else task.model
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
        model_id=model,
        state=words.cell(state),
        blocks=whole(_first(blocks, more_blocks, newest_blocks)),
        mix_blocks=whole(_first(mix, more_mix)),
        hf32=None if flag is None else flag.upper() == "YES",
        input_shapes=words.shapes(inputs),
        input_dtypes=split_words(input_types),
        input_formats=split_words(input_formats),
        output_shapes=words.shapes(outputs),
        output_dtypes=split_words(output_types),
        output_formats=split_words(output_formats),
        counters=counters,
    )


def read_counters(words: Words) -> dict[int | None, Counters]:
    names: dict[str, int] = {}
    factors: list[float] = []
    values: dict[int | None, array[float]] = {}
    for task, name, value in words.database.rows("TASK_PMU_INFO", ("globalTaskId", "name", "value")):
        title, factor = _counter(words.text(name))
        position = names.setdefault(title, len(names))
        if position == len(factors):
            factors.append(factor)
        row = values.setdefault(words.database.whole(task), array("d"))
        row.extend([math.nan] * (position + 1 - len(row)))
        number = words.database.number(value)
        row[position] = math.nan if number is None else number * factor
    for row in values.values():
        row.extend([math.nan] * (len(names) - len(row)))
    return {task: Counters(names, row) for task, row in values.items()}


def _counter(name: str) -> tuple[str, float]:
    """A counter's name as the tables write it, and what its numbers are multiplied by: times are nanoseconds here."""
    if name.endswith("_total_time"):
        return ("aicore_time(us)" if name.startswith("aic_") else f"{name.partition('_')[0]}_time(us)"), 1e-3
    return (f"{name}(us)", 1e-3) if name.endswith("_time") else (name, 1.0)


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


Device = int | None
_MEGAHERTZ = 1e6


def peaks(words: Words, device: Device, alone: bool) -> dict[str, float]:
    """The peak bytes of a device by component; ``alone`` takes what names no device."""
    found: dict[str, float] = {}

    def keep(owner: object, name: str, value: object) -> None:
        size = words.database.number(value)
        if size is not None and (owner == device or (owner is None and alone)):
            found[name] = max(size, found.get(name, size))

    columns = ("deviceId", "component", "totalAllocated", "totalReserved", "totalActive")
    for owner, component, *sizes in words.database.rows("MEMORY_RECORD", columns):
        for part, size in zip(("allocated", "reserved", "active"), sizes):
            keep(owner, f"{words.text(component)}.{part}", size)
    for owner, kind, ddr, hbm in words.database.rows("NPU_MEM", ("deviceId", "type", "ddr", "hbm")):
        if words.text(kind) == "app":
            keep(owner, "APP.reserved", (words.database.number(ddr) or 0) + (words.database.number(hbm) or 0))
    modules = dict(words.database.rows("ENUM_MODULE", ("id", "name")))
    for owner, module, size in words.database.rows("NPU_MODULE_MEM", ("deviceId", "moduleId", "totalReserved")):
        if size:
            keep(owner, f"module.{modules.get(module, module)}.reserved", size)
    return found


def allocations(words: Words, device: Device, alone: bool) -> tuple[AllocationTotal, ...] | None:
    if not words.database.has("OP_MEMORY"):
        return None
    totals: dict[str, AllocationTotal] = {}
    for owner, name, value in words.database.rows("OP_MEMORY", ("deviceId", "name", "size")):
        size = words.database.number(value)
        if size is None or size < 0 or not (owner == device or (owner is None and alone)):
            continue
        title = words.text(name)
        known = totals.get(title, AllocationTotal(title, 0, 0.0, 0.0))
        totals[title] = AllocationTotal(
            title, known.count + 1, known.total_bytes + size, max(known.largest_bytes, size)
        )
    return tuple(totals.values())


def frequency(words: Words, device: Device) -> tuple[float, float] | None:
    seen = [
        words.database.number(frequency)
        for owner, frequency in words.database.rows("AICORE_FREQ", ("deviceId", "freq"))
        if owner == device
    ]
    known = [frequency * _MEGAHERTZ for frequency in seen if frequency is not None]
    return (min(known), max(known)) if known else None


# ENUM_API_TYPE: the level of a call of CANN, as trace_view.json names it.
_LEVELS = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}
_OP, _QUEUE, _PYTHON, _MSTX = 50001, 50002, 50003, 50004
_CATEGORIES = {_OP: "cpu_op", _QUEUE: "enqueue", _PYTHON: "python_function"}
_NONE_TASK = (1 << 32) - 1


class Export(NamedTuple):
    """Timelines by device, and what else the database says."""

    timelines: list[Timeline]
    environment: dict[str, str]
    settings: dict[str, str]


def read_export(path: Path) -> Export:
    with opened(path) as database:
        if not (database.has("STRING_IDS") and (database.has("TASK") or database.has("PYTORCH_API"))):
            raise database.wrong(
                "has no tables STRING_IDS and TASK or PYTORCH_API; it is no export of Ascend's profilers"
            )
        return _Export(database).read()


class _Export:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._words = Words(database)
        self._tasks = list(self._read_tasks())
        self._ranks = {
            database.whole(device): database.whole(rank)
            for rank, device in database.rows("RANK_DEVICE_MAP", ("rankId", "deviceId"))
        }
        self._counters = read_counters(self._words)
        self._kernels = {
            task: kernel for task, *kernel in database.rows("COMPUTE_TASK_INFO", ("globalTaskId", *KERNEL_COLUMNS))
        }

    def read(self) -> Export:
        devices = {task.device for task in self._tasks} or {None}
        alone = len(devices) == 1
        timelines = [
            self._timeline(device, alone) for device in sorted(devices, key=lambda item: -1 if item is None else item)
        ]
        metadata = {str(name): str(value) for name, value in self._database.rows("META_DATA", ("name", "value"))}
        schema = metadata.get("SCHEMA_VERSION")
        return Export(timelines, _environment(metadata), {"schema": schema} if schema else {})

    def _timeline(self, device: Device, alone: bool) -> Timeline:
        events, kernels = self._events(device, alone)
        marks = self._marks() or step_marks(events)
        rank = self._ranks.get(device)
        return Timeline(
            rank=rank if rank is not None and rank >= 0 else None,
            device=device,
            events=events,
            kernels=_with_steps(kernels, events, marks) if self._database.has("COMPUTE_TASK_INFO") else None,
            steps=profiler_steps(events, marks),
            memory=peaks(self._words, device, alone),
            allocations=allocations(self._words, device, alone),
            core_frequency=frequency(self._words, device),
        )

    def _events(self, device: Device, alone: bool) -> tuple[EventTable, list[Kernel]]:
        builder = EventTableBuilder()
        kernels = []
        launched = set()
        for task in self._tasks:
            if task.device != device:
                continue
            info = self._kernels.get(task.number)
            kernel = None if info is None else kernel_of(self._words, task, info, self._counters.get(task.number, {}))
            kind: EventKind = "compute"
            if kernel is not None:
                kernels.append(kernel)
                name, group = kernel.name, kernel.type or type_by_name(kernel.name)
            else:
                # Parts of a kernel are tasks of their own: only what the table of kernels names is one.
                kind = task_kind(task.type, task.type)
                kind = "other" if kind == "compute" and self._kernels else kind
                name = group = task.type
            launched.add(task.connection)
            _add(
                builder,
                task.start,
                task.duration,
                (HARDWARE, f"Stream {task.stream}"),
                name,
                kind,
                task.connection,
                group,
            )
        for collective, connection in self._collectives(device, alone):
            kernels.append(collective)
            launched.add(connection)
            start, track = collective.start_ns or 0, ("Communication", "Group")
            _add(builder, start, collective.duration_ns, track, collective.name, "comm", connection, collective.type)
        self._add_host(builder, launched)
        kernels.sort(key=lambda kernel: kernel.start_ns or 0)
        return builder.table(), kernels

    def _add_host(self, builder: EventTableBuilder, launched: set[int | None]) -> None:
        rows = self._database.rows("CANN_API", ("startNs", "endNs", "globalTid", "name", "type", "connectionId"))
        for start, end, thread, name, level, connection in rows:
            span = self._words.span(start, end)
            called = self._database.whole(connection)
            title = f"{_LEVELS.get(level, 'CANN')}@{self._words.text(name)}"
            track = ("CANN", f"Thread {self._words.thread(thread)}")
            _add(builder, *span, track, title, "runtime", called if called in launched else None, None)
        columns = ("startNs", "endNs", "globalTid", "name", "type", "inputShapes")
        for start, end, thread, name, kind, inputs in self._database.rows("PYTORCH_API", columns):
            title = self._words.text(name)
            event_kind: EventKind = "annotation" if kind == _MSTX else python_kind(
                _CATEGORIES.get(kind, "cpu_op"), title, has_inputs=inputs is not None or title in self._words.queued
            )  # fmt: skip
            _add(
                builder,
                *self._words.span(start, end),
                ("Python", f"Thread {self._words.thread(thread)}"),
                title,
                event_kind,
                None,
                None,
            )
        for start, end, thread, message in self._database.rows(
            "MSTX_EVENTS", ("startNs", "endNs", "globalTid", "message")
        ):
            track = ("Python", f"Thread {self._words.thread(thread)}")
            _add(builder, *self._words.span(start, end), track, self._words.text(message), "annotation", None, None)

    def _read_tasks(self) -> Iterator[Task]:
        whole = self._database.whole
        columns = (
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
        for start, end, device, connection, number, kind, stream, task, model in self._database.rows("TASK", columns):
            yield Task(
                *self._words.span(start, end), whole(device), whole(connection), whole(number), self._words.text(kind),
                whole(stream), whole(task), whole(model),
            )  # fmt: skip

    def _collectives(self, device: Device, alone: bool) -> Iterator[tuple[Kernel, int | None]]:
        columns = ("opName", "startNs", "endNs", "connectionId", "deviceId", "opType")
        for name, start, end, connection, owner, kind in self._database.rows("COMMUNICATION_OP", columns):
            if owner == device or (owner is None and alone):
                title = self._words.text(name)
                begin, duration = self._words.span(start, end)
                yield (
                    Kernel(
                        name=title,
                        type=self._words.cell(kind) or type_by_name(title),
                        core="COMMUNICATION",
                        start_ns=begin,
                        duration_ns=duration,
                    ),
                    self._database.whole(connection),
                )

    def _marks(self) -> list[Mark]:
        marks = []
        for number, start, end in self._database.rows("STEP_TIME", ("id", "startNs", "endNs")):
            begin, duration = self._words.span(start, end)
            marks.append(Mark(self._database.whole(number), begin, begin + duration))
        return sorted(marks, key=lambda mark: mark.start_ns or 0)


def _with_steps(kernels: Sequence[Kernel], events: EventTable, marks: Sequence[Mark]) -> tuple[Kernel, ...]:
    work = events.of_kind(*KERNEL_KINDS)
    owners = span_of(work, windows_of(marks), launches=events.of_kind("runtime"))
    numbers = {
        start: marks[owner].number for start, owner in zip(work.start.tolist(), owners.tolist()) if owner != OUTSIDE
    }
    return tuple(kernel._replace(step=numbers.get(kernel.start_ns)) for kernel in kernels)


def _add(
    builder: EventTableBuilder,
    start: int,
    duration: int,
    track: tuple[str, str],
    name: str,
    kind: EventKind,
    connection: int | None,
    group: str | None,
) -> None:
    known = connection is not None and 0 <= connection < MAX_NS and connection != _NONE_TASK
    correlation = connection if known and connection is not None else NO_CORRELATION
    builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation, group=group)


def _environment(metadata: dict[str, str]) -> dict[str, str]:
    try:
        variables = msgspec.json.decode(metadata.get("ENV_VARIABLES", "{}"))
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return environment_of(variables) if isinstance(variables, dict) else {}
