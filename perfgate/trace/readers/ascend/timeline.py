"""The events of each device, from a timeline file or from tables: kinds, operator
types, exact times and launches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    CodeColumn,
    Codes,
    IntColumn,
    Mask,
    compact,
    group_rows,
    in_order,
    last_rows,
    last_until,
    union_length,
)
from perfgate.trace.model.events import (
    COLLECTIVE_TRACK,
    KERNEL_KINDS,
    KIND_CODES,
    NO_CORRELATION,
    NO_TEXT,
    SHORTEST_WORK_NS,
    UNKNOWN_STREAMS,
    EventKind,
    EventTable,
    joined_events,
)
from perfgate.trace.model.kernel_names import UNKNOWN_TASK, type_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import Timeline
from perfgate.trace.readers.ascend.files import Device
from perfgate.trace.readers.ascend.kinds import (
    COLLECTIVES,
    HARDWARE,
    HOST,
    STEP_TRACE,
    collective_kind,
    dequeued_calls,
    device_of_label,
    is_unknown_task,
    python_kind,
    task_kind,
)
from perfgate.trace.readers.ascend.view import Detail, View

# Newer torch_npu passes the timeline's times through a float, so they differ from the
# tables by up to 250 ns.
_FLOAT_NS = 500
# The process of the profiler's own analysis, and its row of kernels: their time is
# theirs to a millionth (samples msinsight-910B-alexnet-2501 and mstt-advisor).
_OVERLAP, _COMPUTING = "Overlap Analysis", "Computing"
_TOLERANCE = 0.001
_PROCESS_DIGITS = 20  # a process id has fewer
_DEVICE_BITS = 31
# Names of compiled kernels:
# OnesLike_1c4543fdfe7149b6b0717bd88f061562_high_performance_210000000.
_BINARY = re.compile(r"([A-Za-z]\w*?)_[0-9a-f]{32}(?:_|$)")


def device_timelines(view: View, kernels: KernelTable) -> list[Timeline]:
    """The events and counters of every device of a timeline; of the host alone if there
    is no device.

    The device is None if the file names none. ``kernels`` come from the tables of all
    its devices; they give types and exact times.
    """
    tracks = _Tracks(view)
    correlation, arrows = _correlations(view, tracks)
    events = replace(view.events, kind=_kinds(view, tracks), correlation=correlation)
    losses = [
        *view.overwritten,
        *_of_arrows(arrows, view.bare_arrows),
        *_of_analysis(view, tracks, events),
    ]
    events = replace(_with_types(events, kernels), tracks=_track_names(view))
    events = _with_unknown_types(events, view, tracks)
    timelines = []
    for device in sorted(
        tracks.readings, key=lambda device: -1 if device is None else device
    ):
        own = events.select(tracks.of_device(device)[events.track])
        timelines.append(
            Timeline(
                None,
                device,
                own,
                readings=tracks.readings[device],
                losses=tuple(losses),
            )
        )
    return timelines


def _of_arrows(unmatched: int, bare: int) -> Iterator[Message]:
    """Notes on arrows that have one end, or end where no event begins."""
    if unmatched:
        yield Message("notes.arrows-unmatched", {"count": unmatched})
    if bare:
        yield Message("notes.arrows-bare", {"count": bare})


def _of_analysis(view: View, tracks: _Tracks, events: EventTable) -> Iterator[Message]:
    """A note if the kernels of a single device cover another time than the file's own
    analysis says.
    """
    analysed = np.flatnonzero(
        events.is_named(_COMPUTING.__eq__) & tracks.analysis[events.track]
    )
    if not analysed.size or len(tracks.readings) > 1 or any(view.is_unknown):
        return
    written = union_length(events.select(analysed).intervals)
    computing = union_length(events.of_kind("compute").intervals)
    fused = union_length(events.of_kind("compute", "fused").intervals)
    error = 0
    if not (events.start[analysed] % 250).any():
        # Times that went through a float are multiples of 250 ns.
        error = _FLOAT_NS * analysed.size
    if min(abs(written - computing), abs(written - fused)) > max(
        _TOLERANCE * written, error
    ):
        values = {"written": written / 1e6, "computing": computing / 1e6}
        yield Message("notes.analysis-differs", values)


def events_of_tables(kernels: KernelTable, tasks: EventTable | None) -> EventTable:
    """The work of a device without an exported timeline: its kernels, and the tasks
    that are not kernels.
    """
    table = kernels.select(kernels.start != NO_NUMBER)
    track, tracks = _streams(table.numbers["stream"], table.is_collective)
    events = replace(table.events, track=track, tracks=tracks)
    if tasks is None:
        return events
    return joined_events(events, tasks.select(~np.isin(tasks.start, events.start)))


def task_events(
    start: IntColumn,
    duration: IntColumn,
    stream: IntColumn,
    name: Codes,
    kind: Codes,
    texts: Sequence[str],
) -> EventTable:
    """Tasks of streams as events; ``name`` and ``kind``, the type of each task, index
    ``texts``.
    """
    first, back = group_rows(name, kind)
    names = Numbering(texts)
    kinds, groups = [], []
    for row in first.tolist():
        title, task_type = texts[name[row]], texts[kind[row]]
        kind_of_task = task_kind(task_type, title)
        binary = _BINARY.match(title)
        if kind_of_task == "compute" and is_unknown_task(task_type):
            group = f"{UNKNOWN_TASK}{task_type}"
        elif binary:
            group = binary[1]
        else:
            group = type_by_name(title)
        kinds.append(KIND_CODES[kind_of_task])
        groups.append(names[group])
    kinds_of_tasks = np.array(kinds, dtype=np.int64)[back]
    track, tracks = _streams(stream, kinds_of_tasks == KIND_CODES["comm"])
    return EventTable(
        start=start,
        duration=duration,
        track=track,
        name=name,
        kind=kinds_of_tasks,
        group=np.array(groups, dtype=np.int64)[back],
        names=tuple(names),
        tracks=tracks,
        shortest_ns=SHORTEST_WORK_NS,
    )


def _streams(
    stream: IntColumn, is_collective: Mask
) -> tuple[Codes, tuple[tuple[str, str], ...]]:
    """The track of each row by its stream, and all tracks.

    Collectives have no stream, and no row of Level0 has any.
    """
    is_without = stream == NO_NUMBER
    first, track = group_rows(compact(stream), is_without & is_collective)
    tracks = []
    for row in first.tolist():
        thread = f"Stream {stream[row]}"
        if is_without[row]:
            thread = COLLECTIVE_TRACK if is_collective[row] else UNKNOWN_STREAMS
        tracks.append((HARDWARE, thread))
    return track, tuple(tracks)


class _Tracks:
    """Classification of tracks: the host's, the hardware's, the collectives', and the
    device of each.
    """

    def __init__(self, view: View) -> None:
        owners = _owners(view)
        # A label NPU without a number stands for the only device.
        only = _only(set(owners.values()) - {None})
        names, devices = [], []
        for pid, _ in view.keys:
            device = owners.get(pid)
            if device is None:
                device = only
            names.append(view.names.processes.get(pid, ""))
            devices.append(device)
        name = np.array(names, dtype=object)
        self._device = np.array(devices, dtype=object)
        self.host = np.isin(name, HOST)
        self.hardware = name == HARDWARE
        self.collective = np.isin(name, COLLECTIVES)
        self.on_device = self.hardware | self.collective
        self.analysis = name == _OVERLAP
        present: set[Device] = set(self._device[self.on_device]) or {None}
        self.readings: dict[Device, dict[str, Readings]] = {
            device: {} for device in present
        }
        for pid, recorded in view.readings.items():
            device = device_of_label(view.names.labels.get(pid))
            if device not in present:
                device = _only(present)
            if device in present:
                self._add_readings(device, view.names.processes.get(pid, pid), recorded)

    def _add_readings(
        self, device: Device, process: str, recorded: Mapping[str, Readings]
    ) -> None:
        for name, readings in recorded.items():
            # NIC and RoCE both have Port 0/Rx.
            prefix = f"{process} " if name.startswith("Port ") else ""
            self.readings[device][prefix + name] = readings

    def of_device(self, device: Device) -> Mask:
        """This device's tracks and the host's."""
        tracks: Mask = ~self.analysis & (~self.on_device | (self._device == device))
        return tracks


def _only(devices: Set[Device]) -> Device:
    """The device of a set of one; None for a larger or an empty set."""
    if len(devices) != 1:
        return None
    (device,) = devices
    return device


def _owners(view: View) -> dict[str, Device]:
    """The device of each process that represents one.

    Newer builds label the process (NPU 0); if several are labelled NPU alone, the
    process id ends in the device: (host process << 10) | (sort index << 5) | device.
    """
    owners = {}
    for pid, name in view.names.processes.items():
        if name == HARDWARE or name in COLLECTIVES:
            owners[pid] = device_of_label(view.names.labels.get(pid))
    several = Counter(view.names.processes.values())[HARDWARE] > 1
    unlabelled = set(owners.values()) == {None}
    if (
        several
        and unlabelled
        and all(pid.isdecimal() and len(pid) < _PROCESS_DIGITS for pid in owners)
    ):
        return {pid: int(pid) & _DEVICE_BITS for pid in owners}
    return owners


def _kinds(view: View, tracks: _Tracks) -> Codes:
    """The kind of every event; each combination of track, detail and name is classified
    once.
    """
    events = view.events
    queued = dequeued_calls(events.names)
    first, row = group_rows(events.track, view.detail, events.name)
    codes = []
    for event in first.tolist():
        detail = view.details[view.detail[event]]
        name = events.names[events.name[event]]
        kind = _kind(view, tracks, int(events.track[event]), detail, name, queued)
        codes.append(KIND_CODES[kind])
    return np.array(codes, dtype=np.uint8)[row]


def _kind(
    view: View,
    tracks: _Tracks,
    track: int,
    detail: Detail,
    name: str,
    queued: frozenset[str],
) -> EventKind:
    thread = view.names.threads.get(view.keys[track], "")
    if tracks.hardware[track]:
        if thread.startswith(STEP_TRACE):
            return "device_annotation"
        return task_kind(detail.task_type, name)
    if tracks.collective[track]:
        return collective_kind(thread, name)
    process = view.names.processes.get(view.keys[track][0], "")
    if process == "CANN":
        return "runtime"
    if process == "Python" or detail.category:
        return python_kind(
            detail.category, name, has_inputs=detail.has_inputs or name in queued
        )
    return "other"


def _with_types(events: EventTable, table: KernelTable) -> EventTable:
    """Group kernels by their type, and give them the tables' exact times."""
    kernels = np.flatnonzero(events.is_kind(*KERNEL_KINDS))
    name = events.name[kernels]
    codes = Numbering(table.texts)
    code_of = np.array(
        [codes.get(name, NO_TEXT) for name in events.names], dtype=np.int64
    )
    row = _rows_of(table, code_of[name], events.start[kernels])
    tabled = row >= 0
    start, duration = events.start.copy(), events.duration.copy()
    start[kernels[tabled]] = table.start[row[tabled]]
    duration[kernels[tabled]] = table.duration[row[tabled]]

    # A span without a row gets its type from the last row of its name.
    last_of_name = np.full(len(table.texts) + 1, -1, dtype=np.int64)
    last_of_name[table.codes["name"]] = np.arange(len(table))
    row = np.where(tabled, row, last_of_name[code_of[name]])
    kind = np.full(row.size, NO_TEXT, dtype=np.int32)
    kind[row >= 0] = table.codes["type"][row[row >= 0]]
    names = Numbering(events.names)
    first, pair = group_rows(kind, name)
    groups = []
    for place in first.tolist():
        if kind[place] == NO_TEXT:
            text = type_by_name(events.names[name[place]])
        else:
            text = table.texts[kind[place]]
        groups.append(names[text])
    group = events.group.copy()
    group[kernels] = np.array(groups, dtype=np.int32)[pair]
    return replace(
        events, start=start, duration=duration, group=group, names=tuple(names)
    )


