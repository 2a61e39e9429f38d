"""Files of an Ascend profile: rows of csv tables by column name, and small JSON files, both under limits."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

from perfgate.errors import DocumentError
from perfgate.trace.events import nanoseconds

# torch_npu refuses tables of more than 5 GiB (Ascend/pytorch _file_manager.py); what we keep of a row is larger than the row.
MAX_TABLE_BYTES = 2 << 30
MAX_LINE_BYTES = 1 << 20
MAX_ROWS = 2_000_000
MAX_NUMBER_TEXT = 64
_ABSENT = frozenset(("", "N/A", "NA", "-"))

# New name, in lower case, to the one used here. torch_npu's kernel_details is msprof's op_summary with other words
# (Ascend/pytorch _csv_headers.py); Block Dim became Block Num in CANN 9.0.
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


class Row:
    """One line of a table. A cell is None where the column, or the cell, is absent."""

    __slots__ = ("_cells", "_columns", "_line", "_path")

    def __init__(self, path: Path, line: int, columns: Mapping[str, int], cells: list[str]) -> None:
        self._path, self._line, self._columns, self._cells = path, line, columns, cells

    @property
    def columns(self) -> Mapping[str, int]:
        """The columns of the table, lower-case names of this module to their position."""
        return self._columns

    @property
    def is_short(self) -> bool:
        """Whether the row has fewer cells than the table has columns."""
        return len(self._cells) < len(self._columns)

    def raw(self, column: str) -> str:
        """A cell as written, empty where there is none."""
        index = self._columns.get(column)
        return self._cells[index].strip() if index is not None and index < len(self._cells) else ""

    def text(self, column: str) -> str | None:
        """A cell without the quotes that some cells hold."""
        found = self.raw(column).strip('"')
        return None if found in _ABSENT else found

    def whole(self, column: str) -> int | None:
        text = self.text(column)
        # The plain case comes first: a table has millions of them.
        if text is not None and len(text) < 19 and text.isdecimal():
            return int(text)
        found = self._number(column)
        if found is None:
            return None
        if found != found.to_integral_value():
            raise self.wrong(column, "is no whole number")
        return int(found)

    def number(self, column: str) -> float | None:
        found = self._number(column)
        return None if found is None else float(found)

    def lasting(self, column: str) -> int | None:
        """A duration in microseconds as nanoseconds; never negative."""
        found = self.time(column)
        if found is not None and found < 0:
            raise self.wrong(column, "is negative")
        return found

    def time(self, column: str) -> int | None:
        """Microseconds as nanoseconds, exactly."""
        found = self.text(column)
        if found is None:
            return None
        try:
            return nanoseconds(found.encode())
        except ValueError:
            raise self.wrong(column, "is no number of microseconds") from None

    def moment(self, column: str) -> int | None:
        """A time since 1970 in microseconds as nanoseconds; None where a spreadsheet has rounded it (1.69512E+15)."""
        found = self.text(column)
        return None if found is None or "e" in found.lower() else self.time(column)

    def wrong(self, column: str, what: str) -> DocumentError:
        """The error that a cell is not what it must be."""
        return DocumentError(
            f"{self._path}: line {self._line}, column {column!r}: {self.raw(column)[:40]!r} {what}; "
            "the table is damaged, analyse the profile again"
        )

    def _number(self, column: str) -> Decimal | None:
        found = self.text(column)
        if found is None:
            return None
        number = _decimal(found)
        if number is None:
            raise self.wrong(column, "is no number")
        return number


def rows_of(path: Path, *, most: int | None = None) -> Iterator[Row]:
    """Yield the rows of a table below its header, which must be there.

    Raises DocumentError where the file cannot be read, is no csv, or has more than ``most`` rows.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            reader = csv.reader(_lines(stream, path))
            columns: dict[str, int] | None = None
            for number, cells in enumerate(reader):
                if columns is None:
                    columns = _columns(cells)
                    continue
                if most is not None and number > most:
                    raise DocumentError(f"{path}: more than {most} rows; profile fewer steps")
                if cells:
                    yield Row(path, reader.line_num, columns, cells)
    except csv.Error as error:
        raise DocumentError(f"{path}: is no csv table: {error}; analyse the profile again") from error
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error


def _lines(stream: TextIO, path: Path) -> Iterator[str]:
    total = 0
    while line := stream.readline(MAX_LINE_BYTES):
        total += len(line)
        if len(line) >= MAX_LINE_BYTES or total > MAX_TABLE_BYTES:
            raise DocumentError(f"{path}: a table of more than {MAX_TABLE_BYTES} bytes or a line of {MAX_LINE_BYTES}; "
                                "profile fewer steps")  # fmt: skip
        # The csv module of Python 3.10 refuses a NUL.
        yield line.replace("\0", "")


def _columns(cells: list[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for index, cell in enumerate(cells):
        name = cell.strip().strip('"').lower()
        columns.setdefault(_ALIASES.get(name, name), index)
    return columns


def _decimal(text: str) -> Decimal | None:
    """A finite number of at most 1e30; None for any other text."""
    if len(text) > MAX_NUMBER_TEXT:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    # The bound comes first: an exponent of a billion must not become digits.
    # copy_abs, because abs rounds to the context, which overflows.
    return number if number.is_finite() and number.copy_abs() <= Decimal("1e30") else None


MAX_JSON_BYTES = 256 << 20
_Wanted = TypeVar("_Wanted")


def decode_file(path: Path, wanted: type[_Wanted]) -> _Wanted:
    """What a JSON file holds. Raises DocumentError where it cannot be read or holds something else."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise DocumentError(f"{path}: more than {MAX_JSON_BYTES} bytes of JSON; profile fewer steps")
        return msgspec.json.decode(path.read_bytes(), type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{path}: is damaged: {error}; analyse the profile again") from error
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error


def mapping_file(path: Path) -> dict[str, Any]:
    return decode_file(path, dict[str, Any])


def inner(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """An object inside others, empty where there is none."""
    for key in keys:
        found = values.get(key)
        values = found if isinstance(found, dict) else {}
    return values


def word(value: object) -> str | None:
    """A plain value as text, ``true`` for True, a list with commas; None for what is absent or not plain."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value) or None
    if isinstance(value, list):
        return ",".join(filter(None, (word(item) for item in value))) or None
    return None
