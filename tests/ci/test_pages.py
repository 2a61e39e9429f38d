"""The pages as people open them: on a phone, a laptop and a wide screen, in both languages, held to axe-core's rules.

The pictures stand in build/photographs after `make test-ci`, for looking at.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from perfgate.document.flame import side_by_side
from perfgate.document.served import ServedJob, ServedRecording
from perfgate.judging.report.render.flame import render_flame
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.served import (
    AuditRow,
    ProjectRow,
    render_audit,
    render_index,
    render_projects,
    render_refusal,
    render_trouble,
)
from perfgate.judging.report.render.site.page import OPEN, run_address
from perfgate.judging.report.render.timeline import render_ranks_page, render_timeline
from perfgate.judging.report.render.trend import render_email
from perfgate.judging.report.render.trend_page import render_trend_page
from perfgate.locale import Language
from perfgate.trace.pages.timeline import drawn_timeline
from tests.browser import Page, browser_page
from tests.fakes.documents import make_run
from tests.fakes.sites import make_site
from tests.golden.test_comment_golden import decisions
from tests.unit.report.test_flame import BASE, HEAD
from tests.unit.report.test_ranks_page import drawn as drawn_job
from tests.unit.report.test_site import SHOWN, example_page, pages_of
from tests.unit.report.test_timeline import EVENTS
from tests.unit.report.test_trend import make_change, make_series, make_trend

PHOTOS = Path(__file__).parents[2] / "build" / "photographs"
PAGES: dict[str, Callable[[Language], str]] = {
    "report": lambda language: render_html(
        decisions()["fail-by-time"], make_run("base"), make_run("head", slowdown=0.07), language
    ),
    "report-undecided": lambda language: render_html(
        decisions()["inconclusive-noisy"], make_run("base"), make_run("head"), language
    ),
    "flame": lambda language: render_flame([side_by_side(BASE, HEAD)], language),
    "timeline": lambda language: render_timeline([drawn_timeline(EVENTS, "rank 0, device 0")], language),
    "ranks": lambda language: render_ranks_page(drawn_job(), language),
    "served": lambda language: render_index(
        [ServedRecording(name="runs/of a long name " * 4, kind="run", size=123_456, modified=1.7e9)],
        [ServedJob(name="a job" * 20, recordings=8, size=1, modified=1.7e9)],
        language,
        folder="",
        contains="",
        home="/",
    ),
    "projects": lambda language: render_projects(
        [
            ProjectRow(
                "a project of a long name " * 4, "/projects/a/index.html", "2026-03-01T12:00:00Z", "a" * 12, "x" * 99
            ),
            ProjectRow("shop", "/projects/shop/index.html", "2026-03-01T12:00:00Z", "", ""),
        ],
        language,
        recordings="/recordings",
        audit="/audit",
        webhooks="",
    ),
    "audit": lambda language: render_audit(
        [AuditRow("2026-03-01T12:00:00Z", "token 1f " + "runner" * 9, "shop" * 9, "run recorded", "a" * 64)],
        language,
        older="/audit?before=1",
    ),
    "refusal": lambda language: render_refusal(
        "the form names no commit or no state; open the page again", OPEN, language
    ),
    "trouble": lambda language: render_trouble("no run of project 'shop' is stored", language),
    "trend": lambda language: render_trend_page(make_trend(make_series(make_change())), language, kept_files=None),
    "email": lambda language: render_email(make_trend(make_series(make_change())), language),
    "site-unreadable": lambda language: pages_of(make_site(), language=language).unreadable(
        run_address("a" * 64), "run aaaaaaaaaaaa cannot be read"
    ),
    **{f"site-{name}": partial(example_page, address, "encoder") for name, address in SHOWN.items()},
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    """Return axe-core's script, which npm keeps beside the program that it links."""
    program = shutil.which("gitlab-ci-local")
    script = Path(program).parents[1] / "node_modules" / "axe-core" / "axe.min.js" if program else None
    if script is None or not script.exists():
        pytest.skip("no axe-core; `make test-ci` installs it")
    return script.read_text(encoding="utf-8")


def test_site__keyboard__begins_at_the_skip_link_and_reaches_every_run_of_a_series(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "series.html"
    file.write_text(PAGES["site-series"]("en"), encoding="utf-8")
    page.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    page.open(file)
    page.key("Tab")
    assert page.ask("document.activeElement.getAttribute('href')") == "#content"
    assert page.ask("document.activeElement.getBoundingClientRect().left") >= 0
    reached = "[...document.querySelectorAll('table a')].filter((link) => link.tabIndex >= 0).map((link) => link.href)"
    drawn = "[...document.querySelectorAll('svg.history a')].map((link) => link.href.baseVal)"
    behind = {link.rpartition("/")[2] for link in page.ask(drawn)}
    assert len(behind) == 30
    assert behind <= {link.rpartition("/")[2] for link in page.ask(reached)}


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "zh")])
@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("name", PAGES)
def test_page__every_width_light_in_english_dark_in_chinese__nothing_runs_out_and_axe_finds_nothing(
    page: Page, axe: str, tmp_path: Path, name: str, width: int, scheme: str, language: Language
) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(PAGES[name](language), encoding="utf-8")
    page.call("Page.setBypassCSP", enabled=True)  # axe is no script of the page
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.call("Page.navigate", url=file.as_uri())
    page.ask(
        "new Promise((done) => { const wait = () => document.readyState === 'complete' && "
        f"location.href.startsWith('{file.as_uri()}') ? done(true) : setTimeout(wait, 20); wait(); }})"
    )
    PHOTOS.mkdir(parents=True, exist_ok=True)
    shot = page.call("Page.captureScreenshot", format="png")["data"]
    (PHOTOS / f"page-{name}-{width}-{scheme}.png").write_bytes(base64.b64decode(shot))
    assert page.ask("document.documentElement.scrollWidth") <= width
    page.ask(f"{axe}; true")
    found = page.ask(
        "axe.run().then((all) => JSON.stringify(all.violations.map((one) => [one.id, one.nodes[0].html])))"
    )
    assert json.loads(found) == []
