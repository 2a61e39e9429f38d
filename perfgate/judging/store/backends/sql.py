"""The store in SQLite, through SQLAlchemy Core: one file, safe under several processes at once."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from perfgate.document.conditions import StepConditions, conditions_of
from perfgate.document.files import canonical_bytes
from perfgate.document.history import Acceptance, Confirmation, StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import StoreError
from perfgate.judging.store.sqlite import (
    ACCEPTANCES,
    CONDITIONS,
    CONFIRMATIONS,
    RESTORE,
    RUNS,
    VALUES,
    clear_errors,
    create_file,
    create_tables,
    has_tables,
    open_engine,
    open_read_only,
    write_ahead,
)
from perfgate.judging.store.store import (
    HistoryValue,
    Series,
    StorePlace,
    kept_already,
    labels_text,
    recorded_document,
    refuse_unfit,
    run_row,
    value_rows,
)

_PREFIX = "sqlite:///"


def accepts(location: str) -> bool:
    return location.startswith(_PREFIX) or "://" not in location


def open_backend(location: str, place: StorePlace) -> SqlStore:  # noqa: ARG001 - a file needs no context
    """The store at a location; nothing is opened before its first use."""
    path = location.removeprefix(_PREFIX)
    try:
        return SqlStore(Path(path).expanduser())
    except RuntimeError as error:  # ~ of an unknown user
        raise StoreError(f"the store {path!a} cannot be found: {error}; give a path without ~") from error


def _now() -> datetime:
    return datetime.now(timezone.utc)


class SqlStore:
    """The Store in one SQLite file. It holds no connection between calls, so it survives a fork."""

    def __init__(self, path: Path, *, clock: Callable[[], datetime] = _now) -> None:
        self._path = path
        self._clock = clock
        self._engine = open_engine(path)

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""
        return self.record_all([run], allow_dirty=allow_dirty)[0]

    def record_all(self, runs: Iterable[RunDocument], *, allow_dirty: bool = False) -> list[str]:
        """Store several runs in one write, all or none, and return their ids. Raises StoreError for an unfit one."""
        rows = [self._rows(run, allow_dirty=allow_dirty) for run in runs]
        if not rows:
            return []
        with self._writing() as connection:
            for row, values, conditions in rows:
                same = sa.select(RUNS.c.id).where(RUNS.c.project == row["project"], RUNS.c.session == row["session"])
                there = connection.execute(same).scalar()
                if there is not None and there != row["id"]:
                    raise kept_already(row["session"], there)
                if there is None:
                    connection.execute(RUNS.insert().values(row))
                    for table, rows_of_run in ((VALUES, values), (CONDITIONS, conditions)):
                        if rows_of_run:
                            connection.execute(table.insert(), rows_of_run)
        return [row["id"] for row, *_ in rows]

    def runs(self, project: str, *, limit: int | None = None) -> list[StoredRun]:
        columns = [column for column in RUNS.c if column is not RUNS.c.document]
        query = sa.select(*columns).where(RUNS.c.project == project).order_by(RUNS.c.started.desc(), RUNS.c.id)
        return [_stored_run(row) for row in self._read(query.limit(limit))]

    def damaged(self, project: str) -> list[str]:  # noqa: ARG002 - the same for all
        """Empty: SQLite refuses a damaged file as a whole, and ``show`` refuses a modified document."""
        return []

    def show(self, run_id: str) -> RunDocument:
        query = sa.select(RUNS.c.id, RUNS.c.document).where(RUNS.c.id.startswith(run_id.lower(), autoescape=True))
        rows = self._read(query.limit(2)) if run_id else []
        if not rows:
            raise StoreError(f"{self._path} holds no run {run_id!a}; `perfgate baseline list` shows what there is")
        if len(rows) > 1:
            raise StoreError(f"{self._path} holds several runs that begin with {run_id!a}; give more of the id")
        return self._document(rows[0]["id"], rows[0]["document"])

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
        conditions: dict[str, list[StepConditions]] = {}
        for row in self._read(query):
            conditions.setdefault(row["run_id"], []).append(
                StepConditions(**{name: row[name] for name in StepConditions.__struct_fields__})
            )
        return conditions

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
        row = {"project": project, **msgspec.structs.asdict(confirmation)}
        same = [column == row[column.name] for column in CONFIRMATIONS.primary_key]
        with self._writing() as connection:
            connection.execute(CONFIRMATIONS.delete().where(*same))
            connection.execute(CONFIRMATIONS.insert().values(row))

    def confirmations(self, project: str) -> list[Confirmation]:
        table = CONFIRMATIONS.c
        query = sa.select(CONFIRMATIONS).where(table.project == project)
        rows = self._read(query.order_by(table.confirmed_at.desc(), *CONFIRMATIONS.primary_key))
        return [Confirmation(**{name: row[name] for name in Confirmation.__struct_fields__}) for row in rows]

    def accept(self, project: str, acceptance: Acceptance) -> None:
        """Store the acceptance of a regression; it replaces that of the same commit and metric."""
        table = ACCEPTANCES.c
        same = (table.project == project, table.commit == acceptance.commit, table.metric == acceptance.metric)
        with self._writing() as connection:
            connection.execute(ACCEPTANCES.delete().where(*same))
            connection.execute(ACCEPTANCES.insert().values(project=project, **msgspec.structs.asdict(acceptance)))

    def accepted(self, project: str, *, commit: str | None = None) -> list[Acceptance]:
        table = ACCEPTANCES.c
        query = sa.select(ACCEPTANCES).where(table.project == project)
        query = query if commit is None else query.where(table.commit == commit)
        rows = self._read(query.order_by(table.accepted_at.desc(), table.commit, table.metric))
        return [Acceptance(**{name: row[name] for name in Acceptance.__struct_fields__}) for row in rows]

    def prune(self, project: str, *, keep: int) -> int:
        """Remove all but the newest ``keep`` runs of each testbed of a project; return how many were removed."""
        if keep < 0:
            raise StoreError(f"the number of runs to keep must be 0 or more, found {keep}")
        if not self._is_there():
            return 0
        newest = sa.func.row_number().over(partition_by=RUNS.c.fingerprint, order_by=[RUNS.c.started.desc(), RUNS.c.id])
        ranked = sa.select(RUNS.c.id, newest.label("rank")).where(RUNS.c.project == project).subquery()
        old = sa.select(ranked.c.id).where(ranked.c.rank > keep)
        with self._writing() as connection:
            return connection.execute(RUNS.delete().where(RUNS.c.id.in_(old))).rowcount

    def _rows(
        self, run: RunDocument, *, allow_dirty: bool
    ) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows of a run in the tables of runs, values and conditions."""
        refuse_unfit(run, allow_dirty=allow_dirty, now=self._clock())
        data = canonical_bytes(run, name="the run")
        run_id = hashlib.sha256(data).hexdigest()
        row = {**run_row(run), "id": run_id, "document": zlib.compress(data), "recorded_at": self._clock().isoformat()}
        values = [{"run_id": run_id, **value} for value in value_rows(run)]
        conditions = [{"run_id": run_id, **msgspec.structs.asdict(entry)} for entry in conditions_of(run)]
        return row, values, conditions

    def _document(self, run_id: str, stored: bytes) -> RunDocument:
        name = f"{self._path}: run {run_id[:12]}"
        try:
            data = zlib.decompressobj().decompress(stored, MAX_BYTES + 1)
        except zlib.error as error:
            raise StoreError(f"{name} cannot be read ({error}); {RESTORE}") from error
        return recorded_document(data, run_id, name=name, remedy=RESTORE)

    def _read(self, query: sa.Select[Any]) -> list[sa.RowMapping]:
        if not self._is_there():
            return []
        writable = os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK)
        engine = self._engine if writable else open_read_only(self._path)
        with clear_errors(self._path), engine.connect() as connection:
            there = has_tables(connection, str(self._path))
            return list(connection.execute(query).mappings()) if there else []

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction as its only writer."""
        is_there = self._is_there()
        with clear_errors(self._path):
            if not is_there:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                create_file(self._path)
            with self._engine.connect() as connection:
                is_empty = not has_tables(connection, str(self._path))
            if is_empty:
                write_ahead(self._engine)
            with self._engine.connect().execution_options(immediate=True) as connection, connection.begin():
                # Another process may have created them since.
                if is_empty and not has_tables(connection, str(self._path)):
                    create_tables(connection)
                yield connection

    def _is_there(self) -> bool:
        with clear_errors(self._path):
            is_folder, is_there = self._path.is_dir(), self._path.exists()
            is_empty = self._path.is_file() and not self._path.stat().st_size
        if is_folder:
            raise StoreError(f"the store {self._path} is a folder; name a file in it, e.g. {self._path / 'store.db'}")
        if is_empty:
            raise StoreError(
                f"the store {self._path} is a file of 0 bytes, which perfgate never leaves: what was in it is gone; bring "
                "back a copy of it, or remove the file to begin a new store"
            )
        return is_there


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
