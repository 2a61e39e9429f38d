"""A new store has the tables of the metadata, and migrations bring an old store up to date with its runs."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from perfgate.errors import StoreError
from perfgate.judging.store import tables
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.migration import SCRIPTS
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import record_run, stored_runs
from perfgate.judging.store.sqlite import SqliteFile
from perfgate.judging.store.tables import METADATA, STORE_VERSION, VERSION, prepare_tables
from tests.fakes.postgres import PostgresServer
from tests.unit.document.minimal import minimal_run

Empty = Callable[[], SqliteFile | PostgresDatabase]
SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    op.add_column("log", sa.Column("runner", sa.Text))
"""


def upgrade_perfgate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this perfgate a newer one, whose tables have a column more."""
    scripts = tmp_path / "100% newer"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / "versions" / "v2_runner.py").write_text(SECOND)
    monkeypatch.setattr("perfgate.judging.store.migration.SCRIPTS", scripts)
    for module in ("tables", "postgres"):
        monkeypatch.setattr(f"perfgate.judging.store.{module}.STORE_VERSION", 2)


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Empty:
    """Databases without tables."""
    if request.param == "sqlite":
        numbers = itertools.count()
        return lambda: SqliteFile(tmp_path / f"{next(numbers)}.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return lambda: PostgresDatabase(server.address(server.create_database()))


def test_prepare_tables__new_store__has_every_column_of_the_metadata_and_the_version(empty: Empty) -> None:
    database = empty()
    with database._engine.begin() as connection:
        prepare_tables(connection, "a new store")
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION.name, "compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, METADATA) == []
        assert connection.execute(sa.select(VERSION.c.version_num)).scalars().all() == [str(STORE_VERSION)]


def test_record__store_of_an_older_perfgate__brought_up_to_date_with_its_runs(
    empty: Empty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database: StoreDatabase = empty()
    store = SqlStore(database)
    old = record_run(store, minimal_run())
    upgrade_perfgate(tmp_path, monkeypatch)
    with pytest.raises(
        StoreError, match=r"older perfgate \(store version 1, this one knows 2\); the next `perfgate base"
    ):
        stored_runs(store, "shop")
    new = record_run(store, minimal_run(session="s2"))
    assert {run.id for run in stored_runs(store, "shop")} == {old, new}
    with database.reading() as connection:
        assert connection is not None
        assert "runner" in {column["name"] for column in sa.inspect(connection).get_columns("log")}
    monkeypatch.setattr(tables, "STORE_VERSION", 1)
    with pytest.raises(StoreError, match=r"newer perfgate \(store version 2, this one knows 1\)"):
        stored_runs(store, "shop")


def test_bring_up_to_date__store_of_an_older_perfgate__its_runs_are_read_before_any_is_written(
    empty: Empty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqlStore(empty())
    store.ledger().bring_up_to_date()
    assert stored_runs(store, "shop") == []
    old = record_run(store, minimal_run())
    upgrade_perfgate(tmp_path, monkeypatch)
    store.ledger().bring_up_to_date()
    assert [run.id for run in stored_runs(store, "shop")] == [old]


def test_record__store_of_an_older_perfgate_without_alembic__what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqlStore(tmp_path / "store.db")
    record_run(store, minimal_run())
    monkeypatch.setitem(sys.modules, "alembic", None)
    monkeypatch.setattr(tables, "STORE_VERSION", 2)
    with pytest.raises(
        StoreError, match=r"needs Alembic, which cannot be imported .*; run pip install 'perfgate\[postgres\]'"
    ):
        record_run(store, minimal_run(session="s2"))