def _with_unknown_types(events: EventTable, view: View, tracks: _Tracks) -> EventTable:
    """Group tasks of unknown types by their types."""
    unknown = np.array(view.is_unknown, dtype=bool).take(view.detail)
    tasks = np.flatnonzero(
        unknown & tracks.hardware[events.track] & events.is_kind("compute")
    )
    if not tasks.size:
        return events
    names, group = list(events.names), events.group.copy()
    for detail in np.unique(view.detail[tasks]).tolist():
        group[tasks[view.detail[tasks] == detail]] = len(names)
        names.append(f"{UNKNOWN_TASK}{view.details[detail].task_type}")
    return replace(events, group=group, names=tuple(names))


def _rows_of(table: KernelTable, name: IntColumn, start: IntColumn) -> IntColumn:
    """The row of each span, by its exact start, else by its name and its start within
    float rounding; -1 for none.
    """
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
        spans = np.flatnonzero(~exact & (name == code))
        same = timed[tabled == code]
        if same.size:
            same = same[np.argsort(table.start[same], kind="stable")]
            place = _nearest(table.start[same], start[spans])
            near = place >= 0
            row[spans[near]] = same[place[near]]
    return row


def _nearest(starts: IntColumn, times: IntColumn) -> IntColumn:
    """The place of the nearest of some times in order, -1 if it is further away than
    float rounding explains.
    """
    first = np.searchsorted(starts, times - _FLOAT_NS)
    second = np.minimum(first + 1, starts.size - 1)
    first = np.minimum(first, starts.size - 1)
    to_first, to_second = np.abs(starts[first] - times), np.abs(starts[second] - times)
    nearest = np.where(to_second < to_first, second, first)
    return np.where(np.minimum(to_first, to_second) <= _FLOAT_NS, nearest, -1)


