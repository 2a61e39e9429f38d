"""The tables of a store in SQL, and their version."""

from __future__ import annotations

import sqlalchemy as sa

from perfgate.errors import OlderStoreError, StoreError

# Texts sort by their code points, as in the other stores, whatever the locale of the
# server.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

METADATA = sa.MetaData()

# An entry has its key once in a project and kind. Runs are listed by their testbed,
# start and id (``run``).
LOG = sa.Table(
    "log",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("project", TEXT, nullable=False),
    sa.Column("kind", TEXT, nullable=False),
    sa.Column("key", TEXT, nullable=False),
    sa.Column("entry", TEXT, nullable=False),
    sa.Column("run", TEXT, unique=True),
    sa.Column("testbed", TEXT),
    sa.Column("started", sa.Float),
    sa.UniqueConstraint("project", "kind", "key"),
    sa.Index("log_by_run", "project", "run"),
    sa.Index("log_by_start", "project", "started"),
    sa.Index("log_by_testbed", "project", "testbed", "started"),
)

# Apart from the entries: their lists would otherwise be spread over the pages of all
# documents.
DOCUMENTS = sa.Table(
    "run_documents",
    METADATA,
    sa.Column("run", sa.ForeignKey(LOG.c.run, ondelete="CASCADE"), primary_key=True),
    sa.Column("document", sa.LargeBinary, nullable=False),
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

# Version of the tables above, and of the newest script in migrations/. After a release,
# a change of the tables needs a new version and a script that brings old stores to it.
STORE_VERSION = 1
# Alembic's own table of the version (alembic/runtime/migration.py), under a name of our
# own. It is not part of the metadata, which Alembic compares with everything else in
# the database.
VERSION = sa.Table(
    "perfgate_store",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
)
VERSION.append_constraint(
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION.name}_pkc")
)
# As a text, because it is sent before every other query, and SQLAlchemy takes longer
# over a statement than SQLite.
_VERSION_OF_STORE = f"SELECT version_num FROM {VERSION.name}"  # noqa: S608 - our own name


def prepare_tables(connection: sa.Connection, place: str) -> None:
    """Create the tables, or upgrade the tables of an older perfgate, within the
    transaction of the only writer.
    """
    version = stored_version(connection, place)
    if version is None:
        METADATA.create_all(connection)
        VERSION.create(connection)
        connection.execute(VERSION.insert().values(version_num=str(STORE_VERSION)))
    elif version < STORE_VERSION:
        from perfgate.judging.store.migration import (
            migrate,
        )  # Alembic, which a store of this version does not need

        migrate(connection, place)


def is_current(connection: sa.Connection) -> bool:
    """Whether tables that were there before are still of this version, by one short
    query.
    """
    return connection.exec_driver_sql(_VERSION_OF_STORE).scalar() == str(STORE_VERSION)


def has_tables(connection: sa.Connection, place: str) -> bool:
    """Whether the tables exist; False for an empty database. Raises StoreError for
    tables of an older version.
    """
    version = stored_version(connection, place)
    if version is not None and version < STORE_VERSION:
        raise OlderStoreError(
            "{place} was written by an older perfgate (store version {version}, this one knows {known}); the next "
            "`perfgate baseline record` brings it up to date",
            place=place,
            version=version,
            known=STORE_VERSION,
        )
    return version is not None


def stored_version(connection: sa.Connection, place: str) -> int | None:
    """The version of the tables; None for an empty database.

    Raises StoreError for a newer version, for a foreign database, and for a store
    written before the first release.
    """
    inspector = sa.inspect(connection)
    names = (
        inspector.get_table_names()
    )  # in one query, so that a concurrent creation shows all or none
    if VERSION.name not in names:
        if names:
            raise StoreError(
                "{place} is a database of something else (it holds {name!a}); choose another one",
                place=place,
                name=names[0],
            )
        return None
    missing = METADATA.tables.keys() - set(names)
    columns = (
        [column["name"] for column in inspector.get_columns(VERSION.name)]
        if missing
        else []
    )
    version = STORE_VERSION
    if not missing or VERSION.c.version_num.name in columns:
        version = int(
            connection.execute(sa.select(VERSION.c.version_num)).scalar() or 0
        )
    if missing and version == STORE_VERSION:
        raise StoreError(
            "{place} was written by a commit of perfgate before its first release, which this one does not read; choose "
            "another place, or move it away to start a new store",
            place=place,
        )
    if version > STORE_VERSION:
        raise StoreError(
            "{place} was written by a newer perfgate (store version {version}, this one knows {known}); upgrade perfgate",
            place=place,
            version=version,
            known=STORE_VERSION,
        )
    return version
