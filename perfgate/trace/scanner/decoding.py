"""Read trace events without the compiled scanner: decoded block by block, and put into
the same columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfgate.locale import Activity
from perfgate.trace.model.events import nanoseconds
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.scanner import library
from perfgate.trace.scanner.chrome_events import (
    ChromeEvent,
    TraceText,
    event_lists,
)
from perfgate.trace.scanner.scanned import (
    ABSENT,
    NO_NUMBER,
    NO_TEXT,
    ODD_TIME,
    ScannedEvents,
    ScannedFile,
    ScannedTexts,
    SparseColumn,
)

_NUMBER_DIGITS = 18


class _Event(ChromeEvent):
    id: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


def decode_events(
    path: Path, keys: Mapping[str, bool], *, advice: Activity | None
) -> ScannedFile:
    """As the compiled scanner; ``keys`` are the arguments to take, each with whether
    whole numbers are wanted of it.
    """
    collector = _Collector(keys)
    advice = advice or Activity("record it again")
    with TraceText(path) as text:
        for events in event_lists(text, _Event, advice=advice):
            for event in events:
                collector.add(event)
    return collector.file(text, advice)


class _Collector:
    def __init__(self, keys: Mapping[str, bool]) -> None:
        self._keys = keys
        self._named = [key for key in keys if key != library.COUNTER_ARGUMENTS]
        self._quoted = [f'"{key}"'.encode() for key in self._named]
        fields = []
        for number, key in enumerate(self._named):
            field = msgspec.field(default=msgspec.Raw(), name=key)
            fields.append((f"argument{number}", msgspec.Raw, field))
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Arguments", fields))
        self._texts = Numbering[bytes]()
        self._places = Numbering[tuple[int, int]]()
        self._rows = [_RowArrays(keys) for _ in library.SETS]
        self._odd: dict[tuple[int, str], bytes] = {}
        self._events = 0

    def add(self, event: _Event) -> None:
        phase = event.ph
        kind = library.OTHERS
        if phase == "X":
            kind = library.COMPLETE
        elif phase in ("s", "t", "f"):
            kind = library.ARROWS
        rows = self._rows[kind]
        columns, row = rows.columns, len(rows.columns["phase"])
        columns["phase"].append(
            ord(phase) if len(phase) == 1 and phase.isascii() else 0
        )
        columns["event"].append(self._events)
        columns["category"].append(self._word(event.cat))
        columns["name"].append(
            NO_TEXT if kind == library.ARROWS else self._word(event.name)
        )
        columns["track"].append(
            self._places[self._text(bytes(event.pid)), self._text(bytes(event.tid))]
        )
        columns["start"].append(self._time("start", bytes(event.ts)))
        columns["duration"].append(self._time("duration", bytes(event.dur)))
        if event.id:
            # The id of an arrow is a number or a text, and never the same twice, so no
            # text is kept.
            rows.flows.put(row, _flow_number(bytes(event.id)))
        arguments = bytes(event.args)
        for key, value in zip(self._named, self._values_of(arguments)):
            if self._keys[key]:
                rows.arguments[key].put(row, _whole_number(value))
            else:
                rows.arguments[key].put(row, self._text(value))
        if phase == "C" and library.COUNTER_ARGUMENTS in self._keys:
            rows.arguments[library.COUNTER_ARGUMENTS].put(row, self._text(arguments))
        self._events += 1

    def file(self, text: TraceText, advice: Activity) -> ScannedFile:
        places = np.array(list(self._places), dtype=np.int32).reshape(-1, 2)
        texts = ScannedTexts(
            text.path,
            advice,
            list(self._texts),
            places,
            self._odd,
            uniform_bytes=text.uniform_bytes,
        )
        complete, others, arrows = (rows.events(texts) for rows in self._rows)
        return ScannedFile(texts, complete, others, lambda: arrows, text.around)

    def _values_of(self, raw: bytes) -> list[bytes]:
        """The arguments that are asked for, as written; an event's may be anything."""
        if any(key in raw for key in self._quoted):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return list(
                    map(bytes, msgspec.structs.astuple(self._decoder.decode(raw)))
                )
        return [b""] * len(self._named)

    def _word(self, word: str | None) -> int:
        return self._text(msgspec.json.encode(word))

    def _text(self, text: bytes) -> int:
        if text in (b"", b"null"):
            return NO_TEXT
        return self._texts[text]

    def _time(self, column: str, text: bytes) -> int:
        if not text:
            return ABSENT
        with suppress(ValueError):
            time = nanoseconds(text)
            if time >= 0:
                return time
        self._odd[self._events, column] = text
        return ODD_TIME


class _RowArrays:
    """The columns of one set of events as they grow."""

    def __init__(self, keys: Mapping[str, bool]) -> None:
        self.columns = {
            name: array(_TYPE_CODES[kind]) for name, kind in library.MEMBERS.items()
        }
        self.flows = _SparseArray(np.int64)
        self.arguments = {
            key: _SparseArray(library.argument_type(is_number))
            for key, is_number in keys.items()
        }

    def events(self, texts: ScannedTexts) -> ScannedEvents:
        columns: dict[str, Any] = {}
        for name, kind in library.MEMBERS.items():
            columns[name] = np.frombuffer(self.columns[name], kind)
        arguments = {key: values.column() for key, values in self.arguments.items()}
        return ScannedEvents(
            texts, flows=self.flows.column(), arguments=arguments, **columns
        )


class _SparseArray:
    def __init__(self, kind: Any) -> None:
        self._rows = array("i")
        self._values = array(_TYPE_CODES[kind])
        self._kind = kind

    def put(self, row: int, value: int) -> None:
        if value != NO_NUMBER:
            self._rows.append(row)
            self._values.append(value)

    def column(self) -> SparseColumn:
        return SparseColumn(
            np.frombuffer(self._rows, np.int32), np.frombuffer(self._values, self._kind)
        )


_TYPE_CODES = {np.uint8: "B", np.int32: "i", np.int64: "q"}


def _flow_number(text: bytes) -> int:
    """The number of an arrow; a number below all of these for an id that is a text."""
    number = _whole_number(text.removeprefix(b'"').removesuffix(b'"'))
    if number == NO_NUMBER:
        return hash(text) >> 2 | -(1 << 62)
    return number


def _whole_number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _NUMBER_DIGITS:
        return NO_NUMBER
    return int(text)
