"""trace_view.json and msprof's timeline: spans, flows and the core's frequency, as columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.trace.chrome_events import ChromeEvent, read_events, request_of, span_duration
from perfgate.trace.events import NO_CORRELATION, EventTable, EventTableBuilder, nanoseconds

_FLOW = "HostToDevice"
_FREQUENCY = "AI Core Freq"
_Key = tuple[str, str]


class Detail(NamedTuple):
    """What an event says of its kind beside its name."""

    category: str
    task_type: str
    has_inputs: bool


class _Arguments(msgspec.Struct, gc=False):
    # All as written: what a word or a number is differs by version, and most events need none of them.
    task_type: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Task Type")
    inputs: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    frequency: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="MHz")
    name: msgspec.Raw = msgspec.Raw()
    labels: msgspec.Raw = msgspec.Raw()
    request_id: msgspec.Raw = msgspec.Raw()


class _Event(ChromeEvent):
    id: msgspec.Raw = msgspec.Raw()
    args: _Arguments | None = None


class Flows:
    """One end of the arrows from host to device: which arrow, which track (its number in ``View.keys``), when."""

    def __init__(self) -> None:
        self.flow, self.track, self.time = array("q"), array("q"), array("q")


@dataclass(frozen=True)
class View:
    """A timeline as the file has it. Every event still has kind ``other``; ``detail`` indexes ``details``.

    ``keys`` are process and thread id of each track; ``processes`` and ``threads`` their names, ``labels`` a process's
    label. ``frequencies`` are the hertz the AI core ran at, lowest and highest, by process id.
    """

    events: EventTable
    detail: array[int]
    details: tuple[Detail, ...]
    keys: tuple[_Key, ...]
    processes: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    threads: dict[_Key, str] = field(default_factory=dict)
    frequencies: dict[str, tuple[float, float]] = field(default_factory=dict)
    starts: Flows = field(default_factory=Flows)
    ends: Flows = field(default_factory=Flows)


def read_view(path: Path) -> View:
    """Raises DocumentError, with what is wrong and where, for what is no such file."""
    collector = _Collector()
    read_events(path, _Event, collector.add, advice="analyse the profile again")
    return collector.view()


class _Collector:
    """Takes the events of a file, in order."""

    def __init__(self) -> None:
        self._builder = EventTableBuilder()
        self._detail = array("q")
        self._details: dict[tuple[str, str, bool], int] = {}
        self._keys: dict[_Key, int] = {}
        self._processes: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._threads: dict[_Key, str] = {}
        self._frequencies: dict[str, tuple[float, float]] = {}
        self._starts, self._ends = Flows(), Flows()
        self._words: dict[bytes, str] = {}

    def add(self, event: _Event) -> None:
        if event.ph == "X":
            self._add_span(event)
        elif event.ph in ("s", "f"):
            if event.cat == _FLOW:
                ends = self._starts if event.ph == "s" else self._ends
                ends.flow.append(_flow_number(bytes(event.id)))
                key = self._word(event.pid), self._word(event.tid)
                ends.track.append(self._keys.setdefault(key, len(self._keys)))
                ends.time.append(nanoseconds(bytes(event.ts)))
        elif event.ph == "M":
            self._name(event)
        elif event.ph == "C" and event.name == _FREQUENCY and event.args and event.args.frequency:
            hertz = nanoseconds(bytes(event.args.frequency)) * 1e3  # a number of MHz with decimals, as the times are
            pid = self._word(event.pid)
            low, high = self._frequencies.get(pid, (hertz, hertz))
            self._frequencies[pid] = (min(low, hertz), max(high, hertz))

    def view(self) -> View:
        spans = self._builder.table()
        # Arrows lie on threads that hold no span, so the tracks of the spans are renumbered among all.
        track = np.array([self._keys[key] for key in spans.tracks], dtype=np.int64)[spans.track]
        return View(
            events=replace(spans, track=track, tracks=tuple(self._keys)),
            detail=self._detail,
            details=tuple(Detail(*detail) for detail in self._details),
            keys=tuple(self._keys),
            processes=self._processes,
            labels=self._labels,
            threads=self._threads,
            frequencies=self._frequencies,
            starts=self._starts,
            ends=self._ends,
        )

    def _add_span(self, event: _Event) -> None:
        duration = span_duration(event)
        key = self._word(event.pid), self._word(event.tid)
        self._keys.setdefault(key, len(self._keys))
        arguments = event.args or _NO_ARGUMENTS
        detail = (event.cat or "", self._word(arguments.task_type), bool(arguments.inputs))
        self._detail.append(self._details.setdefault(detail, len(self._details)))
        self._builder.add(
            nanoseconds(bytes(event.ts)),
            duration,
            track=key,
            name=event.name or "",
            kind="other",
            correlation=NO_CORRELATION,
            request=request_of(_text(bytes(arguments.request_id)) if arguments.request_id else None, event.name or ""),
            shape=_text(bytes(arguments.inputs)).replace(";\r\n", ";") if arguments.inputs else None,
        )

    def _name(self, event: _Event) -> None:
        arguments = event.args or _NO_ARGUMENTS
        pid, tid = self._word(event.pid), self._word(event.tid)
        if event.name == "process_name":
            self._processes[pid] = self._word(arguments.name)
        elif event.name == "process_labels":
            self._labels[pid] = self._word(arguments.labels)
        elif event.name == "thread_name":
            self._threads[pid, tid] = self._word(arguments.name)

    def _word(self, raw: msgspec.Raw) -> str:
        """A text, or a number as text: 7 and "7" are one process."""
        code = bytes(raw)
        word = self._words.get(code)
        if word is None:
            word = self._words[code] = _text(code)
        return word


_NO_ARGUMENTS = _Arguments()


def _text(code: bytes) -> str:
    return str(msgspec.json.decode(code)) if code.startswith(b'"') else code.decode("utf-8", errors="replace")


def _flow_number(code: bytes) -> int:
    """A number that stands for an arrow. Its id is a number or a text, and never the same twice, so none is stored."""
    plain = code.strip(b'"')
    return int(plain) if plain.isdigit() and len(plain) <= 18 else hash(plain) | -(1 << 62)
