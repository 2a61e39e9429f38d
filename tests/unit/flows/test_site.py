"""`perfgate site` over a real store: the pages that it writes, replaces and removes, and what it refuses."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import requests

from perfgate.errors import UsageError
from perfgate.flows.shared.artifacts import open_artifacts_at
from perfgate.flows.shared.doors import Doors
from perfgate.flows.site import WrittenSite, write_site
from perfgate.judging.report.render.site.page import run_address
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import prune_runs, record_runs, stored_runs
from tests.fakes.artifacts import FLAME, artifact_set, file_server, trace_of
from tests.fakes.history import main_runs, stepped
from tests.unit.flows.test_trend import Project, Said, dated
from tests.unit.report.test_site import broken_links, shown

COUNT = 24


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 24 runs on two testbeds, the last ten of them slower; one failed."""
    path = tmp_path_factory.mktemp("filled") / "store.db"
    record_runs(
        SqlStore(path),
        main_runs(
            COUNT, time=stepped(14, 1.1), operators=stepped(14, 1.5), new_testbed=2, failing=[20], shapes=("long",)
        ),
        allow_dirty=False,
        now=None,
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def project(tmp_path: Path, filled_store: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    (root / "perfgate.toml").write_text('project = "demo"\nworkload = "perf/workload.py:encoder"\n')
    made = Project(root, {"PERFGATE_STORE": str(tmp_path / "store.db")})
    made.take(filled_store)
    return made


def write(project: Project, out: Path, said: Said | None = None, **options: object) -> WrittenSite:
    doors = Doors(environ=project.environ, say=print, sleep=lambda _: None, clock=lambda: 1.8e9)
    return write_site(project.root, out, doors, said or Said(), **{"language": "en", **options})  # type: ignore[arg-type]


def pages(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.html"))}


def test_site__filled_store__every_link_leads_to_a_page_and_the_change_is_on_each(
    project: Project, tmp_path: Path
) -> None:
    out = tmp_path / "pages"
    written = write(project, out, runs=4)
    found = pages(out)
    assert written.pages == len(found)
    assert (written.runs, written.removed) == (COUNT, 0)
    assert broken_links(found) == []
    assert "1 regression open" in shown(found["index.html"])
    ids = [run.id for run in stored_runs(project.store, "demo")]
    assert {f"runs/{run[:12]}.html" for run in ids[:4]} <= set(found)
    # The runs beside the change have pages though they are not among the newest.
    (change,) = set(re.findall(r'href="(compare/[^"]+)"', found["index.html"]))
    text = shown(found[change])
    assert f"Change number {13} of the encoder" in text
    assert f"Change number {14} of the encoder" in text
    assert "another count" in text
    assert "2 testbeds" in shown(found["fleet.html"])
    assert "the step took longer than 300 s" in shown(found[run_address(ids[3])])
    assert not list(out.rglob("*.tmp"))


def test_site__second_call__pages_of_removed_runs_go_and_other_files_stay(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    write(project, out, runs=2)
    (out / "CNAME").write_text("perf.example.org")
    before = set(pages(out))
    prune_runs(project.store, "demo", keep=3)
    written = write(project, out, runs=2)
    after = set(pages(out))
    assert written.removed == len(before - after) > 0
    assert json.loads((out / "site.json").read_text()) == sorted(after)
    assert (out / "CNAME").exists()
    assert broken_links(pages(out)) == []


class Interrupting(Said):
    """Ends the command after some pages, as ctrl-C does."""

    def __init__(self, pages: int) -> None:
        super().__init__()
        self._left = pages

    def status(self, text: str) -> None:
        if text.startswith("writing page"):
            self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt


def test_site__ended_after_some_pages__the_next_call_replaces_them_and_removes_the_rest(
    project: Project, tmp_path: Path
) -> None:
    out = tmp_path / "site"
    with pytest.raises(KeyboardInterrupt):
        write(project, out, Interrupting(40))
    begun = {path.relative_to(out).as_posix() for path in out.rglob("*.html")}
    assert len(begun) == 40
    prune_runs(SqlStore(Path(project.environ["PERFGATE_STORE"])), "demo", keep=2)
    write(project, out)
    after = {path.relative_to(out).as_posix() for path in out.rglob("*.html")}
    assert json.loads((out / "site.json").read_text()) == sorted(after)
    assert begun - after


def test_site__folder_of_something_else__refused_and_left_alone(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    out.mkdir()
    (out / "index.html").write_text("mine")
    with pytest.raises(UsageError, match=r"index.html is not of a site of perfgate"):
        write(project, out)
    assert [path.name for path in out.iterdir()] == ["index.html"]


def test_site__link_in_the_folder__refused(project: Project, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "pages", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "runs").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        write(project, out)
    assert list(elsewhere.iterdir()) == []


def test_site__list_of_pages_that_leads_out__removes_nothing_else(project: Project, tmp_path: Path) -> None:
    out, kept = tmp_path / "pages", tmp_path / "kept.html"
    out.mkdir()
    kept.write_text("mine")
    (out / "site.json").write_text(json.dumps(["../kept.html", str(kept), "series/../../kept.html"]))
    write(project, out, runs=1)
    assert kept.read_text() == "mine"


def test_site__damaged_run__its_page_has_the_reason_and_all_others_are_written(
    project: Project, tmp_path: Path
) -> None:
    newest = stored_runs(project.store, "demo")[0].id
    with closing(sqlite3.connect(project.environ["PERFGATE_STORE"])) as connection, connection:
        connection.execute("UPDATE run_documents SET document = ? WHERE run = ?", (zlib.compress(b"{}"), newest))
    said = Said()
    out = tmp_path / "pages"
    write(project, out, said, runs=2)
    assert "This run cannot be read" in shown(pages(out)[run_address(newest)])
    assert any("holds the reason alone" in note for note in said.notes)
    assert broken_links(pages(out)) == []


def test_site__runs_of_two_branches__a_series_of_each_beside_that_of_all(project: Project, tmp_path: Path) -> None:
    Path(project.environ["PERFGATE_STORE"]).unlink()
    runs = main_runs(4, shapes=("long",))
    on_release = [
        msgspec.structs.replace(run, source=msgspec.structs.replace(run.source, branch="release/2.x"))
        for run in runs[2:]
    ]
    record_runs(project.store, [*runs[:2], *on_release], allow_dirty=False, now=None)
    out = tmp_path / "pages"
    write(project, out, runs=1)
    found = pages(out)
    of_p50 = [shown(page) for address, page in found.items() if "latency-p50" in address]
    assert sorted(text.count("versions") and text.split(" versions")[0].split()[-1] for text in of_p50) == [
        "2",
        "2",
        "4",
    ]
    assert broken_links(found) == []


def test_site__run_of_a_machine_with_a_wrong_clock__left_out_with_a_note_on_the_pages(
    project: Project, tmp_path: Path
) -> None:
    project.record_in(2099, dated(main_runs(1, seed=9)[0], "2099-01-01T00:00:00+00:00"))
    out = tmp_path / "pages"
    assert write(project, out, runs=1).runs == COUNT
    for address in ("index.html", "fleet.html"):
        assert f"1 of {COUNT + 1} runs are dated weeks after today" in shown(pages(out)[address])


def test_site__no_run__says_how_one_is_recorded(project: Project, tmp_path: Path) -> None:
    Path(project.environ["PERFGATE_STORE"]).unlink()
    with pytest.raises(UsageError, match="perfgate baseline record"):
        write(project, tmp_path / "pages")
    assert not (tmp_path / "pages").exists()


def test_site__artifacts_of_a_run__linked_by_their_address_or_named_by_their_place(
    project: Project, tmp_path: Path
) -> None:
    config = project.root / "perfgate.toml"
    config.write_text(f'{config.read_text()}[artifacts]\npath = "kept"\nurl = "{(tmp_path / "kept").as_uri()}"\n')
    newest = stored_runs(project.store, "demo")[0].id
    folder = tmp_path / "run"
    made = msgspec.structs.replace(artifact_set(folder, project="demo"), id=newest)
    store = open_artifacts_at(str(project.root / "kept"), {}, "")
    store.keep(made, folder, lambda *_: None)
    out = tmp_path / "pages"
    page = run_address(newest)
    # A file:// address is none that a page may link.
    write(project, out, runs=1)
    assert store.links(made)[0].place in shown(pages(out)[page])
    with file_server(project.root / "kept") as url:
        config.write_text(config.read_text().replace((tmp_path / "kept").as_uri(), url))
        write(project, out, runs=1)
        links = re.findall(rf'href="({url}/[^"]+)"', pages(out)[page])
        assert [requests.get(link, timeout=30).content for link in links] == [trace_of("s1"), FLAME]
