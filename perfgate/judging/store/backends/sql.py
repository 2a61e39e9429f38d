"""The store in SQL, through SQLAlchemy Core: a SQLite file or a PostgreSQL database, with the same tables and statements."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from perfgate.document.conditions import StepConditions
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage, moment
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import StoreError, UnknownRunError
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.ledger import LOCAL, AuditAction, Ledger
from perfgate.judging.store.postgres import PREFIXES, PostgresDatabase
from perfgate.judging.store.recent import read_recent
from perfgate.judging.store.run_rows import LISTED, insert_run, stored_run
from perfgate.judging.store.sqlite import SqliteFile
from perfgate.judging.store.store import (
    HistoryValue,
    RecentValues,
    RunEntry,
    Series,
    SeriesPlace,
    Statement,
    StoredDocument,
    StoredValue,
    StorePlace,
    intact_run,
    labels_text,
    pack_document,
    recorded_document,
    refuse_unfit,
    run_entry,
    statement_name,
    utc_now,
)
from perfgate.judging.store.tables import AUDIT, CONDITIONS, DOCUMENTS, METADATA, RUNS, SERIES, VALUES

_FILE = "sqlite:///"
_NOTED: Mapping[type[object], AuditAction] = {
    Acceptance: "regression accepted",
    Triage: "regression triaged",
    Confirmation: "change confirmed",
    GateRecord: "verdict kept",
}
NoteRuns = Callable[[sa.Connection, Sequence[StoredRun]], None]
"""Notes runs in the audit log, in the transaction that inserts them."""


def accepts(location: str) -> bool:
    return location.startswith((_FILE, *PREFIXES)) or "://" not in location


def open_backend(location: str, place: StorePlace) -> SqlStore:
    """The store at a location; nothing is opened before its first use."""
    if location.startswith(PREFIXES):
        return SqlStore(PostgresDatabase(location))
    path = location.removeprefix(_FILE)
    try:
        return SqlStore(SqliteFile(Path(path).expanduser(), keeps_connections=place.is_served))
    except RuntimeError as error:  # ~ of an unknown user
        raise StoreError(
            "the store {path!a} cannot be found: {error}; give a path without ~", path=path, error=error
        ) from error


class SqlStore:
    """The Store in a database; a path is that of a SQLite file."""

    def __init__(self, place: StoreDatabase | Path, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._database: StoreDatabase = SqliteFile(place) if isinstance(place, Path) else place
        self._clock = clock
        self._ledger, self._actor = Ledger(self._database, clock), LOCAL

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""
        packed = self._packed(run, allow_dirty)
        self._add([packed], self._note_recorded)
        return packed[1].id

    def record_all(
        self, runs: Iterable[RunDocument], *, allow_dirty: bool = False, data: Sequence[bytes] | None = None
    ) -> list[str]:
        """Store several runs in one write, all or none; return the ids of the new ones. Raises StoreError for an unfit run."""
        packed = [self._packed(run, allow_dirty, one) for run, one in zip(runs, data or repeat(None))]
        return self._add(packed, self._note_recorded)

    def restore(self, documents: Iterable[StoredDocument]) -> None:
        """Store the runs of another store in one write, all or none, under their ids; those that are there stay."""
        runs = [(run_entry(intact_run(document), document), document) for document in documents]
        self._add(runs, self._note_copied)

    def revision(self, project: str) -> str:
        """The number of changes in the audit log, which has one of every write."""
        query = sa.select(sa.func.count().label("changes")).where(AUDIT.c.project == project)
        return next((str(row["changes"]) for row in self._read(query) if row["changes"]), "")

    def runs(self, project: str, *, limit: int | None = None, before: StoredRun | None = None) -> list[StoredRun]:
        """The runs of a project, newest session first; with ``before`` those that follow it in this order."""
        query = sa.select(*LISTED).where(RUNS.c.project == project).order_by(RUNS.c.started.desc(), RUNS.c.id)
        if before is not None:
            start = moment(before.started_at).timestamp()
            query = query.where(RUNS.c.started <= start, sa.or_(RUNS.c.started < start, RUNS.c.id > before.id))
        return [stored_run(row) for row in self._read(query.limit(limit))]

    def find(self, project: str, run_id: str) -> StoredRun | None:
        return next((stored_run(row) for row in self._read(_BY_ID, {"id": run_id, "project": project})), None)

    def damaged(self, project: str) -> list[str]:  # noqa: ARG002 - the same for all
        """Empty: SQLite refuses a damaged file as a whole, and ``show`` refuses a modified document."""
        return []

    def show(self, run_id: str) -> RunDocument:
        # By its range of ids, for which every database uses the index.
        first = run_id.lower()
        rows = self._read(_BY_DIGITS, {"first": first, "after": first + _AFTER_DIGITS}) if run_id else []
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
        query = _WITH_DOCUMENT.where(RUNS.c.id.in_([run.id for run in runs]))
        stored = {row["id"]: row["document"] for row in self._read(query)}
        return [self._document(run.id, run.recorded_at, stored.get(run.id)) for run in runs]

    def entries(self, runs: Sequence[StoredRun]) -> list[RunEntry]:
        is_wanted = RUNS.c.id.in_([run.id for run in runs])
        names = [column for column in SERIES.c if column.name in StoredValue.__struct_fields__]
        query = sa.select(RUNS.c.id, *names, VALUES.c.value).join_from(VALUES, RUNS).join(SERIES).where(is_wanted)
        values: dict[str, list[StoredValue]] = {}
        for row in self._read(query):
            value = StoredValue(**{name: row[name] for name in StoredValue.__struct_fields__})
            values.setdefault(row["id"], []).append(value)
        stored: sa.Select[Any] = sa.select(RUNS.c.id, CONDITIONS.c.conditions).join_from(CONDITIONS, RUNS)
        of_runs = self._read(stored.where(is_wanted))
        conditions = {row["id"]: self._read_conditions(row["id"], row["conditions"]) for row in of_runs}
        entries = {
            row["id"]: RunEntry(
                run=stored_run(row),
                started=row["started"],
                values=values.get(row["id"], []),
                conditions=conditions.get(row["id"], []),
            )
            for row in self._read(sa.select(*LISTED).where(is_wanted))
        }
        return [entries[run.id] for run in runs if run.id in entries]

    def projects(self) -> list[str]:
        """One look at the index for each of them: to read the project of every run would take as long as they are many."""
        name = sa.select(sa.func.min(RUNS.c.project).label("project")).cte("names", recursive=True)
        following = sa.select(sa.func.min(RUNS.c.project)).where(RUNS.c.project > name.c.project).scalar_subquery()
        names = name.union_all(sa.select(following).where(name.c.project.is_not(None)))
        query = sa.select(names.c.project).where(names.c.project.is_not(None)).order_by(names.c.project)
        return [row["project"] for row in self._read(query)]

    def history(
        self,
        project: str,
        workload: str,
        fingerprint: str,
        metric: str,
        shape: str,
        *,
        labels: Mapping[str, str] | None = None,
        newest: int | None = None,
    ) -> list[HistoryValue]:
        """One metric of a series, oldest session first; ``labels`` are those beside the shape (e.g. batch)."""
        place = {
            "project": project,
            "fingerprint": fingerprint,
            "workload": workload,
            "shape": shape,
            "metric": metric,
            "labels": labels_text(labels or {}),
        }
        query, values = (_HISTORY, place) if newest is None else (_NEWEST, {**place, "newest": newest})
        with self._database.reading() as connection:
            rows = connection.execute(query, values).all() if connection is not None else []
        # A year of main is thousands of values in dozens of series, so the columns are taken by their place.
        return [
            HistoryValue(run_id=run_id, session=session, commit=commit, started_at=started_at, value=value)
            for run_id, session, commit, started_at, value in reversed(rows)
        ]

    def recent(self, project: str, places: Sequence[SeriesPlace], *, newest: int) -> RecentValues:
        """The values of the newest sessions in each of several series of one testbed, in the order of ``places``."""
        with self._database.reading() as connection:
            if connection is None or not places:
                return RecentValues(runs=[], values=[[] for _ in places])
            return read_recent(connection, project, places, newest=newest, decode=self._read_conditions)

    def series(self, project: str) -> list[Series]:
        names = (SERIES.c.workload, SERIES.c.shape, SERIES.c.metric, SERIES.c.labels, SERIES.c.fingerprint)
        counted = (
            sa.select(VALUES.c.series, sa.func.count().label("runs"))
            .join_from(VALUES, SERIES)
            .where(SERIES.c.project == project)
            .group_by(VALUES.c.series)
            .subquery()
        )
        query = (
            sa.select(*names, SERIES.c.device_kind, counted.c.runs)
            .join_from(SERIES, counted, SERIES.c.number == counted.c.series)
            .order_by(*names)
        )
        return [
            Series(**{**row, "labels": json.loads(row["labels"]) if row["labels"] else {}}) for row in self._read(query)
        ]

    def append(self, project: str, statements: Sequence[Statement]) -> None:
        """Store statements of one kind in one write; each replaces an earlier one with the same key."""
        with self._database.writing() as connection:
            for statement in statements:
                table = METADATA.tables[statement_name(type(statement))]
                self._replace(connection, table, {"project": project, **msgspec.structs.asdict(statement)})
                self._ledger.note(connection, self._actor, _NOTED[type(statement)], project, statement.subject)

    def statements(self, project: str, kind: type[Statement]) -> list[Statement]:
        """The statements of a kind about a project, newest first."""
        table = METADATA.tables[statement_name(kind)]
        rows = self._read(sa.select(table).where(table.c.project == project).order_by(*table.primary_key))
        by_key = [kind(**{name: row[name] for name in kind.__struct_fields__}) for row in rows]
        return sorted(by_key, key=lambda statement: statement.stated_at, reverse=True)

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

    def clock_ahead(self) -> timedelta:
        """Zero: the time of recording is this machine's."""
        return timedelta()

    def acting_as(self, actor: str) -> SqlStore:
        """The same store, with ``actor`` as the writer in its audit log."""
        store = copy(self)
        store._actor = actor
        return store

    def _packed(
        self, run: RunDocument, allow_dirty: bool, data: bytes | None = None
    ) -> tuple[RunEntry, StoredDocument]:
        refuse_unfit(run, allow_dirty=allow_dirty, now=self._clock())
        document = pack_document(run, self._clock(), data)
        return run_entry(run, document), document

    def _add(self, runs: Sequence[tuple[RunEntry, StoredDocument]], note: NoteRuns) -> list[str]:
        """Insert runs that are not there, note them in the audit log, and return their ids.

        They are inserted in one order: two writers of the same ones never wait for each other in a circle.
        """
        new: dict[str, StoredRun] = {}
        # Not within the transaction, for which all other writers wait.
        packed = {document.id: zlib.compress(document.data) for _, document in runs}
        entries = sorted((entry for entry, _ in runs), key=lambda entry: (entry.run.project, entry.run.session))

        def insert(connection: sa.Connection) -> None:
            new.clear()
            for entry in entries:
                if insert_run(connection, self._database, entry, packed[entry.run.id]):
                    new[entry.run.id] = entry.run
            note(connection, list(new.values()))

        if runs:
            self._database.write(insert)
        return [document.id for _, document in runs if document.id in new]

    def _note_recorded(self, connection: sa.Connection, runs: Sequence[StoredRun]) -> None:
        for run in runs:
            self._ledger.note(connection, self._actor, "run recorded", run.project, run.id)

    def _note_copied(self, connection: sa.Connection, runs: Sequence[StoredRun]) -> None:
        """One entry for all runs of a project: the audit history of their own store says who recorded each."""
        for project, count in Counter(run.project for run in runs).items():
            self._ledger.note(connection, self._actor, "runs copied", project, str(count))

    def _replace(self, connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
        """Insert a row, or overwrite the one with the same key."""
        insert = self._database.insert(table).values(row)
        rest = {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}
        connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=rest))

    def _read_conditions(self, run_id: str, text: str) -> list[StepConditions]:
        try:
            return _CONDITIONS.decode(text)
        except msgspec.DecodeError as error:
            raise StoreError(
                "{name} has conditions that cannot be read ({error}); {remedy}",
                name=self._name_of(run_id),
                error=error,
                remedy=self._database.restore,
            ) from error

    def _name_of(self, run_id: str) -> str:
        return f"{self._database.name}: run {run_id[:12]}"

    def _document(self, run_id: str, recorded_at: str, stored: bytes | None) -> StoredDocument:
        data, fault = b"", ""
        try:
            data = zlib.decompressobj().decompress(stored or b"", MAX_BYTES + 1)
        except zlib.error as error:
            fault = f"{self._name_of(run_id)} cannot be read ({error}); {self._database.restore}"
        return StoredDocument(id=run_id, recorded_at=recorded_at, data=data, fault=fault)

    def _read(self, query: sa.Select[Any], values: Mapping[str, object] | None = None) -> list[sa.RowMapping]:
        with self._database.reading() as connection:
            return list(connection.execute(query, values).mappings()) if connection is not None else []


