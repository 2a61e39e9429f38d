"""The rows of a run in the tables of a store: how they are inserted, and how a listed run is read from its row."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from perfgate.document.history import StoredRun
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.store import RunEntry, SeriesPlace, StoredDocument
from perfgate.judging.store.tables import CONDITIONS, DOCUMENTS, RUNS, SERIES, VALUES

LISTED = [column for column in RUNS.c if column is not RUNS.c.number]


def id_of_session(connection: sa.Connection, run: StoredRun) -> str | None:
    """The id of the stored run of a run's session; None if there is none."""
    query = sa.select(RUNS.c.id).where(RUNS.c.project == run.project, RUNS.c.session == run.session)
    found: str | None = connection.execute(query).scalar()
    return found


def insert_run(
    connection: sa.Connection, database: StoreDatabase, entry: RunEntry, document: StoredDocument
) -> str | None:
    """Insert all rows of a run; return the id of its session's run, another one if another writer was faster.

    Rows that another writer inserts in the same moment are equal, or rolled back by the caller.
    """

    def insert(table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            connection.execute(database.insert(table).on_conflict_do_nothing(), rows)

    insert(RUNS, [_row(entry.run, entry.started)])
    if (there := id_of_session(connection, entry.run)) != document.id:
        return there
    run = connection.execute(sa.select(RUNS.c.number).where(RUNS.c.id == document.id)).scalar_one()
    insert(DOCUMENTS, [{"run": run, "document": zlib.compress(document.data)}])
    if entry.conditions:
        insert(CONDITIONS, [{"run": run, "conditions": msgspec.json.encode(entry.conditions).decode()}])
    series = _series_of(connection, entry.run)
    places = [value.place(entry.run.fingerprint) for value in entry.values]
    # In one order: two writers who add the same ones never wait for each other in a circle.
    if missing := sorted(set(places) - series.keys()):
        shared = {"project": entry.run.project, "device_kind": entry.run.device_kind}
        insert(SERIES, [{**shared, **place._asdict()} for place in missing])
        series = _series_of(connection, entry.run)
    insert(
        VALUES,
        [
            {"series": series[place], "started": entry.started, "run": run, "value": value.value}
            for place, value in zip(places, entry.values)
        ],
    )
    return there


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


def _row(run: StoredRun, started: float) -> dict[str, Any]:
    return {
        **{column.name: getattr(run, column.name) for column in LISTED if column.name in StoredRun.__struct_fields__},
        "commit_id": run.commit,
        "started": started,
        "workloads": json.dumps(run.workloads),
    }


def _series_of(connection: sa.Connection, run: StoredRun) -> dict[SeriesPlace, int]:
    """The numbers of the series of a run's testbed, by their places."""
    names = [SERIES.c[name] for name in SeriesPlace._fields]
    query = sa.select(SERIES.c.number, *names)
    rows = connection.execute(query.where(SERIES.c.project == run.project, SERIES.c.fingerprint == run.fingerprint))
    return {SeriesPlace(*place): number for number, *place in rows}
