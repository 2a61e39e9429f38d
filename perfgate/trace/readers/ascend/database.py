"""An untrusted SQLite database, read table by table under limits; and the tables of an
export, with names as places among its texts."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    CodeColumn,
    FloatColumn,
    IntColumn,
    number_of,
)
from perfgate.trace.model.events import MAX_NS
from perfgate.trace.readers.ascend.columns import NO_TEXT, TableColumns
from perfgate.trace.readers.ascend.files import Device, FileStamp, refuse_changed

MAX_DATABASE_BYTES = 8 << 30
MAX_TABLE_ROWS = 20_000_000
_MAX_VALUE_BYTES = 16 << 20
# Reading a row takes some ten SQLite VM instructions: a whole table takes far fewer
# than this limit.
_LOOK_EVERY = 1_000_000
_MAX_LOOKS = 5_000
_AT_ONCE = 2048
# A text that is a whole number, as PYTORCH_API has its times: compared with a number it
# becomes one, if all of it is one (SQLite, "Type Conversions Prior To Comparison").
_WHOLE = "CASE WHEN {0} = CAST({0} AS INTEGER) THEN CAST({0} AS INTEGER) ELSE {0} END"


class Database:
    """Plain tables of a file; views, virtual tables and generated columns are ignored."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._looks = 0
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_progress_handler(self._look, _LOOK_EVERY)
        if hasattr(connection, "setlimit"):  # Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        self._columns: dict[str, dict[str, str]] = {}
        for name, sql in self._run(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        ):
            if str(sql).upper().startswith("CREATE TABLE") and str(name).isidentifier():
                self._columns[str(name)] = self._declared_types(str(name))

    def _declared_types(self, table: str) -> dict[str, str]:
        """The declared type of each column."""
        types = {}
        for row in self._run(f'PRAGMA table_xinfo("{table}")'):
            is_generated = row[-1] != 0  # the field hidden
            if not is_generated:
                types[str(row[1])] = str(row[2])
        return types

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with these columns."""
        return table in self._columns and self._columns[table].keys() >= set(columns)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Rows of some columns of a table, None for a missing column; no rows if there
        is no such table.
        """
        if table not in self._columns:
            return
        cells = ", ".join(self._cells(table, columns))
        query = f'SELECT {cells} FROM "{table}"'  # noqa: S608 - names of ours, not of the file
        for count, row in enumerate(self._run(query)):
            if count >= MAX_TABLE_ROWS:
                raise self._too_long(table)
            yield row

    def _cells(
        self, table: str, columns: Sequence[str], form: str = '"{}"'
    ) -> list[str]:
        """SQL for some columns of a table, each in a ``form``; NULL for a missing
        column.
        """
        cells = []
        for column in columns:
            cells.append(
                form.format(column) if column in self._columns[table] else "NULL"
            )
        return cells

    def columns(
        self,
        table: str,
        wholes: Sequence[str],
        *,
        reals: Sequence[str] = (),
        where: str = "",
    ) -> TableColumns:
        """Columns of whole and of real numbers; ``where`` is trusted SQL.

        Raises DocumentError if a column holds anything else.
        """
        present = self._columns.get(table, {})
        columns: dict[str, Any] = {}
        present_columns = [name for name in wholes if name in present]
        if present_columns:
            query = self._query(
                table,
                [_whole_cell(name, present[name]) for name in present_columns],
                where,
            )
            columns.update(
                zip(present_columns, self._wholes(query, len(present_columns)))
            )
        present_columns = [name for name in reals if name in present]
        if present_columns:
            # NULL is infinite here.
            query = self._query(
                table, [f'ifnull("{name}", 9e999)' for name in present_columns], where
            )
            columns.update(
                zip(present_columns, self._reals(query, len(present_columns)))
            )
        rows = max(map(len, columns.values()), default=0)
        if rows > MAX_TABLE_ROWS:
            raise self._too_long(table)
        return TableColumns(tuple(present), rows, columns, ())

    def maxima(
        self, table: str, by: Sequence[str], of: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        """The highest value of some columns for each combination of others, in the
        order of the rows.
        """
        if table not in self._columns:
            return iter(())
        cells = ", ".join(
            [*self._cells(table, by), *self._cells(table, of, 'max("{}")')]
        )
        groups = ", ".join(map(str, range(1, len(by) + 1)))
        # Profilers write no WITHOUT ROWID tables.
        grouped = f'SELECT {cells} FROM "{table}" GROUP BY {groups} ORDER BY min(rowid)'  # noqa: S608 - ours
        return self._run(grouped)

    def distinct(self, table: str, column: str) -> list[int]:
        """The whole numbers in a column, each once, in the order of the rows."""
        if not self.has(table, column):
            return []
        numbers = []
        for (cell,) in self._run(f'SELECT DISTINCT "{column}" FROM "{table}"'):  # noqa: S608 - ours
            number = self.whole(cell)
            if number is not None:
                numbers.append(number)
        return numbers

    def whole(self, value: object) -> int | None:
        """A whole number of at most 62 bits; SQLite stores any type in any column."""
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < MAX_NS:
            value = int(value)
        if (
            isinstance(value, str)
            and value.removeprefix("-").isdecimal()
            and len(value) <= 20
        ):
            value = int(value)
        if not isinstance(value, int) or abs(value) > MAX_NS:
            raise self.wrong(
                Activity(
                    "{value!r} found where a whole number is expected; export the profile again",
                    value=str(value)[:40],
                )
            )
        return value

    def number(self, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, (int, float)):
            return float(value)
        raise self.wrong(
            Activity(
                "{value!r} found where a number is expected; export the profile again",
                value=str(value)[:40],
            )
        )

    def wrong(self, fault: Activity) -> DocumentError:
        """The error for a database that violates its format."""
        return DocumentError("{path}: {fault}", path=self._path, fault=fault)

    def _too_long(self, table: str) -> DocumentError:
        return self.wrong(
            Activity(
                "table {table} has more than {limit} rows; profile fewer steps",
                table=table,
                limit=MAX_TABLE_ROWS,
            )
        )

    def _query(self, table: str, cells: Sequence[str], where: str) -> str:
        # NOT INDEXED, because an index would change the order of the rows.
        return f'SELECT {", ".join(cells)} FROM "{table}" NOT INDEXED {where} LIMIT {MAX_TABLE_ROWS + 1}'  # noqa: S608 - ours

    def _wholes(self, query: str, width: int) -> list[IntColumn]:
        """The result of a query for whole numbers, column by column."""
        batches = list(self._batches(query, width, "q", self._judged_whole))
        columns = list(
            np.concatenate([np.empty((width, 0), dtype=np.int64), *batches], axis=1)
        )
        for column in columns:
            out_of_range = column[np.abs(column) > MAX_NS]
            if out_of_range.size:
                self.whole(int(out_of_range.max()))  # refuses it
        return columns

    def _reals(self, query: str, width: int) -> list[FloatColumn]:
        """The same for real numbers."""
        batches = list(self._batches(query, width, "d", self._judged_real))
        table = np.concatenate([np.empty((width, 0)), *batches], axis=1)
        return list(np.where(np.isfinite(table), table, np.nan))

    def _batches(
        self,
        query: str,
        width: int,
        typecode: Literal["q", "d"],
        judged: Callable[[object], float],
    ) -> Iterable[npt.NDArray[Any]]:
        """The columns of successive batches of rows."""
        try:
            # The fast path: if every cell is a number, none is inspected here.
            with self._naming_damage():
                return list(
                    _in_batches(
                        chain.from_iterable(self._connection.execute(query)),
                        width,
                        typecode,
                    )
                )
        except TypeError:
            cells = chain.from_iterable(self._run(query))
            return _in_batches(map(judged, cells), width, typecode)

    def _judged_whole(self, cell: object) -> float:
        if cell == NO_NUMBER:
            return NO_NUMBER
        return number_of(self.whole(cell))

    def _judged_real(self, cell: object) -> float:
        number = self.number(cell)
        if number is None:
            return math.inf
        return number

    def _run(self, statement: str) -> Iterator[tuple[Any, ...]]:
        with self._naming_damage():
            # Not "yield from": that closes the cursor when a row is refused, which
            # fails once the database is closed.
            for row in self._connection.execute(statement):  # noqa: UP028
                yield row

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        # SQLite quotes the damaged file in its message, and Python decodes that
        # strictly.
        except (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError) as error:
            raise self.wrong(
                Activity(
                    "is damaged or no database of a profiler: {error}; export the profile again",
                    error=error,
                )
            ) from error

    def _look(self) -> int:
        self._looks += 1
        return int(self._looks > _MAX_LOOKS)


def _whole_cell(column: str, declared: str) -> str:
    """SQL for a cell with a whole number, NO_NUMBER for NULL."""
    cell = f'"{column}"'
    if "TEXT" in declared.upper():
        cell = _WHOLE.format(cell)
    return f"ifnull({cell}, {NO_NUMBER})"


def _in_batches(
    cells: Iterator[Any], width: int, typecode: Literal["q", "d"]
) -> Iterator[npt.NDArray[Any]]:
    """The columns of successive batches of rows.

    Raises TypeError for a cell that is not a number.
    """
    while batch := array(typecode, list(islice(cells, width * _AT_ONCE))):
        yield np.array(batch).reshape(-1, width).T


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a database read-only and as immutable, so that a journal next to it is
    ignored.
    """
    try:
        if path.stat().st_size > MAX_DATABASE_BYTES:
            raise DocumentError(
                "{path}: more than {limit} bytes; profile fewer steps",
                path=path,
                limit=MAX_DATABASE_BYTES,
            )
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True
        )
    except (OSError, sqlite3.Error) as error:
        raise DocumentError(
            "{path}: cannot be opened: {error}; check the path and its permissions",
            path=path,
            error=error,
        ) from error
    try:
        yield Database(path, connection)
    finally:
        connection.close()


@contextmanager
def open_unchanged(path: Path, stamp: FileStamp) -> Iterator[Database]:
    """Open a database again. Raises DocumentError if it has changed since."""
    refuse_changed(path, stamp)
    with open_database(path) as database:
        yield database


class ExportTexts:
    """STRING_IDS: texts by id."""

    def __init__(self, database: Database) -> None:
        self.texts: list[str] = []
        self._numbers = np.array([NO_NUMBER])
        self._places = np.array([NO_TEXT])
        texts = {}
        for cell, value in database.rows("STRING_IDS", ("id", "value")):
            number = database.whole(cell)
            if number is not None:
                texts[number] = str(value)
        self._take(texts)

    def places(self, numbers: IntColumn) -> CodeColumn:
        """The places of a column's texts, NO_TEXT for NULL; an id without a text is its
        own text.
        """
        at = np.searchsorted(self._numbers, numbers).clip(max=self._numbers.size - 1)
        strange = self._numbers[at] != numbers
        if strange.any():
            self._take(
                {number: str(number) for number in np.unique(numbers[strange]).tolist()}
            )
            return self.places(numbers)
        places: CodeColumn = self._places[at].astype(np.int32)
        return places

    def text(self, place: int) -> str:
        return "" if place == NO_TEXT else self.texts[place]

    def _take(self, texts: Mapping[int, str]) -> None:
        numbers = np.concatenate([self._numbers, np.array(list(texts), dtype=np.int64)])
        places = np.concatenate([self._places, np.arange(len(texts)) + len(self.texts)])
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        self._places = places[order]
        self.texts += texts.values()


class ExportTables:
    """The tables of an export."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.words = ExportTexts(database)

    def read(
        self,
        table: str,
        wholes: Sequence[str],
        *,
        named: Sequence[str] = (),
        reals: Sequence[str] = (),
    ) -> TableColumns:
        """Columns of a table, empty columns if it is missing; ``named`` columns become
        places among the texts.
        """
        table_columns = self.database.columns(table, wholes, reals=reals)
        columns: dict[str, Any] = {name: table_columns.real(name) for name in reals}
        for name in wholes:
            if name in table_columns.names:
                columns[name] = table_columns.wholes(name)
                if name in named:
                    columns[name] = self.words.places(columns[name])
        return TableColumns(
            table_columns.names, table_columns.rows, columns, self.words.texts
        )


def owned(columns: TableColumns, device: Device, *, alone: bool) -> TableColumns:
    """The rows of a device; a device that is ``alone`` in the export also owns the rows
    that name none.
    """
    owner = columns.wholes("deviceId")
    own = owner == number_of(device)
    if alone:
        own |= owner == NO_NUMBER
    return columns.select(np.flatnonzero(own))
