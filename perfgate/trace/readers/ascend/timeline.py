"""The events of each device, from a timeline file or from tables: kinds, operator types, exact times and launches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn, Mask, group_rows, last_rows, last_until
from perfgate.trace.model.events import (
    KERNEL_KINDS,
    KIND_CODES,
    NO_CORRELATION,
    NO_TEXT,
    EventKind,
    EventTable,
    constant,
    joined_events,
)
from perfgate.trace.model.kernel_names import UNKNOWN_TASK, type_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import NO_NUMBER, Packed
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import Timeline
from perfgate.trace.readers.ascend.kinds import (
    COLLECTIVES,
    HARDWARE,
    HOST,
    collective_kind,
    device_of_label,
    is_unknown_task,
    python_kind,
    task_kind,
)
from perfgate.trace.readers.ascend.view import Detail, View

# Newer torch_npu passes the timeline's times through a float, so they differ from the tables by up to 250 ns.
_FLOAT_NS = 500
_OVERLAP = "Overlap Analysis"
# Names of compiled kernels: OnesLike_1c4543fdfe7149b6b0717bd88f061562_high_performance_210000000.
_BINARY = re.compile(r"([A-Za-z]\w*?)_[0-9a-f]{32}(?:_|$)")


def device_timelines(view: View, kernels: KernelTable) -> list[Timeline]:
    """The events and counters of every device of a timeline; of the host alone if there is no device.

    The device is None if the file names none. ``kernels`` come from the tables of all its devices;
    they give types and exact times.
    """
    tracks = _Tracks(view)
    events = replace(view.events, kind=_kinds(view, tracks), correlation=_correlations(view, tracks))
    events = replace(_with_types(events, kernels), tracks=_track_names(view))
    events = _with_unknown_types(events, view, tracks)
    return [
        Timeline(None, device, events.on_tracks(tracks.of_device(device)), readings=tracks.readings[device])
        for device in sorted(tracks.readings, key=lambda device: -1 if device is None else device)
    ]


def events_of_tables(kernels: KernelTable, tasks: EventTable | None) -> EventTable:
    """The work of a device without an exported timeline: its kernels, and the tasks that are not kernels."""
    table = kernels.select(kernels.start != NO_NUMBER)
    track, tracks = _streams(table.numbers.packed["stream"])
    events = replace(table.events, track=track, tracks=tracks)
    if tasks is None:
        return events
    return joined_events(events, tasks.select(~np.isin(tasks.start, events.start)))


def task_events(
    start: IntColumn, duration: IntColumn, stream: Packed, name: IntColumn, kind: IntColumn, texts: Sequence[str]
) -> EventTable:
    """Tasks of streams as events; ``name`` and ``kind``, the type of each task, index ``texts``."""
    first, back = group_rows(name, kind)
    names = {text: number for number, text in enumerate(texts)}
    kinds, groups = [], []
    for title, task_type in zip(*([texts[code] for code in column[first].tolist()] for column in (name, kind))):
        binary = _BINARY.match(title)
        kinds.append(KIND_CODES[task_kind(task_type, title)])
        groups.append(names.setdefault(binary[1] if binary else type_by_name(title), len(names)))
    track, tracks = _streams(stream)
    return EventTable(
        start=start,
        duration=duration,
        track=track,
        name=name,
        kind=np.array(kinds, dtype=np.int64)[back],
        correlation=constant("correlation", NO_CORRELATION, start.size),
        group=np.array(groups, dtype=np.int64)[back],
        request=constant("request", NO_TEXT, start.size),
        shape=constant("shape", NO_TEXT, start.size),
        names=tuple(names),
        tracks=tracks,
    )


def _streams(column: Packed) -> tuple[Codes, tuple[tuple[str, str], ...]]:
    """The track of each row by its stream, and all tracks; a row without a stream is a collective."""
    first, track = group_rows(column.ranks())
    numbers = column.select(first).unpacked().tolist()
    names = ("Communication" if number == NO_NUMBER else f"Stream {number}" for number in numbers)
    return track, tuple((HARDWARE, name) for name in names)


class _Tracks:
    """Classification of tracks: the host's, the hardware's, the collectives', and the device of each."""

    def __init__(self, view: View) -> None:
        names = [view.processes.get(pid, "") for pid, _ in view.keys]
        self.host = np.array([name in HOST for name in names], dtype=bool)
        self.hardware = np.array([name == HARDWARE for name in names], dtype=bool)
        self.collective = np.array([name in COLLECTIVES for name in names], dtype=bool)
        self.on_device = self.hardware | self.collective
        self._shown = np.array([name != _OVERLAP for name in names], dtype=bool)
        owners = _owners(view)
        devices = {device for device in owners.values() if device is not None}
        # A label NPU without a number stands for the only device.
        only = next(iter(devices)) if len(devices) == 1 else None
        self._device = [owners.get(pid) if owners.get(pid) is not None else only for pid, _ in view.keys]
        present = {device for device, owned in zip(self._device, self.on_device.tolist()) if owned} or {None}
        self.readings: dict[int | None, dict[str, Readings]] = {device: {} for device in present}
        for pid, read in view.readings.items():
            device = device_of_label(view.labels.get(pid))
            owner = device if device in present else next(iter(present)) if len(present) == 1 else None
            if owner in present:
                process = view.processes.get(pid, pid)
                # NIC and RoCE both have Port 0/Rx.
                named = {f"{process} {name}" if name.startswith("Port ") else name: own for name, own in read.items()}
                self.readings[owner].update(named)

    def of_device(self, device: int | None) -> Mask:
        """This device's tracks and the host's."""
        same = np.array([owner == device for owner in self._device], dtype=bool)
        tracks: Mask = self._shown & (~self.on_device | same)
        return tracks


