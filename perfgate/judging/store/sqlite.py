"""The SQLite file of a store: how it is created and opened, its safety under concurrent
processes, and its errors.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.tables import (
    has_tables,
    is_current,
    prepare_tables,
    stored_version,
)
from perfgate.judging.store.turns import WaitingWork, WriterTurns
from perfgate.locale import Activity

BUSY_SECONDS = 30.0
# More are opened if more threads ask at once, and closed afterwards.
_KEPT = 8
RESTORE = Activity(
    "the store is damaged: restore a copy, or move it away and record the runs of main again"
)

_PLACE = Activity(
    "it must lie in a folder that can be written: set PERFGATE_STORE to another path"
)
_FULL = "disk is full|disk I/O error|No space left|File too large|Disk quota exceeded"
_LOCKED = "is locked"
_UNKNOWN = Activity("if it happens again, please report it")

# SQLite's messages (sqlite3.c, sqlite3ErrStr): Python before 3.11 does not expose its
# error codes.
_REMEDIES = (
    ("not a database|malformed|file is encrypted", RESTORE),
    (
        _FULL,
        Activity("free space on its disk, or set PERFGATE_STORE to a path elsewhere"),
    ),
    ("readonly database|unable to open", _PLACE),
    (
        _LOCKED,
        Activity(
            "another process has kept it locked for half a minute; wait for that process, or end it"
        ),
    ),
)


class SqliteFile:
    """A store in one SQLite file. No connection is held between calls, so it survives a
    fork.

    A service, which asks often and uses the store in no fork, ``keeps_connections``:
    opening one reads the schema, and closing the last one copies the log into the file.
    """

    restore = RESTORE

    def __init__(self, path: Path, *, keeps_connections: bool = False) -> None:
        self._path = path
        self._engine = open_engine(path, keeps_connections=keeps_connections)
        weakref.finalize(self, self._engine.dispose)
        self._has_tables = False
        self._turns = WriterTurns()

    @property
    def name(self) -> str:
        return str(self._path)

    @staticmethod
    def insert(table: sa.Table) -> sqlite.Insert:
        return sqlite.insert(table)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection | None]:
        if not self._is_there():
            yield None
            return
        writable = os.access(self._path, os.W_OK) and os.access(
            self._path.parent, os.W_OK
        )
        engine = self._engine
        if not writable:
            engine = open_read_only(self._path)
        with clear_errors(self._path), engine.connect() as connection:
            if not (self._has_tables and is_current(connection)):
                self._has_tables = has_tables(connection, self.name)
            if self._has_tables:
                yield connection
            else:
                yield None

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction as its only writer."""
        with (
            clear_errors(self._path),
            self._turns.mine(),
            self._transaction() as connection,
        ):
            yield connection

    def write(self, work: Callable[[sa.Connection], None]) -> None:
        """Do some work in one transaction with the work of waiting threads, because a
        commit waits for the disk.

        Work that raises an error is undone; the work of others stays.
        """
        own = self._turns.wait_with(work)
        with self._turns.mine():
            while not own.is_done:
                self._write_together(self._turns.take())
        if own.error is not None:
            raise own.error

    def _write_together(
        self, waiting: Sequence[WaitingWork], *, apart: bool = False
    ) -> None:
        """Do work in one transaction.

        If some of it fails, all is undone and repeated, ``apart`` from each other by
        savepoints.

        Work rarely fails, and a savepoint costs two statements.
        """
        try:
            with clear_errors(self._path), self._transaction() as connection:
                for work in waiting:
                    if apart:
                        self._try(work, connection)
                    else:
                        work.do(connection)
        except BaseException as error:  # noqa: BLE001 - each of the waiting threads raises it
            if isinstance(error, Exception) and len(waiting) > 1 and not apart:
                self._write_together(waiting, apart=True)
                return
            for work in waiting:
                work.error = error
        for work in waiting:
            work.is_done = True

    def _try(self, work: WaitingWork, connection: sa.Connection) -> None:
        """Do some work completely or not at all.

        Raises StoreError if the database ended the whole transaction.
        """
        savepoint = connection.begin_nested()
        try:
            with clear_errors(self._path):
                work.do(connection)
                savepoint.commit()
        except StoreError as error:
            work.error = error
            # A full disk, for one (SQLite documentation, lang_transaction.html,
            # "Response To Errors Within A Transaction"). Later statements would be
            # committed one by one, and the commit at the end would have no effect.
            if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
                raise
            savepoint.rollback()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        if not self._is_there():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            create_file(self._path)
        if not self._has_tables:
            with self._engine.connect() as connection:
                version = stored_version(connection, self.name)
            if version is None:
                write_ahead(self._engine)
        with (
            self._engine.connect().execution_options(immediate=True) as connection,
            connection.begin(),
        ):
            if not (self._has_tables and is_current(connection)):
                prepare_tables(
                    connection, self.name
                )  # unless another process has done so since
            yield connection
        self._has_tables = True

    def _is_there(self) -> bool:
        with clear_errors(self._path):
            is_folder, is_there = self._path.is_dir(), self._path.exists()
            is_empty = self._path.is_file() and not self._path.stat().st_size
        if is_folder:
            raise StoreError(
                "the store {path} is a folder; name a file in it, e.g. {example}",
                path=self._path,
                example=self._path / "store.db",
            )
        if is_empty:
            raise StoreError(
                "the store {path} is a file of 0 bytes, which perfgate never leaves behind: its content is lost; "
                "restore a copy, or remove the file to start a new store",
                path=self._path,
            )
        return is_there


