"""Events of the device from tables alone, where no timeline was exported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from perfgate.trace.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.trace.readers._ascend.cells import MAX_ROWS, rows_of
from perfgate.trace.readers._ascend.kinds import HARDWARE, task_kind, type_by_name
from perfgate.trace.recording import Kernel

# Names of compiled kernels: OnesLike_1c4543fdfe7149b6b0717bd88f061562_high_performance_210000000.
_BINARY = re.compile(r"([A-Za-z]\w*?)_[0-9a-f]{32}(?:_|$)")


class Task(NamedTuple):
    """One task of a stream, as task_time.csv has it; nanoseconds."""

    name: str
    type: str
    stream: int | None
    start_ns: int
    duration_ns: int


def read_tasks(path: Path) -> Mapping[int | None, tuple[Task, ...]]:
    """Return task_time.csv by device; it holds copies, events and place holders too. Rows without times are left out."""
    found: dict[int | None, list[Task]] = {}
    for row in rows_of(path, most=MAX_ROWS):
        start, duration = row.moment("task_start(us)"), row.lasting("task_time(us)")
        if start is None or duration is None:
            continue
        kind = row.text("kernel_type") or ""
        task = Task(row.text("kernel_name") or kind, kind, row.whole("stream_id"), start, duration)
        found.setdefault(row.whole("device_id"), []).append(task)
    return {device: tuple(tasks) for device, tasks in found.items()}


def events_of_tables(kernels: Iterable[Kernel], tasks: Iterable[Task]) -> EventTable:
    """Return what ran on a device: its kernels, and the tasks that are none of them."""
    builder = EventTableBuilder()
    starts = set()
    for kernel in kernels:
        if kernel.start_ns is not None:
            starts.add(kernel.start_ns)
            kind: EventKind = "comm" if kernel.is_collective else "compute"
            group = kernel.type or type_by_name(kernel.name)
            _add(builder, kernel.start_ns, kernel.duration_ns, kernel.stream, kernel.name, kind, group)
    for task in tasks:
        if task.start_ns not in starts:
            binary = _BINARY.match(task.name)
            kind = task_kind(task.type, task.type if task.name == task.type else task.name)
            group = binary[1] if binary else type_by_name(task.name)
            _add(builder, task.start_ns, task.duration_ns, task.stream, task.name, kind, group)
    return builder.table()


def _add(
    builder: EventTableBuilder, start: int, duration: int, stream: int | None, name: str, kind: EventKind, group: str
) -> None:
    track = (HARDWARE, "Communication" if stream is None else f"Stream {stream}")
    builder.add(start, duration, track=track, name=name, kind=kind, correlation=NO_CORRELATION, group=group)
