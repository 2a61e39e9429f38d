"""Fill a store with made runs through its tables, as fast as the database takes rows.

Validating and recording a million documents one by one would take an hour, and prove
nothing about reading. So rows are inserted at once. The runs of all projects but the
last share one document; those of the last have their own.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import psycopg
import sqlalchemy as sa
from made_runs import TESTBEDS, VERSIONS, MadeTestbed, made_testbeds

from perfgate.document.files import canonical_bytes
from perfgate.judging.store.runs import run_entry
from perfgate.judging.store.tables import AUDIT, DOCUMENTS, LOG

Rows = Iterable[Sequence[object]]
# Made anew at the end: to keep an index in order costs more than to sort it once.
LATE = [*LOG.indexes, *AUDIT.indexes]
AT_ONCE = 2_000
LOG_COLUMNS = ["number", "project", "kind", "key", "entry", "run", "testbed", "started"]
AUDIT_COLUMNS = ["at", "actor", "action", "project", "subject"]


class Sink(Protocol):
    """A database that takes many rows of a table."""

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None: ...


class SqliteSink:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        places = ", ".join("?" * len(columns))
        names = ", ".join(f'"{column}"' for column in columns)
        insert = f"INSERT INTO {table.name} ({names}) VALUES ({places})"  # noqa: S608 - our names
        self._connection.executemany(insert, rows)


class PostgresSink:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        with self._connection.cursor().copy(
            f"COPY {table.name} ({names}) FROM STDIN".encode()
        ) as copy:
            for row in rows:
                copy.write_row(row)


def fill_sqlite(path: Path, runs: int, histories: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        for index in LATE:
            connection.execute(f"DROP INDEX {index.name}")
        fill(SqliteSink(connection), runs, histories)
        connection.commit()
        for index in LATE:
            connection.execute(str(sa.schema.CreateIndex(index)))
        connection.execute("ANALYZE")
        connection.commit()


def fill_postgres(connection: psycopg.Connection, runs: int, histories: Path) -> None:
    """``connection`` is that of an administrator: foreign keys are not looked up for
    each of the rows.
    """

    def execute(statement: str) -> None:
        connection.execute(statement.encode())

    execute("SET session_replication_role = replica")
    execute("SET maintenance_work_mem = '512MB'")
    for index in LATE:
        execute(f"DROP INDEX {index.name}")
    fill(PostgresSink(connection), runs, histories)
    for index in LATE:
        execute(str(sa.schema.CreateIndex(index)))
    for table in (LOG, AUDIT):
        sequence = f"pg_get_serial_sequence('{table.name}', 'number')"
        execute(f"SELECT setval({sequence}, (SELECT max(number) FROM {table.name}))")  # noqa: S608 - our names
    connection.commit()
    connection.autocommit = True
    execute("VACUUM ANALYZE")


def fill(sink: Sink, runs: int, histories: Path) -> None:
    """Insert the rows of all projects, of which the last has real documents."""
    last = bulk_projects(runs)
    shared = b""
    for place, made in enumerate(made_testbeds(last + 1, histories)):
        shared = shared or zlib.compress(
            canonical_bytes(made.document(0), name="a made run")
        )
        stored = _bulk_runs(made, shared)
        if place >= last * TESTBEDS:
            stored = _real_runs(made)
        for start in range(0, VERSIONS, AT_ONCE):
            part = list(islice(stored, AT_ONCE))
            sink.add(
                LOG,
                LOG_COLUMNS,
                [_log_row(made, start + at, run) for at, run in enumerate(part)],
            )
            sink.add(
                DOCUMENTS, ["run", "document"], [(run.id, run.document) for run in part]
            )
            sink.add(
                AUDIT,
                AUDIT_COLUMNS,
                [_audit_row(made, start + at, run) for at, run in enumerate(part)],
            )


def bulk_projects(runs: int) -> int:
    return runs // (TESTBEDS * VERSIONS) - 1


class StoredRow(NamedTuple):
    """The id of a run and its compressed document."""

    id: str
    document: bytes


def _bulk_runs(made: MadeTestbed, shared: bytes) -> Iterator[StoredRow]:
    for number in made.numbers:
        yield StoredRow(f"{number:016x}" * 4, shared)


def _real_runs(made: MadeTestbed) -> Iterator[StoredRow]:
    first = made.document(0)
    # What the store writes, but for its checks, which would take ten times as long.
    assert msgspec.json.encode(first, order="deterministic") == canonical_bytes(
        first, name="a made run"
    )
    for version in range(VERSIONS):
        document = msgspec.json.encode(made.document(version), order="deterministic")
        yield StoredRow(hashlib.sha256(document).hexdigest(), zlib.compress(document))


def _log_row(made: MadeTestbed, version: int, row: StoredRow) -> tuple[object, ...]:
    start = made.started_at(version)
    made_entry = run_entry(made.document(version), row.id, start)
    run = msgspec.structs.replace(made_entry, started=float(made.started[version]))
    key, entry = (
        msgspec.json.encode(run.key).decode(),
        msgspec.json.encode(run).decode(),
    )
    return (
        made.numbers[version],
        made.project,
        "runs",
        key,
        entry,
        row.id,
        made.fingerprint,
        run.started,
    )


def _audit_row(made: MadeTestbed, version: int, row: StoredRow) -> tuple[object, ...]:
    return made.started_at(version), "made", "run recorded", made.project, row.id
