"""`GET /metrics`, read by the parser of Prometheus' own client."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.judging.store.runs import record_run
from tests.fakes.service import SERVER_TOKEN, Service
from tests.fakes.sites import make_gate
from tests.unit.document.minimal import minimal_run
from tests.unit.service.test_store_api import upload


def test_metrics__two_projects_and_testbeds__the_newest_values_of_each_and_the_uploads(service: Service) -> None:
    older = minimal_run(session="s0", value=0.009)
    session = msgspec.structs.replace(older.session, started_at="2025-01-02T03:04:05Z")
    for run in (
        minimal_run(),
        msgspec.structs.replace(older, session=session),
        minimal_run(session="s2", value=0.004, fingerprint="f2"),
        minimal_run(value=0.001, project='b"a\\nk'),
    ):
        record_run(service.store, run)
    upload(service, minimal_run(session="s3", fingerprint="f3", value=0.005))
    service.store.append("shop", [make_gate(1), make_gate(2), make_gate(3, verdict="FAIL")])

    answer = service.client(SERVER_TOKEN).get("/metrics")
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    latency = families["perfgate_latency_p50_seconds"].samples
    assert {(one.labels["project"], one.labels["testbed"], one.value) for one in latency} == {
        ("shop", "f1", 0.002),
        ("shop", "f2", 0.004),
        ("shop", "f3", 0.005),
        ('b"a\\nk', "f1", 0.001),
    }
    uploads = families["perfgate_uploads"].samples
    assert {one.labels["project"]: one.value for one in uploads} == {"shop": 1.0, 'b"a\\nk': 0.0}
    gates = {(one.labels["project"], one.labels["verdict"]): one.value for one in families["perfgate_gates"].samples}
    assert gates == {("shop", "PASS"): 2, ("shop", "WARN"): 0, ("shop", "FAIL"): 1, ("shop", "INCONCLUSIVE"): 0}
    newest = families["perfgate_last_run_timestamp_seconds"].samples
    assert {one.labels["project"]: one.value for one in newest}["shop"] == 1767323045.0


def test_metrics__one_document_is_damaged__the_values_of_the_others(service: Service, tmp_path: Path) -> None:
    damaged = record_run(service.store, minimal_run())
    record_run(service.store, minimal_run(session="s2", value=0.004, fingerprint="f2"))
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("UPDATE run_documents SET document = x'00' WHERE run = ?", [damaged])
        connection.commit()
    answer = service.client(SERVER_TOKEN).get("/metrics")
    assert answer.status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    samples = families["perfgate_latency_p50_seconds"].samples
    assert [(sample.labels["testbed"], sample.value) for sample in samples] == [("f2", 0.004)]
