"""Read plain Chrome trace events, as converters of aclprof output and many other tools write them.

Spans are complete events (``ph`` X) or pairs (B and E) of one thread. Beyond times and names little is promised by the
format, so what an event is follows from its category, and from what its process and thread are called.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.document.message import Message
from perfgate.trace.analysis import IntColumn
from perfgate.trace.chrome_events import (
    HOST,
    KIND_OF_CATEGORY,
    UNNAMED,
    ChromeEvent,
    absent_device,
    read_events,
    request_of,
    timelines_by_device,
    unquoted,
)
from perfgate.trace.events import (
    COLLECTIVE_PREFIXES,
    DEVICE_KINDS,
    KIND_CODES,
    NO_CORRELATION,
    EventKind,
    EventTable,
    EventTableBuilder,
    nanoseconds,
)
from perfgate.trace.recording import Recording
from perfgate.trace.steps import STEP_NAME

READS = "Chrome trace events, *.json and *.json.gz"
# Every other format of JSON is asked first.
PRIORITY = -10

# How converters call the process of a device, and a stream of it: Ascend Hardware, NPU 0, GPU 1 (facts of msprof's
# timeline and of Kineto), Stream 3.
_DEVICE = re.compile(r"ascend hardware|\b(?:npu|gpu|cuda|device)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:npu|gpu|cuda|device)[ :]?(\d{1,6})\b", re.IGNORECASE)
_STREAM = re.compile(r"^(?:\w+ )?stream\b", re.IGNORECASE)
_COLLECTIVE_TRACK = re.compile(r"hccl|nccl|rccl|communication", re.IGNORECASE)
_COPY = re.compile(r"memcpy|memset|^copy", re.IGNORECASE)
_Key = tuple[str, str]  # process and thread
_NAMES = ("process_name", "thread_name", "process_labels")


class _Event(ChromeEvent):
    args: msgspec.Raw = msgspec.Raw()


class _Arguments(msgspec.Struct, gc=False):
    request_id: int | float | str | None = None
    name: str | None = None
    labels: str | None = None


class _Opened(NamedTuple):
    """A span that was begun: its event and the nanosecond."""

    event: _Event
    start: int


def recognises(path: Path) -> bool:
    return path.is_file() and path.name.endswith((".json", ".json.gz"))


def read(path: Path) -> Recording:
    """Raises DocumentError, with what is wrong and what to do."""
    collector = _Collector()
    read_events(path, _Event, collector.add)
    table, device_of = collector.table()
    timelines = timelines_by_device(path, table, device_of, rank=None)
    absent = dict(absent_device(timelines))
    if collector.open_spans:
        absent["spans"] = Message("notes.unended-spans", {"spans": collector.open_spans})
    return Recording(path, "chrome", timelines, absent=absent)


class _Track(NamedTuple):
    """What the names of a process and a thread say: the device, HOST or UNNAMED, and whether it holds collectives."""

    device: int
    collectives: bool


class _Collector:
    """Takes the events of one file, in order, and makes the table of them."""

    def __init__(self) -> None:
        self._builder = EventTableBuilder()
        self._categories: dict[str, int] = {}
        self._category_of = array("q")
        self._open: dict[_Key, list[_Opened]] = {}
        self._names: dict[_Key, dict[str, str]] = {}

    @property
    def open_spans(self) -> int:
        """How many spans were begun and not ended."""
        return sum(map(len, self._open.values()))

    def add(self, event: _Event) -> None:
        """Raises ValueError for a span whose times are none."""
        if event.ph not in ("X", "B", "E", "M"):
            return
        key = unquoted(bytes(event.pid)), unquoted(bytes(event.tid))
        if event.ph == "X":
            duration = nanoseconds(bytes(event.dur)) if event.dur else 0
            self._add_span(key, _Opened(event, nanoseconds(bytes(event.ts))), duration)
        elif event.ph == "B":
            self._open.setdefault(key, []).append(_Opened(event, nanoseconds(bytes(event.ts))))
        elif event.ph == "E" and self._open.get(key):
            # An end closes what the thread began last; one without a beginning was cut off with it.
            opened = self._open[key].pop()
            self._add_span(key, opened, nanoseconds(bytes(event.ts)) - opened.start)
        elif event.ph == "M" and event.name in _NAMES:
            arguments = _arguments(event.args)
            name = arguments.labels if event.name == "process_labels" else arguments.name
            owner = key if event.name == "thread_name" else (key[0], "")
            self._names.setdefault(owner, {})[event.name] = name or ""

    def table(self) -> tuple[EventTable, IntColumn]:
        """The events, and the device of each: its number, HOST or UNNAMED."""
        table = self._builder.table()
        tracks = [self._track(*key) for key in table.tracks]
        categories = list(self._categories)
        alike = np.stack((table.track, table.name, np.frombuffer(self._category_of, np.int64)), axis=1)
        distinct, back = np.unique(alike, axis=0, return_inverse=True)
        kinds = [
            KIND_CODES[_kind(tracks[track], table.names[name], categories[category])]
            for track, name, category in distinct.tolist()
        ]
        table.kind[:] = np.array(kinds, dtype=np.int64)[back.reshape(-1)] if kinds else 0
        devices = np.array([track.device for track in tracks] or [HOST], dtype=np.int64)[table.track]
        return table, np.where(table.is_kind(*DEVICE_KINDS) & (devices == HOST), UNNAMED, devices)

    def _add_span(self, key: _Key, opened: _Opened, duration: int) -> None:
        if duration < 0:
            raise ValueError("it ends before it begins")
        event = opened.event
        name = event.name or ""
        self._category_of.append(self._categories.setdefault((event.cat or "").lower(), len(self._categories)))
        self._builder.add(
            opened.start,
            duration,
            track=key,
            name=name,
            kind="other",
            correlation=NO_CORRELATION,
            request=request_of(_arguments(event.args).request_id, name),
        )

    def _track(self, process: str, thread: str) -> _Track:
        names = self._names.get((process, ""), {})
        process_name = " ".join(filter(None, (names.get("process_name"), names.get("process_labels"))))
        thread_name = self._names.get((process, thread), {}).get("thread_name") or thread
        if not (_DEVICE.search(process_name) or _DEVICE.search(process) or _STREAM.search(thread_name)):
            return _Track(HOST, collectives=False)
        number = _NUMBER.search(process_name)
        collectives = _COLLECTIVE_TRACK.search(f"{process_name} {thread_name}") is not None
        return _Track(int(number[1]) if number else UNNAMED, collectives)


def _kind(track: _Track, name: str, category: str) -> EventKind:
    if STEP_NAME.fullmatch(name):
        return "annotation"
    kind = KIND_OF_CATEGORY.get(category)
    if kind is not None and kind != "compute":
        return kind
    if kind is None and track.device == HOST:
        return "other"
    if track.collectives or name.lower().startswith(COLLECTIVE_PREFIXES):
        return "comm"
    return "copy" if _COPY.search(name) else "compute"


def _arguments(raw: msgspec.Raw) -> _Arguments:
    """An event's arguments may be anything."""
    text = bytes(raw)
    if b'"request_id"' not in text and b'"name"' not in text and b'"labels"' not in text:
        return _NO_ARGUMENTS
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NO_ARGUMENTS


_DECODER = msgspec.json.Decoder(_Arguments)
_NO_ARGUMENTS = _Arguments()
