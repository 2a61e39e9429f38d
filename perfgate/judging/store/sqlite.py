"""The SQLite file of the store: its tables and their version, its safety under concurrent processes, and its errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
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

# SQLite's messages (sqlite3.c, sqlite3ErrStr): Python before 3.11 does not expose its error codes.
_REMEDIES = (
    (("not a database", "malformed", "file is encrypted"), RESTORE),
    (_FULL, "free space on its disk, or set PERFGATE_STORE to a path elsewhere"),
    (("readonly database", "unable to open"), _PLACE),
    (_LOCKED, "another process has kept it locked for half a minute; wait for that process, or end it"),
)

METADATA = sa.MetaData()

VERSION = sa.Table("perfgate_store", METADATA, sa.Column("version", sa.Integer, nullable=False))

RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("project", sa.Text, nullable=False),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("recorded_at", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("device_kind", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text),
    sa.Column("branch", sa.Text),
    sa.Column("subject", sa.Text),
    sa.Column("dirty", sa.Boolean, nullable=False),
    sa.Column("workloads", sa.Text, nullable=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("project", "session"),
    sa.Index("runs_by_series", "project", "fingerprint", "started"),
)

VALUES = sa.Table(
    "run_values",
    METADATA,
    sa.Column("run_id", sa.ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("workload", sa.Text, primary_key=True),
    sa.Column("shape", sa.Text, primary_key=True),
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("labels", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
    sa.Index("run_values_by_metric", "metric", "workload", "shape", "labels"),
)

CONDITIONS = sa.Table(
    "step_conditions",
    METADATA,
    sa.Column("run_id", sa.ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("workload", sa.Text, primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True),
    sa.Column("procedure", sa.Text, nullable=False),
    sa.Column("waited", sa.Float),
)

ACCEPTANCES = sa.Table(
    "acceptances",
    METADATA,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("commit", sa.Text, primary_key=True),
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("accepted_by", sa.Text, nullable=False),
    sa.Column("accepted_at", sa.Text, nullable=False),
)

CONFIRMATIONS = sa.Table(
    "confirmations",
    METADATA,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("before", sa.Text, primary_key=True),
    sa.Column("after", sa.Text, primary_key=True),
    sa.Column("workload", sa.Text, primary_key=True),
    sa.Column("shape", sa.Text, primary_key=True),
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("low", sa.Float),
    sa.Column("high", sa.Float),
    sa.Column("confirmed_at", sa.Text, nullable=False),
)

# Version of the tables above. After a release, a change of the tables needs a new version and a migration of old stores.
STORE_VERSION = 1


def create_tables(connection: sa.Connection) -> None:
    """Create the tables in an empty database."""
    METADATA.create_all(connection)
    connection.execute(VERSION.insert().values(version=STORE_VERSION))


def has_tables(connection: sa.Connection, place: str) -> bool:
    """Whether the tables exist; False for an empty database. Raises StoreError for tables of another version or program."""
    names = sa.inspect(connection).get_table_names()
    if VERSION.name not in names:
        if names:
            raise StoreError(f"{place} is a database of something else (it holds {names[0]!a}); choose another path")
        return False
    version = int(connection.execute(sa.select(VERSION.c.version)).scalar() or 0)
    if version > STORE_VERSION:
        raise StoreError(
            f"{place} was written by a newer perfgate (store version {version}, this one knows {STORE_VERSION}); "
            "upgrade perfgate"
        )
    if version < STORE_VERSION:
        raise StoreError(
            f"{place} was written by an older perfgate (store version {version}, this one knows {STORE_VERSION}); "
            "move it away and record the runs of main again"
        )
    return True


def open_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path.absolute())),
        poolclass=sa.NullPool,
        connect_args={"timeout": BUSY_SECONDS},
    )
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def create_file(path: Path) -> None:
    """Create a store with its tables, unless another process does first.

    The file gets its name only when it is complete. SQLite would create an empty file first, and a crash before its first
    write would leave a file that looks like a store with lost content.
    """
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        fresh = Path(folder) / path.name
        engine = open_engine(fresh)
        write_ahead(engine)
        with engine.connect().execution_options(immediate=True) as connection, connection.begin():
            create_tables(connection)
        engine.dispose()
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        except OSError:
            # A file system without hard links: a race between two first writers goes undetected.
            if not path.exists():
                fresh.rename(path)


def open_read_only(path: Path) -> sa.Engine:
    """An engine on a file in a read-only place.

    A write-ahead log needs a file beside the store even for reading, unless the store is opened as immutable (SQLite
    documentation, wal.html, "Read-Only Databases"). If a log exists already, its content must be read.
    """
    log = path.with_name(path.name + "-wal")
    options = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sa.create_engine(
        "sqlite://", poolclass=sa.NullPool, creator=lambda: sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)
    )


def write_ahead(engine: sa.Engine) -> None:
    """Switch the file permanently to the write-ahead log, so that readers and a writer do not block each other.

    The switch needs exclusive access and does not wait for it, so it is retried until other processes release the file.
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
        remedies = [remedy for words, remedy in _REMEDIES if any(word in text for word in words)]
        remedies.append(_PLACE if isinstance(error, OSError) else _UNKNOWN)
        # A full disk or a locked file is not a usage error.
        kind = StoreRefusedError if any(word in text for word in (*_FULL, *_LOCKED)) else StoreError
        raise kind(f"the store {path} cannot be used: {text}; {remedies[0]}") from error


def _on_connect(connection: Any, _record: Any) -> None:
    # We begin transactions ourselves: the driver's begin as readers, and a reader that starts to write fails at once if
    # another process has written since (SQLite documentation, isolation.html and lang_transaction.html).
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _on_begin(connection: sa.Connection) -> None:
    immediate = connection.get_execution_options().get("immediate")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
