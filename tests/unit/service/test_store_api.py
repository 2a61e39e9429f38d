"""The runs of main over HTTP: what uploads, what is refused, and that no request makes the service fail."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perfgate.document.files import canonical_bytes
from perfgate.document.history import Acceptance, Confirmation, GateRecord, Triage
from perfgate.document.run import RunDocument
from perfgate.judging.store.runs import record_run, stored_runs
from perfgate.judging.store.store import STATEMENTS, Statement
from perfgate.service.bodies import MOST_UPLOAD_BYTES
from tests.fakes.records import changed
from tests.fakes.service import SERVER_TOKEN, Service
from tests.unit.document.minimal import minimal_run

CONFORMANCE = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
ACCEPTANCE = Acceptance(
    commit="a1", metric="latency.low", reason="meant", accepted_by="Li", accepted_at="2026-03-01T12:00:00+00:00"
)


def document(run: RunDocument) -> tuple[bytes, str]:
    data = canonical_bytes(run, name="the run")
    return data, hashlib.sha256(data).hexdigest()


def upload(service: Service, run: RunDocument, *, project: str = "shop", token: str | None = None, **query: str) -> Any:
    data, run_id = document(run)
    client = service.client(token or service.token(project))
    return client.put(f"/api/v1/projects/{project}/runs/{run_id}", data=data, params=query)


def test_upload__twice__stored_once_and_read_as_it_was(service: Service) -> None:
    assert [upload(service, minimal_run()).status_code for _ in range(2)] == [201, 200]
    data, run_id = document(minimal_run())
    reader = service.client(service.token("shop", "read"))
    assert [entry["run"]["id"] for entry in reader.get("/api/v1/projects/shop/runs").json()] == [run_id]
    assert reader.get(f"/api/v1/projects/shop/runs/{run_id}").content == data
    assert reader.get(f"/api/v1/projects/shop/runs/{run_id[:9]}").content == data
    assert reader.get("/api/v1/projects").json() == ["shop"]


def test_upload__project_with_a_slash__stored_under_its_name(service: Service) -> None:
    token = service.token("team/shop")
    data, run_id = document(minimal_run(project="team/shop"))
    client = service.client(token)
    assert client.put(f"/api/v1/projects/team%2Fshop/runs/{run_id}", data=data).status_code == 201
    assert len(client.get("/api/v1/projects/team%2Fshop/runs").json()) == 1


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"side": "head"}, 422, "head of a change; only runs of main are kept"),
        ({"project": "bank"}, 422, "a run of project 'bank'; upload it to that project"),
    ],
)
def test_upload__unfit_run__refused_with_the_reason_of_the_store(
    service: Service, change: dict[str, str], status: int, said: str
) -> None:
    answer = upload(service, changed(minimal_run(), **change))
    assert (answer.status_code, said in answer.json()["error"]) == (status, True)
    assert stored_runs(service.store, "shop") == stored_runs(service.store, "bank") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"source": {"commit": "$(reboot)"}},
        {"source": {"commit": "`id`"}},
        {"source": {"branch": "main\nrm -r /"}},
        {"source": {"committed_at": "yesterday"}},
        {"session": {"started_at": "1999-12-31T23:59:59+00:00"}},
        {"session": {"finished_at": "0001-01-01T00:00:00+14:00"}},
        {"session": {"id": "a\x1b[2J"}},
        {"testbed": {"fingerprint": "../../etc"}},
    ],
    ids=str,
)
def test_upload__field_that_no_perfgate_writes__refused_and_named(
    service: Service, fields: dict[str, dict[str, str]]
) -> None:
    run = minimal_run()
    for part, values in fields.items():
        run = msgspec.structs.replace(run, **{part: msgspec.structs.replace(getattr(run, part), **values)})
    answer = upload(service, run)
    assert answer.status_code == 422
    assert "nothing is stored" in answer.text
    assert service.store.projects() == []


@pytest.mark.parametrize(
    "statement",
    [
        GateRecord(gate="default", commit="$(id)", verdict="PASS", judged_at="2026-01-01T00:00:00+00:00"),
        GateRecord(gate="default", commit="a1", verdict="PASS", judged_at="x"),
        GateRecord(gate="a\nb", commit="a1", verdict="PASS", judged_at="2026-01-01T00:00:00+00:00"),
        msgspec.structs.replace(ACCEPTANCE, commit="`id`"),
        msgspec.structs.replace(ACCEPTANCE, accepted_at="0001-01-01T00:00:00+14:00"),
        msgspec.structs.replace(ACCEPTANCE, reason="a" * 5_000),
        Triage(commit="a1", state="fixed", reason="r", author="a", changed_at="2101-01-01T00:00:00+00:00"),
        Confirmation(
            workload="w", shape="s", before="$(id)", after="b2", metric="latency.low", outcome="regressed",
            fingerprint="f0", confirmed_at="2026-01-01T00:00:00+00:00",
        ),
    ],
    ids=lambda statement: f"{type(statement).__name__} {statement.key}"[:60],
)  # fmt: skip
def test_statement__field_that_no_perfgate_writes__refused_and_named(service: Service, statement: Statement) -> None:
    names = {kind: name for name, kind in STATEMENTS.items()}
    client = service.client(service.token("shop"))
    address = f"/api/v1/projects/shop/{names[type(statement)]}"
    answer = client.post(address, data=msgspec.json.encode(statement))
    assert answer.status_code == 422
    assert "nothing is stored" in answer.text
    assert client.get(address).json() == []


def test_upload__uncommitted_changes__only_on_purpose(service: Service) -> None:
    assert "--allow-dirty" in upload(service, minimal_run(dirty=True)).json()["error"]
    assert upload(service, minimal_run(dirty=True), allow_dirty="true").status_code == 201


def test_upload__another_document_of_the_session__a_conflict(service: Service) -> None:
    upload(service, minimal_run())
    answer = upload(service, minimal_run(value=0.003))
    assert (answer.status_code, "session 's1' is already stored" in answer.json()["error"]) == (409, True)


def test_upload__bytes_that_are_not_the_document__refused(service: Service) -> None:
    data, run_id = document(minimal_run())
    client = service.client(service.token("shop"))
    place = f"/api/v1/projects/shop/runs/{run_id}"
    damaged = client.put(place, data=data.replace(b"0.002", b"0.001"))
    assert (damaged.status_code, "send it again" in damaged.json()["error"]) == (422, True)
    other = msgspec.json.format(data)
    same = client.put(f"/api/v1/projects/shop/runs/{hashlib.sha256(other).hexdigest()}", data=other)
    assert (same.status_code, "not the bytes that perfgate writes" in same.json()["error"]) == (422, True)
    assert client.put("/api/v1/projects/shop/runs/abc", data=data).status_code == 400
    assert client.get("/api/v1/projects/shop/runs").json() == []


def edited(run: RunDocument, **fields: Any) -> tuple[bytes, str]:
    """A document whose ``source`` has other fields, as another version of perfgate writes it; None leaves a field out."""
    value = msgspec.json.decode(document(run)[0])
    source = {name: entry for name, entry in {**value["source"], **fields}.items() if entry is not None}
    data = msgspec.json.encode({**value, "source": source})
    return data, hashlib.sha256(data).hexdigest()


def test_upload__run_of_an_earlier_perfgate_without_a_field_of_today__kept_as_it_is(service: Service) -> None:
    data, run_id = edited(minimal_run(), author=None)
    client = service.client(service.token("shop"))
    assert client.put(f"/api/v1/projects/shop/runs/{run_id}", data=data).status_code == 201
    assert client.get(f"/api/v1/projects/shop/runs/{run_id}").content == data


@pytest.mark.parametrize("fields", [{"author": 1}, {"mood": "good"}, {"dirty": 0}])
def test_upload__other_fields_or_types__refused(service: Service, fields: dict[str, Any]) -> None:
    data, run_id = edited(minimal_run(), **fields)
    answer = service.client(service.token("shop")).put(f"/api/v1/projects/shop/runs/{run_id}", data=data)
    assert answer.status_code == 422


def test_upload__larger_than_any_document__refused_before_it_is_read(service: Service) -> None:
    client = service.client(service.token("shop"))
    announced = {"Content-Length": str(MOST_UPLOAD_BYTES + 1), "Connection": "close"}
    assert client.put(f"/api/v1/projects/shop/runs/{'0' * 64}", headers=announced).status_code == 413
    assert client.post("/api/v1/projects/shop/acceptances", data=b" " * 70_000).status_code == 413


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b'{"x":[' + b"0," * 1_200_000 + b"0]}", "more than 1000000 values", id="values"),
        pytest.param(b'{"x":"' + b"a" * 3_000_000 + b'"}', "not the bytes that perfgate writes", id="one text"),
    ],
)
def test_upload__costly_to_read__refused_without_reading_it(service: Service, data: bytes, reason: str) -> None:
    client = service.client(service.token("shop"))
    answer = client.put(f"/api/v1/projects/shop/runs/{hashlib.sha256(data).hexdigest()}", data=data)
    assert (answer.status_code, reason in answer.json()["error"]) == (422, True)


def test_errors__of_a_store_that_cannot_be_used__without_its_place(service: Service, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"")
    client = service.client(SERVER_TOKEN)
    for place in ("/api/v1/projects", "/api/v1/projects/shop/runs"):
        answer = client.get(place)
        assert (answer.status_code, "a file of 0 bytes" in answer.json()["error"]) == (503, True)
        assert str(tmp_path) not in answer.text


def test_acceptance__stored__with_an_entry_in_the_audit_log(service: Service) -> None:
    client = service.client(service.token("shop"))
    answer = client.post("/api/v1/projects/shop/acceptances", data=msgspec.json.encode(ACCEPTANCE))
    assert answer.status_code == 200
    assert client.get("/api/v1/projects/shop/acceptances").json() == [answer.json()]
    newest = client.get("/api/v1/audit").json()[0]
    assert (newest["action"], newest["subject"], newest["project"]) == (
        "regression accepted",
        "latency.low of a1",
        "shop",
    )
    assert newest["actor"].startswith("token ")
    wrong = client.post("/api/v1/projects/shop/acceptances", data=b'{"commit": 1}')
    assert wrong.status_code == 422


def test_triage__stored__with_an_entry_in_the_audit_log(service: Service) -> None:
    client = service.client(service.token("shop"))
    triage = Triage(commit="a1", state="acknowledged", reason="in #12", author="Li", changed_at="2026-03-01")
    answer = client.post("/api/v1/projects/shop/triages", data=msgspec.json.encode(triage))
    assert answer.status_code == 200
    assert client.get("/api/v1/projects/shop/triages").json() == [answer.json()] == [msgspec.to_builtins(triage)]
    newest = client.get("/api/v1/audit").json()[0]
    assert (newest["action"], newest["subject"]) == ("regression triaged", "acknowledged: a1")
    unknown = client.post("/api/v1/projects/shop/triages", json={**answer.json(), "state": "closed"})
    assert (unknown.status_code, "Invalid enum value 'closed'" in unknown.json()["error"]) == (422, True)


def test_upload__many_runners_at_once_and_each_run_twice__every_run_once(service: Service) -> None:
    runs = [minimal_run(session=f"s{number}") for number in range(12)]
    token = service.token("shop")
    with ThreadPoolExecutor(8) as runners:
        statuses = list(runners.map(lambda run: upload(service, run, token=token).status_code, [*runs, *runs]))
    assert set(statuses) <= {200, 201}
    assert sorted(run.session for run in stored_runs(service.store, "shop")) == sorted(run.session.id for run in runs)
    recorded = [entry for entry in service.ledger.entries(limit=100) if entry.action == "run recorded"]
    assert len(recorded) == len(runs)


def test_runs__pages__newest_first(service: Service) -> None:
    for day in (1, 2, 3):
        run = minimal_run(session=f"s{day}")
        session = msgspec.structs.replace(run.session, started_at=f"2026-03-0{day}T12:00:00+00:00")
        record_run(service.store, msgspec.structs.replace(run, session=session))
    client = service.client(SERVER_TOKEN)
    first = client.get("/api/v1/projects/shop/runs", params={"limit": 2}).json()
    second = client.get("/api/v1/projects/shop/runs", params={"limit": 2, "before": first[-1]["run"]["id"]}).json()
    assert [[entry["run"]["session"] for entry in page] for page in (first, second)] == [["s3", "s2"], ["s1"]]
    assert client.get("/api/v1/projects/shop/runs", params={"before": "0" * 64}).status_code == 404


def test_health__without_a_token__says_only_that_it_runs(service: Service) -> None:
    client = service.client()
    assert client.get("/api/v1/health").json() == {"status": "ok"}
    assert client.get("/api/v1/health/").status_code == 401
    assert client.get("/api/v1/projects").status_code == 401


@pytest.mark.slow
def test_openapi__requests_of_every_kind__none_fails_and_every_response_fits(service: Service) -> None:
    upload(service, minimal_run())
    client = service.client(service.token(None))
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) >= 27
    for operation in operations:

        @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(
            case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
        )
        def ask(case: Any) -> None:
            response = case.call(session=client, base_url=service.url, timeout=60)
            assert response.status_code < 500, (case.formatted_path, case.query, response.text)
            case.validate_response(response, checks=CONFORMANCE)

        ask()
