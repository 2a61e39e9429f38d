"""The tables of a store in SQL, the one truth of them, and the version that a store says it has."""

from __future__ import annotations

import sqlalchemy as sa

from perfgate.errors import StoreError

# Texts sort by their code points, as in the other stores, whatever the locale of the server.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

METADATA = sa.MetaData()

# Other tables refer to a run by its number, because there are many rows for each run.
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("id", TEXT, nullable=False, unique=True),
    sa.Column("project", TEXT, nullable=False),
    sa.Column("session", TEXT, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("started_at", TEXT, nullable=False),
    sa.Column("recorded_at", TEXT, nullable=False),
    sa.Column("fingerprint", TEXT, nullable=False),
    sa.Column("device_kind", TEXT, nullable=False),
    sa.Column("commit_id", TEXT),
    sa.Column("branch", TEXT),
    sa.Column("subject", TEXT),
    sa.Column("dirty", sa.Boolean, nullable=False),
    sa.Column("workloads", TEXT, nullable=False),
    sa.UniqueConstraint("project", "session"),
    sa.Index("runs_by_start", "project", "started"),
    sa.Index("runs_by_testbed", "project", "fingerprint", "started"),
    sqlite_autoincrement=True,
)

# Apart from the runs: their lists would otherwise be spread over the pages of all documents.
DOCUMENTS = sa.Table(
    "run_documents",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.number, ondelete="CASCADE"), primary_key=True, autoincrement=False),
    sa.Column("document", sa.LargeBinary, nullable=False),
)

SERIES = sa.Table(
    "series",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("project", TEXT, nullable=False),
    sa.Column("fingerprint", TEXT, nullable=False),
    sa.Column("workload", TEXT, nullable=False),
    sa.Column("shape", TEXT, nullable=False),
    sa.Column("metric", TEXT, nullable=False),
    sa.Column("labels", TEXT, nullable=False),
    sa.Column("device_kind", TEXT, nullable=False),
    sa.UniqueConstraint("project", "fingerprint", "workload", "shape", "metric", "labels"),
)

# A history is one stretch of the primary key, in SQLite of the table itself.
VALUES = sa.Table(
    "run_values",
    METADATA,
    sa.Column("series", sa.ForeignKey(SERIES.c.number), primary_key=True, autoincrement=False),
    sa.Column("started", sa.Float, primary_key=True),
    sa.Column("run", sa.ForeignKey(RUNS.c.number, ondelete="CASCADE"), primary_key=True, autoincrement=False),
    sa.Column("value", sa.Float, nullable=False),
    sa.Index("run_values_by_run", "run"),
    sqlite_with_rowid=False,
)

# The conditions of all steps of a run, as JSON: they are only read together.
CONDITIONS = sa.Table(
    "run_conditions",
    METADATA,
    sa.Column("run", sa.ForeignKey(RUNS.c.number, ondelete="CASCADE"), primary_key=True, autoincrement=False),
    sa.Column("conditions", TEXT, nullable=False),
)

ACCEPTANCES = sa.Table(
    "acceptances",
    METADATA,
    sa.Column("project", TEXT, primary_key=True),
    sa.Column("commit", TEXT, primary_key=True),
    sa.Column("metric", TEXT, primary_key=True),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("accepted_by", TEXT, nullable=False),
    sa.Column("accepted_at", TEXT, nullable=False),
    sa.Column("until", TEXT),
)

TRIAGES = sa.Table(
    "triages",
    METADATA,
    sa.Column("project", TEXT, primary_key=True),
    sa.Column("commit", TEXT, primary_key=True),
    sa.Column("state", TEXT, nullable=False),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("author", TEXT, nullable=False),
    sa.Column("changed_at", TEXT, nullable=False),
)

CONFIRMATIONS = sa.Table(
    "confirmations",
    METADATA,
    sa.Column("project", TEXT, primary_key=True),
    sa.Column("before", TEXT, primary_key=True),
    sa.Column("after", TEXT, primary_key=True),
    sa.Column("workload", TEXT, primary_key=True),
    sa.Column("shape", TEXT, primary_key=True),
    sa.Column("metric", TEXT, primary_key=True),
    sa.Column("fingerprint", TEXT, primary_key=True),
    sa.Column("outcome", TEXT, nullable=False),
    sa.Column("low", sa.Float),
    sa.Column("high", sa.Float),
    sa.Column("confirmed_at", TEXT, nullable=False),
)

