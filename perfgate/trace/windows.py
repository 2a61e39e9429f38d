"""Read trace events with the compiled scanner: a part of the file at a time, on two threads where that pays."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfgate.trace.analysis import CodeColumn
from perfgate.trace.chrome_events import (
    BORDER,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_HEADER_BYTES,
    TraceText,
    header_and_rest,
)
from perfgate.trace.scanned import NO_TEXT, NO_TEXT_AT_ALL, ScannedEvents, SparseColumn, decoded
from perfgate.trace.scanner import library

# Read at once; two threads share it.
_WINDOW_BYTES = 4 << 20
MIN_SHARE_BYTES = 1 << 20


class UndecidedError(Exception):
    """The scanner met what it cannot judge."""


class _Part(NamedTuple):
    """Rows of one scan that follow each other in the file."""

    scan: int
    begin: int
    end: int


class _Window:
    """The text that is being scanned, in a buffer that is used again for what follows."""

    def __init__(self, text: TraceText, begin: bytes, size: int) -> None:
        self._text = text
        self.buffer = bytearray(max(size, len(begin)))
        self.buffer[: len(begin)] = begin
        self.size = len(begin)
        self._fill()

    def move_on(self, end: int) -> bool:
        """Drop what lies before ``end`` and read on; whether there was more."""
        rest = self.buffer[end : self.size]
        if len(rest) > len(self.buffer) // 2:
            self.buffer = bytearray(2 * len(self.buffer))
        self.buffer[: len(rest)] = rest
        self.size = len(rest)
        return self._fill()

    def _fill(self) -> bool:
        with memoryview(self.buffer) as room:
            more = self._text.fill(room[self.size :])
        self.size += more
        return more > 0


class WindowedScan:
    """One file, read in windows; of each large one, two threads take a half."""

    def __init__(self, path: Path, keys: Mapping[str, bool], advice: str, *, window: int = _WINDOW_BYTES) -> None:
        self._path, self._keys, self._advice, self._window = path, dict(keys), advice, window
        self._scans = [library.Scan(self._keys)]
        self._parts: list[_Part] = []
        # Whether the next event has no comma before it.
        self._is_first = True

    def events(self) -> ScannedEvents:
        """Raises UndecidedError, and DocumentError for what cannot be read."""
        with TraceText(self._path) as text:
            header, rest = header_and_rest(self._path, text.blocks(self._window))
            window = _Window(text, rest, self._window)
            while True:
                end, state = self._take(window.buffer, window.size)
                if state == library.CLOSED:
                    rest = bytes(window.buffer[end : window.size])
                    # Reading to the end lets gzip check its sum.
                    for block in text.blocks(self._window):
                        rest += block if len(rest) < MAX_HEADER_BYTES else b""
                    return self._put_together(header + rest)
                if state not in (library.WANTING, library.STOPPED) or window.size - end > MAX_EVENT_BYTES:
                    raise UndecidedError
                if sum(part.end - part.begin for part in self._parts) > MAX_EVENTS or not window.move_on(end):
                    raise UndecidedError

    def _take(self, text: bytearray, size: int) -> tuple[int, int]:
        """Take the events of a window; where that ended, and why."""
        address = np.frombuffer(text, np.uint8).ctypes.data
        first = self._scans[0]
        border = BORDER.search(text, size // 2, size) if size >= 2 * MIN_SHARE_BYTES else None
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
        try:
            words = decoded(texts)
        except NO_TEXT_AT_ALL as error:
            raise UndecidedError from error
        places, tracks = self._places(codes)
        arguments = {}
        for key, is_number in self._keys.items():
            columns = [scan.argument(key) for scan in self._scans]
            arguments[key] = self._sparse(columns, None if is_number else codes)
            for scan in self._scans:
                scan.release_argument(key)
        events = ScannedEvents(
            path=self._path,
            advice=self._advice,
            texts=texts,
            places=places,
            flows=self._sparse([scan.flow() for scan in self._scans], None),
            arguments=arguments,
            odd=self._odd(texts, codes),
            around=around,
            **{name: self._dense(name, tracks if name == "track" else codes) for name in library.MEMBERS},
        )
        events.words = words
        return events

    def _texts(self) -> tuple[list[bytes], list[CodeColumn]]:
        """All texts once, and for each scan their numbers; the last is that of no text."""
        numbers: dict[bytes, int] = {}
        codes = []
        for scan in self._scans:
            own = [numbers.setdefault(text, len(numbers)) for text in scan.texts()]
            codes.append(np.array([*own, NO_TEXT], dtype=np.int32))
        return list(numbers), codes

    def _places(self, codes: list[CodeColumn]) -> tuple[CodeColumn, list[CodeColumn]]:
        """The texts of process and thread of every track once, and for each scan the numbers of its tracks."""
        numbers: dict[tuple[int, int], int] = {}
        tracks = []
        for scan, code in zip(self._scans, codes):
            pairs = map(tuple, code[scan.tracks()].tolist())
            tracks.append(np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], dtype=np.int32))
        return np.array(list(numbers), dtype=np.int32).reshape(-1, 2), tracks

    def _dense(self, name: str, codes: list[CodeColumn]) -> Any:
        """One column of both scans in the order of the file; texts and tracks by the numbers that ``codes`` gives them."""
        columns, kind = [scan.member(name) for scan in self._scans], library.MEMBERS[name]
        column = np.empty(sum(map(len, columns)), kind)
        end = 0
        for part in self._parts:
            begin, end = end, end + part.end - part.begin
            values = columns[part.scan][part.begin : part.end]
            # The first scan's texts and tracks keep their numbers.
            column[begin:end] = codes[part.scan][values] if part.scan and kind is np.int32 else values
        for scan in self._scans:
            scan.release_member(name)
        return column

    def _sparse(self, columns: list[tuple[Any, Any]], codes: list[CodeColumn] | None) -> SparseColumn:
        """The same of a column that few rows have."""
        count = sum(len(rows) for rows, _ in columns)
        all_rows, all_values = np.empty(count, np.int32), np.empty(count, columns[0][1].dtype)
        end = first_row = 0
        for part in self._parts:
            rows, values = columns[part.scan]
            low, high = np.searchsorted(rows, np.array((part.begin, part.end), dtype=np.int32)).tolist()
            begin, end = end, end + high - low
            all_rows[begin:end] = rows[low:high] + (first_row - part.begin)
            all_values[begin:end] = codes[part.scan][values[low:high]] if part.scan and codes else values[low:high]
            first_row += part.end - part.begin
        return SparseColumn(all_rows, all_values)

    def _odd(self, texts: list[bytes], codes: list[CodeColumn]) -> dict[tuple[int, str], bytes]:
        """The text of each time that is no plain number, by its row in the file and its column."""
        names, odd, first_row = {library.START: "start", library.DURATION: "duration"}, {}, 0
        times = [deque(scan.odd()) for scan in self._scans]
        for part in self._parts:
            ahead = times[part.scan]
            while ahead and ahead[0][0] < part.end:
                row, member, text = ahead.popleft()
                odd[first_row + row - part.begin, names[member]] = texts[codes[part.scan][text]]
            first_row += part.end - part.begin
        return odd


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
