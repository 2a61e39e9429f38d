"""The events of each device, from a timeline file or from tables: kinds, operator types, exact times and launches."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace.analysis import IntColumn
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
from perfgate.trace.ascend.view import Detail, View
from perfgate.trace.events import KERNEL_KINDS, KIND_CODES, NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.trace.recording import Kernel

# Newer torch_npu writes the timeline's times through a float, so that they are up to 250 ns off those of the tables.
_FLOAT_NS = 500
_OVERLAP = "Overlap Analysis"
# Names of compiled kernels: OnesLike_1c4543fdfe7149b6b0717bd88f061562_high_performance_210000000.
_BINARY = re.compile(r"([A-Za-z]\w*?)_[0-9a-f]{32}(?:_|$)")
_Mask = npt.NDArray[np.bool_]


class DeviceEvents(NamedTuple):
    """The host's events and those of one device, None where the file names none; hertz of its core, lowest and highest."""

    device: int | None
    events: EventTable
    frequency: tuple[float, float] | None


class Task(NamedTuple):
    """One task of a stream, as task_time.csv has it; nanoseconds."""

    name: str
    type: str
    stream: int | None
    start_ns: int
    duration_ns: int


def device_events(view: View, kernels: Sequence[Kernel]) -> list[DeviceEvents]:
    """The events of every device of a timeline; of the host alone where there is no device.

    ``kernels`` are those of the tables of all its devices; they give types and exact times.
    """
    tracks = _Tracks(view)
    events = replace(view.events, kind=_kinds(view, tracks), correlation=_correlations(view, tracks))
    events = replace(_with_types(events, kernels), tracks=_track_names(view))
    return [
        DeviceEvents(device, events.select(tracks.of_device(device)[events.track]), tracks.frequencies[device])
        for device in sorted(tracks.frequencies, key=lambda device: -1 if device is None else device)
    ]


def events_of_tables(kernels: Iterable[Kernel], tasks: Iterable[Task]) -> EventTable:
    """What ran on a device where no timeline was exported: its kernels, and the tasks that are none of them."""
    builder = EventTableBuilder()

    def add(row: Kernel | Task, start: int, kind: EventKind, group: str) -> None:
        track = (HARDWARE, "Communication" if row.stream is None else f"Stream {row.stream}")
        name, duration = row.name, row.duration_ns
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=NO_CORRELATION, group=group)

    starts = set()
    for kernel in kernels:
        if kernel.start_ns is not None:
            starts.add(kernel.start_ns)
            kind: EventKind = "comm" if kernel.is_collective else "compute"
            add(kernel, kernel.start_ns, kind, kernel.type or type_by_name(kernel.name))
    for task in tasks:
        if task.start_ns not in starts:
            binary = _BINARY.match(task.name)
            group = binary[1] if binary else type_by_name(task.name)
            add(task, task.start_ns, task_kind(task.type, task.name), group)
    return builder.table()


class _Tracks:
    """Which tracks are the host's, the hardware's, the collectives', and which device's."""

    def __init__(self, view: View) -> None:
        names = [view.processes.get(pid, "") for pid, _ in view.keys]
        self.host = np.array([name in HOST for name in names], dtype=bool)
        self.hardware = np.array([name == HARDWARE for name in names], dtype=bool)
        self.collective = np.array([name in COLLECTIVES for name in names], dtype=bool)
        self.on_device = self.hardware | self.collective
        self._shown = np.array([name != _OVERLAP for name in names], dtype=bool)
        owners = _owners(view)
        devices = {device for device in owners.values() if device is not None}
        # A label NPU without a number stands for the only device there is.
        only = next(iter(devices)) if len(devices) == 1 else None
        self._device = [owners.get(pid) if owners.get(pid) is not None else only for pid, _ in view.keys]
        present = {device for device, owned in zip(self._device, self.on_device.tolist()) if owned} or {None}
        self.frequencies: dict[int | None, tuple[float, float] | None] = dict.fromkeys(present)
        for pid, (low, high) in view.frequencies.items():
            device = device_of_label(view.labels.get(pid))
            owner = device if device in present else next(iter(present)) if len(present) == 1 else None
            if owner in present:
                lowest, highest = self.frequencies[owner] or (low, high)
                self.frequencies[owner] = (min(low, lowest), max(high, highest))

    def of_device(self, device: int | None) -> _Mask:
        """This device's tracks and the host's."""
        same = np.array([owner == device for owner in self._device], dtype=bool)
        tracks: _Mask = self._shown & (~self.on_device | same)
        return tracks


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


def _kinds(view: View, tracks: _Tracks) -> IntColumn:
    """The kind of every event; each combination of track, detail and name is judged once."""
    events = view.events
    queued = frozenset(name.removeprefix("Dequeue@") for name in events.names if name.startswith("Dequeue@"))
    keys = (events.track * len(view.details) + view.detail) * len(events.names) + events.name
    distinct, back = np.unique(keys, return_inverse=True)
    codes = []
    for key in distinct.tolist():
        rest, name = divmod(key, len(events.names))
        track, detail = divmod(rest, len(view.details))
        codes.append(KIND_CODES[_kind(view, tracks, track, view.details[detail], events.names[name], queued)])
    kinds: IntColumn = np.array(codes, dtype=np.int64)[back.reshape(-1)]
    return kinds


