"""The compiled reader of csv tables, if it was built: columns of the requested cells."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace.scanner.library import Texts, load, view

# A number must be valid, a real number is NaN if it is not.
CellKind = Literal["skipped", "text", "whole", "time", "real", "number"]
_CODES: dict[CellKind, int] = {
    "skipped": 0,
    "text": 1,
    "whole": 2,
    "time": 3,
    "real": 4,
    "number": 5,
}
_DTYPES: dict[CellKind, Any] = {
    **dict.fromkeys(("whole", "time"), np.int64),
    **dict.fromkeys(("real", "number"), np.float64),
    "text": np.int32,
}

_MOST_COLUMNS = 512
_LINE_END = ord("\n")
# A window stays in the processor's cache; rows are taken out of the library's columns
# after this many.
_WINDOW = 1 << 20
_LINE = 1 << 10
_ROWS = 1 << 15


class _Table(ctypes.Structure):
    """The beginning of ``table`` in table.c: the fields read by the caller."""

    _fields_ = [
        ("rows", ctypes.c_int64),
        ("column", ctypes.c_void_p * _MOST_COLUMNS),
        ("texts", Texts),
    ]


class ScannedTable(NamedTuple):
    """The columns of a table by position, and every text once, as written but for the
    quotes around a cell.

    They are whole numbers and times, NO_NUMBER for empty cells; positions in ``texts``,
    -1 for empty cells; or real numbers, NaN for cells that are not numbers.
    """

    rows: int
    columns: dict[int, npt.NDArray[Any]]
    texts: list[str]


def scan_table(
    path: Path, kinds: Sequence[CellKind], *, skip: int, most_rows: int
) -> ScannedTable | None:
    """The rows of a file behind its first ``skip`` bytes; ``kinds`` are the columns'
    cell kinds in the order of the header.

    Times are microseconds as written and nanoseconds here. None if the library is
    missing, or if the table is not plain, or has more rows: the csv module then reads
    it. Raises OSError if the file cannot be read.
    """
    library = load()
    if library is None or not 0 < len(kinds) <= _MOST_COLUMNS:
        return None

    new = library.table_new
    take = library.table_take
    free = library.table_free
    new.restype = ctypes.POINTER(_Table)
    take.restype = ctypes.c_int64
    take.argtypes = [ctypes.POINTER(_Table), ctypes.c_void_p, ctypes.c_int64]
    table = new(
        (ctypes.c_uint8 * len(kinds))(*(_CODES[kind] for kind in kinds)), len(kinds)
    )
    if not table:
        raise MemoryError("no memory for a table")
    columns = _Columns(kinds)
    try:
        with path.open("rb") as stream:
            stream.seek(skip, os.SEEK_SET)
            window = _Window(stream, path.stat().st_size - skip)
            while window.read_on():
                behind = take(table, window.address, window.size)
                if behind < 0:
                    return None
                window.drop(behind)
                if table.contents.rows >= _ROWS:
                    columns.take(table.contents)
                if columns.rows > most_rows:
                    return None
        columns.take(table.contents)
        if window.size or columns.rows > most_rows:
            return None
        return columns.all(table.contents.texts)
    finally:
        free(table)


class _Window:
    """The current text of the scan, in a buffer that is reused for the following text;
    every line of it has an end.
    """

    def __init__(self, stream: IO[bytes], expected: int) -> None:
        """``expected`` are the bytes of the text: a small table does not need a large
        window.
        """
        self._stream = stream
        self.size = 0
        self._buffer = bytearray(min(_WINDOW, max(expected, 0) + _LINE))

    @property
    def address(self) -> int:
        return int(np.frombuffer(self._buffer, np.uint8).ctypes.data)

    def drop(self, end: int) -> None:
        """Keep the text behind ``end``, the begin of a line."""
        rest = self._buffer[end : self.size]
        if len(rest) > len(self._buffer) // 2:
            self._buffer = bytearray(2 * len(self._buffer))
        self._buffer[: len(rest)] = rest
        self.size = len(rest)

    def read_on(self) -> bool:
        """Whether there was more."""
        with memoryview(self._buffer) as room:
            more: int = self._stream.readinto(room[self.size : -1])  # type: ignore[attr-defined]
            self.size += more
            if more and self.size < len(room) - 1 and room[self.size - 1] != _LINE_END:
                room[self.size] = _LINE_END
                self.size += 1
        return more > 0


class _Columns:
    """Takes the rows of each window out of the library's columns, which the next window
    overwrites.
    """

    def __init__(self, kinds: Sequence[CellKind]) -> None:
        self._parts: dict[int, list[npt.NDArray[Any]]] = {}
        for position, kind in enumerate(kinds):
            if kind != "skipped":
                self._parts[position] = [np.empty(0, _DTYPES[kind])]
        self.rows = 0

    def take(self, table: Any) -> None:
        rows = int(table.rows)
        for parts, position in zip(self._parts.values(), self._parts):
            parts.append(view(table.column[position], rows, parts[0].dtype).copy())
        self.rows += rows
        table.rows = 0

    def all(self, texts: Texts) -> ScannedTable:
        columns = {}
        for position in list(self._parts):
            # The windows of a column go as soon as they are one.
            columns[position] = np.concatenate(self._parts.pop(position))
        return ScannedTable(
            self.rows,
            columns,
            [text.decode("utf-8", "replace") for text in texts.all()],
        )
