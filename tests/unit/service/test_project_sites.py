"""The pages of main's history behind the service: what is linked is there, for those who may read the project."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urljoin

import msgspec
import pytest

from perfgate.document.files import canonical_bytes
from perfgate.document.run import Artifact
from perfgate.errors import PerfgateError, StoreError
from perfgate.flows.shared.site.read import ChangesRemembered
from perfgate.judging.report.render.served import render_trouble
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run, record_runs
from perfgate.judging.store.store import StorePlace
from perfgate.locale import Activity
from perfgate.service.admission import Admission
from perfgate.service.app import create_app
from perfgate.service.callers import Authenticator
from perfgate.service.kept_site import KeptPages, KeptSite
from perfgate.service.project_sites import ProjectSites
from perfgate.service.served_store import ServedStore, StoreAddress
from perfgate.service.site_reader import SiteReader
from perfgate.service.store_api import StoreApi
from perfgate.service.trouble_log import TroubleLog
from tests.fakes.history import main_runs, stepped
from tests.fakes.remote import clone_of_empty_remote
from tests.fakes.service import SERVER_TOKEN, Client, Listening, Service, serve_folder
from tests.fakes.sites import make_gate
from tests.fakes.trends import make_series
from tests.unit.document.minimal import minimal_run
from tests.unit.store.test_gitbranch import files, put
from tests.waiting import wait_until

if TYPE_CHECKING:
    from perfgate.document.site import SiteContent
    from perfgate.flows.shared.site.pages import SitePages

OVERVIEW = "/projects/shop/index.html"


def links(client: Client, address: str) -> set[str]:
    """The addresses that a page links, without those of other servers."""
    answer = client.get(address)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8"), address
    found = (urljoin(address, link).partition("#")[0] for link in re.findall(r'href="([^"#]+)', answer.text))
    return {link for link in found if link.startswith("/")}


def test_sites__one_project__every_link_of_its_overview_and_of_a_run_is_there(service: Service) -> None:
    record_runs(service.store, main_runs(9, shapes=("long",), time=stepped(8, 1.5)), allow_dirty=False, now=None)
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
        record_run(service.store, minimal_run(project=project))
    everyone, own = service.client(SERVER_TOKEN), service.client(service.token("team/<b>", "read"))
    assert {OVERVIEW, "/projects/team%2F%3Cb%3E/index.html"} <= links(everyone, "/")
    home = everyone.get("/").text
    assert "<b>" not in home
    newest = minimal_run()
    row = (
        f"<td>{newest.session.started_at[:10]}</td><td>{(newest.source.commit or '')[:12]} {newest.source.subject}</td>"
    )
    assert home.count(row) == 2
    assert home.count("–</td>") == 4
    # Nobody has opened their pages.
    wait_until(lambda: everyone.get("/").text.count("\n0</td>") == 4)
    assert links(everyone, "/projects/team%2F%3Cb%3E/index.html")
    assert own.get("/").headers["Location"] == "/projects/team%2F%3Cb%3E/index.html"
    assert own.get(OVERVIEW).status_code == 403


@pytest.mark.parametrize("project", ["team/runs", "team/series", "team/compare", "team/x/state"])
def test_sites__project_named_as_a_part_of_an_address__its_own_pages_for_its_own_readers(
    service: Service, project: str
) -> None:
    run_id = record_run(service.store, minimal_run(project=project))
    record_run(service.store, minimal_run(project="team"))
    address = quote(project, safe="")
    own, other = (service.client(service.token(name, "read")) for name in (project, "team"))
    assert own.get(f"/projects/{address}/index.html").status_code == 200
    assert run_id[:12] in own.get(f"/projects/{address}/runs/index.html").text
    for path in ("runs", "state", "gates", f"runs/{run_id}"):
        assert own.get(f"/api/v1/projects/{address}/{path}").status_code == 200, path
        assert other.get(f"/api/v1/projects/{address}/{path}").status_code == 403, path
    assert other.get(f"/projects/{address}/index.html").status_code == 403
    marked = address.replace("%2F", "%EF%B7%90")
    assert other.get(f"/projects/{marked}/index.html").status_code == 403
    with_token = own.get(f"/projects/{address}/index.html", params={"token": SERVER_TOKEN})
    assert with_token.headers["Location"] == f"/projects/{address}/index.html"


def test_sites__list_of_projects_after_another_process_wrote__counts_of_the_newest_run(service: Service) -> None:
    runs = main_runs(20, shapes=("long",), time=stepped(12, 1.5))
    project = runs[0].project
    record_runs(service.store, runs[:10], allow_dirty=False, now=None)
    record_run(service.store, minimal_run(project="other"))
    client = service.client(SERVER_TOKEN)

    def open_regressions() -> str:
        row = client.get("/").text.partition(f'href="/projects/{project}/index.html"')[2].partition("</tr>")[0]
        return re.findall(r"<td[^>]*>\s*(.*?)\s*</td>", row, flags=re.DOTALL)[2]

    wait_until(lambda: open_regressions() == "0")
    record_runs(service.store, runs[10:], allow_dirty=False, now=None)
    wait_until(lambda: open_regressions() == "1")


def test_sites__new_run__on_the_page_at_once(service: Service) -> None:
    record_run(service.store, minimal_run())
    client = service.client(SERVER_TOKEN)
    runs = "/projects/shop/runs/index.html"
    before = client.get(runs).text
    run_id = record_run(service.store, minimal_run(session="s2", value=0.003))
    assert run_id[:12] not in before
    assert run_id[:12] in client.get(runs).text


def test_sites__run_whose_traces_are_served__linked_for_those_who_may_read_them(
    address: Listening, tmp_path: Path
) -> None:
    folder = tmp_path / "recordings" / "nightly <1>"
    folder.mkdir(parents=True)
    trace = Artifact(name="trace", kind="trace", path="traces/a.pt.trace.json", bytes=2, sha256="0" * 64)
    run, other = (msgspec.structs.replace(minimal_run(session=session), artifacts=[trace]) for session in ("s1", "s2"))
    (folder / "run.json").write_bytes(canonical_bytes(run, name="the run"))
    (tmp_path / "recordings" / "damaged").mkdir()
    (tmp_path / "recordings" / "damaged" / "run.json").write_text("{")
    service = serve_folder(address, tmp_path, recordings=tmp_path / "recordings")
    kept, elsewhere = (record_run(service.store, one) for one in (run, other))
    everyone, own = service.client(SERVER_TOKEN), service.client(service.token("shop", "read"))

    def recordings(client: Client, run_id: str) -> list[str]:
        page = client.get(f"/projects/shop/runs/{run_id[:12]}.html").text
        return re.findall(r'href="(/(?:flame|timeline)[^"]*)"', page)

    named = "recording=nightly%20%3C1%3E"
    assert recordings(everyone, kept) == [f"/flame?{named}", f"/timeline?{named}"]
    assert recordings(everyone, elsewhere) == recordings(own, kept) == []


def test_sites__verdict_uploaded_and_judged_again__on_the_page_at_once(service: Service) -> None:
    record_run(service.store, minimal_run())
    client, runner = service.client(SERVER_TOKEN), service.client(service.token("shop"))
    gates = "/projects/shop/gates.html"
    assert "perfgate publish --record" in client.get(gates).text
    for verdict in ("FAIL", "PASS"):
        body = msgspec.json.encode(make_gate(4, verdict=verdict))
        assert runner.post("/api/v1/projects/shop/gates", data=body).status_code == 200
        assert f">{verdict}</span>" in client.get(gates).text


def test_sites__verdict_with_an_address_that_is_none__refused(service: Service) -> None:
    runner = service.client(service.token("shop"))
    for link in ("javascript:alert(1)", "https://a b", "ftp://a", "https://" + "a" * 2000):
        body = msgspec.json.encode(make_gate(4, link=link))
        assert runner.post("/api/v1/projects/shop/gates", data=body).status_code == 422, link


def test_sites__browser_at_what_is_no_page__a_page_that_says_why(service: Service) -> None:
    client = service.client(SERVER_TOKEN)
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}

    def refused(address: str, *, by: Client = client) -> tuple[int, str]:
        answer = by.get(address, headers=browser)
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8", address
        assert "<h1>This page cannot be shown</h1>" in answer.text
        return answer.status_code, answer.text

    status, page = refused(OVERVIEW)
    assert (status, "no run of project &#39;shop&#39; is stored" in page) == (404, True)
    assert refused("/nothing")[0] == 404
    status, page = refused(OVERVIEW, by=service.client())
    assert (status, "a token is needed" in page) == (401, True)
    assert client.get(OVERVIEW).json()["error"].startswith("no run of project 'shop' is stored")
    assert client.get("/api/v1/projects/shop/runs/ab", headers=browser).json()["error"]


def test_render_trouble__reason_in_both_languages__that_of_the_pages() -> None:
    page = render_trouble(Activity("there is no such page"), "zh")
    assert "<p>没有这个页面</p>" in page
    assert "<h1>无法显示此页面</h1>" in page


def test_sites__what_is_no_page__not_found(service: Service) -> None:
    record_run(service.store, minimal_run())
    client = service.client(SERVER_TOKEN)
    wrong = ("x.html", "runs/ffffffffffff.html", "runs/..%2Findex.html", "compare/a-b.html", "../../etc/passwd")
    assert [client.get(f"/projects/shop/{address}").status_code for address in wrong] == [404] * len(wrong)
    assert client.get("/projects/nobody/index.html").status_code == 404
    form = client.get("/projects/shop/compare/index.html", params={"earlier": "ff", "later": "ee"})
    assert form.status_code == 200


def made(revision: str, *, runs: int = 1_000) -> KeptPages:
    content = SimpleNamespace(runs=[None] * runs)
    return KeptPages(revision, cast("SiteContent", content), cast("SitePages", f"pages of {revision}"))


def test_kept_site__project_that_takes_long_to_read__earlier_pages_while_it_is_read_again() -> None:
    go_on = threading.Event()

    def read(revision: str) -> KeptPages:
        if revision != "1":
            go_on.wait()
        return made(revision)

    site = KeptSite(read, stored=None)
    assert [site.pages(revision).revision for revision in ("1", "1", "2", "2")] == ["1"] * 4
    go_on.set()
    wait_until(lambda: site.pages("2").revision == "2")


@pytest.mark.parametrize(("runs", "must_be_new"), [(5, False), (1_000, True)])
def test_kept_site__small_project_or_reader_who_changed_it__waits_for_the_pages_of_this_revision(
    runs: int, *, must_be_new: bool
) -> None:
    readings: list[str] = []

    def read(revision: str) -> KeptPages:
        readings.append(revision)
        return made(revision, runs=runs)

    site = KeptSite(read, made("stored", runs=runs))
    assert site.pages("stored").revision == "stored"
    assert readings == []
    assert site.pages("1", must_be_new=must_be_new).revision == "1"
    assert site.pages("2", must_be_new=must_be_new).revision == "2"
    assert readings == ["1", "2"]


def test_kept_site__store_that_cannot_be_read_again__the_error_and_no_pages_of_before() -> None:
    answers: Any = iter([StoreError("gone"), StoreError("still gone"), made("2")])

    def read(_: str) -> KeptPages:
        answer = next(answers)
        if isinstance(answer, StoreError):
            raise answer
        assert isinstance(answer, KeptPages)
        return answer

    site = KeptSite(read, made("1"))
    assert site.pages("1").revision == "1"

    def is_refused() -> bool:
        try:
            return site.pages("2").revision != "1"
        except StoreError as error:
            return str(error) == "still gone"

    wait_until(is_refused)
    assert site.pages("2").revision == "2"


def test_served_branch__damaged_run__named_without_the_place_of_the_repository(
    address: Listening, tmp_path: Path
) -> None:
    clone, remote = clone_of_empty_remote(tmp_path), tmp_path / "remote.git"
    record_runs(
        GitBranchStore("branch://perfgate-data", StorePlace(clone, {})),
        [minimal_run(session=session) for session in ("s1", "s2")],
        allow_dirty=False,
        now=None,
    )
    damaged = next(path for path in files(remote) if path.startswith("runs/"))
    put(remote, damaged, b"{")
    served = ServedStore("branch://perfgate-data", clone, {"HOME": str(tmp_path)})
    troubles, authenticator = TroubleLog(print), Authenticator(None)
    sites = ProjectSites(served, "en", recordings="", webhooks="", artifacts=None, run_recordings=None)
    app = create_app([StoreApi(served, recorded=()), sites], troubles, "en")
    address.application = Admission(app, authenticator, troubles, "en")
    client = Client(address.url, None)
    (why,) = client.get("/api/v1/projects/shop/state").json()["damaged"]
    assert why.startswith(f"the store: {damaged} is damaged")
    page = client.get(OVERVIEW).text
    sites.close()
    assert (damaged[-20:] in page, str(remote) in page) == (True, False)


def test_site_reader__content_of_an_earlier_process__there_unless_it_is_damaged_or_of_another_version(
    tmp_path: Path,
) -> None:
    record_runs(SqlStore(tmp_path / "store.db"), main_runs(9, shapes=("long",)), allow_dirty=False, now=None)
    address = StoreAddress(str(tmp_path / "store.db"), tmp_path, {"HOME": str(tmp_path)})
    (project,) = address.open().projects()
    reader = SiteReader(address)
    assert reader.stored(project) is None
    read = reader.read(project, "1", 1.8e9)
    assert (read.revision, len(read.columns.content().runs)) == ("1", 9)
    reader.close()
    assert SiteReader(address).stored(project) == read
    (file,) = (tmp_path / ".cache" / "perfgate").rglob("*.site")
    assert file.parent.stat().st_mode & 0o077 == 0
    file.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(read, version="another")))
    assert SiteReader(address).stored(project) is None
    file.write_bytes(file.read_bytes()[:1000])
    assert SiteReader(address).stored(project) is None


def test_site_reader__same_location_in_another_folder__content_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[list[str]] = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        address = StoreAddress("store.db", folder, {"HOME": str(tmp_path)})
        assert SiteReader(address).stored("shop") is None
        record_run(SqlStore(folder / "store.db"), minimal_run(session=name))
        reader = SiteReader(address)
        reader.read("shop", "1", 1.8e9)
        reader.close()
        content = SiteReader(address).stored("shop")
        assert content is not None
        stored.append([run.session for run in content.columns.content().runs])
    assert stored == [["first"], ["second"]]
    branches = {StoreAddress("branch://data", tmp_path / name, {}).place for name in ("first", "second")}
    assert len(branches) == 2


def test_site_reader__service_that_ends__an_error(tmp_path: Path) -> None:
    reader = SiteReader(StoreAddress(str(tmp_path / "store.db"), tmp_path, {}))
    reader.close()
    with pytest.raises(PerfgateError, match="the service ends"):
        reader.read("shop", "1", 1.8e9)


def test_site_reader__service_that_ends_during_a_reading__does_not_wait_for_it(tmp_path: Path) -> None:
    record_runs(SqlStore(tmp_path / "store.db"), main_runs(2, shapes=("long",)), allow_dirty=False, now=None)
    address = StoreAddress(str(tmp_path / "store.db"), tmp_path, {})
    (project,) = address.open().projects()
    reader = SiteReader(address)
    reader.read(project, "1", 1.8e9)

    def read() -> None:
        with suppress(PerfgateError):
            reader.read(project, "2", 1.8e9)

    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        # Readers wait for half a minute.
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE log SET number = number")
        other.execute("COMMIT")
        reading = threading.Thread(target=read)
        reading.start()
        reader.close()
        reading.join(20.0)
        assert not reading.is_alive()


def test_changes_remembered__series_as_it_was__not_searched_again() -> None:
    search, series = ChangesRemembered(), make_series(count=30, noise=None)
    first = search(series)
    search.begin()
    assert search(msgspec.structs.replace(series)) is first
    search.begin()
    longer = search(msgspec.structs.replace(series, points=[*series.points, series.points[-1]]))
    assert len(longer.points) == 31
