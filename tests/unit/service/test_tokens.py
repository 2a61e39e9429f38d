"""Attacks on the tokens of a service: another scope or project, revoked, guessed, sent in other ways."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from pathlib import Path

import pytest

from perfgate.errors import StoreError
from perfgate.judging.store.ledger import TOKEN_PREFIX
from perfgate.judging.store.runs import prune_runs, record_run, record_runs, stored_runs
from tests.fakes.service import SERVER_TOKEN, Listening, Service, serve_folder
from tests.unit.document.minimal import minimal_run
from tests.unit.service.test_store_api import ACCEPTANCE, document

READS = (
    "runs",
    "damaged",
    "series",
    "confirmations",
    "acceptances",
    "triages",
    "gates",
    "recent?fingerprint=f1&series=[]&newest=1",
)


@pytest.fixture
def service(address: Listening, tmp_path: Path) -> Service:
    service = serve_folder(address, tmp_path)
    record_run(service.store, minimal_run())
    record_run(service.store, minimal_run(project="bank"))
    return service


def writes(service: Service, token: str | None, project: str = "shop") -> list[int]:
    """The statuses of everything that writes to a project."""
    data, run_id = document(minimal_run(session="s2", project=project))
    client = service.client(token)
    place = f"/api/v1/projects/{project}"
    return [
        client.put(f"{place}/runs/{run_id}", data=data).status_code,
        client.post(f"{place}/acceptances", data=b"{}").status_code,
        client.post(f"{place}/confirmations", data=b"{}").status_code,
        client.post(f"{place}/triages", data=b"{}").status_code,
        client.post(f"{place}/gates", data=b"{}").status_code,
    ]


def test_write__with_a_token_that_reads__forbidden(service: Service) -> None:
    assert writes(service, service.token("shop", "read")) == [403] * 5
    assert writes(service, SERVER_TOKEN) == [403] * 5
    assert len(stored_runs(service.store, "shop")) == 1


def test_requests__of_another_project__forbidden_and_absent(service: Service) -> None:
    token = service.token("shop")
    client = service.client(token)
    assert writes(service, token, "bank") == [403] * 5
    assert [client.get(f"/api/v1/projects/bank/{what}").status_code for what in READS] == [403] * len(READS)
    assert client.get("/api/v1/projects/nobody/runs").status_code == 403
    _, of_bank = document(minimal_run(project="bank"))
    assert client.get("/api/v1/projects").json() == ["shop"]
    assert client.get(f"/api/v1/projects/shop/runs/{of_bank}").status_code == 404
    by_id, unknown = (client.get("/api/v1/runs", params={"id": run_id}) for run_id in (of_bank, "f" * 64))
    assert (by_id.status_code, by_id.text.replace(of_bank, "f" * 64)) == (404, unknown.text)
    service.token("bank")
    assert {entry["project"] for entry in client.get("/api/v1/audit").json()} == {"shop"}
    assert "bank" not in client.get("/metrics").text


def test_upload__document_of_another_project_in_the_own_place__refused(service: Service) -> None:
    data, run_id = document(minimal_run(session="s2", project="bank"))
    client = service.client(service.token("shop"))
    assert client.put(f"/api/v1/projects/shop/runs/{run_id}", data=data).status_code == 422
    assert len(stored_runs(service.store, "bank")) == 1


def test_requests__revoked_token__unknown_at_once(service: Service) -> None:
    made = service.ledger.create_token("runner", "shop", "write")
    client = service.client(made.secret)
    assert client.get("/api/v1/projects").status_code == 200
    service.ledger.revoke(made.token.id)
    assert client.get("/api/v1/projects").status_code == 401
    assert writes(service, made.secret) == [401] * 5
    assert service.ledger.revoke(made.token.id).revoked_at is not None
    with pytest.raises(StoreError, match="has no token 'ffff'"):
        service.ledger.revoke("ffff")


def test_requests__guessed_tokens__unknown(service: Service) -> None:
    made = service.ledger.create_token("runner", "shop", "write")
    guesses = [
        *(
            "",
            "x",
            TOKEN_PREFIX,
            made.token.id,
            made.secret[:-1],
            f"{made.secret}x",
            made.secret.lower(),
            made.secret[9:],
        ),
        *(hashlib.sha256(made.secret.encode()).hexdigest(), "' OR 1=1 --", "%", "\xff", SERVER_TOKEN[:-1]),
    ]
    for guess in guesses:
        headers = {"Authorization": f"Bearer {guess}".encode("latin-1")}
        assert service.client().get("/api/v1/projects", headers=headers).status_code == 401, guess
    assert (
        service.client().get("/api/v1/projects", headers={"Authorization": f"Basic {made.secret}"}).status_code == 401
    )


def test_requests__unknown_token_to_an_open_service__not_taken_for_a_neighbour(
    address: Listening, tmp_path: Path
) -> None:
    service = serve_folder(address, tmp_path, own=None)
    assert service.client().get("/api/v1/projects").status_code == 200
    assert service.client(f"{TOKEN_PREFIX}old").get("/api/v1/projects").status_code == 401
    assert writes(service, None) == [403] * 5
    assert writes(service, service.token("shop")) == [201, 422, 422, 422, 422]


def test_browser__token_in_the_address__becomes_a_cookie_that_only_reads(service: Service) -> None:
    token = service.token("shop")
    browser = service.client()
    moved = browser.get("/api/v1/projects", params={"token": token})
    assert (moved.status_code, moved.headers["Location"]) == (303, "/api/v1/projects")
    assert {"HttpOnly", "SameSite=strict"} <= set(moved.headers["Set-Cookie"].split("; "))
    assert browser.get("/api/v1/projects").json() == ["shop"]
    data, run_id = document(minimal_run(session="s2"))
    assert browser.put(f"/api/v1/projects/shop/runs/{run_id}", data=data).status_code == 403
    answer = browser.post("/api/v1/projects/shop/acceptances", json={})
    assert (answer.status_code, "Authorization header" in answer.json()["error"]) == (403, True)


def test_tokens__in_the_database__only_as_hashes_that_are_compared_in_constant_time(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = service.token("shop")
    with sqlite3.connect(tmp_path / "store.db") as connection:
        content = "\n".join(connection.iterdump())
    connection.close()
    assert token not in content
    assert hashlib.sha256(token.encode()).hexdigest() in content
    compared, compare = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both))
    assert service.ledger.find(token) is not None
    assert compared == [(hashlib.sha256(token.encode()).hexdigest(),) * 2]


def test_audit__of_everything_that_changes__who_what_and_when(service: Service) -> None:
    made = service.ledger.create_token("runner 7", "shop", "write")
    writes(service, made.secret)
    service.store.append("shop", [ACCEPTANCE])
    prune_runs(service.store, "shop", keep=1)
    service.ledger.revoke(made.token.id)
    entries = service.ledger.entries(project="shop", limit=10)
    actor = f"token {made.token.id} runner 7"
    assert [(entry.action, entry.actor) for entry in entries] == [
        ("token revoked", "local"),
        ("runs pruned", "local"),
        ("regression accepted", "local"),
        ("run recorded", actor),
        ("token created", "local"),
        ("run recorded", "local"),
    ]
    assert entries[3].subject == document(minimal_run(session="s2"))[1]
    assert service.ledger.entries(project="shop", limit=2, before=entries[1].number) == entries[2:4]


def test_show__prefix_that_only_runs_of_another_project_have__as_unknown_as_any_other(service: Service) -> None:
    ids = record_runs(
        service.store,
        [minimal_run(session=f"b{number}", project="bank") for number in range(40)],
        allow_dirty=False,
        now=None,
    )
    (own,) = (run.id for run in stored_runs(service.store, "shop"))
    client = service.client(service.token("shop", "read"))
    foreign = {run_id[0] for run_id in ids} - {own[0]}
    nowhere = "0" * 64
    unknown = client.get(f"/api/v1/projects/shop/runs/{nowhere}").json()["error"]
    for digit in sorted(foreign):
        answer = client.get(f"/api/v1/projects/shop/runs/{digit}")
        assert (answer.status_code, answer.json()["error"]) == (404, unknown.replace(nowhere, digit))
    # What its own run shares with runs of others is enough to find it.
    assert client.get(f"/api/v1/projects/shop/runs/{own[0]}").json()["project"] == "shop"


def test_show__prefix_of_several_own_runs__said(service: Service) -> None:
    ids = record_runs(
        service.store, [minimal_run(session=f"s{number}") for number in range(2, 19)], allow_dirty=False, now=None
    )
    repeated = next(run_id[0] for run_id in ids if [one[0] for one in ids].count(run_id[0]) > 1)
    answer = service.client(service.token("shop", "read")).get(f"/api/v1/projects/shop/runs/{repeated.upper()}")
    assert (answer.status_code, "several runs that begin with" in answer.json()["error"]) == (404, True)
