"""Every event of a trace file as columns: by the compiled scanner where it was built, else decoded block by block.

Both give the same columns. What the scanner cannot judge, a damaged file above all, is left to the slower way, which says in
words what is wrong.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.analysis import IntColumn
from perfgate.trace.chrome_events import (
    BORDER,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    ChromeEvent,
    blocks,
    event_lists,
    header_and_rest,
    unquoted,
)
from perfgate.trace.events import nanoseconds
from perfgate.trace.scanner import library

# Instead of a time: none was given, or one that only its text tells.
ABSENT, ODD_TIME = -(1 << 63), -(1 << 63) + 1
NO_TEXT, NO_NUMBER = -1, -1
_NUMBER_DIGITS = 18
# Chrome's trace event format, "Event Descriptions".
_PHASES = {
    "B": "begins",
    "E": "ends",
    "b": "begins of asynchronous spans",
    "e": "ends of asynchronous spans",
    "n": "instants of asynchronous spans",
    "C": "counters",
    "i": "instants",
    "I": "instants",
}
# Read at once; two threads share it.
_WINDOW_BYTES = 4 << 20
MIN_SHARE_BYTES = 1 << 20

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@dataclass
class ScannedEvents:
    """All events of a file, in its order: columns of one entry each.

    ``phase`` is the character of ``ph`` (0 where it is no single one). ``category``, ``name``, ``process`` and ``thread``
    index ``texts``, values as they are written in JSON, or are NO_TEXT; names of arrows (``s``, ``t``, ``f``) are not kept.
    ``start`` and ``duration`` are nanoseconds, ABSENT or ODD_TIME; ``odd`` has the text of the latter by row and column.
    ``flow`` is the number of an arrow, NO_NUMBER, or below where its id is no number. ``numbers`` and ``values`` are the
    arguments that were asked for: whole numbers or NO_NUMBER, and texts or NO_TEXT. ``around`` is the file without its events.
    """

    path: Path
    advice: str
    texts: list[bytes]
    phase: npt.NDArray[np.uint8]
    category: Codes
    name: Codes
    process: Codes
    thread: Codes
    start: IntColumn
    duration: IntColumn
    flow: IntColumn
    numbers: dict[str, IntColumn]
    values: dict[str, Codes]
    odd: dict[tuple[int, str], bytes]
    around: bytes

    def __len__(self) -> int:
        return int(self.phase.size)

    @cached_property
    def words(self) -> list[str]:
        """The texts without the quotes and escapes of JSON; a value of another kind as it is written."""
        try:
            return _decoded(self.texts)
        except _NO_TEXT_AT_ALL:
            return [_nearly(text) for text in self.texts]

    def is_phase(self, *phases: str) -> Mask:
        return np.isin(self.phase, [ord(phase) for phase in phases])

    def flagged(self, column: Codes, matches: Callable[[str], object]) -> Mask:
        """Which events have a text in this column whose word matches; each is tried once."""
        return self.judged(column, lambda code: bool(matches(self.words[code])), otherwise=0).astype(bool)

    def judged(self, column: Codes, judge: Callable[[int], int], *, otherwise: int) -> IntColumn:
        """What a function says of each event's text in this column, by its number; each is judged once."""
        verdicts = np.full(len(self.texts) + 1, otherwise, dtype=np.int64)
        for code in self.used(column):
            verdicts[code] = judge(code)
        return verdicts[column]

    def word(self, code: int) -> str:
        return self.words[code] if code >= 0 else ""

    def used(self, column: Codes) -> list[int]:
        """The numbers of the texts that a column has."""
        used = np.zeros(len(self.texts) + 1, dtype=bool)
        used[column] = True
        return np.flatnonzero(used[:-1]).tolist()

    def times(self, chosen: npt.NDArray[np.intp], *, durations: bool = True) -> tuple[IntColumn, IntColumn]:
        """Start and duration of these events in nanoseconds; a duration that is not given is 0.

        Raises DocumentError that names the first event whose times are none.
        """
        start = self.start[chosen]
        duration = self.duration[chosen] if durations else np.zeros(chosen.size, dtype=np.int64)
        duration[duration == ABSENT] = 0
        strange = np.flatnonzero((start <= ODD_TIME) | (duration == ODD_TIME))
        for place in strange.tolist():
            row = int(chosen[place])
            try:
                if duration[place] == ODD_TIME:
                    text = self.odd[row, "duration"]
                    duration[place] = nanoseconds(text)
                    if duration[place] < 0:
                        raise ValueError(f"its duration {text.decode('ascii', 'replace')} is negative")
                if start[place] <= ODD_TIME:
                    start[place] = nanoseconds(self.odd.get((row, "start"), b""))
            except ValueError as error:
                self.refuse(row, error)
        return start, duration

    def refuse(self, row: int, error: ValueError | str) -> NoReturn:
        """Raise DocumentError that names the event of a row."""
        name = self.words[self.name[row]] if self.name[row] >= 0 else None
        raise DocumentError(f"{self.path}: event {row} ({name!r}): {error}; {self.advice}")

    def tracks(self, chosen: npt.NDArray[np.intp]) -> tuple[IntColumn, list[tuple[str, str]]]:
        """The track of each of these events, and process and thread of each track, in the order of the file."""
        width = len(self.texts) + 1
        pairs = (self.process[chosen].astype(np.int64) + 1) * width + self.thread[chosen] + 1
        distinct, first, back = np.unique(pairs, return_index=True, return_inverse=True)
        numbers: dict[tuple[str, str], int] = {}
        codes = np.zeros(distinct.size, dtype=np.int64)
        for place in np.argsort(first, kind="stable").tolist():
            process, thread = divmod(int(distinct[place]), width)
            key = self._plain(process - 1), self._plain(thread - 1)
            codes[place] = numbers.setdefault(key, len(numbers))
        return codes[back.reshape(-1)], list(numbers)

    def ignored(self, phases: str) -> tuple[Message, ...]:
        """A note on events of these phases, which a reader does not read; nothing where there are none."""
        counts = {phase: int((self.phase == ord(phase)).sum()) for phase in phases}
        what = ", ".join(f"{count} {_PHASES[phase]} ({phase})" for phase, count in counts.items() if count)
        return (Message("notes.events-ignored", {"path": str(self.path), "what": what}),) if what else ()

    def _plain(self, code: int) -> str:
        return unquoted(self.texts[code]) if code >= 0 else ""


