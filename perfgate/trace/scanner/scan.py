"""Read every event of a trace file: by the compiled scanner if it was built, else by
decoding.

Both give the same columns. Input that the scanner cannot handle, above all a damaged
file, is left to decoding, which reports the exact error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
_BEGIN_BYTES = 64 << 10
# Most compressed traces have more than a sixteenth of their text.
_MOST_COMPRESSED = 16


def scan(
    path: Path,
    *,
    numbers: Iterable[str] = (),
    texts: Iterable[str],
    arrows: bool = False,
    advice: Activity | None = None,
) -> ScannedFile:
    """Every event of a trace file. ``numbers`` and ``texts`` are the arguments to take.

    Without ``arrows`` the file is read again for those if they are asked for.

    The file is an object with a list ``traceEvents``, or that list itself, compressed
    according to its suffix. Raises DocumentError for a file that is truncated, too
    large, not a trace, or contains an invalid event.
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
    """The same file. Raises DocumentError if the text around its list of events is not
    JSON, or has a second list.
    """
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


class _Window:
    """The current text of the scan, in a buffer that is reused for the following text."""

    def __init__(self, text: TraceText, begin: bytes, size: int) -> None:
        self._text = text
        self._make_room(max(size, len(begin)))
        self.buffer[: len(begin)] = begin
        self.size = len(begin)
        self._fill()

    def move_on(self, end: int) -> bool:
        """Drop the text before ``end`` and read on; return whether there was more."""
        rest = self.buffer[end : self.size]
        if len(rest) > len(self.buffer) // 2:
            self._make_room(2 * len(self.buffer))
        self.buffer[: len(rest)] = rest
        self.size = len(rest)
        return self._fill()

    def _make_room(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.address: int = np.frombuffer(self.buffer, np.uint8).ctypes.data

    def _fill(self) -> bool:
        with memoryview(self.buffer) as room:
            more = self._text.fill(room[self.size :])
        self.size += more
        return more > 0


class WindowedScan:
    """One file, read in windows."""

    def __init__(
        self,
        path: Path,
        keys: Mapping[str, bool],
        advice: Activity,
        *,
        window: int | None = None,
        arrows: bool,
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
        text = self._take_all()
        texts = self._texts()
        texts.uniform_bytes = text.uniform_bytes
        try:
            texts.words = decoded(texts.texts)
        except NO_TEXT_AT_ALL as error:
            raise UndecidedError from error
        complete = self._rows(library.COMPLETE, texts)
        others = self._rows(library.OTHERS, texts)
        if library.ARROWS in self._sets:
            arrows = self._rows(library.ARROWS, texts)
            return ScannedFile(texts, complete, others, lambda: arrows, text.around)
        return ScannedFile(
            texts,
            complete,
            others,
            cache(partial(self._arrows, self._scan.events)),
            text.around,
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

    def _take_all(self) -> TraceText:
        """Take every event; return the text, read to its end."""
        with TraceText(self._path) as text:
            size = self._window or self._window_of(text.stored)
            # Most headers end in the first bytes, and a window that is read for them
            # alone is copied twice.
            begin = islice(text.blocks(min(_BEGIN_BYTES, size)), 1)
            header, rest = header_and_rest(self._path, chain(begin, text.blocks(size)))
            window = _Window(text, rest, size)
            while True:
                end, state = self._take(window)
                if state == library.CLOSED:
                    text.read_rest(header, bytes(window.buffer[end : window.size]))
                    return text
                if (
                    state != library.WANTING
                    or window.size - end > MAX_EVENT_BYTES
                    or self._scan.events > MAX_EVENTS
                    or not window.move_on(end)
                ):
                    raise UndecidedError

    def _window_of(self, stored: int) -> int:
        """The bytes of a window for a file of this size; a small file, even compressed,
        does not need a large window.
        """
        return min(_WINDOW_BYTES, max(_BEGIN_BYTES, _MOST_COMPRESSED * stored))

    def _take(self, window: _Window) -> tuple[int, int]:
        """Take the events of a window; return the position at which that ended, and
        why.
        """
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
