"""Comments as people see them: rendered by the forges' parsers, filtered, laid out in Chromium, measured and photographed.

The pictures stand in build/photographs after `make test-ci`, for looking at. The style sheets are ours, after how GitHub and
GitLab show a comment; what those sites do beyond the parser is not proven here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import nh3
import pytest

from perfgate.document.decision import DecisionDocument, Policy, Procedure, SideSummary
from perfgate.document.message import quote
from perfgate.judging.forge.comment import TEXT_BUDGET, CommentState, compose, marker
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.locale import Language
from tests.browser import Page, browser_page
from tests.fakes.documents import make_counter, make_decision
from tests.golden.test_comment_golden import decisions
from tests.hostile.rendering import as_github, as_gitlab

STYLES = Path(__file__).parent / "styles"
PHOTOS = Path(__file__).parents[2] / "build" / "photographs"
FORGES = {"github": as_github, "gitlab": as_gitlab}
# Of the tags that both let through, those a comment of ours has.
TAGS = {"h2", "p", "code", "pre", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "strong", "details",
        "summary", "sub", "a"}  # fmt: skip
CONTEXT = CommentContext(
    marker=marker("default"),
    artifact_url="https://forge.example/demo/actions/runs/1/artifacts/2",
    job_url="https://forge.example/demo/actions/runs/1",
    reproduce="perfgate check --base a1b2c3d4e5f6 --out perfgate-out",
)


def missing_artifact() -> DecisionDocument:
    """Return what publish says where the measuring job left nothing."""
    return make_decision(
        "INCONCLUSIVE",
        reasons=[quote("artifact: there is none with a head/run.json; see the log of the measuring job")],
        comparisons=[],
        noise_floors=[],
        steps=[],
        procedure=Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy()),
        base=SideSummary(),
        head=SideSummary(commit="0f1e2d3c4b5a69788796a5b4c3d2e1f001122334"),
        device="unknown",
        pairs=0,
        duration=0.0,
    )


def very_long() -> DecisionDocument:
    """Return a change that made two thousand numbers of long names worse."""
    rows = [
        make_counter("counters.copies", 2, 3 + n, workload=f"workload-{n:04}-" + "long_name_" * 8) for n in range(2000)
    ]
    return make_decision("FAIL", reasons=[quote("regressed")], comparisons=rows)


CASES: dict[str, tuple[str, Language]] = {
    "pass": ("pass", "en"),
    "fail": ("fail-by-time", "en"),
    "fail-zh": ("fail-by-time", "zh"),
    "warn": ("upgrade-slower", "en"),
    "inconclusive": ("inconclusive-noisy", "en"),
    "inconclusive-zh": ("inconclusive-noisy", "zh"),
    "error": ("error-in-head", "en"),
    "hostile": ("hostile-names", "en"),
    "hostile-zh": ("hostile-names", "zh"),
    "missing-artifact": ("missing", "en"),
    "missing-artifact-zh": ("missing", "zh"),
    "very-long": ("long", "en"),
}


@cache
def every_decision() -> dict[str, DecisionDocument]:
    return {**decisions(), "missing": missing_artifact(), "long": very_long()}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("profile")) as found:
        for domain in ("DOM", "CSS"):
            found.call(f"{domain}.enable")
        yield found


def posted(name: str) -> str:
    """Return a comment as a forge gets it."""
    key, language = CASES[name]
    text = render_comment(every_decision()[key], replace(CONTEXT, language=language), budget=TEXT_BUDGET)
    return compose(text, CommentState(run=7, attempt=1, head="a" * 40, verdict="PASS"), CONTEXT.marker)


def lay_out(page: Page, forge: str, name: str, width: int, folder: Path) -> None:
    """Show a comment in a window of a width."""
    html = nh3.clean(
        FORGES[forge](posted(name)), tags=TAGS, attributes={"a": {"href"}, "td": {"align"}, "th": {"align"}}
    )
    if forge == "gitlab":
        html = html.replace("<table>", '<div class="box"><table>').replace("</table>", "</table></div>")
    file = folder / f"{forge}-{name}.html"
    style = (STYLES / f"{forge}.css").read_text(encoding="utf-8")
    head = f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{style}</style>'
    file.write_text(f'{head}<div class="comment">{html}</div>', encoding="utf-8")
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    page.call("Page.navigate", url=file.as_uri())
    page.ask(
        "new Promise((done) => { const wait = () => document.readyState === 'complete' && "
        f"location.href === '{file.as_uri()}' ? done(true) : setTimeout(wait, 20); wait(); }})"
    )


def photograph(page: Page, name: str) -> None:
    PHOTOS.mkdir(parents=True, exist_ok=True)
    shot = page.call("Page.captureScreenshot", format="png")["data"]
    (PHOTOS / f"{name}.png").write_bytes(base64.b64decode(shot))


def fonts(page: Page, selector: str) -> set[str]:
    """Return the fonts that the text of an element was really drawn with."""
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
    found: list[dict[str, Any]] = page.call("CSS.getPlatformFontsForNode", nodeId=node)["fonts"]
    return {one["familyName"] for one in found}


@pytest.mark.parametrize("width", [920, 390])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("forge", FORGES)
def test_comment__laid_out__nothing_runs_out_of_the_window(
    page: Page, tmp_path: Path, forge: str, name: str, width: int
) -> None:
    lay_out(page, forge, name, width, tmp_path)
    photograph(page, f"{forge}-{name}-{width}")
    assert page.ask("document.documentElement.scrollWidth") <= width
    # Of what is visible only tables, which scroll by themselves, and code blocks may be wider than the comment.
    wide = page.ask(
        "[...document.querySelectorAll('.comment *')].filter((e) => !e.closest('table, .box, pre') && "
        "e.getBoundingClientRect().right > document.querySelector('.comment').getBoundingClientRect().right + 1)"
        ".map((e) => e.tagName + ' ' + e.textContent.slice(0, 60))"
    )
    assert wide == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("forge", FORGES)
def test_comment__its_tables__have_as_many_cells_in_every_row(
    page: Page, tmp_path: Path, forge: str, name: str
) -> None:
    lay_out(page, forge, name, 920, tmp_path)
    tables = page.ask("[...document.querySelectorAll('table')].map((t) => [...t.rows].map((r) => r.cells.length))")
    assert all(len(set(rows)) == 1 and rows[0] > 1 for rows in tables)
    # No cell is squeezed to nothing or lies over its neighbour.
    squeezed = page.ask(
        "[...document.querySelectorAll('tr')].filter((row) => row.getBoundingClientRect().height > 0).flatMap((row) => "
        "[...row.cells].map((cell) => [cell, cell.getBoundingClientRect(), cell.nextElementSibling]).filter("
        "([cell, box, next]) => box.width < 8 || (next && next.getBoundingClientRect().left < box.right - 1))"
        ".map(([cell]) => cell.textContent.slice(0, 60)))"
    )
    assert squeezed == []


@pytest.mark.parametrize("forge", FORGES)
def test_comment__in_chinese__is_drawn_with_a_font_that_has_it(page: Page, tmp_path: Path, forge: str) -> None:
    lay_out(page, forge, "fail-zh", 920, tmp_path)
    assert any("CJK" in font for font in fonts(page, "h2"))
    # A glyph that a font lacks is a box of one width: of these two, different in every font that has them, it makes twins.
    widths = page.ask("['i', '名'].map((text) => { const s = document.createElement('span'); s.textContent = text.repeat(20); "
                      "document.querySelector('.comment').append(s); return s.getBoundingClientRect().width; })")  # fmt: skip
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pass", ["PASS", "no slowdown above 2 %", "at most +0.9 %"]),
        (
            "fail",
            [
                "FAIL",
                "6.8 % slower",
                "24 more aten::add",
                "model.py:88",
                "Cost",
                "changed",
                "Try",
                "If intended",
                "noise floor",
            ],
        ),
        ("fail-zh", ["FAIL", "变慢 6.8 %", "model.py:88", "影响", "变化", "建议", "如属有意", "噪声底"]),
        ("warn", ["WARN", "upgrade", "slower", "Cost"]),
        ("inconclusive", ["INCONCLUSIVE", "undecided", "14 pairs", "To do:", "perfgate check --append"]),
        ("error", ["INCONCLUSIVE", "could not be measured", "Traceback"]),
        (
            "missing-artifact",
            ["INCONCLUSIVE", "see the log of the measuring job", "To do:", "check the log of the measuring job"],
        ),
        ("missing-artifact-zh", ["INCONCLUSIVE", "测量作业的日志", "处理："]),
        ("very-long", ["FAIL", "more rows of this table"]),
    ],
)
@pytest.mark.parametrize("forge", FORGES)
def test_comment__first_screenful__says_what_how_sure_why_and_what_now(
    page: Page, tmp_path: Path, forge: str, name: str, words: list[str]
) -> None:
    lay_out(page, forge, name, 920, tmp_path)
    height = 900 if name != "very-long" else 10**6
    seen = page.ask(
        "(() => { let text = ''; const comment = document.querySelector('.comment'); "
        "const walker = document.createTreeWalker(comment, NodeFilter.SHOW_TEXT); "
        "while (walker.nextNode()) { const range = document.createRange(); range.selectNodeContents(walker.currentNode); "
        "const box = range.getBoundingClientRect(); "
        f"if (box.height > 0 && box.top < {height}) text += walker.currentNode.textContent; }} return text; }})()"
    )
    assert [word for word in words if word not in seen] == []