def _owners(view: View) -> dict[str, int | None]:
    """The device of each process that represents one.

    Newer builds label the process (NPU 0); if several are labelled NPU alone, the process id ends in the device:
    (host process << 10) | (sort index << 5) | device.
    """
    pids = [pid for pid, name in view.processes.items() if name == HARDWARE or name in COLLECTIVES]
    owners = {pid: device_of_label(view.labels.get(pid)) for pid in pids}
    several = sum(view.processes[pid] == HARDWARE for pid in pids) > 1
    if several and set(owners.values()) == {None} and all(pid.isdecimal() and len(pid) < 20 for pid in pids):
        return {pid: int(pid) & 31 for pid in pids}
    return owners


def _kinds(view: View, tracks: _Tracks) -> Codes:
    """The kind of every event; each combination of track, detail and name is classified once."""
    events = view.events
    queued = frozenset(name.removeprefix("Dequeue@") for name in events.names if name.startswith("Dequeue@"))
    first, row = group_rows(events.track, view.detail, events.name)
    columns = events.track[first], view.detail[first], events.name[first]
    codes = [
        KIND_CODES[_kind(view, tracks, track, view.details[detail], events.names[name], queued)]
        for track, detail, name in zip(*(column.tolist() for column in columns))
    ]
    return np.array(codes, dtype=np.uint8)[row]


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


def _with_types(events: EventTable, table: KernelTable) -> EventTable:
    """Group kernels by their type, and give them the tables' exact times."""
    names = {name: number for number, name in enumerate(events.names)}
    start, duration, group = events.start.copy(), events.duration.copy(), events.group.copy()
    chosen = np.flatnonzero(events.is_kind(*KERNEL_KINDS))
    codes = {text: code for code, text in enumerate(table.texts)}
    code_of = np.array([codes.get(name, NO_TEXT) for name in events.names], dtype=np.int64)
    row = _rows_of(table, code_of[events.name[chosen]], start[chosen])
    found = row >= 0
    start[chosen[found]], duration[chosen[found]] = table.start[row[found]], table.duration[row[found]]

    # A span without a row of its own gets its type from the last row of its name.
    any_row = np.full(len(table.texts) + 1, -1, dtype=np.int64)
    any_row[table.codes["name"]] = np.arange(len(table))
    row = np.where(found, row, any_row[code_of[events.name[chosen]]])
    kind = np.where(row >= 0, table.codes["type"][row], NO_TEXT) if len(table) else np.full(row.size, NO_TEXT)
    name = events.name[chosen]
    first, pair = group_rows(kind, name)
    groups = [
        names.setdefault(type_by_name(events.names[number]) if code == NO_TEXT else table.texts[code], len(names))
        for code, number in zip(kind[first].tolist(), name[first].tolist())
    ]
    group[chosen] = np.array(groups, dtype=np.int32)[pair]
    return replace(events, start=start, duration=duration, group=group, names=tuple(names))


def _with_unknown_types(events: EventTable, view: View, tracks: _Tracks) -> EventTable:
    """Group tasks of unknown types by these."""
    unknown = np.array([is_unknown_task(detail.task_type) for detail in view.details] or [False], dtype=bool)
    chosen = np.flatnonzero(unknown[view.detail] & tracks.hardware[events.track] & events.is_kind("compute"))
    if not chosen.size:
        return events
    names, group = list(events.names), events.group.copy()
    for detail in np.unique(view.detail[chosen]).tolist():
        group[chosen[view.detail[chosen] == detail]] = len(names)
        names.append(f"{UNKNOWN_TASK}{view.details[detail].task_type}")
    return replace(events, group=group, names=tuple(names))


