"""The rows of a run in the tables of a store: how they are inserted, and how a listed run is read from its row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from perfgate.document.history import StoredRun
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.store import RunEntry, SeriesPlace, kept_already
from perfgate.judging.store.tables import CONDITIONS, DOCUMENTS, RUNS, SERIES, VALUES

if TYPE_CHECKING:
    from perfgate.judging.store.database import Insert

LISTED = [column for column in RUNS.c if column is not RUNS.c.number]
# Written once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_OF_SESSION = sa.select(RUNS.c.id).where(
    RUNS.c.project == sa.bindparam("project"), RUNS.c.session == sa.bindparam("session")
)
_SERIES_OF_TESTBED = sa.select(SERIES.c.number, *(SERIES.c[name] for name in SeriesPlace._fields)).where(
    SERIES.c.project == sa.bindparam("project"), SERIES.c.fingerprint == sa.bindparam("fingerprint")
)


def insert_run(connection: sa.Connection, database: StoreDatabase, entry: RunEntry, document: bytes) -> bool:
    """Insert all rows of a run with its compressed document; return False if it is there already.

    Raises StoreError if its session is stored with another document.
    """
    run = entry.run

    def insert(table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            connection.execute(_insert_absent(database.insert, table), rows)

    names = [column.name for column in LISTED if column.name in StoredRun.__struct_fields__]
    row = {name: getattr(run, name) for name in names}
    row |= {"commit_id": run.commit, "started": entry.started, "workloads": json.dumps(run.workloads)}
    # A writer of the same session waits here for the end of the other's transaction.
    inserted = connection.execute(_insert_absent(database.insert, RUNS), row)
    if inserted.rowcount != 1:
        kept = connection.execute(_OF_SESSION, {"project": run.project, "session": run.session}).scalar_one()
        if kept != run.id:
            raise kept_already(run.session, kept)
        return False
    key: Sequence[Any] = inserted.inserted_primary_key or ()
    (number,) = key
    insert(DOCUMENTS, [{"run": number, "document": document}])
    if entry.conditions:
        insert(CONDITIONS, [{"run": number, "conditions": msgspec.json.encode(entry.conditions).decode()}])
    series = _series_of(connection, run)
    places = [value.place(run.fingerprint) for value in entry.values]
    # In one order: two writers that add the same ones never wait for each other in a circle.
    if missing := sorted(set(places) - series.keys()):
        shared = {"project": run.project, "device_kind": run.device_kind}
        insert(SERIES, [{**shared, **place._asdict()} for place in missing])
        series = _series_of(connection, run)
    insert(
        VALUES,
        [
            {"series": series[place], "started": entry.started, "run": number, "value": value.value}
            for place, value in zip(places, entry.values)
        ],
    )
    return True


def stored_run(row: sa.RowMapping) -> StoredRun:
    return StoredRun(
        id=row["id"],
        project=row["project"],
        session=row["session"],
        started_at=row["started_at"],
        recorded_at=row["recorded_at"],
        fingerprint=row["fingerprint"],
        device_kind=row["device_kind"],
        commit=row["commit_id"],
        branch=row["branch"],
        subject=row["subject"],
        dirty=row["dirty"],
        workloads=json.loads(row["workloads"]),
    )


def _series_of(connection: sa.Connection, run: StoredRun) -> dict[SeriesPlace, int]:
    """The numbers of the series of a run's testbed, by their places."""
    rows = connection.execute(_SERIES_OF_TESTBED, {"project": run.project, "fingerprint": run.fingerprint})
    return {SeriesPlace(*place): number for number, *place in rows}


@cache
def _insert_absent(insert: Callable[[sa.Table], Insert], table: sa.Table) -> sa.Insert:
    # Otherwise SQLAlchemy 2.0.28 and later forget it ("preserve_rowcount").
    return insert(table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
