"""The store in SQL, through SQLAlchemy Core: a SQLite file or a PostgreSQL database, with the same tables and statements."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from perfgate.document.conditions import StepConditions
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import StoreError, UnknownRunError
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.ledger import LOCAL, Ledger
from perfgate.judging.store.postgres import PREFIXES, PostgresDatabase
from perfgate.judging.store.sqlite import SqliteFile
from perfgate.judging.store.store import (
    HistoryValue,
    RunEntry,
    Series,
    StoredDocument,
    StoredValue,
    StorePlace,
    intact_run,
    kept_already,
    labels_text,
    pack_document,
    recorded_document,
    refuse_unfit,
    run_entry,
)
from perfgate.judging.store.tables import ACCEPTANCES, CONDITIONS, CONFIRMATIONS, GATES, RUNS, VALUES

_FILE = "sqlite:///"


def accepts(location: str) -> bool:
    return location.startswith((_FILE, *PREFIXES)) or "://" not in location


def open_backend(location: str, place: StorePlace) -> SqlStore:  # noqa: ARG001 - an address is complete
    """The store at a location; nothing is opened before its first use."""
    if location.startswith(PREFIXES):
        return SqlStore(PostgresDatabase(location))
    path = location.removeprefix(_FILE)
    try:
        return SqlStore(Path(path).expanduser())
    except RuntimeError as error:  # ~ of an unknown user
        raise StoreError(
            "the store {path!a} cannot be found: {error}; give a path without ~", path=path, error=error
        ) from error


def _now() -> datetime:
    return datetime.now(timezone.utc)


class SqlStore:
    """The Store in a database; a path is that of a SQLite file."""

    def __init__(self, place: StoreDatabase | Path, *, clock: Callable[[], datetime] = _now) -> None:
        self._database: StoreDatabase = SqliteFile(place) if isinstance(place, Path) else place
        self._clock = clock
        self._ledger, self._actor = Ledger(self._database, clock), LOCAL

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""
        return self.record_all([run], allow_dirty=allow_dirty)[0]

    def record_all(self, runs: Iterable[RunDocument], *, allow_dirty: bool = False) -> list[str]:
        """Store several runs in one write, all or none, and return their ids. Raises StoreError for an unfit one."""
        packed: list[tuple[RunEntry, StoredDocument]] = []
        for run in runs:
            refuse_unfit(run, allow_dirty=allow_dirty, now=self._clock())
            document = pack_document(run, self._clock())
            packed.append((run_entry(run, document), document))
        self._add(packed)
        return [document.id for _, document in packed]

    def restore(self, documents: Iterable[StoredDocument]) -> None:
        """Store the runs of another store in one write, all or none, under their ids; those that are there stay."""
        self._add([(run_entry(intact_run(document), document), document) for document in documents])

    def runs(self, project: str, *, limit: int | None = None) -> list[StoredRun]:
        query = sa.select(*_LISTED).where(RUNS.c.project == project).order_by(RUNS.c.started.desc(), RUNS.c.id)
        return [_stored_run(row) for row in self._read(query.limit(limit))]

    def damaged(self, project: str) -> list[str]:  # noqa: ARG002 - the same for all
        """Empty: SQLite refuses a damaged file as a whole, and ``show`` refuses a modified document."""
        return []

    def show(self, run_id: str) -> RunDocument:
        query = sa.select(RUNS.c.id, RUNS.c.document).where(RUNS.c.id.startswith(run_id.lower(), autoescape=True))
        rows = self._read(query.limit(2)) if run_id else []
        if not rows:
            raise UnknownRunError(
                "{name} holds no run {run_id!a}; `perfgate baseline list` shows what there is",
                name=self._database.name,
                run_id=run_id,
            )
        if len(rows) > 1:
            raise UnknownRunError(
                "{name} holds several runs that begin with {run_id!a}; give more of the id",
                name=self._database.name,
                run_id=run_id,
            )
        document = self._document(rows[0]["id"], "", rows[0]["document"])
        if document.fault:
            raise StoreError(document.fault)
        return recorded_document(
            document.data, document.id, name=self._name_of(document.id), remedy=self._database.restore
        )

    def documents(self, runs: Sequence[StoredRun]) -> list[StoredDocument]:
        query = sa.select(RUNS.c.id, RUNS.c.document).where(RUNS.c.id.in_([run.id for run in runs]))
        stored = {row["id"]: row["document"] for row in self._read(query)}
        return [self._document(run.id, run.recorded_at, stored.get(run.id)) for run in runs]

    def entries(self, runs: Sequence[StoredRun]) -> list[RunEntry]:
        ids = [run.id for run in runs]
        values: dict[str, list[StoredValue]] = {}
        for row in self._read(sa.select(VALUES).where(VALUES.c.run_id.in_(ids))):
            value = StoredValue(**{name: row[name] for name in StoredValue.__struct_fields__})
            values.setdefault(row["run_id"], []).append(value)
        conditions = self._conditions(sa.select(CONDITIONS).where(CONDITIONS.c.run_id.in_(ids)))
        rows = self._read(sa.select(*_LISTED).where(RUNS.c.id.in_(ids)))
        entries = {
            row["id"]: RunEntry(
                run=_stored_run(row),
                started=row["started"],
                values=values.get(row["id"], []),
                conditions=conditions.get(row["id"], []),
            )
            for row in rows
        }
        return [entries[run.id] for run in runs if run.id in entries]

    def projects(self) -> list[str]:
        return [row["project"] for row in self._read(sa.select(RUNS.c.project).distinct().order_by(RUNS.c.project))]

    def history(
        self,
        project: str,
        workload: str,
        fingerprint: str,
        metric: str,
        shape: str,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> list[HistoryValue]:
        """One metric of a series, oldest session first; ``labels`` are those beside the shape (e.g. batch)."""
        query = (
            sa.select(VALUES.c.run_id, RUNS.c.session, RUNS.c.commit_id, RUNS.c.started_at, VALUES.c.value)
            .join_from(VALUES, RUNS)
            .where(RUNS.c.project == project, RUNS.c.fingerprint == fingerprint)
            .where(VALUES.c.workload == workload, VALUES.c.metric == metric, VALUES.c.shape == shape)
            .where(VALUES.c.labels == labels_text(labels or {}))
            .order_by(RUNS.c.started, RUNS.c.id)
        )
        return [
            HistoryValue(
                run_id=row["run_id"],
                session=row["session"],
                commit=row["commit_id"],
                started_at=row["started_at"],
                value=row["value"],
            )
            for row in self._read(query)
        ]

    def conditions(self, project: str, fingerprint: str) -> dict[str, list[StepConditions]]:
        query = (
            sa.select(CONDITIONS)
            .join_from(CONDITIONS, RUNS)
            .where(RUNS.c.project == project, RUNS.c.fingerprint == fingerprint)
        )
        return self._conditions(query)

    def series(self, project: str) -> list[Series]:
        names = (VALUES.c.workload, VALUES.c.shape, VALUES.c.metric, VALUES.c.labels, RUNS.c.fingerprint)
        query = (
            sa.select(*names, sa.func.max(RUNS.c.device_kind).label("device_kind"), sa.func.count().label("runs"))
            .join_from(VALUES, RUNS)
            .where(RUNS.c.project == project)
            .group_by(*names)
            .order_by(*names)
        )
        return [
            Series(**{**row, "labels": json.loads(row["labels"]) if row["labels"] else {}}) for row in self._read(query)
        ]

    def confirm(self, project: str, confirmation: Confirmation) -> None:
        """Store the result of measuring two commits side by side; it replaces that of the same commits and metric."""
        subject = f"{confirmation.metric} of {confirmation.before} and {confirmation.after}"
        with self._database.writing() as connection:
            self._replace(connection, CONFIRMATIONS, {"project": project, **msgspec.structs.asdict(confirmation)})
            self._ledger.note(connection, self._actor, "change confirmed", project, subject)

    def confirmations(self, project: str) -> list[Confirmation]:
        table = CONFIRMATIONS.c
        query = sa.select(CONFIRMATIONS).where(table.project == project)
        rows = self._read(query.order_by(table.confirmed_at.desc(), *CONFIRMATIONS.primary_key))
        return [Confirmation(**{name: row[name] for name in Confirmation.__struct_fields__}) for row in rows]

    def accept(self, project: str, acceptance: Acceptance) -> None:
        """Store the acceptance of a regression; it replaces that of the same commit and metric."""
        subject = f"{acceptance.metric} of {acceptance.commit}"
        with self._database.writing() as connection:
            self._replace(connection, ACCEPTANCES, {"project": project, **msgspec.structs.asdict(acceptance)})
            self._ledger.note(connection, self._actor, "regression accepted", project, subject)

    def accepted(self, project: str, *, commit: str | None = None) -> list[Acceptance]:
        table = ACCEPTANCES.c
        query = sa.select(ACCEPTANCES).where(table.project == project)
        query = query if commit is None else query.where(table.commit == commit)
        rows = self._read(query.order_by(table.accepted_at.desc(), table.commit, table.metric))
        return [Acceptance(**{name: row[name] for name in Acceptance.__struct_fields__}) for row in rows]

    def keep_gates(self, project: str, records: Sequence[GateRecord]) -> None:
        """Store the verdicts of a gate; each replaces that of the same gate, commit and testbed."""
        with self._database.writing() as connection:
            for record in records:
                self._replace(connection, GATES, {"project": project, **msgspec.structs.asdict(record)})
                subject = f"{record.verdict} of {record.commit}"
                self._ledger.note(connection, self._actor, "verdict kept", project, subject)

    def gates(self, project: str) -> list[GateRecord]:
        query = sa.select(GATES).where(GATES.c.project == project)
        rows = self._read(query.order_by(GATES.c.judged_at.desc(), *GATES.primary_key))
        return [GateRecord(**{name: row[name] for name in GateRecord.__struct_fields__}) for row in rows]

    def prune(self, project: str, *, keep: int) -> int:
        """Remove all but the newest ``keep`` runs of each testbed of a project; return how many were removed."""
        if keep < 0:
            raise StoreError("the number of runs to keep must be 0 or more, found {keep}", keep=keep)
        newest = sa.func.row_number().over(partition_by=RUNS.c.fingerprint, order_by=[RUNS.c.started.desc(), RUNS.c.id])
        ranked = sa.select(RUNS.c.id, newest.label("rank")).where(RUNS.c.project == project).subquery()
        old = sa.select(ranked.c.id).where(ranked.c.rank > keep)
        if not self._read(old.limit(1)):  # nor is a store created
            return 0
        with self._database.writing() as connection:
            removed = connection.execute(RUNS.delete().where(RUNS.c.id.in_(old))).rowcount
            if removed:
                self._ledger.note(
                    connection, self._actor, "runs pruned", project, f"{removed} of all but the newest {keep}"
                )
            return removed

    def ledger(self) -> Ledger:
        return self._ledger

    def acting_as(self, actor: str) -> SqlStore:
        """The same store, in whose audit log ``actor`` is the writer."""
        store = copy(self)
        store._actor = actor
        return store

    def _add(self, runs: Sequence[tuple[RunEntry, StoredDocument]]) -> None:
        """Insert runs that are not there, in one order: two writers of the same ones never wait for each other in a circle."""
        if not runs:
            return
        with self._database.writing() as connection:
            for entry, document in sorted(runs, key=lambda run: (run[0].run.project, run[0].run.session)):
                there = _id_of_session(connection, entry.run)
                if there is None:
                    self._insert(connection, RUNS, [_row(entry, document)])
                    there = _id_of_session(connection, entry.run)
                    if there == document.id:
                        self._insert_details(connection, entry)
                        self._ledger.note(connection, self._actor, "run recorded", entry.run.project, document.id)
                if there != document.id:
                    raise kept_already(entry.run.session, str(there))

    def _insert_details(self, connection: sa.Connection, entry: RunEntry) -> None:
        for table, records in ((VALUES, entry.values), (CONDITIONS, entry.conditions)):
            rows = [{"run_id": entry.run.id, **msgspec.structs.asdict(record)} for record in records]
            self._insert(connection, table, rows)

    def _insert(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows; those that another writer inserts in the same moment are equal, or rolled back by the caller."""
        if rows:
            connection.execute(self._database.insert(table).on_conflict_do_nothing(), rows)

    def _replace(self, connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or overwrite the one with the same key."""
        insert = self._database.insert(table).values(row)
        rest = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
        connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=rest))

    def _conditions(self, query: sa.Select[Any]) -> dict[str, list[StepConditions]]:
        conditions: dict[str, list[StepConditions]] = {}
        for row in self._read(query):
            entry = StepConditions(**{name: row[name] for name in StepConditions.__struct_fields__})
            conditions.setdefault(row["run_id"], []).append(entry)
        return conditions

    def _name_of(self, run_id: str) -> str:
        return f"{self._database.name}: run {run_id[:12]}"

    def _document(self, run_id: str, recorded_at: str, stored: bytes | None) -> StoredDocument:
        data, fault = b"", ""
        try:
            data = zlib.decompressobj().decompress(stored or b"", MAX_BYTES + 1)
        except zlib.error as error:
            fault = f"{self._name_of(run_id)} cannot be read ({error}); {self._database.restore}"
        return StoredDocument(id=run_id, recorded_at=recorded_at, data=data, fault=fault)

    def _read(self, query: sa.Select[Any]) -> list[sa.RowMapping]:
        with self._database.reading() as connection:
            return list(connection.execute(query).mappings()) if connection is not None else []


# All of a run but its document.
_LISTED = [column for column in RUNS.c if column is not RUNS.c.document]


def _row(entry: RunEntry, document: StoredDocument) -> dict[str, Any]:
    run = entry.run
    return {
        **{column.name: getattr(run, column.name) for column in _LISTED if column.name in StoredRun.__struct_fields__},
        "commit_id": run.commit,
        "started": entry.started,
        "workloads": json.dumps(run.workloads),
        "document": zlib.compress(document.data),
    }


def _id_of_session(connection: sa.Connection, run: StoredRun) -> str | None:
    query = sa.select(RUNS.c.id).where(RUNS.c.project == run.project, RUNS.c.session == run.session)
    found: str | None = connection.execute(query).scalar()
    return found


def _stored_run(row: sa.RowMapping) -> StoredRun:
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
