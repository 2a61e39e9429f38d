"""A store that cannot be reached: nobody without a token learns where it is, clients may repeat, and the log says why."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfgate.document.files import canonical_bytes
from perfgate.service.trouble_log import TroubleLog
from tests.fakes.service import SERVER_TOKEN, Listening, Service, serve_folder
from tests.unit.document.minimal import minimal_run

# Nothing listens on port 1.
DOWN = "postgresql://perfgate@127.0.0.1:1/secret-database"
PLACES = ("127.0.0.1", "port 1", "secret-database", "Connection refused")


@pytest.fixture
def told() -> list[str]:
    """What the service prints on standard error."""
    return []


@pytest.fixture
def service(address: Listening, tmp_path: Path, told: list[str]) -> Service:
    return serve_folder(address, tmp_path, location=DOWN, warn=told.append)


def test_health__database_down__unavailable_without_its_place_and_the_log_has_the_reason(
    service: Service, told: list[str]
) -> None:
    answers = [service.client().get("/api/v1/health") for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json()["error"] == "the served data cannot be read; the log of perfgate serve has the reason"
    (reason,) = told
    assert "port 1" in reason


def test_upload__database_down_so_that_no_token_can_be_found__to_be_repeated_and_no_place_in_it(
    service: Service, told: list[str]
) -> None:
    for headers in ({"Authorization": "Bearer perfgate_x"}, {"Cookie": "perfgate-token=perfgate_x"}):
        answer = service.client().put("/api/v1/projects/shop/runs/" + "0" * 64, data=b"{}", headers=headers)
        assert (answer.status_code, "repeat it" in answer.json()["error"]) == (503, True)
        assert answer.headers["Retry-After"] == "2"
        assert not [place for place in PLACES if place in answer.text]
    assert len(told) == 1
    assert service.client(SERVER_TOKEN).get("/openapi.json").status_code == 200


def test_upload__disk_full__to_be_repeated_and_the_log_has_the_reason(
    address: Listening, tmp_path: Path, told: list[str]
) -> None:
    service = serve_folder(address, tmp_path, warn=told.append)
    token = service.token("shop")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        full = "SELECT RAISE(ABORT, 'database or disk is full')"
        connection.execute(f"CREATE TRIGGER full BEFORE INSERT ON log BEGIN {full}; END")
    data = canonical_bytes(minimal_run(), name="the run")
    path = f"/api/v1/projects/shop/runs/{hashlib.sha256(data).hexdigest()}"
    answer = service.client(token).put(path, data=data)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json()["error"].startswith("the store cannot be used: database or disk is full; free space")
    (reason,) = told
    assert reason.startswith(f"the store {tmp_path}/store.db cannot be used: database or disk is full")


def test_trouble_log__the_same_for_longer__once_a_minute_and_another_at_once() -> None:
    told: list[str] = []
    seconds = [0.0, 1.0, 59.0, 60.5, 61.0, 62.0]
    log = TroubleLog(told.append, clock=iter(seconds).__next__)
    for trouble in ("down", "down", "down", "down", "full", "down"):
        log.note(trouble)
    assert told == ["down", "down", "full", "down"]
