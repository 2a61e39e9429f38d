"""The pages of main's history behind the service: what is linked is there, for those who may read the project."""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.parse import urljoin

import msgspec

from perfgate.errors import StoreError
from perfgate.flows.shared.site.read import ChangesRemembered
from perfgate.service.kept_site import KeptSite
from tests.fakes.history import main_runs, stepped
from tests.fakes.service import SERVER_TOKEN, Client, Service
from tests.fakes.trends import make_series
from tests.unit.document.minimal import minimal_run
from tests.waiting import wait_until

OVERVIEW = "/projects/shop/index.html"


def links(client: Client, address: str) -> set[str]:
    """The addresses that a page links, without those of other servers."""
    answer = client.get(address)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8"), address
    found = (urljoin(address, link).partition("#")[0] for link in re.findall(r'href="([^"#]+)', answer.text))
    return {link for link in found if link.startswith("/")}


def test_sites__one_project__every_link_of_its_overview_and_of_a_run_is_there(service: Service) -> None:
    service.store.record_all(main_runs(9, shapes=("long",), time=stepped(8, 1.5)))
    project = service.store.projects()[0]
    client = service.client(service.token(project, "read"))
    home = client.get("/").headers["Location"]
    assert home == f"/projects/{project}/index.html"
    linked = links(client, home)
    assert any("/series/" in link for link in linked)
    for link in sorted(linked | links(client, urljoin(home, "runs/index.html")))[:25]:
        assert links(client, link)


def test_sites__several_projects__listed_for_those_who_may_read_them(service: Service) -> None:
    for project in ("shop", "team/<b>"):
        service.store.record(minimal_run(project=project))
    everyone, own = service.client(SERVER_TOKEN), service.client(service.token("team/<b>", "read"))
    assert {OVERVIEW, "/projects/team%2F%3Cb%3E/index.html"} <= links(everyone, "/")
    assert "<b>" not in everyone.get("/").text
    assert links(everyone, "/projects/team%2F%3Cb%3E/index.html")
    assert own.get("/").headers["Location"] == "/projects/team%2F%3Cb%3E/index.html"
    assert own.get(OVERVIEW).status_code == 403


def test_sites__new_run__on_the_page_at_once(service: Service) -> None:
    service.store.record(minimal_run())
    client = service.client(SERVER_TOKEN)
    runs = "/projects/shop/runs/index.html"
    before = client.get(runs).text
    run_id = service.store.record(minimal_run(session="s2", value=0.003))
    assert run_id[:12] not in before
    assert run_id[:12] in client.get(runs).text


def test_sites__what_is_no_page__not_found(service: Service) -> None:
    service.store.record(minimal_run())
    client = service.client(SERVER_TOKEN)
    wrong = ("x.html", "runs/ffffffffffff.html", "runs/..%2Findex.html", "compare/a-b.html", "../../etc/passwd")
    assert [client.get(f"/projects/shop/{address}").status_code for address in wrong] == [404] * len(wrong)
    assert client.get("/projects/nobody/index.html").status_code == 404
    form = client.get("/projects/shop/compare/index.html", params={"earlier": "ff", "later": "ee"})
    assert form.status_code == 200


def test_kept_site__project_that_takes_long_to_read__earlier_pages_while_it_is_read_again() -> None:
    readings, go_on = iter(["first", "second"]), threading.Event()

    def read() -> Any:
        reading = next(readings)
        if reading != "first":
            go_on.wait()
        return reading

    site = KeptSite(read, patience=-1.0)
    assert [site.pages("1"), site.pages("1"), site.pages("2"), site.pages("2")] == ["first"] * 4
    go_on.set()
    wait_until(lambda: site.pages("2") == "second")


def test_kept_site__store_that_cannot_be_read_again__the_error_and_no_pages_of_before() -> None:
    readings: Any = iter(["first", StoreError("gone"), StoreError("still gone"), "second"])

    def read() -> Any:
        if isinstance(reading := next(readings), StoreError):
            raise reading
        return reading

    site = KeptSite(read, patience=-1.0)
    assert site.pages("1") == "first"

    def is_refused() -> bool:
        try:
            return site.pages("2") != "first"
        except StoreError as error:
            return str(error) == "still gone"

    wait_until(is_refused)
    assert site.pages("2") == "second"


def test_changes_remembered__series_as_it_was__not_searched_again() -> None:
    search, series = ChangesRemembered(), make_series(count=30, noise=None)
    first = search(series)
    search.begin()
    assert search(msgspec.structs.replace(series)) is first
    search.begin()
    longer = search(msgspec.structs.replace(series, points=[*series.points, series.points[-1]]))
    assert len(longer.points) == 31