def open_engine(path: Path, *, keeps_connections: bool = False) -> sa.Engine:
    pool: dict[str, Any] = {"poolclass": sa.NullPool}
    if keeps_connections:
        pool = {"poolclass": sa.QueuePool, "pool_size": _KEPT, "max_overflow": -1}
    place = path.absolute()
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(place)),
        connect_args={"timeout": BUSY_SECONDS},
        **pool,
    )

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        # We begin transactions ourselves: the driver's begin as readers, and a reader
        # that starts to write fails at once if another process has written since
        # (SQLite documentation, isolation.html and lang_transaction.html).
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A query sees one state of the file by itself, and a service reads a token for
        # every request.
        if connection.get_execution_options().get("immediate"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    if keeps_connections:
        _close_replaced(engine, place)
    return engine


def _close_replaced(engine: sa.Engine, path: Path) -> None:
    """Close a kept connection if a copy was restored in the meantime: it would go on in
    the file that is no longer there.
    """

    @sa.event.listens_for(engine, "connect")
    def note_file(_connection: Any, record: Any) -> None:
        record.info["file"] = _identity(path)

    @sa.event.listens_for(engine, "checkout")
    def refuse_replaced(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != _identity(path):
            raise sa.exc.DisconnectionError("another file has this name now")


def create_file(path: Path) -> None:
    """Create a store with its tables, unless another process does first.

    The file gets its name only when it is complete. SQLite would create an empty file
    first, and a crash before its first write would leave a file that looks like a store
    with lost content.
    """
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        fresh = Path(folder) / path.name
        engine = open_engine(fresh)
        write_ahead(engine)
        with (
            engine.connect().execution_options(immediate=True) as connection,
            connection.begin(),
        ):
            prepare_tables(connection, str(path))
        engine.dispose()
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        except OSError:
            # A file system without hard links: a race between two first writers goes
            # undetected.
            if not path.exists():
                fresh.rename(path)


def open_read_only(path: Path) -> sa.Engine:
    """An engine on a file in a read-only place.

    A write-ahead log needs a second file even for reading, unless the store is opened
    as immutable (SQLite documentation, wal.html, "Read-Only Databases"). If a log
    exists already, its content must be read.
    """
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    log = path.with_name(path.name + "-wal")
    if not log.exists() or not log.stat().st_size:
        address += "&immutable=1"
    return sa.create_engine(
        "sqlite://",
        poolclass=sa.NullPool,
        creator=lambda: sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS),
    )


def write_ahead(engine: sa.Engine) -> None:
    """Switch the file permanently to the write-ahead log, so that readers and a writer
    do not block each other.

    The switch needs exclusive access and does not wait for it, so it is retried until
    other processes release the file.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with closing(engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
        except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.02)


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Convert errors of the file into a StoreError with a remedy."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:
        text = str(getattr(error, "orig", None) or error)
        remedy = _PLACE if isinstance(error, OSError) else _UNKNOWN
        for words, remedy_of_words in _REMEDIES:
            if re.search(words, text):
                remedy = remedy_of_words
                break
        # A full disk or a locked file is not a usage error.
        kind = (
            StoreRefusedError if re.search(f"{_FULL}|{_LOCKED}", text) else StoreError
        )
        raise kind(
            "the store {path} cannot be used: {text}; {remedy}",
            path=path,
            text=text,
            remedy=remedy,
        ) from error


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
