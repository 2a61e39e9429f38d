"""The database under trouble: no package, no server, no rights, a lost connection; and many first writers at once."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from perfgate.document.history import Triage
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.flows.shared.store import open_store_at
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.index import read_index
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import prune_runs, record_run, stored_run, stored_runs
from tests.fakes.postgres import NOBODY, OWNER, PASSWORD, READER, PostgresServer
from tests.fakes.recorded import record_as
from tests.unit.document.minimal import minimal_run

SECRETS = (PASSWORD, quote(PASSWORD, safe=""), PASSWORD.partition("/")[0])


@dataclass(frozen=True)
class StoredDatabase:
    """An empty database of a server."""

    server: PostgresServer
    name: str

    def store(self, user: str = OWNER, password: str = PASSWORD, options: str = "") -> SqlStore:
        return SqlStore(PostgresDatabase(self.server.address(self.name, user, password) + options))

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        return self.server.execute(*statements, database=self.name)


@pytest.fixture
def database(postgres: PostgresServer) -> StoredDatabase:
    return StoredDatabase(postgres, postgres.create_database())


def record(store: SqlStore) -> str:
    return record_run(store, minimal_run())


def read(store: SqlStore) -> object:
    return stored_runs(store, "shop")


def refusal(kind: type[StoreError], use: Callable[[], object]) -> str:
    """The text of the error that a use of a store ends with; nothing about it, however it is printed, has a password."""
    with pytest.raises(StoreError) as refused:
        use()
    assert type(refused.value) is kind
    printed = [str(refused.value), refused.value.shown, repr(refused.value), *traceback.format_exception(refused.value)]
    assert not [text for text in printed if any(secret in text for secret in SECRETS)]
    return str(refused.value)


def test_store__psycopg_is_missing__what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    store = SqlStore(PostgresDatabase("postgresql://u@host/perf"))
    assert re.search(
        r"store postgresql://\*\*\*@host/perf needs psycopg, which cannot .*; run pip install 'perfgate\[postgres\]'",
        refusal(StoreError, lambda: read(store)),
    )


@pytest.mark.parametrize("place", ["/perf?host=/nowhere", "127.0.0.1:1/perf"])
def test_store__server_unreachable__exit_4_and_what_to_check(place: str) -> None:
    address = f"postgresql://{OWNER}:{quote(PASSWORD, safe='')}@{place}"
    for use in (read, record):
        said = refusal(StoreRefusedError, lambda: use(SqlStore(PostgresDatabase(address))))  # noqa: B023 - used at once
        assert "is the server running and reachable from here, and the address right?" in said


@pytest.mark.parametrize(
    ("user", "password"),
    [(OWNER, "wrong/hunter3"), (OWNER, ""), ("nobody_here", PASSWORD)],
    ids=["wrong", "none", "user"],
)
def test_store__wrong_password_or_user__what_to_check(database: StoredDatabase, user: str, password: str) -> None:
    for use in (read, record):
        said = refusal(StoreError, lambda: use(database.store(user, password)))  # noqa: B023 - used at once
        assert "check the user and password in the address" in said
        assert "hunter3" not in said


def test_store__database_missing__how_to_create_it(database: StoredDatabase) -> None:
    for use in (read, record):
        store = StoredDatabase(database.server, "not_there").store()
        said = refusal(StoreError, lambda: use(store))  # noqa: B023 - used at once
        assert 'database "not_there" does not exist; create the database first' in said


def test_store__no_rights__which_to_grant(database: StoredDatabase) -> None:
    said = refusal(StoreError, lambda: record(database.store(NOBODY)))
    assert "permission denied for schema public; let the owner of the database grant the rights" in said
    record(database.store())
    for use in (read, record):
        said = refusal(StoreError, lambda: use(database.store(NOBODY)))  # noqa: B023 - used at once
        assert "permission denied for table perfgate_store; let the owner" in said


def test_store__right_to_select__reads_and_cannot_record(database: StoredDatabase) -> None:
    assert stored_runs(database.store(READER), "shop") == []
    run_id = record(database.store())
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}")
    assert stored_run(database.store(READER), "shop", run_id) == minimal_run()
    assert "permission denied for table log" in refusal(
        StoreError, lambda: record_run(database.store(READER), minimal_run(session="s2"))
    )


def test_store__a_table_or_its_version_is_missing__says_so(database: StoredDatabase) -> None:
    record(database.store())
    database.execute("DROP TABLE log CASCADE")
    said = refusal(StoreError, lambda: database.store().entries("shop", Triage))
    assert 'relation "log" does not exist; a table or column of the store is missing' in said
    database.execute("ALTER TABLE perfgate_store RENAME COLUMN version_num TO version")
    assert "written by a commit of perfgate before its first release" in refusal(
        StoreError, lambda: read(database.store())
    )


def test_store__server_that_only_reads__names_the_primary(database: StoredDatabase) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    assert "give the address of the primary" in refusal(StoreError, lambda: record(database.store()))


def test_store__option_that_does_not_exist__named(database: StoredDatabase) -> None:
    said = refusal(StoreError, lambda: read(database.store(options="&sslmod=require")))
    assert "sslmod" in said
    assert "correct the options behind the ? of the address" in said


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://perfgate:hunter2/@x@db/perf",
        "postgresql://perfgate:hunter2@x@db/perf",
        "postgresql://perfgate:hunter2/perf",
        "postgresql://perfgate:hunter2@db",
        "postgresql://:@",
    ],
)
def test_store__address_that_cannot_be_read__refused_without_repeating_it(location: str) -> None:
    said = refusal(StoreError, lambda: SqlStore(PostgresDatabase(location)))
    assert "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and in the password %40 for @" in said
    assert "hunter2" not in said


def test_record__connection_lost_in_the_middle__what_is_there_is_whole_and_the_next_try_works(
    database: StoredDatabase,
) -> None:
    store = database.store()
    record(store)

    def interrupted() -> None:
        with store._database.writing() as writing:
            writing.exec_driver_sql("DELETE FROM log")
            end_connections(database)
            writing.exec_driver_sql("DELETE FROM log")

    assert "the connection was lost; run the command again" in refusal(StoreRefusedError, interrupted)
    assert len(stored_runs(store, "shop")) == 1
    end_connections(database)  # of the pool, too
    assert record_run(store, minimal_run(session="s2")) in [run.id for run in stored_runs(store, "shop")]


def end_connections(database: StoredDatabase) -> None:
    database.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        f"WHERE datname = '{database.name}' AND pid <> pg_backend_pid()"
    )


def test_record__table_locked_by_another__gives_up_in_the_end(
    database: StoredDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.judging.store.postgres.WAIT_FOR_LOCKS", "SET LOCAL lock_timeout = '50ms'")
    store = database.store()
    record(store)
    with psycopg.connect(database.server.address(database.name)) as other:
        other.execute("LOCK TABLE log")
        said = refusal(StoreRefusedError, lambda: record_run(store, minimal_run(session="s2")))
        assert "the database is in use by others; run the command again" in said
    assert record_run(store, minimal_run(session="s2"))


def test_store__tables_of_a_newer_perfgate__refused_and_untouched(database: StoredDatabase) -> None:
    record(database.store())
    database.execute("UPDATE perfgate_store SET version_num = '9'")
    for use in (read, record):
        said = refusal(StoreError, lambda: use(database.store()))  # noqa: B023 - used at once
        assert "newer perfgate (store version 9, this one knows 1); upgrade perfgate" in said


def test_store__database_of_something_else__refused_and_untouched(database: StoredDatabase) -> None:
    database.execute("CREATE TABLE customers (name text)")
    for use in (read, record):
        said = refusal(StoreError, lambda: use(database.store()))  # noqa: B023 - used at once
        assert "is a database of something else (it holds 'customers'); choose another" in said
    assert tables(database) == ["customers"]


def test_store__reading__creates_nothing(database: StoredDatabase) -> None:
    store = database.store()
    assert (
        stored_runs(store, "shop"),
        store.projects(),
        read_index(store, "shop").runs,
        prune_runs(store, "shop", keep=0),
    ) == (
        [],
        [],
        [],
        0,
    )
    assert tables(database) == []


def tables(database: StoredDatabase) -> list[object]:
    return [name for (name,) in database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]


def test_store__many_first_writers_at_once__tables_created_once_and_every_run_kept(database: StoredDatabase) -> None:
    barrier, failures = threading.Barrier(8), []

    def write_first(number: int) -> None:
        store = database.store()
        barrier.wait()
        try:
            record_run(store, minimal_run(session=f"first-{number}"))
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=write_first, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(stored_runs(database.store(), "shop")) == 8
    assert database.execute("SELECT version_num FROM perfgate_store") == [("1",)]


def test_revision__write_that_ends_after_a_later_one__another_one(database: StoredDatabase) -> None:
    store, other = database.store(), database.store()
    triage = Triage(commit="a1", state="fixed", reason="", author="Li", changed_at="2026-03-01")
    store.append("shop", [triage])
    with store._database.writing() as writing:
        store.ledger().note(writing, "local", "regression triaged", "shop", "began first")
        other.append("shop", [triage])
        before = other.revision("shop")
    assert other.revision("shop") != before


def test_store__process_forked_with_an_open_connection__each_has_its_own(database: StoredDatabase) -> None:
    store = database.store()
    record(store)
    child = os.fork()
    if not child:
        try:
            record_run(store, minimal_run(session="child"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {run.session for run in stored_runs(store, "shop")} == {"s1", "child"}


def test_record__text_with_a_character_that_the_database_lacks__refused(postgres: PostgresServer) -> None:
    postgres.execute(
        "CREATE DATABASE latin OWNER perfgate ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    )
    said = refusal(
        StoreError, lambda: record(StoredDatabase(postgres, "latin").store())
    )  # its subject has a check mark
    assert "create the database with ENCODING 'UTF8'" in said


def test_ledger__tokens_and_changes__kept_beside_the_runs(database: StoredDatabase) -> None:
    store = database.store()
    new = store.ledger().create_token("ci", "shop", "write")
    run_id = record_as(store, "ci", minimal_run())[0]
    assert store.ledger().find(new.secret) == new.token
    assert [(entry.actor, entry.action, entry.subject) for entry in store.ledger().entries(limit=1)] == [
        ("ci", "run recorded", run_id)
    ]
    store.ledger().revoke(new.token.id)
    assert store.ledger().find(new.secret) is None


def test_open_store_at__every_way_to_write_the_address__the_same_database(
    database: StoredDatabase, tmp_path: Path
) -> None:
    address = database.server.address(database.name)
    record(database.store())
    environ: dict[str, str] = {}
    for written in (address, address.replace("postgresql://", "postgres://")):
        assert len(stored_runs(open_store_at(written, tmp_path, environ), "shop")) == 1