_BY_ID = sa.select(*LISTED).where(RUNS.c.id == sa.bindparam("id"), RUNS.c.project == sa.bindparam("project"))
_WITH_DOCUMENT = sa.select(RUNS.c.id, DOCUMENTS.c.document).join_from(RUNS, DOCUMENTS, isouter=True)
_BY_DIGITS = _WITH_DOCUMENT.where(RUNS.c.id >= sa.bindparam("first"), RUNS.c.id < sa.bindparam("after")).limit(2)
# Built once: a look at a project over time asks for every one of its series.
_HISTORY = (
    sa.select(RUNS.c.id, RUNS.c.session, RUNS.c.commit_id, RUNS.c.started_at, VALUES.c.value)
    .join_from(VALUES, RUNS)
    .where(
        VALUES.c.series
        == sa.select(SERIES.c.number)
        .where(
            *(
                SERIES.c[name] == sa.bindparam(name)
                for name in ("project", "fingerprint", "workload", "shape", "metric", "labels")
            )
        )
        .scalar_subquery()
    )
    .order_by(VALUES.c.started.desc(), VALUES.c.run.desc())
)
_NEWEST = _HISTORY.limit(sa.bindparam("newest"))
_CONDITIONS = msgspec.json.Decoder(list[StepConditions])
# Sorts behind every hexadecimal digit.
_AFTER_DIGITS = "g"