def _kind(view: View, tracks: _Tracks, track: int, detail: Detail, name: str, queued: frozenset[str]) -> EventKind:
    if tracks.hardware[track]:
        return task_kind(detail.task_type, name)
    if tracks.collective[track]:
        return collective_kind(view.threads.get(view.keys[track], ""), name)
    process = view.processes.get(view.keys[track][0], "")
    if process == "CANN":
        return "runtime"
    if process == "Python" or detail.category:
        return python_kind(detail.category, name, has_inputs=detail.has_inputs or name in queued)
    return "other"


def _with_types(events: EventTable, kernels: Sequence[Kernel]) -> EventTable:
    """Group kernels by their type, and give them the tables' exact times."""
    lookup = _Kernels(kernels)
    names = {name: number for number, name in enumerate(events.names)}
    start, duration, group = events.start.copy(), events.duration.copy(), events.group.copy()
    for position in np.flatnonzero(events.is_kind(*KERNEL_KINDS)).tolist():
        name = events.names[events.name[position]]
        kernel = lookup.at(name, int(start[position]))
        if kernel is not None and kernel.start_ns is not None:
            start[position], duration[position] = kernel.start_ns, kernel.duration_ns
        kernel_type = kernel.type if kernel is not None else lookup.types.get(name)
        group[position] = names.setdefault(kernel_type or type_by_name(name), len(names))
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
        first = bisect_left(starts, (start - _FLOAT_NS, -1))
        near = [entry for entry in starts[first : first + 2] if abs(entry[0] - start) <= _FLOAT_NS]
        return self._kernels[min(near, key=lambda entry: abs(entry[0] - start))[1]] if near else None


def _correlations(view: View, tracks: _Tracks) -> IntColumn:
    """One number for a call that launched and everything it started on the device.

    An arrow starts inside the call that launched, which is the innermost span around it on its thread, and ends exactly
    where a task starts on its track (sample msinsight-910B-alexnet-2501: 210 of 210, only 23 of them at a span's start).
    One call may start several arrows and one arrow several tasks, so it is the call that gives the number: its position
    among the events.
    """
    events = view.events
    numbers = np.full(len(events), NO_CORRELATION, dtype=np.int64)
    calls = dict(zip(view.starts.flow.tolist(), _calls_of_arrows(view, tracks.host).tolist()))
    ends = {
        (track, time): calls.get(flow, NO_CORRELATION)
        for flow, track, time in zip(*(column.tolist() for column in view.ends))
    }
    tasks = np.flatnonzero(tracks.on_device[events.track]) if ends else np.zeros(0, dtype=np.int64)
    for task, track, start in zip(tasks.tolist(), events.track[tasks].tolist(), events.start[tasks].tolist()):
        numbers[task] = ends.get((track, start), NO_CORRELATION)
    callers = np.unique(numbers[numbers >= 0])
    numbers[callers] = callers
    return numbers


def _calls_of_arrows(view: View, on_host: _Mask) -> IntColumn:
    """For every arrow the span it starts in, -1 where there is none."""
    events = view.events
    track, time = view.starts.track, view.starts.time
    calls = np.full(track.size, -1, dtype=np.int64)
    for number in np.unique(track).tolist():
        spans = np.flatnonzero(events.track == number)
        if not spans.size:
            # Level0 leaves the thread of CANN without spans: there the task queue's, on the same thread, made the call.
            same = [key[1] == view.keys[number][1] for key in view.keys]
            spans = np.flatnonzero((np.array(same, dtype=bool) & on_host)[events.track])
        arrows = np.flatnonzero(track == number)
        calls[arrows] = _innermost(events, spans, time[arrows])
    return calls


def _innermost(events: EventTable, spans: IntColumn, times: IntColumn) -> IntColumn:
    """The innermost of some nested spans around each time, -1 where there is none."""
    spans = spans[np.lexsort((-events.duration[spans], events.start[spans]))]
    start, end, numbers = events.start[spans].tolist(), events.end[spans].tolist(), spans.tolist()
    innermost = np.full(times.size, -1, dtype=np.int64)
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
            innermost[query] = numbers[around[-1]]
    return innermost


def _track_names(view: View) -> tuple[tuple[str, str], ...]:
    """Process and thread of each track by their names; two processes of one name keep their ids apart."""
    names = [(view.processes.get(pid) or pid, view.threads.get((pid, tid)) or tid) for pid, tid in view.keys]
    owners: dict[str, set[str]] = {}
    for (process, _), (pid, _) in zip(names, view.keys):
        owners.setdefault(process, set()).add(pid)
    return tuple(
        (process if len(owners[process]) == 1 else f"{process} {pid}", thread)
        for (process, thread), (pid, _) in zip(names, view.keys)
    )