def _correlations(view: View, tracks: _Tracks) -> tuple[CodeColumn, int]:
    """One number for a call that launched and everything it started on the device, and
    how many arrows do not join two.

    An arrow starts inside the call that launched, which is the innermost span around it
    on its thread, and ends exactly at the start of a task on its track (sample
    msinsight-910B-alexnet-2501: 210 of 210, only 23 of them at a span's start). One
    call may start several arrows and one arrow several tasks, so the number is the
    call's: its position among the events.
    """
    events = view.events
    starts = view.starts
    ends = view.ends
    numbers = np.full(len(events), NO_CORRELATION, dtype=np.int32)
    tasks = np.flatnonzero(tracks.on_device[events.track])
    # The last place of each of these columns is for none.
    calls = np.append(_calls_of_arrows(view, tracks.host), NO_CORRELATION)
    of_ends = np.append(calls[last_rows(starts.flow, ends.flow)], NO_CORRELATION)
    # Replace each time by its index among the ends of arrows, so that a track and a
    # time fit in one number.
    times, place = np.unique(ends.time, return_inverse=True)
    begin = events.start[tasks]
    at = np.searchsorted(times, begin)
    at[np.append(times, NO_NUMBER)[at] != begin] = times.size
    width = np.int64(times.size + 1)
    heads = ends.track * width + place
    end = last_rows(heads, events.track[tasks] * width + at)
    numbers[tasks] = of_ends[end]
    callers = in_order(numbers[numbers >= 0])
    numbers[callers] = callers
    single = np.setxor1d(starts.flow, ends.flow).size
    astray = in_order(heads).size - in_order(end[end >= 0]).size
    return numbers, single + astray


