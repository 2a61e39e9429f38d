"""Tables of an Ascend profile as columns: by the compiled scanner, else row by row with
exact error messages.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    CodeColumn,
    Codes,
    FloatColumn,
    IntColumn,
    Positions,
    distinct,
    distinct_rows,
    number_of,
)
from perfgate.trace.model.events import MAX_NS
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.recording import Shapes
from perfgate.trace.readers.ascend.files import (
    MAX_NUMBER_TEXT,
    TableRow,
    clean_cell,
    plain_header,
    rows_of,
    unreadable,
)
from perfgate.trace.scanner.table import CellKind, ScannedTable, scan_table

# The content of a column. A timestamp rounded by a spreadsheet counts as absent, a
# duration is not negative, and a counter that is not a number counts as absent.
Kind = Literal[
    "text", "shapes", "whole", "time", "timestamp", "duration", "number", "counter"
]
NO_TEXT = -1
# torch_npu refuses tables of more than 5 GiB (Ascend/pytorch _file_manager.py); a
# recorded row of kernels has 330 bytes.
MAX_ROWS = 20_000_000
_CELLS: dict[Kind, CellKind] = {
    "text": "text",
    "shapes": "text",
    "whole": "whole",
    "time": "time",
    "timestamp": "time",
    "duration": "time",
    "number": "number",
    "counter": "real",
}
# As msprof writes the shapes of an operator without tensors (op_summary; its database:
# msinsight full_db/msprof_0.db).
_NO_SHAPES = frozenset(("N/A", "NULL"))
_REALS: frozenset[Kind] = frozenset(("number", "counter"))
_Value = TypeVar("_Value", bound=Hashable)


class TableColumns:
    """Some columns of a table; a column that the table lacks has empty cells only.

    ``names`` are the names of all columns of the table, ``texts`` the distinct text
    cells as written, ``short`` the places of rows that lack cells and were left out,
    and ``long`` the number of rows with too many cells.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: int,
        columns: Mapping[str, Any],
        texts: Sequence[str],
        short: Sequence[int] = (),
        long: int = 0,
    ) -> None:
        self.names = names
        self.rows = rows
        self.texts = texts
        self.short = short
        self.long = long
        self._columns = columns

    def select(self, rows: Positions) -> TableColumns:
        columns = {name: column[rows] for name, column in self._columns.items()}
        return TableColumns(self.names, int(rows.size), columns, self.texts)

    def wholes(self, name: str) -> IntColumn:
        """Whole numbers, or times in nanoseconds; NO_NUMBER for a cell without one."""
        column: IntColumn = self._column(name, np.int64(NO_NUMBER))
        return column

    def real(self, name: str) -> FloatColumn:
        """Numbers, NaN for a cell without one."""
        column: FloatColumn = self._column(name, np.float64("nan"))
        return column

    def place(self, name: str) -> Codes:
        """The place of each cell among the texts, NO_TEXT for an empty one."""
        column: Codes = self._column(name, np.int32(NO_TEXT))
        return column

    def _column(self, name: str, absent: Any) -> Any:
        return self._columns.get(name, np.broadcast_to(absent, self.rows))

    def coded(
        self,
        name: str,
        value_of: Callable[[str], _Value | None],
        numbers: Numbering[_Value],
    ) -> CodeColumn:
        """The number of each cell's value, NO_TEXT for an empty one; new values enter
        ``numbers`` in row order.
        """
        places = self.place(name)
        first, row = distinct_rows([places])
        values: list[_Value | None] = []
        for place in places[first].tolist():
            values.append(None if place == NO_TEXT else value_of(self.texts[place]))
        return numbers.codes(values)[row]


def columns_of(
    path: Path, kinds: Mapping[str, Kind], *, leave_short: bool = False
) -> TableColumns:
    """The columns that are ``wanted``, by the names of ``files``.

    Raises DocumentError with line and column if a cell is invalid; with
    ``leave_short``, an invalid row that lacks cells is left out instead.
    """
    try:
        return scan_columns(path, kinds) or read_columns(
            path, kinds, leave_short=leave_short
        )
    except OSError as error:
        raise unreadable(path, error) from error


def scan_columns(path: Path, kinds: Mapping[str, Kind]) -> TableColumns | None:
    """Read by the compiled scanner; None if that is missing or the table is not plain.

    Raises OSError.
    """
    header = plain_header(path)
    if header is None:
        return None
    present = {name: kind for name, kind in kinds.items() if name in header.columns}
    cells: list[CellKind] = ["skipped"] * header.width
    for name, kind in present.items():
        cells[header.columns[name]] = _CELLS[kind]
    table = scan_table(path, cells, skip=header.size, most_rows=MAX_ROWS)
    if table is None:
        return None
    columns = {}
    for name, kind in present.items():
        columns[name] = table.columns[header.columns[name]]
        if _is_wrong(columns[name], kind, table):
            return None
    return TableColumns(tuple(header.columns), table.rows, columns, table.texts)


