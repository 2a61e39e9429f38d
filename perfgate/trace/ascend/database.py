"""A database that somebody else may have made, read table by table under limits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perfgate.errors import DocumentError
from perfgate.trace.events import MAX_NS

MAX_DATABASE_BYTES = 8 << 30
MAX_TABLE_ROWS = 20_000_000
_MAX_VALUE_BYTES = 16 << 20
# Reading a row takes some ten instructions of SQLite's machine: a table is read in far fewer than this.
_LOOK_EVERY = 1_000_000
_MAX_LOOKS = 5_000
_MAGIC = b"SQLite format 3\0"


class Database:
    """Plain tables of a file; views, virtual tables and generated columns are as if they were not there."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        self._looks = 0
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_progress_handler(self._look, _LOOK_EVERY)
        if hasattr(connection, "setlimit"):  # Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        self._columns = {
            str(name): self._columns_of(str(name))
            for name, sql in self._run("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if str(sql).upper().startswith("CREATE TABLE") and str(name).isidentifier()
        }

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with these columns."""
        return table in self._columns and set(columns) <= self._columns[table]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Some columns of a table, None for one it has not, nothing where there is no such table."""
        if table not in self._columns:
            return
        present = self._columns[table]
        chosen = ", ".join(f'"{column}"' if column in present else "NULL" for column in columns)
        query = f'SELECT {chosen} FROM "{table}"'  # noqa: S608 - names of ours, not of the file
        for count, row in enumerate(self._run(query)):
            if count >= MAX_TABLE_ROWS:
                raise self.wrong(f"table {table} has more than {MAX_TABLE_ROWS} rows; profile fewer steps")
            yield row

    def whole(self, value: object) -> int | None:
        """A whole number of at most 62 bits; SQLite stores any type in any column."""
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value) if abs(value) < MAX_NS else value
        if isinstance(value, str) and value.isdecimal() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or abs(value) > MAX_NS:
            raise self.wrong(f"{str(value)[:40]!r} stands where a whole number must be; export the profile again")
        return value

    def number(self, value: object) -> float | None:
        if value is None or isinstance(value, (int, float)):
            return None if value is None else float(value)
        raise self.wrong(f"{str(value)[:40]!r} stands where a number must be; export the profile again")

    def wrong(self, fault: str) -> DocumentError:
        """The error that the database is not what it must be."""
        return DocumentError(f"{self._path}: {fault}")

    def _columns_of(self, table: str) -> set[str]:
        # The last value of a column is 0 unless it is computed.
        return {str(row[1]) for row in self._run(f'PRAGMA table_xinfo("{table}")') if row[-1] == 0}

    def _run(self, statement: str) -> Iterator[tuple[Any, ...]]:
        try:
            # Not "yield from": that closes the cursor when a row is refused, which fails once the database is closed.
            for row in self._connection.execute(statement):  # noqa: UP028
                yield row
        # SQLite quotes the damaged file in its message, and Python decodes that strictly.
        except (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError) as error:
            raise self.wrong(f"is damaged or no database of a profiler: {error}; export the profile again") from error

    def _look(self) -> int:
        self._looks += 1
        return int(self._looks > _MAX_LOOKS)


def is_database(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a database read-only, as a file that nobody writes; no journal beside it is looked at."""
    try:
        if path.stat().st_size > MAX_DATABASE_BYTES:
            raise DocumentError(f"{path}: more than {MAX_DATABASE_BYTES} bytes; profile fewer steps")
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    except (OSError, sqlite3.Error) as error:
        raise DocumentError(f"{path}: cannot be opened: {error}; check the path and its permissions") from error
    try:
        yield Database(path, connection)
    finally:
        connection.close()
