"""Fill a store with made runs through its tables, as fast as the database takes rows.

Validating and recording a million documents one by one would take an hour, and prove nothing about reading. So the rows of all
projects but the last are inserted at once, with one document for all of their runs. The last project is recorded through the
store itself, run by run, and its documents are real ones.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec
import psycopg
import sqlalchemy as sa
from made_runs import TESTBEDS, VERSIONS, MadeTestbed, made_testbeds

from perfgate.document.files import canonical_bytes
from perfgate.judging.store.runs import record_runs, run_entry
from perfgate.judging.store.store import Store
from perfgate.judging.store.tables import AUDIT, DOCUMENTS, LOG

Rows = Iterable[Sequence[object]]
# Made anew at the end: to keep an index in order costs more than to sort it once.
LATE = [*LOG.indexes, *AUDIT.indexes]
AT_ONCE = 200


class Sink(Protocol):
    """A database that takes many rows of a table."""

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None: ...


class SqliteSink:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        places = ", ".join("?" * len(columns))
        names = ", ".join(f'"{column}"' for column in columns)
        self._connection.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({places})", rows)  # noqa: S608 - our names


class PostgresSink:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def add(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        with self._connection.cursor().copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as copy:
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
    """``connection`` is that of an administrator: foreign keys are not looked up for each of the rows."""

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
    """Insert the rows of all projects but the last."""
    document = b""
    for made in made_testbeds(bulk_projects(runs), histories):
        document = document or zlib.compress(canonical_bytes(made.document(0), name="a made run"))
        sink.add(LOG, ["number", "project", "kind", "key", "entry", "run", "testbed", "started"], _log_rows(made))
        sink.add(DOCUMENTS, ["run", "document"], ((_run_id(number), document) for number in made.numbers))
        sink.add(AUDIT, ["at", "actor", "action", "project", "subject"], _audit_rows(made))


def bulk_projects(runs: int) -> int:
    return runs // (TESTBEDS * VERSIONS) - 1


def record_last(store: Store, runs: int, histories: Path) -> None:
    """Record the last project through the store."""
    last = bulk_projects(runs)
    for place, made in enumerate(made_testbeds(last + 1, histories)):
        if place >= last * TESTBEDS:
            for start in range(0, VERSIONS, AT_ONCE):
                documents = [made.document(version) for version in range(start, min(start + AT_ONCE, VERSIONS))]
                record_runs(store, documents)


def _run_id(number: int) -> str:
    return f"{number:016x}" * 4


def _log_rows(made: MadeTestbed) -> Iterator[tuple[object, ...]]:
    for version, number in enumerate(made.numbers):
        run_id, start = _run_id(number), made.started_at(version)
        run = msgspec.structs.replace(
            run_entry(made.document(version), run_id, start), started=float(made.started[version])
        )
        key, entry = msgspec.json.encode(run.key).decode(), msgspec.json.encode(run).decode()
        yield number, made.project, "runs", key, entry, run_id, made.fingerprint, run.started


def _audit_rows(made: MadeTestbed) -> Iterator[tuple[object, ...]]:
    for version, number in enumerate(made.numbers):
        yield made.started_at(version), "made", "run recorded", made.project, f"{number:016x}" * 4