def _is_wrong(column: Any, kind: Kind, table: ScannedTable) -> bool:
    if kind == "duration":
        return bool((column < 0).any() and (column[column < 0] != NO_NUMBER).any())
    if kind == "shapes":
        try:
            for code in distinct(column):
                shapes_of(table.texts[code])
        except ValueError:
            return True
    return False


def read_columns(
    path: Path, kinds: Mapping[str, Kind], *, leave_short: bool
) -> TableColumns:
    """As ``columns_of``, by the csv module."""
    names: tuple[str, ...] = ()
    texts: dict[str, int] = {}
    columns = []
    short = []
    rows = long = 0
    for place, row in enumerate(rows_of(path, limit=MAX_ROWS)):
        if not names:
            names = tuple(row.columns)
            columns = [
                _Column(name, kind, texts)
                for name, kind in kinds.items()
                if name in row.columns
            ]
        try:
            cells = [column.read(row) for column in columns]
        except DocumentError:
            # A row of 2023 lacks its duration, and the cells behind it are shifted
            # (sample msinsight-gpt3-cann7-2309).
            if not (leave_short and row.is_short):
                raise
            short.append(place)
            continue
        for column, cell in zip(columns, cells):
            column.cells.append(cell)
        rows += 1
        long += row.is_long
    arrays = {column.name: column.array() for column in columns}
    return TableColumns(names, rows, arrays, tuple(texts), short, long)


class _Column:
    """The cells of a column that is read row by row, and the function that reads one."""

    def __init__(self, name: str, kind: Kind, texts: dict[str, int]) -> None:
        self.name = name
        self.read = _reader(name, kind, texts)
        self.cells: array[Any] = array("d" if kind in _REALS else "q")

    def array(self) -> npt.NDArray[Any]:
        return np.frombuffer(self.cells, dtype=self.cells.typecode)


def _reader(
    name: str, kind: Kind, texts: dict[str, int]
) -> Callable[[TableRow], float]:
    """The function that reads a cell of a column."""
    if kind in ("text", "shapes"):
        # Columns share their texts, so a text of another column may be no shapes.
        shapes: set[str] = set()

        def read_text(row: TableRow) -> int:
            cell = row.raw(name)
            if kind == "shapes" and cell not in shapes:
                try:
                    shapes_of(cell)
                except ValueError:
                    raise row.wrong(name, Activity("is not a list of shapes")) from None
                shapes.add(cell)
            return texts.setdefault(cell, len(texts))

        return read_text
    if kind == "number":

        def read_number(row: TableRow) -> float:
            number = row.number(name)
            return math.nan if number is None else number

        return read_number
    if kind == "counter":
        return lambda row: _counter(row.text(name) or "")

    def read_whole(row: TableRow) -> int:
        number: int | None = getattr(row, kind)(name)
        if number is not None and abs(number) > MAX_NS:
            raise row.wrong(name, Activity("is too large"))
        return number_of(number)

    return read_whole


def shapes_of(raw: str) -> Shapes | None:
    """One shape per tensor of ``"64,3,11,11;;8"``, an empty one being a scalar; None
    for an empty cell, N/A and NULL.

    Raises ValueError for other text.
    """
    cell = raw.strip()
    plain = cell.strip('"')
    if not cell or plain in _NO_SHAPES:
        return None
    shapes: list[tuple[int, ...]] = []
    for tensor in plain.split(";"):
        if not tensor.strip():
            shapes.append(())  # a scalar
        else:
            shapes.append(tuple(map(_size, tensor.split(","))))
    return tuple(shapes)


def words_of(raw: str) -> tuple[str, ...] | None:
    """One word per tensor, dtypes and formats normalised across generations of CANN;
    None for an empty cell.

    ``DT_BF16`` is BF16 and ``FORMAT_ND`` is ND; ``NC1HWC0:1`` loses the sub-format
    behind the colon.
    """
    cell = clean_cell(raw)
    if cell is None:
        return None
    words = []
    for word in cell.split(";"):
        plain, _, _ = word.strip().partition(":")
        words.append(plain.removeprefix("FORMAT_").removeprefix("DT_"))
    return tuple(words)


def flag_of(raw: str) -> bool | None:
    cell = clean_cell(raw)
    if cell is None:
        return None
    return cell.upper() == "YES"


def _size(text: str) -> int:
    if len(text) > 20:
        raise ValueError("no size has so many digits")
    return int(text)


def _counter(text: str) -> float:
    with suppress(ValueError):
        number = float(text[: MAX_NUMBER_TEXT + 1])
        if len(text) <= MAX_NUMBER_TEXT and math.isfinite(number):
            return number
    return math.nan
