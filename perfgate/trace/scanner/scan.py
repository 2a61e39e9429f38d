"""Read every event of a trace file: by the compiled scanner if it was built, else by decoding.

Both give the same columns. Input that the scanner cannot handle, above all a damaged file, is left to decoding, which reports
the exact error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path

import msgspec
import numpy as np

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.scanner import library
from perfgate.trace.scanner.chrome_events import (
    EVENTS_KEY,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_HEADER_BYTES,
    TraceText,
    header_and_rest,
)
from perfgate.trace.scanner.scanned import (
    ABSENT,
    NO_TEXT_AT_ALL,
    ScannedEvents,
    ScannedFile,
    ScannedTexts,
    SparseColumn,
    decoded,
)

_WINDOW_BYTES = 4 << 20
# Before a window, for an event that the window before it begins.
_ROOM_BYTES = 64 << 10
_BEGIN_BYTES = 64 << 10
# Most compressed traces have more than a sixteenth of their text.
_MOST_COMPRESSED = 16


def scan(
    path: Path,
    *,
    numbers: Iterable[str] = (),
    texts: Iterable[str] = (),
    arrows: bool = False,
    advice: Activity | None = None,
) -> ScannedFile:
    """Every event of a trace file. ``numbers`` and ``texts`` are the arguments to take.

    Without ``arrows`` the file is read again for those if they are asked for.

    The file is an object with a list ``traceEvents``, or that list itself, compressed according to its suffix. Raises
    DocumentError for a file that is truncated, too large, not a trace, or contains an invalid event.
    """
    keys = {**dict.fromkeys(numbers, True), **dict.fromkeys(texts, False)}
    if library.load() is not None:
        try:
            file = WindowedScan(
                path, keys, advice or Activity("record it again"), arrows=arrows
            ).file()
        except UndecidedError:
            pass  # decoding reports the error and its event
        else:
            return _with_whole_document(path, file)
    from perfgate.trace.scanner.decoding import decode_events

    return _with_whole_document(path, decode_events(path, keys, advice=advice))


def _with_whole_document(path: Path, file: ScannedFile) -> ScannedFile:
    """The same file. Raises DocumentError if the text around its list of events is not JSON, or has a second list."""
    if len(file.around) >= MAX_HEADER_BYTES:
        return file  # it was not kept to its end
    if len(EVENTS_KEY.findall(file.around)) > 1:
        raise DocumentError(
            "{path}: several lists traceEvents, and JSON allows one of each name; record the trace again",
            path=path,
        )
    try:
        msgspec.json.decode(
            file.around, type=dict[str, msgspec.Raw] | list[msgspec.Raw]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "{path}: the text around its list of events is not JSON: {error}; record the trace again, or take its first "
            "document alone",
            path=path,
            error=error,
        ) from error
    if len(file.complete) == 0 and len(file.others) and not file.others.phase.any():
        raise DocumentError(
            "{path}: a list of other objects than trace events, which have a phase ph; name the output of a profiler",
            path=path,
        )
    timed = np.flatnonzero((file.others.phase == 0) & (file.others.start != ABSENT))
    if timed.size:
        row = int(timed[0])
        file.texts.refuse(
            int(file.others.event[row]),
            int(file.others.name[row]),
            Activity("it has no phase (ph)"),
        )
    return file


class UndecidedError(Exception):
    """The scanner met input that it cannot handle."""


class _Thread:
    """Works in parallel until it is joined, which gives the result or raises the error."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._error: Exception | None = None
        self._result = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> int:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except Exception as error:  # noqa: BLE001 - raised where the result is needed
            self._error = error


class _Windows:
    """The text of a file, a window at a time; a thread reads one ahead of the scan.

    A window begins with the rest of the window before it, an event that goes on.
    """

    def __init__(self, text: TraceText, begin: bytes, size: int) -> None:
        self._text = text
        self._reading: _Thread | None = None
        self._room = _ROOM_BYTES + size
        self._spare = bytearray()
        self._take_over(bytearray(begin), 0, len(begin))

    def __enter__(self) -> _Windows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reading is not None:
            with suppress(Exception):
                self._reading.join()

    def move_on(self, end: int) -> bool:
        """Drop the text before ``end`` and go on; return whether there was more text."""
        more = self._more()
        if not more:
            return False
        rest = self.rest(end)
        buffer, begin = self._spare, _ROOM_BYTES - len(rest)
        if begin < 0:
            buffer, begin = rest + buffer[_ROOM_BYTES : _ROOM_BYTES + more], 0
        else:
            buffer[begin:_ROOM_BYTES] = rest
        self._spare = self._buffer
        self._take_over(buffer, begin, len(rest) + more)
        self._reading = _Thread(self._fill)
        return True

    def rest(self, end: int) -> bytearray:
        """The text of the window from ``end`` on."""
        return self._buffer[self._begin + end : self._begin + self.size]

    def rest_of_file(self, end: int) -> bytes:
        """The text from ``end`` on, of a long one the begin.

        All is read, because a compressed file has its sums at its end.
        """
        rest = bytes(self.rest(end))
        more = self._more()
        rest += self._spare[_ROOM_BYTES : _ROOM_BYTES + more]
        for block in self._text.blocks(_BEGIN_BYTES):
            rest += block if len(rest) < MAX_HEADER_BYTES else b""
        return rest

    def _take_over(self, buffer: bytearray, begin: int, size: int) -> None:
        self._buffer, self._begin, self.size = buffer, begin, size
        whole = np.frombuffer(buffer, np.uint8)
        self.address: int = whole.ctypes.data + begin

    def _more(self) -> int:
        """The size of the text in the spare buffer, which is behind the window."""
        if self._reading is None:
            return self._fill()
        reading, self._reading = self._reading, None
        return reading.join()

    def _fill(self) -> int:
        if len(self._spare) < self._room:
            self._spare = bytearray(self._room)
        with memoryview(self._spare) as room:
            return self._text.fill(room[_ROOM_BYTES:])


