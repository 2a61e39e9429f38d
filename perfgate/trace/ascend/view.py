"""trace_view.json and msprof's timeline: spans, flows and the core's frequency, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import Codes, IntColumn, group_rows
from perfgate.trace.chrome_events import request_of
from perfgate.trace.events import KIND_CODES, NO_CORRELATION, EventTable, nanoseconds
from perfgate.trace.scan import scan
from perfgate.trace.scanned import NO_TEXT, Names, ScannedEvents

_FLOW = "HostToDevice"
_FREQUENCY = "AI Core Freq"
# All as written: what a word or a number is differs by version, and most events need none of them.
_TASK_TYPE, _INPUTS, _MEGAHERTZ, _NAME, _LABELS, _REQUEST = (
    "Task Type",
    "Input Dims",
    "MHz",
    "name",
    "labels",
    "request_id",
)
_Key = tuple[str, str]


class Detail(NamedTuple):
    """What an event says of its kind beside its name."""

    category: str
    task_type: str
    has_inputs: bool


class Flows(NamedTuple):
    """One end of the arrows from host to device: which arrow, which track (its number in ``View.keys``), when."""

    flow: IntColumn
    track: Codes
    time: IntColumn


@dataclass(frozen=True)
class View:
    """A timeline as the file has it. Every event still has kind ``other``; ``detail`` indexes ``details``.

    ``keys`` are process and thread id of each track; ``processes`` and ``threads`` their names, ``labels`` a process's
    label. ``frequencies`` are the hertz the AI core ran at, lowest and highest, by process id.
    """

    events: EventTable
    detail: Codes
    details: tuple[Detail, ...]
    keys: tuple[_Key, ...]
    starts: Flows
    ends: Flows
    processes: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    threads: dict[_Key, str] = field(default_factory=dict)
    frequencies: dict[str, tuple[float, float]] = field(default_factory=dict)


def read_view(path: Path) -> View:
    """Raises DocumentError, with what is wrong and where, for what is no such file."""
    keys = (_TASK_TYPE, _INPUTS, _MEGAHERTZ, _NAME, _LABELS, _REQUEST)
    scanned = scan(path, texts=keys, advice="analyse the profile again")
    is_arrow = scanned.flagged(scanned.category, _FLOW.__eq__)
    spans, starts, ends = (
        np.flatnonzero(chosen)
        for chosen in (scanned.is_phase("X"), scanned.is_phase("s") & is_arrow, scanned.is_phase("f") & is_arrow)
    )
    # Arrows lie on threads that hold no span, so their tracks count too.
    rows = np.sort(np.concatenate((spans, starts, ends)))
    track, tracks = scanned.tracks(rows)
    track_of = {
        name: track[np.searchsorted(rows, chosen)] for name, chosen in (("x", spans), ("s", starts), ("f", ends))
    }
    events = _events(scanned, spans)
    detail, details = _details(scanned, spans)
    view = View(
        events=replace(events, track=track_of["x"], tracks=tuple(tracks)),
        detail=detail,
        details=details,
        keys=tuple(tracks),
        starts=Flows(scanned.flow(starts), track_of["s"], scanned.times(starts, durations=False)[0]),
        ends=Flows(scanned.flow(ends), track_of["f"], scanned.times(ends, durations=False)[0]),
        frequencies=_frequencies(scanned),
    )
    _take_names(scanned, view)
    return view


def _events(scanned: ScannedEvents, spans: IntColumn) -> EventTable:
    start, duration = scanned.times(spans)
    names = Names(scanned)
    name = names.column(scanned.name[spans], absent="")
    request = names.column(scanned.argument(_REQUEST, spans), absent=None)
    unasked = request == NO_TEXT
    request[unasked] = names.column(
        scanned.name[spans][unasked], lambda code: request_of(None, scanned.words[code]), absent=None
    )
    inputs = scanned.argument(_INPUTS, spans)
    return EventTable(
        start=start,
        duration=duration,
        track=np.zeros(spans.size, dtype=np.int32),
        name=name,
        kind=np.full(spans.size, KIND_CODES["other"], dtype=np.uint8),
        correlation=np.full(spans.size, NO_CORRELATION, dtype=np.int64),
        group=name.copy(),
        request=request,
        shape=names.column(inputs, lambda code: scanned.words[code].replace(";\r\n", ";"), absent=None),
        names=names.all(),
        tracks=(),
    )


def _details(scanned: ScannedEvents, spans: IntColumn) -> tuple[Codes, tuple[Detail, ...]]:
    """The detail of each span, and all details in the order of the file."""
    category, task_type = scanned.category[spans], scanned.argument(_TASK_TYPE, spans)
    has_inputs = scanned.argument(_INPUTS, spans) != NO_TEXT
    first, row = group_rows(category, task_type, has_inputs.astype(np.int8))
    numbers: dict[Detail, int] = {}
    columns = category[first], task_type[first], has_inputs[first]
    codes = [
        numbers.setdefault(Detail(scanned.word(text), scanned.word(kind), inputs), len(numbers))
        for text, kind, inputs in zip(*(column.tolist() for column in columns))
    ]
    return np.array(codes, dtype=np.int32)[row], tuple(numbers)


def _frequencies(scanned: ScannedEvents) -> dict[str, tuple[float, float]]:
    frequencies: dict[str, tuple[float, float]] = {}
    counters = np.flatnonzero(scanned.is_phase("C") & scanned.flagged(scanned.name, _FREQUENCY.__eq__))
    megahertz, (processes, _) = scanned.argument(_MEGAHERTZ, counters), scanned.process_and_thread(counters)
    for row, number, process in zip(counters.tolist(), megahertz.tolist(), processes.tolist()):
        if number == NO_TEXT:
            continue
        try:
            # A number of MHz with decimals, as the times are.
            hertz = nanoseconds(scanned.texts[number]) * 1e3
        except ValueError as error:
            scanned.refuse(row, error)
        pid = scanned.word(process)
        low, high = frequencies.get(pid, (hertz, hertz))
        frequencies[pid] = (min(low, hertz), max(high, hertz))
    return frequencies


def _take_names(scanned: ScannedEvents, view: View) -> None:
    rows = np.flatnonzero(scanned.is_phase("M"))
    columns = (
        scanned.name[rows],
        *scanned.process_and_thread(rows),
        scanned.argument(_NAME, rows),
        scanned.argument(_LABELS, rows),
    )
    for codes in zip(*(column.tolist() for column in columns)):
        kind, process, thread, name, labels = map(scanned.word, codes)
        if kind == "process_name":
            view.processes[process] = name
        elif kind == "process_labels":
            view.labels[process] = labels
        elif kind == "thread_name":
            view.threads[process, thread] = name