TOKENS = sa.Table(
    "tokens",
    METADATA,
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("sha256", TEXT, nullable=False, unique=True),
    sa.Column("name", TEXT, nullable=False),
    sa.Column("project", TEXT),
    sa.Column("scope", TEXT, nullable=False),
    sa.Column("created_at", TEXT, nullable=False),
    sa.Column("revoked_at", TEXT),
)

AUDIT = sa.Table(
    "audit",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("at", TEXT, nullable=False),
    sa.Column("actor", TEXT, nullable=False),
    sa.Column("action", TEXT, nullable=False),
    sa.Column("project", TEXT, nullable=False),
    sa.Column("subject", TEXT, nullable=False),
    sa.Index("audit_by_project", "project", "number"),
)

GATES = sa.Table(
    "gates",
    METADATA,
    sa.Column("project", TEXT, primary_key=True),
    sa.Column("gate", TEXT, primary_key=True),
    sa.Column("commit", TEXT, primary_key=True),
    sa.Column("testbed", TEXT, primary_key=True),
    sa.Column("change", sa.BigInteger, nullable=False),
    sa.Column("verdict", TEXT, nullable=False),
    sa.Column("judged_at", TEXT, nullable=False),
    sa.Column("link", TEXT, nullable=False),
)

# Version of the tables above, and of the newest script in migrations/. After a release, a change of the tables needs a new
# version and a script that brings old stores to it.
STORE_VERSION = 1
# Alembic's own table of the version (alembic/runtime/migration.py), under a name of our own. It is no part of the
# metadata: Alembic compares that with everything else in the database.
VERSION = sa.Table("perfgate_store", sa.MetaData(), sa.Column("version_num", sa.String(32), nullable=False))
VERSION.append_constraint(sa.PrimaryKeyConstraint("version_num", name=f"{VERSION.name}_pkc"))
# As a text, because it is sent before every other query, and SQLAlchemy takes longer over a statement than SQLite.
_VERSION_OF_STORE = f"SELECT version_num FROM {VERSION.name}"  # noqa: S608 - our own name


def prepare_tables(connection: sa.Connection, place: str) -> None:
    """Create the tables, or bring those of an older perfgate up to date, within the transaction of the only writer."""
    version = stored_version(connection, place)
    if version is None:
        METADATA.create_all(connection)
        VERSION.create(connection)
        connection.execute(VERSION.insert().values(version_num=str(STORE_VERSION)))
    elif version < STORE_VERSION:
        from perfgate.judging.store.migration import migrate  # Alembic, which a store of this version does not need

        migrate(connection, place)


def is_current(connection: sa.Connection) -> bool:
    """Whether tables that were there before are still of this version, by one short query."""
    return connection.exec_driver_sql(_VERSION_OF_STORE).scalar() == str(STORE_VERSION)


def has_tables(connection: sa.Connection, place: str) -> bool:
    """Whether the tables exist; False for an empty database. Raises StoreError for tables of an older version."""
    version = stored_version(connection, place)
    if version is not None and version < STORE_VERSION:
        raise StoreError(
            "{place} was written by an older perfgate (store version {version}, this one knows {known}); the next "
            "`perfgate baseline record` brings it up to date",
            place=place,
            version=version,
            known=STORE_VERSION,
        )
    return version is not None


def stored_version(connection: sa.Connection, place: str) -> int | None:
    """The version of the tables; None for an empty database.

    Raises StoreError for a newer version, for tables of something else, and for those of a perfgate before its first release.
    """
    inspector = sa.inspect(connection)
    names = inspector.get_table_names()  # in one query, so that a concurrent creation shows all or none
    if VERSION.name not in names:
        if names:
            raise StoreError(
                "{place} is a database of something else (it holds {name!a}); choose another one",
                place=place,
                name=names[0],
            )
        return None
    missing = METADATA.tables.keys() - set(names)
    if missing and all(column["name"] != VERSION.c.version_num.name for column in inspector.get_columns(VERSION.name)):
        raise _unreleased(place)
    version = int(connection.execute(sa.select(VERSION.c.version_num)).scalar() or 0)
    if missing and version == STORE_VERSION:
        raise _unreleased(place)
    if version > STORE_VERSION:
        raise StoreError(
            "{place} was written by a newer perfgate (store version {version}, this one knows {known}); upgrade perfgate",
            place=place,
            version=version,
            known=STORE_VERSION,
        )
    return version


def _unreleased(place: str) -> StoreError:
    return StoreError(
        "{place} was written by a commit of perfgate before its first release, which this one does not read; choose another "
        "place, or move it away to start a new store",
        place=place,
    )
