"""Files of an Ascend profile: rows of csv tables by column name, and small JSON files,
both under limits.

Columns were renamed and added between CANN 7.0 and 9.0, times carry a trailing tab,
rows may be short, and quoted cells may contain quotes (recorded samples
msinsight-910B-alexnet-2501, msinsight-gpt3-cann7-2309, msprof-910B-20cores-2608).
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

import msgspec

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.events import nanoseconds

# torch_npu refuses larger tables (Ascend/pytorch _file_manager.py).
MAX_TABLE_BYTES = 5 << 30
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 2_000_000
MAX_NUMBER_TEXT = 64
MAX_NUMBER = Decimal("1e30")
MAX_JSON_BYTES = 256 << 20
Device = int | None
FileStamp = tuple[
    int, int
]  # the bytes of a file and its modification time, which change with every version of it
_ABSENT = frozenset(("", "N/A", "NA", "-"))
_OTHER_SEPARATORS = (";", "\t")

# New name, in lower case, to the name used here. torch_npu's kernel_details is msprof's
# op_summary with renamed columns (Ascend/pytorch _csv_headers.py); Block Dim became
# Block Num in CANN 9.0.
_ALIASES = {
    "op name": "name",
    "op type": "type",
    "task type": "accelerator core",
    "task start time(us)": "start time(us)",
    "task duration(us)": "duration(us)",
    "task wait time(us)": "wait time(us)",
    "block num": "block dim",
    "mix block num": "mix block dim",
    "physic stream id": "stream id",
    "device id": "device_id",
}
_Item = TypeVar("_Item")


class TableRow:
    """One line of a table. A cell is None if the column or the cell is absent.

    ``columns`` maps the lower-case names of this module to their position. A row that
    ``is_long`` has cells behind the last column, as two rows have without the line end
    between them.
    """

    __slots__ = ("_cells", "_line", "_path", "columns", "is_long")

    def __init__(
        self,
        path: Path,
        line: int,
        columns: Mapping[str, int],
        cells: list[str],
        *,
        is_long: bool,
    ) -> None:
        self._path = path
        self._line = line
        self._cells = cells
        self.columns = columns
        self.is_long = is_long

    @property
    def is_short(self) -> bool:
        """Whether the row has fewer cells than the table has columns."""
        return len(self._cells) < len(self.columns)

    def raw(self, column: str) -> str:
        """A cell as written, empty if absent."""
        index = self.columns.get(column)
        if index is None or index >= len(self._cells):
            return ""
        return self._cells[index].strip()

    def text(self, column: str) -> str | None:
        """A cell without the quotes that some cells hold."""
        return clean_cell(self.raw(column))

    def whole(self, column: str) -> int | None:
        text = self.text(column)
        # Fast path: a table has millions of plain integers.
        if text is not None and len(text) < 19 and text.isdecimal():
            return int(text)
        number = self._decimal(column)
        if number is None:
            return None
        if number != number.to_integral_value():
            raise self.wrong(column, Activity("is not a whole number"))
        return int(number)

    def number(self, column: str) -> float | None:
        number = self._decimal(column)
        if number is None:
            return None
        return float(number)

    def time(self, column: str) -> int | None:
        """Microseconds as nanoseconds, exactly."""
        text = self.text(column)
        if text is None:
            return None
        try:
            return nanoseconds(text.encode())
        except ValueError:
            raise self.wrong(
                column, Activity("is not a number of microseconds")
            ) from None

    def duration(self, column: str) -> int | None:
        """As ``time``, but refuses negative values."""
        time = self.time(column)
        if time is not None and time < 0:
            raise self.wrong(column, Activity("is negative"))
        return time

    def timestamp(self, column: str) -> int | None:
        """Microseconds since 1970 as nanoseconds; None if a spreadsheet has rounded
        them (1.69512E+15).
        """
        text = self.text(column)
        if text is None or "e" in text.lower():
            return None
        return self.time(column)

    def wrong(self, column: str, fault: Activity) -> DocumentError:
        return DocumentError(
            "{path}: line {line}, column {column!r}: {cell!r} {fault}; the table is damaged, analyse the profile again",
            path=self._path,
            line=self._line,
            column=column,
            cell=self.raw(column)[:40],
            fault=fault,
        )

    def _decimal(self, column: str) -> Decimal | None:
        text = self.text(column)
        if text is None:
            return None
        try:
            number = Decimal(text[: MAX_NUMBER_TEXT + 1])
        except InvalidOperation:
            raise self.wrong(column, Activity("is not a number")) from None
        # Check the bound before converting: an exponent of a billion must not be
        # expanded into digits. copy_abs, because abs rounds to the context and
        # overflows.
        if (
            len(text) > MAX_NUMBER_TEXT
            or not number.is_finite()
            or number.copy_abs() > MAX_NUMBER
        ):
            raise self.wrong(column, Activity("is not a number"))
        return number


def clean_cell(raw: str) -> str | None:
    """The text of a cell, None for a placeholder of an absent value."""
    text = raw.strip().strip('"')
    if text in _ABSENT:
        return None
    return text


class Header(NamedTuple):
    """The first line of a table: the position of each column by the names of this
    module, their number, and its bytes.
    """

    columns: dict[str, int]
    width: int
    size: int


def plain_header(path: Path) -> Header | None:
    """The header of a table.

    None if it needs the csv module or the table is too large. Raises OSError, and
    DocumentError if its columns are not separated by commas.
    """
    if path.stat().st_size > MAX_TABLE_BYTES:
        return None
    with path.open("rb") as stream:
        line = stream.readline(MAX_LINE_BYTES)
    text = line.decode("utf-8-sig", errors="replace")
    # Leave a line break that is not valid in csv to the csv module, which refuses it.
    if not line.endswith(b"\n") or {"\0", '"'} & set(text) or "\r" in text[:-2]:
        return None
    cells = next(csv.reader([text]), [])
    if not cells:
        return None
    _refuse_other_separator(path, cells)
    return Header(_columns(cells), len(cells), len(line))


def _refuse_other_separator(path: Path, header: Sequence[str]) -> None:
    """A spreadsheet with another decimal sign saves tables with semicolons; every
    column would be missing.
    """
    if len(header) != 1:
        return
    for separator in _OTHER_SEPARATORS:
        if separator in header[0].strip():
            raise DocumentError(
                "{path}: line 1: its columns are separated by {separator!r}, not by commas, as a spreadsheet saves "
                "them; take the file that the profiler wrote, or analyse the profile again",
                path=path,
                separator=separator,
            )


def rows_of(path: Path, *, limit: int | None = None) -> Iterator[TableRow]:
    """The rows of a table below its required header.

    Raises DocumentError if the file cannot be read, is not csv, or has more than
    ``limit`` rows.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            reader = csv.reader(_lines(stream, path))
            header = next(reader, [])
            _refuse_other_separator(path, header)
            columns = _columns(header)
            for number, cells in enumerate(reader, start=1):
                if limit is not None and number > limit:
                    raise DocumentError(
                        "{path}: more than {limit} rows; profile fewer steps",
                        path=path,
                        limit=limit,
                    )
                if cells:
                    yield TableRow(
                        path,
                        reader.line_num,
                        columns,
                        cells,
                        is_long=any(cells[len(header) :]),
                    )
    except csv.Error as error:
        raise DocumentError(
            "{path}: is not a CSV table: {error}; analyse the profile again",
            path=path,
            error=error,
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def is_cut_off(path: Path) -> bool:
    """Whether a table ends within a line, which torch_npu and msprof end too, or its
    last row lacks cells.

    Raises DocumentError as ``stamp_of``.
    """
    size, _ = stamp_of(path)
    with path.open("rb") as stream:
        titles = stream.readline(MAX_LINE_BYTES)
        stream.seek(max(size - MAX_LINE_BYTES, 0))
        end = stream.read()
    if not end.endswith(b"\n"):
        return True
    last = end.rstrip(b"\r\n").rpartition(b"\n")[2]
    return _cells(last) < _cells(titles)


def _cells(line: bytes) -> int:
    """The number of cells in a line of a table, up to a line break within it."""
    text = io.StringIO(line.decode("utf-8", "replace"), newline="")
    row: list[str] = next(csv.reader(text), [])
    return len(row)


def unreadable(path: Path, error: OSError) -> DocumentError:
    return DocumentError(
        "{path}: cannot be read: {error}; check the path and its permissions",
        path=path,
        error=error,
    )


def stamp_of(path: Path) -> FileStamp:
    """Raises DocumentError if there is no such file."""
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return status.st_size, status.st_mtime_ns


def refuse_changed(path: Path, stamp: FileStamp) -> None:
    """Raise DocumentError if a file has changed since it was first read."""
    if stamp_of(path) != stamp:
        raise DocumentError(
            "{path}: was written again while it was read; read the recording again",
            path=path,
        )


def by_device(pairs: Iterable[tuple[Device, _Item]]) -> dict[Device, tuple[_Item, ...]]:
    groups: dict[Device, list[_Item]] = defaultdict(list)
    for device, item in pairs:
        groups[device].append(item)
    return {device: tuple(items) for device, items in groups.items()}


def decode_file(path: Path, kind: type[_Item]) -> _Item:
    """Raises DocumentError if a JSON file cannot be read or does not match ``kind``."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise DocumentError(
                "{path}: more than {limit} bytes of JSON; profile fewer steps",
                path=path,
                limit=MAX_JSON_BYTES,
            )
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "{path}: is damaged: {error}; analyse the profile again",
            path=path,
            error=error,
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def member(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object inside another, empty if absent."""
    inner = values.get(key)
    return inner if isinstance(inner, dict) else {}


def plain_text(value: object) -> str | None:
    """``true`` for True, a list with commas; None for an absent or nested value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value) or None
    if isinstance(value, list):
        return ",".join(filter(None, map(plain_text, value))) or None
    return None


def _lines(stream: TextIO, path: Path) -> Iterator[str]:
    total = 0
    while line := stream.readline(MAX_LINE_BYTES):
        total += len(line)
        if len(line) >= MAX_LINE_BYTES or total > MAX_TABLE_BYTES:
            raise DocumentError(
                "{path}: a table of more than {limit} bytes or a line of {line}; profile fewer steps",
                path=path,
                limit=MAX_TABLE_BYTES,
                line=MAX_LINE_BYTES,
            )
        # The csv module of Python 3.10 refuses a NUL.
        yield line.replace("\0", "")


def _columns(header: list[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for index, cell in enumerate(header):
        name = cell.strip().strip('"').lower()
        columns.setdefault(_ALIASES.get(name, name), index)
    return columns
