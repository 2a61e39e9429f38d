"""Tokens and audit log in both databases."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.ledger import TOKEN_PREFIX
from perfgate.judging.store.postgres import PostgresDatabase
from tests.fakes.recorded import record_as
from tests.unit.document.minimal import minimal_run

if TYPE_CHECKING:
    from tests.fakes.postgres import PostgresServer

NOW = datetime(2026, 5, 1, tzinfo=timezone.utc)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SqlStore:
    if request.param == "sqlite":
        return SqlStore(tmp_path / "store.db", clock=lambda: NOW)
    server: PostgresServer = request.getfixturevalue("postgres")
    return SqlStore(PostgresDatabase(server.address(server.create_database())), clock=lambda: NOW)


def test_ledger__nothing_there__empty(store: SqlStore) -> None:
    ledger = store.ledger()
    assert (ledger.tokens(), ledger.entries(limit=5), ledger.find(f"{TOKEN_PREFIX}x")) == ([], [], None)


def test_ledger__token_made_and_revoked__found_between(store: SqlStore) -> None:
    ledger = store.ledger()
    made = ledger.create_token("runner", "shop", "write")
    everywhere = ledger.create_token("wall", None, "read")
    assert ledger.find(made.secret) == made.token
    assert ledger.find(everywhere.secret) == everywhere.token
    revoked = ledger.revoke(made.token.id)
    assert revoked == msgspec.structs.replace(made.token, revoked_at=NOW.isoformat())
    assert ledger.find(made.secret) is None
    assert {token.id for token in ledger.tokens()} == {made.token.id, everywhere.token.id}
    newest = ledger.entries(limit=1)[0]
    assert (newest.number, newest.actor, newest.action, newest.project) == (3, "local", "token revoked", "shop")


def test_record__same_run_again__one_entry_of_its_writer(store: SqlStore) -> None:
    for actor in ("runner 1", "runner 2"):
        record_as(store, actor, minimal_run())
    assert [(entry.actor, entry.action) for entry in store.ledger().entries(limit=5)] == [("runner 1", "run recorded")]
