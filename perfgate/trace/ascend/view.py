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
    file = scan(path, texts=keys, advice="analyse the profile again")
    spans, others = file.complete, file.others
    is_arrow = file.texts.flagged(others.category, _FLOW.__eq__)
    starts, ends = (others.select(is_arrow & others.is_phase(phase)) for phase in ("s", "f"))
    # Arrows lie on threads that hold no span, so their tracks count too.
    (track, of_starts, of_ends), tracks = file.texts.number_tracks(spans, starts, ends)
    detail, details = _details(spans)
    view = View(
        events=replace(_events(spans), track=track, tracks=tuple(tracks)),
        detail=detail,
        details=details,
        keys=tuple(tracks),
        starts=Flows(starts.flow(), of_starts, starts.times(durations=False)[0]),
        ends=Flows(ends.flow(), of_ends, ends.times(durations=False)[0]),
        frequencies=_frequencies(others),
    )
    _take_names(others, view)
    return view


def _events(spans: ScannedEvents) -> EventTable:
    start, duration = spans.times()
    texts, names = spans.of, Names(spans.of)
    name = names.column(spans.name, absent="")
    request = names.column(spans.argument(_REQUEST), absent=None)
    unasked = request == NO_TEXT
    request[unasked] = names.column(spans.name[unasked], lambda code: request_of(None, texts.words[code]), absent=None)
    return EventTable(
        start=start,
        duration=duration,
        track=np.zeros(len(spans), dtype=np.int32),
        name=name,
        kind=np.full(len(spans), KIND_CODES["other"], dtype=np.uint8),
        correlation=np.full(len(spans), NO_CORRELATION, dtype=np.int64),
        group=name,
        request=request,
        shape=names.column(spans.argument(_INPUTS), lambda code: texts.words[code].replace(";\r\n", ";"), absent=None),
        names=names.all(),
        tracks=(),
    )


def _details(spans: ScannedEvents) -> tuple[Codes, tuple[Detail, ...]]:
    """The detail of each span, and all details in the order of the file."""
    category, task_type, word = spans.category, spans.argument(_TASK_TYPE), spans.of.word
    has_inputs = spans.argument(_INPUTS) != NO_TEXT
    first, row = group_rows(category, task_type, has_inputs.astype(np.int8))
    numbers: dict[Detail, int] = {}
    columns = category[first], task_type[first], has_inputs[first]
    codes = [
        numbers.setdefault(Detail(word(text), word(kind), inputs), len(numbers))
        for text, kind, inputs in zip(*(column.tolist() for column in columns))
    ]
    return np.array(codes, dtype=np.int32)[row], tuple(numbers)


def _frequencies(others: ScannedEvents) -> dict[str, tuple[float, float]]:
    frequencies: dict[str, tuple[float, float]] = {}
    texts = others.of
    counters = others.select(others.is_phase("C") & texts.flagged(others.name, _FREQUENCY.__eq__))
    columns = counters.event, counters.name, counters.process_and_thread()[0], counters.argument(_MEGAHERTZ)
    for event, name, process, megahertz in zip(*(column.tolist() for column in columns)):
        if megahertz == NO_TEXT:
            continue
        try:
            # A number of MHz with decimals, as the times are.
            hertz = nanoseconds(texts.texts[megahertz]) * 1e3
        except ValueError as error:
            texts.refuse(event, name, error)
        pid = texts.word(process)
        low, high = frequencies.get(pid, (hertz, hertz))
        frequencies[pid] = (min(low, hertz), max(high, hertz))
    return frequencies


def _take_names(others: ScannedEvents, view: View) -> None:
    names = others.select(others.is_phase("M"))
    columns = names.name, *names.process_and_thread(), names.argument(_NAME), names.argument(_LABELS)
    for codes in zip(*(column.tolist() for column in columns)):
        kind, process, thread, name, labels = map(names.of.word, codes)
        if kind == "process_name":
            view.processes[process] = name
        elif kind == "process_labels":
            view.labels[process] = labels
        elif kind == "thread_name":
            view.threads[process, thread] = name