def _rows_of(table: KernelTable, name: IntColumn, start: IntColumn) -> IntColumn:
    """The row of each span, by its exact start, else by its name and its start within float rounding; -1 for none."""
    row = np.full(start.size, -1, dtype=np.int64)
    timed = np.flatnonzero(table.start != NO_NUMBER)
    if not timed.size:
        return row
    # Of several kernels with the same start, the last one of the table counts.
    starts, last = np.unique(table.start[timed][::-1], return_index=True)
    rows = timed[::-1][last]
    place = np.minimum(np.searchsorted(starts, start), starts.size - 1)
    exact = (starts[place] == start) & (table.codes["name"][rows[place]] == name)
    row[exact] = rows[place[exact]]
    tabled = table.codes["name"][timed]
    for code in np.unique(name[~exact & (name != NO_TEXT)]).tolist():
        spans, same = np.flatnonzero(~exact & (name == code)), timed[tabled == code]
        same = same[np.argsort(table.start[same], kind="stable")]
        known = table.start[same]
        if known.size:
            first = np.searchsorted(known, start[spans] - _FLOAT_NS)
            candidates = np.minimum(np.stack([first, first + 1]), known.size - 1)
            distance = np.abs(known[candidates] - start[spans])
            nearest = distance.argmin(axis=0)
            columns = np.arange(spans.size)
            near = distance[nearest, columns] <= _FLOAT_NS
            row[spans[near]] = same[candidates[nearest, columns][near]]
    return row


def _correlations(view: View, tracks: _Tracks) -> CodeColumn:
    """One number for a call that launched and everything it started on the device.

    An arrow starts inside the call that launched, which is the innermost span around it on its thread, and ends exactly
    at the start of a task on its track (sample msinsight-910B-alexnet-2501: 210 of 210, only 23 of them at a span's start).
    One call may start several arrows and one arrow several tasks, so the number is that of the call: its position among the
    events.
    """
    events, starts, ends = view.events, view.starts, view.ends
    numbers = np.full(len(events), NO_CORRELATION, dtype=np.int32)
    tasks = np.flatnonzero(tracks.on_device[events.track])
    calls = np.append(_calls_of_arrows(view, tracks.host), NO_CORRELATION)
    of_ends = np.append(calls[last_rows(starts.flow, ends.flow)], NO_CORRELATION)
    # Replace each time by its index among the ends of arrows, so that a track and a time fit in one number.
    times, place = np.unique(ends.time, return_inverse=True)
    at = np.searchsorted(times, events.start[tasks])
    at[np.append(times, NO_NUMBER)[at] != events.start[tasks]] = times.size
    width = np.int64(times.size + 1)
    numbers[tasks] = of_ends[last_rows(ends.track * width + place, events.track[tasks] * width + at)]
    callers = np.unique(numbers[numbers >= 0])
    numbers[callers] = callers
    return numbers


def _calls_of_arrows(view: View, on_host: Mask) -> IntColumn:
    """For every arrow the span it starts in, -1 if there is none."""
    events = view.events
    track, time = view.starts.track, view.starts.time
    calls = np.full(track.size, -1, dtype=np.int64)
    for number in np.unique(track).tolist():
        spans = np.flatnonzero(events.track == number)
        if not spans.size:
            # At Level0 the thread of CANN has no spans; the task queue's span on the same thread made the call.
            same = [key[1] == view.keys[number][1] for key in view.keys]
            spans = np.flatnonzero((np.array(same, dtype=bool) & on_host)[events.track])
        arrows = np.flatnonzero(track == number)
        # The innermost of the nested spans around each arrow.
        spans = spans[np.lexsort((-events.duration[spans], events.start[spans]))]
        begun = np.searchsorted(events.start[spans], time[arrows], side="right")
        calls[arrows] = np.append(spans, -1)[last_until(events.end[spans], begun, time[arrows])]
    return calls


def _track_names(view: View) -> tuple[tuple[str, str], ...]:
    """Process and thread of each track by their names; processes with the same name are distinguished by id."""
    names = [(view.processes.get(pid) or pid, view.threads.get((pid, tid)) or tid) for pid, tid in view.keys]
    owners: dict[str, set[str]] = {}
    for (process, _), (pid, _) in zip(names, view.keys):
        owners.setdefault(process, set()).add(pid)
    return tuple(
        (process if len(owners[process]) == 1 else f"{process} {pid}", thread)
        for (process, thread), (pid, _) in zip(names, view.keys)
    )
