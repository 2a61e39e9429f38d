"""What SQLite needs to be safe under several processes, and its errors in words that say what to do."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from perfgate.errors import StoreError, StoreRefusedError

BUSY_SECONDS = 30.0
RESTORE = "the store is damaged: bring back a copy of it, or move it away and record the runs of main again"

_PLACE = "it must lie in a folder that can be written: set PERFGATE_STORE to another path"
_FULL = ("disk is full", "disk I/O error", "No space left", "File too large", "Disk quota exceeded")
_LOCKED = ("is locked",)
_UNKNOWN = "if it happens again, please report it"

# SQLite's own words (sqlite3.c, sqlite3ErrStr): Python before 3.11 does not pass on its error codes.
_REMEDIES = (
    (("not a database", "malformed", "file is encrypted"), RESTORE),
    (_FULL, "free space on its disk, or set PERFGATE_STORE to a path elsewhere"),
    (("readonly database", "unable to open"), _PLACE),
    (_LOCKED, "another process has kept it locked for half a minute; wait for that process, or end it"),
)


def open_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path.absolute())),
        poolclass=sa.NullPool,
        connect_args={"timeout": BUSY_SECONDS},
    )
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def open_read_only(path: Path) -> sa.Engine:
    """An engine on a file in a place that cannot be written.

    A write-ahead log needs a file beside the store even for reading, unless SQLite is told that nobody writes (SQLite
    documentation, wal.html, "Read-Only Databases"). Where a log lies there already, what is in it must be read.
    """
    log = path.with_name(path.name + "-wal")
    options = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sa.create_engine(
        "sqlite://", poolclass=sa.NullPool, creator=lambda: sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)
    )


def write_ahead(engine: sa.Engine) -> None:
    """Switch the file to the write-ahead log, once for ever: then readers and a writer do not wait for each other.

    The switch needs the file for itself and does not wait for it, so it is tried until others have let go.
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
    """Turn what goes wrong with the file into a StoreError that says what to do."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:
        text = str(getattr(error, "orig", None) or error)
        remedies = [remedy for words, remedy in _REMEDIES if any(word in text for word in words)]
        remedies.append(_PLACE if isinstance(error, OSError) else _UNKNOWN)
        # Nothing is wrong with how perfgate was called where the disk is full, or another process holds the file.
        kind = StoreRefusedError if any(word in text for word in (*_FULL, *_LOCKED)) else StoreError
        raise kind(f"the store {path} cannot be used: {text}; {remedies[0]}") from error


def _on_connect(connection: Any, _record: Any) -> None:
    # Transactions are ours: the driver's begin as readers, and a reader that wants to write fails at once when another
    # has written since (SQLite documentation, isolation.html and lang_transaction.html).
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _on_begin(connection: sa.Connection) -> None:
    immediate = connection.get_execution_options().get("immediate")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
