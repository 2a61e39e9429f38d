"""The compiled reader of csv tables, where it was built: columns of the cells that are asked for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from perfgate.trace.scanner.library import Texts, load

CellKind = Literal["skipped", "text", "whole", "time", "real"]
_CODES: dict[CellKind, int] = {"skipped": 0, "text": 1, "whole": 2, "time": 3, "real": 4}
_DTYPES: dict[CellKind, type[Any]] = {"text": np.int32, "whole": np.int64, "time": np.int64, "real": np.float64}
# Instead of a whole number or a time: the cell is empty or says that there is none.
NO_NUMBER = -(1 << 63)
_MOST_COLUMNS = 512
_WINDOW = 4 << 20


class _Table(ctypes.Structure):
    """The beginning of ``table`` in table.c: what the caller reads."""

    _fields_ = [("rows", ctypes.c_int64), ("column", ctypes.c_void_p * _MOST_COLUMNS), ("texts", Texts)]


class ScannedTable:
    """The columns of a table, and every text once, as written but for the quotes around a cell.

    A cell of text is its position in ``texts``; one without a whole number or time is NO_NUMBER, one without a real number NaN.
    """

    def __init__(self, columns: dict[int, npt.NDArray[Any]], texts: list[str]) -> None:
        self._columns = columns
        self.texts = texts

    def __getitem__(self, position: int) -> npt.NDArray[Any]:
        return self._columns[position]


def scan_table(path: Path, kinds: Sequence[CellKind], *, skip: int) -> ScannedTable | None:
    """The rows of a file behind its first ``skip`` bytes; what is wanted of each column is in the order of the header.

    Times are microseconds as written and nanoseconds here. None where the library is not there, or where the table is not
    plain: the csv module then says what it holds. Raises OSError where the file cannot be read.
    """
    library = load()
    if library is None or not 0 < len(kinds) <= _MOST_COLUMNS:
        return None
    new, take, free = library.table_new, library.table_take, library.table_free
    new.restype, take.restype = ctypes.POINTER(_Table), ctypes.c_int64
    take.argtypes = [ctypes.POINTER(_Table), ctypes.c_char_p, ctypes.c_int64]
    table = new((ctypes.c_uint8 * len(kinds))(*(_CODES[kind] for kind in kinds)), len(kinds))
    if not table:
        raise MemoryError("no memory for a table")
    try:
        with path.open("rb") as stream:
            stream.seek(skip, os.SEEK_SET)
            rest = b""
            while block := stream.read(_WINDOW):
                rest += block
                if len(block) < _WINDOW and not rest.endswith(b"\n"):
                    rest += b"\n"
                behind = take(table, rest, len(rest))
                if behind < 0:
                    return None
                rest = rest[behind:]
        return None if rest else _columns(library, table, kinds)
    finally:
        free(table)


def _columns(library: ctypes.CDLL, table: Any, kinds: Sequence[CellKind]) -> ScannedTable:
    columns = {}
    for position, kind in enumerate(kinds):
        if kind != "skipped":
            columns[position] = _copied(table.contents, position, _DTYPES[kind])
            library.table_release(table, position)
    texts = [text.decode("utf-8", "replace") for text in table.contents.texts.all()]
    return ScannedTable(columns, texts)


def _copied(table: _Table, position: int, kind: type[Any]) -> npt.NDArray[Any]:
    if not table.rows:
        return np.empty(0, kind)
    raw = (ctypes.c_uint8 * (table.rows * np.dtype(kind).itemsize)).from_address(table.column[position])
    column: npt.NDArray[Any] = np.frombuffer(raw, kind).copy()
    return column
