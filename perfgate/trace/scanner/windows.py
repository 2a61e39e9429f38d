"""Read trace events with the compiled scanner: a part of the file at a time, on several threads if that pays."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfgate.trace.model.arithmetic import CodeColumn
from perfgate.trace.scanner import library
from perfgate.trace.scanner.chrome_events import (
    BORDER,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_HEADER_BYTES,
    TraceText,
    header_and_rest,
)
from perfgate.trace.scanner.scanned import (
    NO_TEXT,
    NO_TEXT_AT_ALL,
    ScannedEvents,
    ScannedFile,
    ScannedTexts,
    SparseColumn,
    decoded,
)

# Read at once; all threads share it.
_WINDOW_BYTES = 4 << 20
_SHARE_BYTES = 2 << 20
# Reading the file and putting the columns together are one thread's work, which is an eighth of it all.
_MOST_THREADS = 8
_BEGIN_BYTES = 64 << 10
MIN_SHARE_BYTES = 1 << 20


class UndecidedError(Exception):
    """The scanner met input that it cannot handle."""


class _Part(NamedTuple):
    """Events of one scan that follow each other in the file: the scan's marks before and behind them."""

    scan: int
    begin: library.ScanMark
    end: library.ScanMark


class _Window:
    """The current text of the scan, in a buffer that is reused for the following text."""

    def __init__(self, text: TraceText, begin: bytes, size: int) -> None:
        self._text = text
        self.buffer = bytearray(max(size, len(begin)))
        self.buffer[: len(begin)] = begin
        self.size = len(begin)
        self._fill()

    def move_on(self, end: int) -> bool:
        """Drop the text before ``end`` and read on; return whether there was more."""
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
    """One file, read in windows; of each large one, every thread takes a share."""

    def __init__(
        self,
        path: Path,
        keys: Mapping[str, bool],
        advice: str,
        *,
        window: int | None = None,
        threads: int | None = None,
    ) -> None:
        self._path, self._keys, self._advice = path, dict(keys), advice
        self._threads = threads or min(_MOST_THREADS, len(os.sched_getaffinity(0)))
        self._window = window or max(_WINDOW_BYTES, self._threads * _SHARE_BYTES)
        self._scans = [library.Scan(self._keys)]
        self._parts: list[_Part] = []
        # Whether the next event has no comma before it.
        self._is_first = True

    def file(self) -> ScannedFile:
        """Raises UndecidedError, and DocumentError for a file that cannot be read."""
        with TraceText(self._path) as text:
            # Most headers end in the first bytes, and a window that is read for them alone is copied twice.
            begin = islice(text.blocks(min(_BEGIN_BYTES, self._window)), 1)
            header, rest = header_and_rest(self._path, chain(begin, text.blocks(self._window)))
            window = _Window(text, rest, self._window)
            while True:
                end, state = self._take(window.buffer, window.size)
                if state == library.CLOSED:
                    rest = bytes(window.buffer[end : window.size])
                    # Reading to the end lets the sums of a compressed file be checked.
                    for block in text.blocks(self._window):
                        rest += block if len(rest) < MAX_HEADER_BYTES else b""
                    return self._put_together(header + rest)
                if state not in (library.WANTING, library.STOPPED) or window.size - end > MAX_EVENT_BYTES:
                    raise UndecidedError
                if sum(scan.mark().events for scan in self._scans) > MAX_EVENTS or not window.move_on(end):
                    raise UndecidedError

    def _take(self, text: bytearray, size: int) -> tuple[int, int]:
        """Take the events of a window; return the position at which that ended, and why."""
        address = np.frombuffer(text, np.uint8).ctypes.data
        cuts = self._cuts(text, size)
        if not cuts:
            return self._take_with(0, address, size, 0)
        while len(self._scans) <= len(cuts):
            self._scans.append(library.Scan(self._keys))
        marks = [scan.mark() for scan in self._scans]
        ends = [*cuts, size]
        with ExitStack() as stack:
            ahead = [
                stack.enter_context(
                    _Thread(partial(self._scans[number].take, address, size, cut, ends[number], first=True))
                )
                for number, cut in enumerate(cuts, start=1)
            ]
            end = self._scans[0].take(address, size, 0, cuts[0], first=self._is_first)
        self._is_first = self._is_first and self._scans[0].mark().events == marks[0].events
        self._note(0, marks[0])
        for number, cut in enumerate(cuts, start=1):
            state = self._scans[number - 1].state
            if (state, end) != (library.STOPPED, cut):
                # The supposed border of two events was none, or the share before it ended earlier.
                for scan, mark in zip(self._scans[number:], marks[number:]):
                    scan.forget(mark)
                if state != library.STOPPED:
                    return end, state
                self._is_first = True
                return self._take_with(0, address, size, end)
            end = ahead[number - 1].result
            self._is_first = self._scans[number].mark().events == marks[number].events
            self._note(number, marks[number])
        return end, self._scans[len(cuts)].state

    def _cuts(self, text: bytearray, size: int) -> list[int]:
        """The supposed borders of events that cut a window into shares of one size, one for each thread."""
        shares = min(self._threads, size // MIN_SHARE_BYTES)
        cuts = []
        for share in range(1, shares):
            border = BORDER.search(text, size * share // shares, size * (share + 1) // shares)
            if border is not None:
                cuts.append(text.index(b"{", border.start()))
        return cuts

    def _take_with(self, number: int, address: int, size: int, at: int) -> tuple[int, int]:
        scan, begin = self._scans[number], self._scans[number].mark()
        end = scan.take(address, size, at, size, first=self._is_first)
        self._is_first = self._is_first and scan.mark().events == begin.events
        self._note(number, begin)
        return end, scan.state

    def _note(self, number: int, begin: library.ScanMark) -> None:
        end = self._scans[number].mark()
        if end.events > begin.events:
            self._parts.append(_Part(number, begin, end))

    def _put_together(self, around: bytes) -> ScannedFile:
        texts, codes = self._texts()
        try:
            words = decoded(texts)
        except NO_TEXT_AT_ALL as error:
            raise UndecidedError from error
        places, tracks = self._places(codes)
        of = ScannedTexts(self._path, self._advice, texts, places, self._odd(texts, codes))
        of.words = words
        complete, others = (self._rows(rows, of, codes, tracks) for rows in (library.COMPLETE, library.OTHERS))
        read_arrows = cache(lambda: self._rows(library.ARROWS, of, codes, tracks))
        return ScannedFile(of, complete, others, read_arrows, around)

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

    def _rows(self, rows: int, of: ScannedTexts, codes: list[CodeColumn], tracks: list[CodeColumn]) -> ScannedEvents:
        """The rows of one set, of both scans in the order of the file."""
        renumbered = {"category": codes, "name": codes, "track": tracks}
        columns = {name: self._dense(rows, name, renumbered.get(name)) for name in library.MEMBERS}
        flows = self._sparse(rows, [scan.flow(rows) for scan in self._scans], None)
        for scan in self._scans:
            scan.release_flow(rows)
        arguments = {}
        for key, is_number in self._keys.items():
            values = [scan.argument(rows, key) for scan in self._scans]
            arguments[key] = self._sparse(rows, values, None if is_number else codes)
            for scan in self._scans:
                scan.release_argument(rows, key)
        return ScannedEvents(of, flows=flows, arguments=arguments, **columns)

    def _dense(self, rows: int, name: str, renumbered: list[CodeColumn] | None) -> Any:
        """One column; of texts and tracks, ``renumbered`` has the new numbers of each scan."""
        columns = [scan.member(rows, name) for scan in self._scans]
        column = np.empty(sum(map(len, columns)), library.MEMBERS[name])
        end = events = 0
        for part in self._parts:
            first, last = part.begin.rows[rows], part.end.rows[rows]
            begin, end = end, end + last - first
            values = columns[part.scan][first:last]
            if name == "event":
                column[begin:end] = values + (events - part.begin.events)
            else:
                # The first scan's texts and tracks keep their numbers.
                column[begin:end] = renumbered[part.scan][values] if renumbered and part.scan else values
            events += part.end.events - part.begin.events
        for scan in self._scans:
            scan.release_member(rows, name)
        return column

    def _sparse(self, rows: int, columns: list[tuple[Any, Any]], renumbered: list[CodeColumn] | None) -> SparseColumn:
        """The same of a column that few rows have."""
        count = sum(len(own) for own, _ in columns)
        all_rows, all_values = np.empty(count, np.int32), np.empty(count, columns[0][1].dtype)
        end = first_row = 0
        for part in self._parts:
            first, last = part.begin.rows[rows], part.end.rows[rows]
            own, values = columns[part.scan]
            low, high = np.searchsorted(own, np.array((first, last), dtype=np.int32)).tolist()
            begin, end = end, end + high - low
            all_rows[begin:end] = own[low:high] + (first_row - first)
            values = values[low:high]
            all_values[begin:end] = renumbered[part.scan][values] if renumbered and part.scan else values
            first_row += last - first
        return SparseColumn(all_rows, all_values)

    def _odd(self, texts: list[bytes], codes: list[CodeColumn]) -> dict[tuple[int, str], bytes]:
        """The text of each time that is no plain number, by its event in the file and its column."""
        names, odd, events = {library.START: "start", library.DURATION: "duration"}, {}, 0
        times = [deque(scan.odd()) for scan in self._scans]
        for part in self._parts:
            ahead = times[part.scan]
            while ahead and ahead[0][0] < part.end.events:
                event, member, text = ahead.popleft()
                odd[events + event - part.begin.events, names[member]] = texts[codes[part.scan][text]]
            events += part.end.events - part.begin.events
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