class Names:
    """The names of a table, made from the words of scanned texts: two spellings of one word are one name."""

    def __init__(self, scanned: ScannedEvents) -> None:
        self._scanned = scanned
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def column(
        self, codes: Codes, name_of: Callable[[int], str | None] | None = None, *, absent: str | None
    ) -> IntColumn:
        """The number of each event's name: its word, or what ``name_of`` makes of its text; NO_TEXT where that is None."""
        words = self._scanned.words

        def number(code: int) -> int:
            name = words[code] if name_of is None else name_of(code)
            return NO_TEXT if name is None else self.number(name)

        otherwise = NO_TEXT if absent is None or not (codes == NO_TEXT).any() else self.number(absent)
        return self._scanned.judged(codes, number, otherwise=otherwise)

    def all(self) -> tuple[str, ...]:
        return tuple(self._numbers)


def scan(
    path: Path, *, numbers: Iterable[str] = (), texts: Iterable[str] = (), advice: str = "record it again"
) -> ScannedEvents:
    """Every event of a trace file. ``numbers`` and ``texts`` are the arguments to take.

    The file is an object with a list ``traceEvents``, or that list itself, gzipped where its name ends in ``.gz``. Raises
    DocumentError for a file that is cut off, too large, no trace, or holds what is no such event.
    """
    keys = {**dict.fromkeys(numbers, True), **dict.fromkeys(texts, False)}
    if library.load() is not None:
        try:
            return Reading(path, keys, advice).events()
        except UndecidedError:
            pass  # the slower way says what it is, and of which event
    return scan_slowly(path, keys, advice=advice)


_NO_TEXT_AT_ALL = (msgspec.MsgspecError, UnicodeDecodeError)


def _decoded(texts: list[bytes]) -> list[str]:
    """The words of texts: 7 and "7" are one. Raises what msgspec does for a text that is none."""
    quoted = iter(msgspec.json.decode(b"[%b]" % b",".join(text for text in texts if text.startswith(b'"'))))
    return [next(quoted) if text.startswith(b'"') else text.decode("utf-8", "replace") for text in texts]


def _nearly(text: bytes) -> str:
    """A word also of what is no text; of names and categories that is refused before."""
    try:
        return _decoded([text])[0]
    except _NO_TEXT_AT_ALL:
        return text.strip(b'"').decode("utf-8", "replace")


# --- by the compiled scanner


class UndecidedError(Exception):
    """The scanner met what it cannot judge."""


class _Part(NamedTuple):
    """Rows of one scan that follow each other in the file."""

    scan: int
    begin: int
    end: int


