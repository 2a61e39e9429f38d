"""The page of the audit log: newest first, page by page, and for the token of a project this project alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from perfgate.judging.report.render.served import ACTIONS
from perfgate.judging.store.ledger import AuditAction
from perfgate.judging.store.runs import record_run, record_runs
from tests.fakes.recorded import record_as
from tests.fakes.service import SERVER_TOKEN, Listening, Service, serve_folder
from tests.unit.document.minimal import minimal_run
from tests.unit.service.test_project_sites import OVERVIEW, links


def test_actions__of_the_audit_log__each_has_words() -> None:
    assert set(ACTIONS) == set(get_args(AuditAction))


def test_page__changes_of_two_projects__each_with_time_writer_and_subject(service: Service) -> None:
    run_id = record_as(service.store, "token 1f runner <1>", minimal_run())[0]
    record_run(service.store, minimal_run(project="bank"))
    token = service.token("bank", "read")
    rows = re.findall(r"<tr><td>(.*?)</td></tr>", service.client(SERVER_TOKEN).get("/audit").text)
    cells = [row.split("</td><td>") for row in rows]
    assert [row[1:4] for row in cells] == [
        ["local", "bank", "token created"],
        ["local", "bank", "run recorded"],
        ["token 1f runner &lt;1&gt;", "shop", "run recorded"],
    ]
    assert cells[2][4] == run_id
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", cells[0][0])
    own = service.client(token).get("/audit").text
    assert ("bank" in own, "shop" in own) == (True, False)
    assert service.client().get("/audit").status_code == 401


def test_page__more_changes_than_one_holds__the_older_ones_are_linked(service: Service) -> None:
    record_runs(
        service.store, [minimal_run(session=f"s{number}") for number in range(101)], allow_dirty=False, now=None
    )
    client = service.client(SERVER_TOKEN)
    first = client.get("/audit").text
    (older,) = re.findall(r'href="(/audit\?before=\d+)"', first)
    last = client.get(older).text
    assert (first.count("run recorded"), last.count("run recorded"), "before=" in last) == (100, 1, False)


def test_page__linked_from_the_projects_and_from_the_pages_of_one(service: Service) -> None:
    record_run(service.store, minimal_run())
    client = service.client(SERVER_TOKEN)
    assert "/audit" in links(client, OVERVIEW)
    record_run(service.store, minimal_run(project="bank"))
    assert "/audit" in links(client, "/")


def test_page__nothing_was_changed__says_so(address: Listening, tmp_path: Path) -> None:
    service = serve_folder(address, tmp_path)
    assert "Nothing was changed yet." in service.client(SERVER_TOKEN).get("/audit").text
