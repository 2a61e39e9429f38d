"""The events of each device, from a timeline file or from tables: kinds, operator types, exact times and launches."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace.analysis import IntColumn
from perfgate.trace.ascend.files import MAX_ROWS, rows_of
from perfgate.trace.ascend.kinds import (
    COLLECTIVES,
    HARDWARE,
    HOST,
    collective_kind,
    device_of_label,
    python_kind,
    task_kind,
    type_by_name,
)
from perfgate.trace.ascend.view import View
from perfgate.trace.events import KIND_CODES, NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.trace.recording import Kernel

# Newer torch_npu writes the timeline's times through a float, so that they are up to 250 ns off those of the tables.
_FLOAT_NS = 500
_OVERLAP = "Overlap Analysis"


class DeviceEvents(NamedTuple):
    """The host's events and those of one device, None where the file names none; hertz of its core, lowest and highest."""

    device: int | None
    events: EventTable
    frequency: tuple[float, float] | None


def device_events(view: View, kernels: Sequence[Kernel]) -> list[DeviceEvents]:
    """The events of every device of a timeline; of the host alone where there is no device.

    ``kernels`` are those of the tables of all its devices; they give types and exact times.
    """
    roles = _Roles(view)
    kinds = _kinds(view, roles)
    events = replace(view.events, kind=kinds, correlation=correlations(
        view, on_host=roles.host, on_device=roles.hardware | roles.collective
    ))  # fmt: skip
    events = _typed(events, kernels)
    events = replace(events, tracks=_track_names(view))
    kept = ~roles.left_out[events.track]
    found = sorted(roles.frequencies, key=lambda device: -1 if device is None else device)
    return [
        DeviceEvents(
            device=device,
            events=events.select(kept & (roles.shared | roles.of_device(device))[events.track]),
            frequency=roles.frequencies[device],
        )
        for device in found
    ]


class _Roles:
    """Which tracks are the host's, the hardware's, the collectives', and which device's."""

    def __init__(self, view: View) -> None:
        names = [view.processes.get(pid, "") for pid, _ in view.keys]
        self.host = np.array([name in HOST for name in names], dtype=bool)
        self.hardware = np.array([name == HARDWARE for name in names], dtype=bool)
        self.collective = np.array([name in COLLECTIVES for name in names], dtype=bool)
        self.left_out = np.array([name == _OVERLAP for name in names], dtype=bool)
        self.shared = ~(self.hardware | self.collective)
        owners = _owners(view)
        numbered = {device for device in owners.values() if device is not None}
        # A label NPU without a number stands for the only device there is.
        only = next(iter(numbered)) if len(numbered) == 1 else None
        self._device = [owners.get(pid) if owners.get(pid) is not None else only for pid, _ in view.keys]
        present = {device for device, shared in zip(self._device, self.shared.tolist()) if not shared} or {None}
        self.frequencies: dict[int | None, tuple[float, float] | None] = dict.fromkeys(present)
        for pid, (low, high) in view.frequencies.items():
            device = device_of_label(view.labels.get(pid))
            owner = device if device in present else next(iter(present)) if len(present) == 1 else None
            known = self.frequencies.get(owner)
            if owner in present:
                self.frequencies[owner] = (min(low, known[0]), max(high, known[1])) if known else (low, high)

    def of_device(self, device: int | None) -> npt.NDArray[np.bool_]:
        same = np.array([owner == device for owner in self._device], dtype=bool)
        chosen: npt.NDArray[np.bool_] = ~self.shared & same
        return chosen


def _owners(view: View) -> dict[str, int | None]:
    """The device of each process that is one's.

    Newer builds label the process (NPU 0); where several are labelled NPU alone, the process id ends in the device:
    (host process << 10) | (sort index << 5) | device.
    """
    pids = [pid for pid, name in view.processes.items() if name == HARDWARE or name in COLLECTIVES]
    owners = {pid: device_of_label(view.labels.get(pid)) for pid in pids}
    several = sum(view.processes[pid] == HARDWARE for pid in pids) > 1
    if several and set(owners.values()) == {None} and all(pid.isdecimal() and len(pid) < 20 for pid in pids):
        return {pid: int(pid) & 31 for pid in pids}
    return owners


def _kinds(view: View, roles: _Roles) -> npt.NDArray[np.int64]:
    events = view.events
    known: dict[tuple[int, int, int], int] = {}
    codes = np.empty(len(events), dtype=np.int64)
    queued = frozenset(name[len("Dequeue@") :] for name in events.names if name.startswith("Dequeue@"))
    columns = zip(events.track.data, view.detail, events.name.data)
    for position, (track, detail, name) in enumerate(columns):
        code = known.get((track, detail, name))
        if code is None:
            code = KIND_CODES[_kind(view, roles, track, view.details[detail], events.names[name], queued)]
            known[track, detail, name] = code
        codes[position] = code
    return codes


def _kind(
    view: View, roles: _Roles, track: int, detail: tuple[str, str, bool], name: str, queued: frozenset[str]
) -> EventKind:
    category, task_type, has_inputs = detail
    if roles.hardware[track]:
        return task_kind(task_type, name)
    if roles.collective[track]:
        return collective_kind(view.threads.get(view.keys[track], ""), name)
    process = view.processes.get(view.keys[track][0], "")
    if process == "CANN":
        return "runtime"
    if process == "Python" or category:
        return python_kind(category, name, has_inputs=has_inputs or name in queued)
    return "other"