class Reading:
    """One file, read in windows; of each large one, two threads take a half."""

    def __init__(self, path: Path, keys: Mapping[str, bool], advice: str, *, window: int = _WINDOW_BYTES) -> None:
        self._path, self._keys, self._advice, self._window = path, dict(keys), advice, window
        self._scans = [library.Scan(self._keys)]
        self._parts: list[_Part] = []
        # Whether the next event has no comma before it.
        self._is_first = True

    def events(self) -> ScannedEvents:
        read = blocks(self._path, self._window)
        header, text = header_and_rest(self._path, read)
        while True:
            end, state = self._take(text)
            if state == library.CLOSED:
                rest = text[end:] + b"".join(read)
                return self._put_together(header + rest)
            if state not in (library.WANTING, library.STOPPED):
                raise UndecidedError
            more = next(read, b"")
            if (
                not more
                or len(text) - end > MAX_EVENT_BYTES
                or sum(part.end - part.begin for part in self._parts) > MAX_EVENTS
            ):
                raise UndecidedError
            text = text[end:] + more

    def _take(self, text: bytes) -> tuple[int, int]:
        """Take the events of a window; where that ended, and why."""
        address, size = np.frombuffer(text, np.uint8).ctypes.data if text else 0, len(text)
        first = self._scans[0]
        border = BORDER.search(text, size // 2) if size >= 2 * MIN_SHARE_BYTES else None
        if border is None:
            return self._take_with(0, address, size, 0)
        cut, second = text.index(b"{", border.start()), self._second()
        mark, begin = second.mark(), first.rows
        with _Thread(lambda: second.take(address, size, cut, size, first=True)) as ahead:
            end = first.take(address, size, 0, cut, first=self._is_first)
        self._note(0, begin)
        if (first.state, end) == (library.STOPPED, cut):
            self._is_first = second.rows == mark[0]
            self._note(1, mark[0])
            return ahead.result, second.state
        # What looked like the border of two events was none, or the first half ended before it.
        second.forget(mark)
        if first.state != library.STOPPED:
            self._is_first = self._is_first and first.rows == begin
            return end, first.state
        self._is_first = True
        return self._take_with(0, address, size, end)

    def _take_with(self, number: int, address: int, size: int, at: int) -> tuple[int, int]:
        scan, begin = self._scans[number], self._scans[number].rows
        end = scan.take(address, size, at, size, first=self._is_first)
        self._is_first = self._is_first and scan.rows == begin
        self._note(number, begin)
        return end, scan.state

    def _second(self) -> library.Scan:
        if len(self._scans) == 1:
            self._scans.append(library.Scan(self._keys))
        return self._scans[1]

    def _note(self, number: int, begin: int) -> None:
        end = self._scans[number].rows
        if end > begin:
            self._parts.append(_Part(number, begin, end))

    def _put_together(self, around: bytes) -> ScannedEvents:
        texts, codes = self._texts()
        names = {library.START: "start", library.DURATION: "duration"}
        rows = [np.zeros(scan.rows, dtype=np.int64) for scan in self._scans]
        count = 0
        for part in self._parts:
            rows[part.scan][part.begin : part.end] = np.arange(count, count + part.end - part.begin)
            count += part.end - part.begin
        odd = {
            (int(row_of[row]), names[member]): texts[code[text]]
            for scan, row_of, code in zip(self._scans, rows, codes)
            for row, member, text in scan.odd()
        }
        columns = {
            name: self._in_order([scan.member(name) for scan in self._scans], codes if kind is np.int32 else None)
            for name, kind in library.MEMBERS.items()
        }
        numbers, values = (
            {
                key: self._in_order([scan.argument(key) for scan in self._scans], None if is_number else codes)
                for key, is_number in self._keys.items()
                if is_number == wanted
            }
            for wanted in (True, False)
        )
        events = ScannedEvents(
            path=self._path,
            advice=self._advice,
            texts=texts,
            numbers=numbers,
            values=values,
            odd=odd,
            around=around,
            **columns,
        )
        try:
            events.words = _decoded(texts)
        except _NO_TEXT_AT_ALL as error:
            raise UndecidedError from error
        return events

    def _texts(self) -> tuple[list[bytes], list[Codes]]:
        """All texts once, and for each scan their numbers; the last is that of no text."""
        numbers: dict[bytes, int] = {}
        codes = []
        for scan in self._scans:
            own = [numbers.setdefault(text, len(numbers)) for text in scan.texts()]
            codes.append(np.array([*own, NO_TEXT], dtype=np.int32))
        return list(numbers), codes

    def _in_order(self, columns: list[Any], codes: list[Codes] | None) -> Any:
        """One column of both scans in the order of the file; texts by the numbers that ``codes`` gives them."""
        if len(columns) == 1:
            return columns[0]
        if codes:
            columns = [code[column] for code, column in zip(codes, columns)]
        return np.concatenate([columns[part.scan][part.begin : part.end] for part in self._parts])


class _Thread:
    """Does something beside the body of a with statement; ``result`` is there behind it."""

    def __init__(self, work: Callable[[], int]) -> None:
        self.result = 0
        self._work = work
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Thread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        self.result = self._work()


# --- by decoding


class _Event(ChromeEvent):
    id: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


def scan_slowly(path: Path, keys: Mapping[str, bool], *, advice: str = "record it again") -> ScannedEvents:
    """The same columns without the library."""
    around, collector = bytearray(), _Collector(keys)
    for events in event_lists(path, _Event, advice=advice, around=around):
        for event in events:
            collector.add(event)
    return collector.events(path, advice, bytes(around))


class _Collector:
    def __init__(self, keys: Mapping[str, bool]) -> None:
        self._keys = keys
        self._quoted = [f'"{key}"'.encode() for key in keys]
        fields = [
            (f"argument{number}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=key))
            for number, key in enumerate(keys)
        ]
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Arguments", fields))
        self._texts: dict[bytes, int] = {}
        self._columns = {name: array(_TYPE_CODES[kind]) for name, kind in library.MEMBERS.items()}
        self._arguments = {key: array("q" if is_number else "i") for key, is_number in keys.items()}
        self._odd: dict[tuple[int, str], bytes] = {}

    def add(self, event: _Event) -> None:
        columns, phase = self._columns, event.ph
        columns["phase"].append(ord(phase) if len(phase) == 1 and phase.isascii() else 0)
        columns["category"].append(self._word(event.cat))
        columns["name"].append(NO_TEXT if phase in ("s", "t", "f") else self._word(event.name))
        columns["process"].append(self._text(bytes(event.pid)))
        columns["thread"].append(self._text(bytes(event.tid)))
        columns["start"].append(self._time("start", bytes(event.ts)))
        columns["duration"].append(self._time("duration", bytes(event.dur)))
        columns["flow"].append(_flow_number(bytes(event.id)) if event.id else NO_NUMBER)
        for (key, is_number), value in zip(self._keys.items(), self._values_of(bytes(event.args))):
            self._arguments[key].append(_whole_number(value) if is_number else self._text(value))

    def events(self, path: Path, advice: str, around: bytes) -> ScannedEvents:
        columns: dict[str, Any] = {
            name: np.frombuffer(self._columns[name], kind) for name, kind in library.MEMBERS.items()
        }
        arrays: dict[str, Any] = {
            key: np.frombuffer(column, np.int64 if self._keys[key] else np.int32)
            for key, column in self._arguments.items()
        }
        return ScannedEvents(
            path=path,
            advice=advice,
            texts=list(self._texts),
            numbers={key: array for key, array in arrays.items() if self._keys[key]},
            values={key: array for key, array in arrays.items() if not self._keys[key]},
            odd=self._odd,
            around=around,
            **columns,
        )

    def _values_of(self, raw: bytes) -> list[bytes]:
        """The arguments that are asked for, as written; an event's may be anything."""
        if any(key in raw for key in self._quoted):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return [bytes(value) for value in msgspec.structs.astuple(self._decoder.decode(raw))]
        return [b""] * len(self._keys)

    def _word(self, word: str | None) -> int:
        return NO_TEXT if word is None else self._text(msgspec.json.encode(word))

    def _text(self, text: bytes) -> int:
        return NO_TEXT if text in (b"", b"null") else self._texts.setdefault(text, len(self._texts))

    def _time(self, column: str, text: bytes) -> int:
        if not text:
            return ABSENT
        try:
            time = nanoseconds(text)
        except ValueError:
            time = -1
        if time >= 0:
            return time
        self._odd[len(self._columns[column]), column] = text
        return ODD_TIME


_TYPE_CODES = {np.uint8: "B", np.int32: "i", np.int64: "q"}


def _whole_number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= _NUMBER_DIGITS else NO_NUMBER


def _flow_number(text: bytes) -> int:
    """The number of an arrow; its id is a number or a text, and never the same twice, so no text is kept."""
    number = _whole_number(text[1:-1] if text.startswith(b'"') else text)
    return hash(text) >> 2 | -(1 << 62) if number == NO_NUMBER else number