class WindowedScan:
    """One file, read in windows."""

    def __init__(
        self,
        path: Path,
        keys: Mapping[str, bool],
        advice: Activity,
        *,
        window: int | None = None,
        arrows: bool = False,
    ) -> None:
        self._path = path
        self._keys = dict(keys)
        self._advice = advice
        self._window = window
        self._sets: tuple[int, ...] = (
            library.SETS if arrows else (library.COMPLETE, library.OTHERS)
        )
        self._scan = library.Scan(self._keys)
        self._scan.begin(self._sets)
        # Whether the next event has no comma before it.
        self._is_first = True

    def file(self) -> ScannedFile:
        """Raises UndecidedError, and DocumentError for a file that cannot be read."""
        around = self._take_all()
        texts = self._texts()
        try:
            texts.words = decoded(texts.texts)
        except NO_TEXT_AT_ALL as error:
            raise UndecidedError from error
        complete = self._rows(library.COMPLETE, texts)
        others = self._rows(library.OTHERS, texts)
        if library.ARROWS in self._sets:
            arrows = self._rows(library.ARROWS, texts)
            return ScannedFile(texts, complete, others, lambda: arrows, around)
        return ScannedFile(
            texts,
            complete,
            others,
            cache(partial(self._arrows, self._scan.events)),
            around,
        )

    def _arrows(self, events: int) -> ScannedEvents:
        """Read the file, which has this number of events, again for its arrows alone.

        Raises DocumentError if it has changed.
        """
        self._sets = (library.ARROWS,)
        self._scan.begin(self._sets)
        self._is_first = True
        with suppress(UndecidedError):
            self._take_all()
            if self._scan.events == events:
                return self._rows(library.ARROWS, self._texts())
        raise DocumentError(
            "{path}: has changed while it was being read; ask again", path=self._path
        )

    def _take_all(self) -> bytes:
        """Take every event; return the file without its events."""
        with TraceText(self._path) as text:
            size = self._window or self._window_of(text.stored)
            # Most headers end in the first bytes, and a window that is read for them alone is copied twice.
            begin = islice(text.blocks(min(_BEGIN_BYTES, size)), 1)
            header, rest = header_and_rest(self._path, chain(begin, text.blocks(size)))
            with _Windows(text, rest, size) as window:
                while True:
                    end, state = self._take(window)
                    if state == library.CLOSED:
                        return header + window.rest_of_file(end)
                    if (
                        state != library.WANTING
                        or window.size - end > MAX_EVENT_BYTES
                        or self._scan.events > MAX_EVENTS
                        or not window.move_on(end)
                    ):
                        raise UndecidedError

    def _window_of(self, stored: int) -> int:
        """The bytes of a window for a file of this size; a small file, even compressed, does not need a large window."""
        return min(_WINDOW_BYTES, max(_BEGIN_BYTES, _MOST_COMPRESSED * stored))

    def _take(self, window: _Windows) -> tuple[int, int]:
        """Take the events of a window; return the position at which that ended, and why."""
        before = self._scan.events
        end = self._scan.take(window.address, window.size, first=self._is_first)
        self._is_first = self._is_first and self._scan.events == before
        return end, self._scan.state

    def _texts(self) -> ScannedTexts:
        texts = self._scan.texts()
        names = {library.START: "start", library.DURATION: "duration"}
        odd = {
            (event, names[member]): texts[text]
            for event, member, text in self._scan.odd()
        }
        return ScannedTexts(self._path, self._advice, texts, self._scan.tracks(), odd)

    def _rows(self, rows: int, of: ScannedTexts) -> ScannedEvents:
        """The rows of one set, in the order of the file."""
        columns = {name: self._scan.member(rows, name) for name in library.MEMBERS}
        arguments = {
            key: SparseColumn(*self._scan.argument(rows, key)) for key in self._keys
        }
        return ScannedEvents(
            of,
            flows=SparseColumn(*self._scan.flow(rows)),
            arguments=arguments,
            **columns,
        )
