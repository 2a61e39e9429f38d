"""The tables of the SQL store, their version, and the steps that bring an older store up to it."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from perfgate.errors import StoreError

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

Migration = Callable[[sa.Connection], None]


def _first_tables(connection: sa.Connection) -> None:
    METADATA.create_all(connection, tables=[VERSION, RUNS, VALUES])


def _add_acceptances(connection: sa.Connection) -> None:
    METADATA.create_all(connection, tables=[ACCEPTANCES])


def _add_confirmations(connection: sa.Connection) -> None:
    METADATA.create_all(connection, tables=[CONFIRMATIONS])


# MIGRATIONS[n] makes a store of version n one of version n + 1. Version 0 is the empty database. A new table adds a step
# here; a step never changes, so the first change of a table's columns gives the steps a frozen copy of what they create.
MIGRATIONS: tuple[Migration, ...] = (_first_tables, _add_acceptances, _add_confirmations)


def migrate(connection: sa.Connection, place: str, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the tables up to date in the transaction of ``connection``. Raises StoreError for another's database."""
    version = store_version(connection, place, newest=len(migrations))
    for migration in migrations[version:]:
        migration(connection)
    if version < len(migrations):
        connection.execute(VERSION.delete())
        connection.execute(VERSION.insert().values(version=len(migrations)))


def store_version(connection: sa.Connection, place: str, *, newest: int = len(MIGRATIONS)) -> int:
    """The version of the tables, 0 for an empty database. Raises StoreError for a newer or a foreign one."""
    names = sa.inspect(connection).get_table_names()
    if VERSION.name not in names:
        if names:
            raise StoreError(f"{place} is a database of something else (it holds {names[0]!a}); choose another path")
        return 0
    version = int(connection.execute(sa.select(VERSION.c.version)).scalar() or 0)
    if version > newest:
        raise StoreError(
            f"{place} was written by a newer perfgate (store version {version}, this one knows {newest}); "
            "upgrade perfgate"
        )
    return version
