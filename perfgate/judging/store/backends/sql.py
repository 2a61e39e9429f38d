"""The store in SQL, through SQLAlchemy Core: a SQLite file or a PostgreSQL database,
with the same tables and statements.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from perfgate.document.history import Acceptance, Confirmation, GateRecord, Triage
from perfgate.document.isal import isal_module
from perfgate.document.strict_json import MAX_BYTES
from perfgate.errors import StoreError
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.ledger import RECENT, AuditAction, Ledger
from perfgate.judging.store.postgres import PREFIXES, PostgresDatabase
from perfgate.judging.store.sqlite import SqliteFile
from perfgate.judging.store.store import (
    ALL_RUNS,
    COPIER,
    FILE_URL,
    LOCAL,
    NO_DOCUMENTS,
    Entry,
    LogEntry,
    Page,
    RunEntry,
    Statement,
    StoredDocument,
    StoredProjects,
    StorePlace,
    entry_name,
    kept_already,
    newest_first,
    revision_text,
    the_only_run,
    unknown_run,
    utc_now,
)
from perfgate.judging.store.tables import AUDIT, DOCUMENTS, LOG

_RUNS = entry_name(RunEntry)
_NOTED: Mapping[type[LogEntry], AuditAction] = {
    RunEntry: "run recorded",
    Acceptance: "regression accepted",
    Triage: "regression triaged",
    Confirmation: "change confirmed",
    GateRecord: "verdict kept",
}
_KEY = ("project", "kind", "key")
# Databases take some thousand values in one statement.
_AT_ONCE = 500
# Of zlib: half the time of its default for a tenth more bytes; of ISA-L a sixth of
# that, for fewer.
_LEVEL = 3
# Sorts behind every hexadecimal digit.
_AFTER_DIGITS = "g"


def accepts(location: str) -> bool:
    return location.startswith((FILE_URL, *PREFIXES)) or "://" not in location


def open_backend(location: str, place: StorePlace) -> SqlStore:
    """The store at a location, opened on first use."""
    if location.startswith(PREFIXES):
        return SqlStore(PostgresDatabase(location))
    path = location.removeprefix(FILE_URL)
    try:
        return SqlStore(
            SqliteFile(Path(path).expanduser(), keeps_connections=place.is_served)
        )
    except RuntimeError as error:  # ~ of an unknown user
        raise StoreError(
            "the store {path!a} cannot be found: {error}; give a path without ~",
            path=path,
            error=error,
        ) from error


class SqlStore:
    """The Store in a database; a path names a SQLite file."""

    def __init__(
        self, place: StoreDatabase | Path, *, clock: Callable[[], datetime] = utc_now
    ) -> None:
        if isinstance(place, Path):
            place = SqliteFile(place)
        self._database = place
        self._ledger = Ledger(self._database, clock)
        # Built once: SQLAlchemy takes longer to build a statement than SQLite to
        # execute it. Without the option it forgets the number of rows
        # ("preserve_rowcount", since 2.0.28).
        absent = self._database.insert(LOG).on_conflict_do_nothing()
        self._insert_absent = absent.execution_options(preserve_rowcount=True)
        replacing = self._database.insert(LOG)
        self._replace = replacing.on_conflict_do_update(
            index_elements=_KEY, set_={LOG.c.entry.name: replacing.excluded.entry}
        )

    def append(
        self,
        project: str,
        entries: Sequence[LogEntry],
        documents: Mapping[str, bytes] = NO_DOCUMENTS,
        *,
        actor: str = LOCAL,
    ) -> list[str]:
        """Add entries in one write, all or none, and note them in the audit log; return
        the ids of the new runs.
        """
        # Not within the transaction, for which all other writers wait.
        packer = isal_module("isal_zlib") or zlib
        packed = {
            run_id: packer.compress(data, _LEVEL) for run_id, data in documents.items()
        }
        # In a fixed order, so that two writers of the same runs cannot deadlock.
        ordered = sorted(
            entries, key=lambda entry: (entry_name(type(entry)), entry.key)
        )
        new: set[str] = set()

        def insert(connection: sa.Connection) -> None:
            new.clear()
            for entry in ordered:
                if not isinstance(entry, RunEntry):
                    connection.execute(self._replace, _row(project, entry))
                    self._ledger.note(
                        connection, actor, _NOTED[type(entry)], project, entry.subject
                    )
                elif self._insert_run(connection, project, entry, packed[entry.run.id]):
                    new.add(entry.run.id)
                    if actor != COPIER:
                        self._ledger.note(
                            connection, actor, _NOTED[RunEntry], project, entry.run.id
                        )
            # A single entry, because the audit history of the source names the writer
            # of each run.
            if actor == COPIER and new:
                self._ledger.note(
                    connection, actor, "runs copied", project, str(len(new))
                )

        if entries:
            self._database.write(insert)
        return [run_id for run_id in documents if run_id in new]

    def entries(
        self, project: str, kind: type[Entry], page: Page = ALL_RUNS
    ) -> list[Entry]:
        """The entries of a kind, newest first; ``page`` selects runs."""
        query = sa.select(LOG.c.entry, LOG.c.run).where(
            LOG.c.project == project, LOG.c.kind == entry_name(kind)
        )
        if kind is RunEntry:
            query = self._paged(query, project, page)
        decoder = msgspec.json.Decoder(kind)
        entries: list[Entry] = []
        for row in self._read(query):
            try:
                entries.append(decoder.decode(row["entry"]))
            except msgspec.DecodeError as error:
                raise StoreError(
                    "{name} has an entry that cannot be read ({error}); {remedy}",
                    name=self._name_of(row["run"])
                    if row["run"]
                    else self._database.name,
                    error=error,
                    remedy=self._database.restore,
                ) from error
        if kind is RunEntry:
            return entries
        return newest_first(entries)

    def documents(self, project: str, run_ids: Sequence[str]) -> list[StoredDocument]:
        """The documents of runs as they were recorded, by their ids or the beginnings
        of these.
        """
        documents: list[StoredDocument] = []
        with self._database.reading() as connection:
            for run_id in run_ids:
                rows: Sequence[sa.RowMapping] = []
                if connection is not None:
                    # By its range of ids, for which every database uses the index.
                    first = run_id.lower()
                    place = {
                        "project": project,
                        "first": first,
                        "after": first + _AFTER_DIGITS,
                    }
                    rows = connection.execute(_BY_DIGITS, place).mappings().all()
                the_only_run(
                    [row["run"] for row in rows], run_id, name=self._database.name
                )
                documents.append(self._document(rows[0]))
        return documents

    def remove(
        self, project: str, run_ids: Sequence[str], *, actor: str = LOCAL
    ) -> int:
        """Remove runs with their documents; return how many were there."""
        if not run_ids:  # nor is a store created
            return 0
        removed = 0
        with self._database.writing() as connection:
            for start in range(0, len(run_ids), _AT_ONCE):
                some = LOG.c.run.in_(run_ids[start : start + _AT_ONCE])
                removed += connection.execute(
                    LOG.delete().where(LOG.c.project == project, some)
                ).rowcount
            if removed:
                # A single run is named; of several, their number.
                subject = run_ids[0] if removed == len(run_ids) == 1 else str(removed)
                self._ledger.note(connection, actor, "runs pruned", project, subject)
        return removed

    def projects(self) -> list[str]:
        return self._projects(LOG.c.started.is_not(None))

    def stored_projects(self) -> StoredProjects:
        return StoredProjects(self._projects(sa.true()))

    def _projects(self, is_counted: sa.ColumnElement[bool]) -> list[str]:
        """The projects with such an entry: one look at the index for each, because
        reading the project of every run would take long.
        """
        name = (
            sa.select(sa.func.min(LOG.c.project).label("project"))
            .where(is_counted)
            .cte("names", recursive=True)
        )
        following = sa.select(sa.func.min(LOG.c.project)).where(
            LOG.c.project > name.c.project, is_counted
        )
        names = name.union_all(
            sa.select(following.scalar_subquery()).where(name.c.project.is_not(None))
        )
        query = (
            sa.select(names.c.project)
            .where(names.c.project.is_not(None))
            .order_by(names.c.project)
        )
        return [row["project"] for row in self._read(query)]

    def revision(self, project: str) -> str:
        """The number of the runs, and the newest entries of the audit log, which has
        one for every write.

        The newest number alone is not enough: of two transactions of PostgreSQL, the
        one with the lower number may end later, and a store that was restored or begun
        anew counts again. Its entries are of another time.
        """
        runs = (
            sa.select(sa.func.count(LOG.c.run))
            .where(LOG.c.project == project)
            .scalar_subquery()
        )
        newest = (
            sa.select(sa.func.max(AUDIT.c.number))
            .where(AUDIT.c.project == project)
            .scalar_subquery()
        )
        # All of them would be a million after years.
        recent = (
            sa.select(sa.func.count())
            .where(AUDIT.c.project == project, AUDIT.c.number > newest - RECENT)
            .scalar_subquery()
        )
        at = sa.select(AUDIT.c.at).where(AUDIT.c.number == newest).scalar_subquery()
        columns = {"runs": runs, "newest": newest, "recent": recent, "at": at}
        rows = self._read(
            sa.select(*(column.label(name) for name, column in columns.items()))
        )
        if not rows:
            return ""
        changes = ""
        if rows[0]["newest"] is not None:
            changes = f"{rows[0]['newest']}.{rows[0]['recent']}.{rows[0]['at']}"
        return revision_text(rows[0]["runs"], changes)

    def damaged(self, project: str) -> list[str]:  # noqa: ARG002 - the same for all
        """Empty: SQLite refuses a damaged file as a whole, and a modified document is
        refused when it is read.
        """
        return []

    def ledger(self) -> Ledger:
        return self._ledger

    def clock_ahead(self) -> timedelta:
        """Zero: the time of recording is this machine's."""
        return timedelta()

    def _insert_run(
        self, connection: sa.Connection, project: str, entry: RunEntry, document: bytes
    ) -> bool:
        """Insert a run unless it is there; return whether it was not.

        Raises SessionKeptError.
        """
        row = _row(project, entry)
        # A writer of the same session waits here for the end of the other's
        # transaction.
        if connection.execute(self._insert_absent, row).rowcount == 1:
            connection.execute(
                _ADD_DOCUMENT, {"run": entry.run.id, "document": document}
            )
            return True
        present = connection.execute(_OF_KEY, row).scalar_one()
        if present != entry.run.id:
            raise kept_already(entry.run.session, present)
        return False

    def _paged(self, query: sa.Select[Any], project: str, page: Page) -> sa.Select[Any]:
        if page.testbed is not None:
            query = query.where(LOG.c.testbed == page.testbed)
        if page.before is not None:
            rows = self._read(
                sa.select(LOG.c.started).where(
                    LOG.c.project == project, LOG.c.run == page.before
                )
            )
            if not rows:
                raise unknown_run(page.before, name=self._database.name)
            start = rows[0]["started"]
            query = query.where(
                LOG.c.started <= start,
                sa.or_(LOG.c.started < start, LOG.c.run > page.before),
            )
        return query.order_by(LOG.c.started.desc(), LOG.c.run).limit(page.limit)

    def _document(self, row: sa.RowMapping) -> StoredDocument:
        run_id = row["run"]
        name = self._name_of(run_id)
        data, fault = b"", ""
        try:
            data = zlib.decompressobj().decompress(
                row["document"] or b"", MAX_BYTES + 1
            )
        except zlib.error as error:
            fault = f"{name} cannot be read ({error}); {self._database.restore}"
        return StoredDocument(
            id=run_id, name=name, data=data, fault=fault, remedy=self._database.restore
        )

    def _name_of(self, run_id: str) -> str:
        return f"{self._database.name}: run {run_id[:12]}"

    def _read(self, query: sa.Select[Any]) -> Sequence[sa.RowMapping]:
        with self._database.reading() as connection:
            if connection is None:
                return []
            return connection.execute(query).mappings().all()


def _row(project: str, entry: RunEntry | Statement) -> dict[str, str | float | None]:
    """The columns of an entry."""
    row: dict[str, str | float | None] = {
        "project": project,
        "kind": entry_name(type(entry)),
        "key": msgspec.json.encode(entry.key).decode(),
        "entry": msgspec.json.encode(entry).decode(),
    }
    if isinstance(entry, RunEntry):
        row |= {
            "run": entry.run.id,
            "testbed": entry.run.fingerprint,
            "started": entry.started,
        }
    return row


_ADD_DOCUMENT = DOCUMENTS.insert()
_OF_KEY = sa.select(LOG.c.run).where(
    LOG.c.project == sa.bindparam("project"),
    LOG.c.kind == sa.bindparam("kind"),
    LOG.c.key == sa.bindparam("key"),
)
_BY_DIGITS = (
    sa.select(LOG.c.run, DOCUMENTS.c.document)
    .join_from(LOG, DOCUMENTS, isouter=True)
    .where(
        LOG.c.project == sa.bindparam("project"),
        LOG.c.run >= sa.bindparam("first"),
        LOG.c.run < sa.bindparam("after"),
    )
    .limit(2)
)
