"""Read plain Chrome trace events, as converters of aclprof output and many other tools
write them.

Spans are complete events (``ph`` X) or pairs (B and E) of one thread. The format
guarantees little beyond times and names, so the kind of an event is inferred from its
category and the names of its process and thread.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    Codes,
    IntColumn,
    enclosing,
    group_rows,
)
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import KIND_CODES, EventKind, EventTable
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Recording, Timeline
from perfgate.trace.model.steps import STEP_NAME
from perfgate.trace.readers.rank_names import rank_in_name
from perfgate.trace.scanner.chrome_events import (
    EVENTS_KEY,
    HOST,
    KIND_OF_CATEGORY,
    UNNAMED,
    absent_device,
    begins_with,
    timelines_by_device,
)
from perfgate.trace.scanner.compressed import (
    files_named,
    is_json,
    named,
    refuse_several_folders,
)
from perfgate.trace.scanner.counters import CounterSeries, read_counters
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scan import scan
from perfgate.trace.scanner.scanned import (
    TRACK_LABELS,
    TRACK_NAME,
    Names,
    ScannedEvents,
    TrackNames,
    requests_named,
    track_names,
)

READS = "Chrome trace events, *.json, *.json.gz and *.json.zst, or a folder of them"
# Tried after every other JSON format.
PRIORITY = -10

# Names that converters give the process of a device and its streams: Ascend Hardware,
# NPU 0, GPU 1 (from msprof's timeline and Kineto), GPU0 (rocmProfileData), Stream 3.
# The GPU Process of a browser runs on the host, and so does TensorFlow's device:CPU:0.
_DEVICE = lazy_pattern(
    r"ascend hardware|\b(?:npu|gpu|cuda|device(?!:cpu))\d*\b(?! process)",
    re.IGNORECASE,
)
_NUMBER = lazy_pattern(r"\b(?:npu|gpu|cuda|device)[ :]?(\d{1,6})\b", re.IGNORECASE)
_STREAM = lazy_pattern(r"^(?:\w+ )?stream\b", re.IGNORECASE)
_COLLECTIVE_TRACK = lazy_pattern(r"hccl|nccl|rccl|communication", re.IGNORECASE)
_COPY = lazy_pattern(r"memcpy|memset|^copy", re.IGNORECASE)
# Rows that XLA's profiler derives for a device from the rows of its streams (xprof:
# tsl/profiler/utils/xplane_schema.h). xprof adds the stream to their names: XLA Ops -
# from #16.
_OPS = "XLA Ops"
_DERIVED = lazy_pattern(
    r"(?:Steps|XLA Modules|XLA Ops|Async XLA Ops|XLA TraceMe|Framework Ops|Framework Name Scope|Source code|HLO Modules|"
    r"TensorFlow (?:Ops|Name Scope)|TraceContext|Launch Stats|Host Offload Ops|SparseCore Steps)(?: - from #.*)?",
    re.IGNORECASE,
)
# TensorFlow 1 (python/client/timeline.py) has a process for each stream. Those of the
# device, /device:GPU:0, and of all its streams, /device:GPU:0/stream:all, repeat them.
_STREAM_PROCESS = lazy_pattern(r"/stream:\d+\b")
_REQUEST = "request_id"
_TRACE_FILES, _JSON_FILES = named("*.trace.json"), named("*.json")
# Of events that are neither complete nor arrows (Chrome's trace event format, "Event
# Descriptions").
_PHASES = "BEbenCiIMNODPRcSTFpVv(),"


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(trace_files(path) or trace_files(path, below=True))
    return path.is_file() and is_json(path)


def trace_files(folder: Path, *, below: bool = False) -> list[Path]:
    """The traces in a folder, or anywhere below it: files with the names that JAX gives
    them, HOST.trace.json.gz.

    In a folder without any, all JSON files that begin with a list of trace events.
    """
    by_name = [
        file
        for file in files_named(folder, _TRACE_FILES, below=below)
        if begins_with(file, EVENTS_KEY)
    ]
    if by_name or below:
        return by_name
    return [
        file
        for file in files_named(folder, _JSON_FILES, below=False)
        if begins_with(file, EVENTS_KEY)
    ]


def read(path: Path) -> Recording:
    """Of a folder, the timelines of all its files, or of those in the only folder below
    it with traces: JAX and TensorFlow write to LOGDIR/plugins/profile/DATE.

    Raises DocumentError, which names the fault and the next step.
    """
    if not path.is_dir():
        return _read_file(path)
    files = trace_files(path) or trace_files(path, below=True)
    refuse_several_folders(path, files)
    return Recording.of_files(path, [_read_file(file) for file in files])


def _read_file(path: Path) -> Recording:
    file = scan(path, texts=(_REQUEST, TRACK_NAME, TRACK_LABELS, COUNTER_ARGUMENTS))
    pairs = _pairs(file.others)
    start, duration = file.complete.times()
    spans = replace(file.complete, start=start, duration=duration)
    names = track_names(file.others)
    table, device_of = _table(spans.with_others(pairs.spans), names)
    is_counter = file.others.is_phase("C")
    counters, unread = read_counters(file.others.select(is_counter))
    is_counter[is_counter] = ~unread
    losses = (*file.texts.overwritten(), *file.others.of_unknown_phase(_PHASES))
    if pairs.backwards:
        losses = (
            Message(
                "notes.pairs-backwards", {"count": pairs.backwards, "pairs": pairs.all}
            ),
            *losses,
        )
    timelines = []
    for timeline in timelines_by_device(
        path, table, device_of, rank=rank_in_name(path)
    ):
        timelines.append(replace(timeline, losses=losses))
    reason = "notes.no-device-named" if len(table) else "notes.nothing-on-device"
    absent = dict(absent_device(timelines, otherwise=reason))
    if pairs.unended:
        absent["spans"] = Message("notes.unended-spans", {"spans": pairs.unended})
    if pairs.unbegun:
        absent["begins of spans"] = Message(
            "notes.unbegun-spans", {"spans": pairs.unbegun}
        )
    return Recording(
        path,
        "chrome",
        _with_readings(timelines, counters, names),
        absent=absent,
        notes=file.others.select(~is_counter).ignored("benCiI"),
    )


def _with_readings(
    timelines: Sequence[Timeline], series: Sequence[CounterSeries], names: TrackNames
) -> tuple[Timeline, ...]:
    """The timelines with their counters: counters of the host, and of a device without
    a timeline, belong to all.
    """
    devices = {timeline.device for timeline in timelines}
    complete = []
    for timeline in timelines:
        readings = {}
        for process, name, recorded in series:
            owner = _track(names, process, "").device
            if owner == timeline.device or owner not in devices:
                readings[name] = recorded
        complete.append(replace(timeline, readings=readings))
    return tuple(complete)


class _Pairs(NamedTuple):
    """The spans of a begin and an end each, placed where the end is; the numbers of
    pairs, and of begins and ends left out.
    """

    spans: ScannedEvents
    all: int
    backwards: int
    unended: int
    unbegun: int


def _pairs(others: ScannedEvents) -> _Pairs:
    """An end closes the span that its thread began last."""
    marks = others.select(others.is_phase("B", "E"))
    times, _ = marks.times(durations=False)
    (tracks,), _ = marks.of.number_tracks(marks)
    duration = np.zeros_like(times)
    event = marks.event.copy()
    ended = np.zeros(len(marks), dtype=bool)
    begins = marks.phase == ord("B")
    open_spans: dict[int, list[int]] = defaultdict(list)
    unbegun = 0
    for row, track in enumerate(tracks.tolist()):
        if begins[row]:
            open_spans[track].append(row)
        elif open_spans[track]:
            begun = open_spans[track].pop()
            ended[begun] = True
            duration[begun] = times[row] - times[begun]
            event[begun] = marks.event[row]
        else:
            unbegun += 1
    intact = ended & (duration >= 0)
    spans = replace(marks, start=times, duration=duration, event=event).select(intact)
    pairs = int(ended.sum())
    return _Pairs(
        spans, pairs, pairs - len(spans), sum(map(len, open_spans.values())), unbegun
    )


def _table(
    spans: ScannedEvents, names_of_tracks: TrackNames
) -> tuple[EventTable, IntColumn]:
    """The events, and the device of each: its number, HOST or UNNAMED."""
    names = Names(spans.of)
    (track,), keys = spans.of.number_tracks(spans)
    name = names.column(spans.name, absent="")
    request = requests_named(
        spans, names, _REQUEST, np.arange(len(spans), dtype=np.int32)
    )
    tracks = [_track(names_of_tracks, process, thread) for process, thread in keys]
    derived = _derived_rows(names_of_tracks, keys)
    all_names = names.all()
    first, row = group_rows(track, name, spans.category)
    kinds = []
    for event in first.tolist():
        place = int(track[event])
        kind: EventKind = "device_annotation"
        if not derived[place]:
            category = spans.of.word(int(spans.category[event])).lower()
            kind = _kind(tracks[place], all_names[name[event]], category)
        kinds.append(KIND_CODES[kind])
    kind_of_event = np.array(kinds, dtype=np.uint8)[row]
    kind_of_event[_loops(spans, track, names_of_tracks, keys)] = KIND_CODES[
        "device_annotation"
    ]
    table = EventTable(
        start=spans.start,
        duration=spans.duration,
        track=track,
        name=name,
        kind=kind_of_event,
        group=name,
        request=request,
        names=all_names,
        tracks=tuple(keys),
    )
    devices = np.array([own.device for own in tracks], dtype=np.int64).take(track)
    unnamed = table.is_work & (devices == HOST)
    return table, np.where(unnamed, UNNAMED, devices)


class _Track(NamedTuple):
    """The device of a track, HOST or UNNAMED, and whether it holds collectives."""

    device: int
    holds_collectives: bool


def _track(names: TrackNames, process: str, thread: str) -> _Track:
    """A track classified by its process and thread names."""
    parts = names.processes.get(process), names.labels.get(process)
    process_name = " ".join(filter(None, parts))
    thread_name = names.threads.get((process, thread)) or thread
    if not (
        _DEVICE.search(process_name)
        or _DEVICE.search(process)
        or _STREAM.search(thread_name)
    ):
        return _Track(HOST, False)
    device = UNNAMED
    if number := _NUMBER.search(process_name):
        device = int(number[1])
    collectives = _COLLECTIVE_TRACK.search(f"{process_name} {thread_name}") is not None
    return _Track(device, collectives)


def _derived_rows(names: TrackNames, keys: Sequence[tuple[str, str]]) -> list[bool]:
    """Which tracks are rows that TensorFlow or XLA derives from the work of a device,
    and describe it again.

    The streams hold its work; a device without streams, such as a TPU, has it in the
    row of its operations.
    """
    of_xla, with_streams = set(), set()
    of_device = {
        process for process, name in names.processes.items() if _DEVICE.search(name)
    }
    of_stream = {
        process
        for process in of_device
        if _STREAM_PROCESS.search(names.processes[process])
    }
    for process, thread in keys:
        row = names.threads.get((process, thread), "")
        if _DERIVED.fullmatch(row):
            of_xla.add(process)
        elif _STREAM.search(row):
            with_streams.add(process)
    derived = []
    for process, thread in keys:
        row = names.threads.get((process, thread), "")
        is_work = row == _OPS
        if process in with_streams:
            is_work = _STREAM.search(row) is not None
        repeats = bool(of_stream) and process in of_device - of_stream
        derived.append(repeats or (process in of_xla and not is_work))
    return derived


def _loops(
    spans: ScannedEvents,
    track: Codes,
    names: TrackNames,
    keys: Sequence[tuple[str, str]],
) -> IntColumn:
    """The operations of XLA that contain others of their row, such as loops and
    conditionals.
    """
    is_row_of_ops = np.array(
        [names.threads.get(key) == _OPS for key in keys], dtype=bool
    )
    ops = np.flatnonzero(is_row_of_ops[track])
    around = enclosing(spans.start[ops], spans.duration[ops], track[ops])
    loops: IntColumn = ops[np.unique(around[around != NOTHING_AROUND])]
    return loops


def _kind(track: _Track, name: str, category: str) -> EventKind:
    if STEP_NAME.fullmatch(name):
        return "annotation"
    kind = KIND_OF_CATEGORY.get(category)
    if kind is not None and kind != "compute":
        return kind
    if kind is None and track.device == HOST:
        return "other"
    if track.holds_collectives:
        return "comm"
    by_name = kernel_kind(name)
    if by_name == "compute" and _COPY.search(name):
        return "copy"
    return by_name
