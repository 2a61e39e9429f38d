"""The SQLite export of torch_npu.profiler and msprof: ascend_pytorch_profiler*.db, msprof_*.db.

Schema 1.0.0 of 2025-01 is recorded (sample msinsight-910B-alexnet-2501), 1.2.0 adds columns (Huawei, CANN 9.1.0, data in
ascend_pytorch_profiler_{Rank_ID}.db). Times are nanoseconds, memory is bytes, and names are numbers into STRING_IDS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.trace.events import (
    KERNEL_KINDS,
    MAX_NS,
    NO_CORRELATION,
    EventKind,
    EventTable,
    EventTableBuilder,
)
from perfgate.trace.kernels import OUTSIDE, span_of
from perfgate.trace.readers._ascend.about import environment_of
from perfgate.trace.readers._ascend.database import Database, opened
from perfgate.trace.readers._ascend.export_kernels import KERNEL_COLUMNS, Task, kernel_of, read_counters
from perfgate.trace.readers._ascend.export_memory import allocations, frequency, peaks
from perfgate.trace.readers._ascend.export_words import Words
from perfgate.trace.readers._ascend.kinds import HARDWARE, python_kind, task_kind, type_by_name
from perfgate.trace.recording import Kernel, Timeline
from perfgate.trace.steps import Mark, profiler_steps, step_marks, windows_of

Device = int | None
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
    """Return what an export says. Raises DocumentError, with what is wrong, for a damaged or foreign database."""
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
    """Return the kernels with the number of the step that launched each, which the tables of text have."""
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
