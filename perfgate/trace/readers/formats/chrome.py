"""Read plain Chrome trace events, as converters of aclprof output and many other tools write them.

Spans are complete events (``ph`` X) or pairs (B and E) of one thread. The format guarantees little beyond times and names, so
the kind of an event is inferred from its category and the names of its process and thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from perfgate.document.message import Message
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import IntColumn, group_rows
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import (
    DEVICE_KINDS,
    KIND_CODES,
    NO_CORRELATION,
    EventKind,
    EventTable,
    constant,
)
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
from perfgate.trace.scanner.compressed import is_json, named
from perfgate.trace.scanner.counters import CounterSeries, read_counters
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scan import scan
from perfgate.trace.scanner.scanned import NO_TEXT, Names, ScannedEvents, requests_named

READS = "Chrome trace events, *.json, *.json.gz and *.json.zst, or a folder of *.trace.json.gz as JAX writes it"
# Tried after every other JSON format.
PRIORITY = -10

# Names that converters give the process of a device and its streams: Ascend Hardware, NPU 0, GPU 1 (from msprof's timeline
# and Kineto), Stream 3.
_DEVICE = lazy_pattern(r"ascend hardware|\b(?:npu|gpu|cuda|device)\b", re.IGNORECASE)
_NUMBER = lazy_pattern(r"\b(?:npu|gpu|cuda|device)[ :]?(\d{1,6})\b", re.IGNORECASE)
_STREAM = lazy_pattern(r"^(?:\w+ )?stream\b", re.IGNORECASE)
_COLLECTIVE_TRACK = lazy_pattern(r"hccl|nccl|rccl|communication", re.IGNORECASE)
_COPY = lazy_pattern(r"memcpy|memset|^copy", re.IGNORECASE)
_Key = tuple[str, str]  # process and thread
# Rows that XLA's profiler derives for a device from those of its streams (xprof: tsl/profiler/utils/xplane_schema.h).
_OPS = "XLA Ops"
_DERIVED = lazy_pattern(
    r"Steps|XLA Modules|XLA Ops|Async XLA Ops|XLA TraceMe|Framework Ops|Framework Name Scope|Source code|HLO Modules|"
    r"TensorFlow (?:Ops|Name Scope)|TraceContext|Launch Stats|Host Offload Ops|SparseCore Steps",
    re.IGNORECASE,
)
_REQUEST, _NAME, _LABELS = "request_id", "name", "labels"
_NAMES = ("process_name", "thread_name", "process_labels")


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(trace_files(path))
    return path.is_file() and is_json(path)


def trace_files(folder: Path, *, below: bool = False) -> list[Path]:
    """The traces in a folder, or anywhere below it, by the name that JAX gives them: HOST.trace.json.gz."""
    search = folder.rglob if below else folder.glob
    found = sorted(file for pattern in named("*.trace.json") for file in search(pattern) if file.is_file())
    return [file for file in found if begins_with(file, EVENTS_KEY)]


def read(path: Path) -> Recording:
    """Of a folder, the timelines of all its files. Raises DocumentError, which names the fault and the next step."""
    if not path.is_dir():
        return _read_file(path)
    recordings = [_read_file(file) for file in trace_files(path)]
    timelines = tuple(timeline for recording in recordings for timeline in recording.timelines)
    notes = tuple(note for recording in recordings for note in recording.notes)
    return replace(recordings[0], path=path, timelines=timelines, notes=notes)


def _read_file(path: Path) -> Recording:
    file = scan(path, texts=(_REQUEST, _NAME, _LABELS, COUNTER_ARGUMENTS))
    pairs, unended = _pairs(file.others)
    start, duration = file.complete.times()
    spans = replace(file.complete, start=start, duration=duration)
    named = _track_names(file.others)
    table, device_of = _table(spans.with_others(pairs) if len(pairs) else spans, named)
    is_counter = file.others.is_phase("C")
    counters, unread = read_counters(file.others.select(is_counter))
    is_counter[is_counter] = ~unread
    timelines = _with_readings(timelines_by_device(path, table, device_of, rank=rank_in_name(path)), counters, named)
    absent = dict(absent_device(timelines))
    if unended:
        absent["spans"] = Message("notes.unended-spans", {"spans": unended})
    return Recording(path, "chrome", timelines, absent=absent, notes=file.others.select(~is_counter).ignored("benCiI"))


def _with_readings(
    timelines: Sequence[Timeline], series: Sequence[CounterSeries], named: Mapping[_Key, Mapping[str, str]]
) -> tuple[Timeline, ...]:
    """The timelines with their counters: those of a device that has no timeline, and of the host, belong to all."""
    devices = {timeline.device for timeline in timelines}
    owners = []
    for process, *_ in series:
        number, _ = _track(named, process, "")
        owners.append(None if number < 0 else number)
    return tuple(
        replace(
            timeline,
            readings={
                name: readings
                for (_, name, readings), owner in zip(series, owners)
                if owner in (timeline.device, None) or owner not in devices
            },
        )
        for timeline in timelines
    )


def _pairs(others: ScannedEvents) -> tuple[ScannedEvents, int]:
    """The events that begin a span of two, in the order in which the spans end; and the number of spans without an end."""
    marks = others.select(others.is_phase("B", "E"))
    times, _ = marks.times(durations=False)
    (tracks,), _ = marks.of.number_tracks(marks)
    start, duration, event = times, np.zeros_like(times), marks.event.copy()
    ended = np.zeros(len(marks), dtype=bool)
    open_spans: dict[int, list[int]] = {}
    columns = tracks.tolist(), times.tolist(), (marks.phase == ord("B")).tolist()
    for row, (track, time, begins) in enumerate(zip(*columns)):
        if begins:
            open_spans.setdefault(track, []).append(row)
        # An end closes the span that the thread began last; an end without one lost its beginning before the recording.
        elif open_spans.get(track):
            begun = open_spans[track].pop()
            if time < times[begun]:
                marks.of.refuse(int(marks.event[row]), int(marks.name[row]), Activity("it ends before it begins"))
            ended[begun], duration[begun], event[begun] = True, time - times[begun], marks.event[row]
    spans = replace(marks, start=start, duration=duration, event=event)
    return spans.select(ended), sum(map(len, open_spans.values()))


def _table(spans: ScannedEvents, named: Mapping[_Key, Mapping[str, str]]) -> tuple[EventTable, IntColumn]:
    """The events, and the device of each: its number, HOST or UNNAMED."""
    texts, names = spans.of, Names(spans.of)
    (track,), keys = texts.number_tracks(spans)
    name = names.column(spans.name, absent="")
    request = requests_named(spans, names, _REQUEST, np.arange(len(spans), dtype=np.int32))
    tracks = [_track(named, *key) for key in keys]
    annotated = _annotations(named, keys)
    all_names = names.all()
    first, row = group_rows(track, name, spans.category)
    columns = track[first], name[first], spans.category[first]
    kinds = [
        KIND_CODES[
            "device_annotation" if annotated[place] else _kind(tracks[place], all_names[text], texts.word(code).lower())
        ]
        for place, text, code in zip(*(column.tolist() for column in columns))
    ]
    kind = np.array(kinds, dtype=np.uint8)[row]
    table = EventTable(
        start=spans.start,
        duration=spans.duration,
        track=track,
        name=name,
        kind=kind,
        correlation=constant("correlation", NO_CORRELATION, len(spans)),
        group=name,
        request=request,
        shape=constant("shape", NO_TEXT, len(spans)),
        names=all_names,
        tracks=tuple(keys),
    )
    devices = np.array([device for device, _ in tracks] or [HOST], dtype=np.int64)[track]
    return table, np.where(table.is_kind(*DEVICE_KINDS) & (devices == HOST), UNNAMED, devices)


def _track_names(others: ScannedEvents) -> dict[_Key, dict[str, str]]:
    """The names of processes and threads by their ids; a process has no thread id."""
    named: dict[_Key, dict[str, str]] = {}
    rows = others.select(others.is_phase("M"))
    (track,), keys = rows.of.number_tracks(rows)
    columns = track, rows.name, rows.argument(_NAME), rows.argument(_LABELS)
    for number, kind_code, name, labels in zip(*(column.tolist() for column in columns)):
        kind, key = rows.of.word(kind_code), keys[number]
        if kind in _NAMES:
            owner = key if kind == "thread_name" else (key[0], "")
            named.setdefault(owner, {})[kind] = rows.of.word(labels if kind == "process_labels" else name)
    return named


def _track(named: Mapping[_Key, Mapping[str, str]], process: str, thread: str) -> tuple[int, bool]:
    """A track classified by its process and thread names: the device, HOST or UNNAMED, and whether it holds collectives."""
    names = named.get((process, ""), {})
    process_name = " ".join(filter(None, (names.get("process_name"), names.get("process_labels"))))
    thread_name = named.get((process, thread), {}).get("thread_name") or thread
    if not (_DEVICE.search(process_name) or _DEVICE.search(process) or _STREAM.search(thread_name)):
        return HOST, False
    number = _NUMBER.search(process_name)
    collectives = _COLLECTIVE_TRACK.search(f"{process_name} {thread_name}") is not None
    return int(number[1]) if number else UNNAMED, collectives


def _annotations(named: Mapping[_Key, Mapping[str, str]], keys: Sequence[_Key]) -> list[bool]:
    """Which tracks are rows that XLA derives from the work of a device, and describe it again.

    Its work is that of its streams; of a device that shows none, as a TPU, the row of its operations.
    """
    rows = [named.get(key, {}).get("thread_name", "") for key in keys]
    of_xla = {process for (process, _), row in zip(keys, rows) if _DERIVED.fullmatch(row)}
    with_streams = {process for (process, _), row in zip(keys, rows) if process in of_xla and _STREAM.search(row)}
    return [
        process in of_xla and not (_STREAM.search(row) if process in with_streams else row == _OPS)
        for (process, _), row in zip(keys, rows)
    ]


def _kind(track: tuple[int, bool], name: str, category: str) -> EventKind:
    device, holds_collectives = track
    if STEP_NAME.fullmatch(name):
        return "annotation"
    kind = KIND_OF_CATEGORY.get(category)
    if kind is not None and kind != "compute":
        return kind
    if kind is None and device == HOST:
        return "other"
    if holds_collectives:
        return "comm"
    by_name = kernel_kind(name)
    return "copy" if by_name == "compute" and _COPY.search(name) else by_name