def _typed(events: EventTable, kernels: Sequence[Kernel]) -> EventTable:
    lookup = _Kernels(kernels)
    names = {name: number for number, name in enumerate(events.names)}
    start, duration, group = events.start.copy(), events.duration.copy(), events.group.copy()
    working = np.isin(events.kind, [KIND_CODES["compute"], KIND_CODES["comm"]])
    for position in np.flatnonzero(working).tolist():
        name = events.names[events.name[position]]
        kernel = lookup.at(name, int(start[position]))
        if kernel is not None and kernel.start_ns is not None:
            start[position], duration[position] = kernel.start_ns, kernel.duration_ns
        known = kernel.type if kernel is not None else lookup.types.get(name)
        group[position] = names.setdefault(known or type_by_name(name), len(names))
    return replace(events, start=start, duration=duration, group=group, names=tuple(names))


class _Kernels:
    """Finds the table's row of a span: by its exact start, else by its name and a start as a float would round it."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.types: Mapping[str, str | None] = {kernel.name: kernel.type for kernel in kernels}
        self._exact = {kernel.start_ns: kernel for kernel in kernels if kernel.start_ns is not None}
        by_name: dict[str, list[tuple[int, int]]] = {}
        for number, kernel in enumerate(kernels):
            if kernel.start_ns is not None:
                by_name.setdefault(kernel.name, []).append((kernel.start_ns, number))
        self._kernels = kernels
        self._by_name = {name: sorted(starts) for name, starts in by_name.items()}

    def at(self, name: str, start: int) -> Kernel | None:
        exact = self._exact.get(start)
        if exact is not None and exact.name == name:
            return exact
        starts = self._by_name.get(name, [])
        at = bisect_left(starts, (start - _FLOAT_NS, -1))
        near = [entry for entry in starts[at : at + 2] if abs(entry[0] - start) <= _FLOAT_NS]
        return self._kernels[min(near, key=lambda entry: abs(entry[0] - start))[1]] if near else None


def _track_names(view: View) -> tuple[tuple[str, str], ...]:
    named = [(view.processes.get(pid) or pid, view.threads.get((pid, tid)) or tid) for pid, tid in view.keys]
    owners: dict[str, set[str]] = {}
    for (process, _), (pid, _) in zip(named, view.keys):
        owners.setdefault(process, set()).add(pid)
    return tuple(
        (process if len(owners[process]) == 1 else f"{process} {pid}", thread)
        for (process, thread), (pid, _) in zip(named, view.keys)
    )


_Mask = npt.NDArray[np.bool_]


def correlations(view: View, *, on_host: _Mask, on_device: _Mask) -> IntColumn:
    """The correlation of every event, given which tracks are the host's and which a device's.

    An arrow starts inside the call that launched, which is the innermost span around it on its thread, and ends exactly
    where a task starts on its track (sample msinsight-910B-alexnet-2501: 210 of 210, only 23 of them at a span's start).
    One call may start several arrows and one arrow several tasks, so it is the call that gives the number: its position
    among the events.
    """
    events = view.events
    found = np.full(len(events), NO_CORRELATION, dtype=np.int64)
    started = dict(zip(view.starts.flow, _launches(view, on_host).tolist()))
    ended = {
        (track, time): started.get(flow, NO_CORRELATION)
        for flow, track, time in zip(view.ends.flow, view.ends.track, view.ends.time)
    }
    tasks = np.flatnonzero(on_device[events.track]) if ended else np.zeros(0, dtype=np.int64)
    for task, track, start in zip(tasks.tolist(), events.track[tasks].tolist(), events.start[tasks].tolist()):
        found[task] = ended.get((track, start), NO_CORRELATION)
    callers = np.unique(found[found >= 0])
    found[callers] = callers
    return found


def _launches(view: View, on_host: _Mask) -> IntColumn:
    """For every arrow the span it starts in, -1 where there is none."""
    events = view.events
    track, time = np.frombuffer(view.starts.track, np.int64), np.frombuffer(view.starts.time, np.int64)
    launch = np.full(track.size, -1, dtype=np.int64)
    for number in np.unique(track).tolist():
        spans = np.flatnonzero(events.track == number)
        if not spans.size:
            # Level0 leaves the thread of CANN without spans: there the task queue's, on the same thread, made the call.
            same = [key[1] == view.keys[number][1] for key in view.keys]
            spans = np.flatnonzero((np.array(same, dtype=bool) & on_host)[events.track])
        arrows = np.flatnonzero(track == number)
        launch[arrows] = _innermost(events, spans, time[arrows])
    return launch


def _innermost(events: EventTable, spans: IntColumn, times: IntColumn) -> IntColumn:
    """The innermost of some nested spans around each time, -1 where there is none."""
    spans = spans[np.lexsort((-events.duration[spans], events.start[spans]))]
    start, end, numbers = events.start[spans].tolist(), events.end[spans].tolist(), spans.tolist()
    found = np.full(times.size, -1, dtype=np.int64)
    around: list[int] = []
    following = 0
    for query in np.argsort(times, kind="stable").tolist():
        time = times[query]
        while following < len(numbers) and start[following] <= time:
            around.append(following)
            following += 1
        while around and end[around[-1]] < time:
            around.pop()
        if around:
            found[query] = numbers[around[-1]]
    return found


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
    """Task_time.csv by device; it holds copies, events and place holders too. Rows without times are left out."""
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