def _calls_of_arrows(view: View, on_host: Mask) -> IntColumn:
    """For every arrow the span it starts in, -1 if there is none."""
    events = view.events
    track, time = view.starts.track, view.starts.time
    calls = np.full(track.size, -1, dtype=np.int64)
    for number in np.unique(track).tolist():
        spans = np.flatnonzero(events.track == number)
        if not spans.size:
            # At Level0 the thread of CANN has no spans; the task queue's span on the
            # same thread made the call.
            _, own_thread = view.keys[number]
            is_same = np.array([thread == own_thread for _, thread in view.keys])
            spans = np.flatnonzero((is_same & on_host)[events.track])
        arrows = np.flatnonzero(track == number)
        # The innermost of the nested spans around each arrow.
        spans = spans[np.lexsort((-events.duration[spans], events.start[spans]))]
        begun = np.searchsorted(events.start[spans], time[arrows], side="right")
        call = last_until(events.end[spans], begun, time[arrows])
        calls[arrows] = np.append(spans, -1)[call]
    return calls


def _track_names(view: View) -> tuple[tuple[str, str], ...]:
    """Process and thread of each track by their names; processes with the same name are
    distinguished by id.
    """
    process_of = {}
    for pid, _ in view.keys:
        process_of[pid] = view.names.processes.get(pid) or pid
    processes = Counter(process_of.values())
    tracks = []
    for pid, tid in view.keys:
        process = process_of[pid]
        if processes[process] > 1:
            process = f"{process} {pid}"
        tracks.append((process, view.names.threads.get((pid, tid)) or tid))
    return tuple(tracks)
