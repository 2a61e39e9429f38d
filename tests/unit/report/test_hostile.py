"""Hostile names in every field: tables keep their shape, and no tag, link, mention or quick action survives.

Judged by the parsers the forges use: cmark-gfm (GitHub) and comrak (GitLab), each followed by a strict HTML filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import cmarkgfm
import comrak
import msgspec
import nh3
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.decision import DecisionDocument, JudgedFinding
from perfgate.document.explanation import Part
from perfgate.document.run import ErrorDetail, Evidence
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from tests.fakes.documents import (
    checklist,
    make_comparison,
    make_counter,
    make_decision,
    make_difference,
    make_failure,
    make_run,
    operator_changes,
    suggestions,
    traces,
)

NASTY = [
    "|", "\\|", "`", "``", "```", "~~~", "\n", "\r\n", "\n\n", "<", ">", "</details>", "<img src=x onerror=alert(1)>",
    "<script>", "-->", "@octocat", "a@b.example", "/approve", "\n/merge\n", "[x](https://evil.example)", "![x](y)",
    "https://evil.example/", "www.evil.example", "#1", "!1", "*", "_", "~", "$", "\\", "&#64;octocat", "&lt;b&gt;",
    "\u202e", "\u200b", "\x00", "\x1b[31m", "# h", "- ", "1. ", ":smile:", "{{ 1 }}", "{% raw %}", "|---|", "🏎️", "名",
]  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=6)), min_size=1, max_size=8).map("".join)
CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->", reproduce="perfgate local")


def hostile_decision(name: str) -> DecisionDocument:
    """Return a decision with the same hostile text in every field that takes any."""
    parts = [Part(name=name, base=1, head=9, line=name)]
    replace = msgspec.structs.replace
    evidence: dict[str, Evidence] = {"line": name, "shape": name}
    finding = JudgedFinding(rule=name, severity="warning", message=name, standing="new", evidence=evidence)
    error = ErrorDetail(kind="exception", message=name, traceback=f"{name}\n{name}", signal=name, log_tail=name)
    base = make_decision().base
    return make_decision(
        "FAIL",
        project=name,
        perfgate_version=name,
        reasons=[name],
        warnings=[name],
        device=name,
        base=replace(base, commit=name, branch=name, subject=name, chosen_because=name, sha256=name),
        head=replace(base, commit=name, branch=name, subject=name, chosen_because=name, sha256=name),
        comparisons=[
            make_counter("counters.framework_ops", 1, 9, workload=name, shape=name, parts=parts, reason=name),
            make_counter(f"ops.count:{name}", 1, 9, workload=name, shape=name, gating=False),
            make_comparison(name, workload=name, shape=name, unit=name, outcome="inconclusive", reason=name),
            make_comparison("latency.p50", workload=name, shape=name),
        ],
        testbed_differences=[make_difference(name, name, name)],
        operator_changes=[replace(change, op=name, workload=name, line=name) for change in operator_changes()],
        suggestions=[
            replace(
                one, message=name, line=name, rule=name, code=name, command=name, source=name, evidence={"op": name}
            )
            for one in suggestions()
        ],
        steps=[
            replace(
                checklist()[3],
                slug=name,
                workload=name,
                status=name,
                reason=name,
                findings=[finding],
                gone=[finding],
                number=99,
            )
        ],
        failures=[make_failure(side, workload=name, what=name, error=error) for side in ("head", "pair")],
        links=[replace(link, path=name) for link in traces()],
    )


class Seen(HTMLParser):
    """What a reader's browser would get: tags, links, cells per table row, and text outside code."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.rows: list[list[int]] = []
        self.text = ""
        self._code = 0

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
        self._code += tag in {"code", "pre"}
        if tag == "table":
            self.rows.append([])
        elif tag == "tr":
            self.rows[-1].append(0)
        elif tag in {"td", "th"}:
            self.rows[-1][-1] += 1

    def handle_endtag(self, tag):
        self._code -= tag in {"code", "pre"}

    def handle_data(self, data):
        self.text += "" if self._code else data


def as_github(text: str) -> str:
    return cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE)


def as_gitlab(text: str) -> str:
    extensions = comrak.ExtensionOptions()
    extensions.math_code = extensions.math_dollars = extensions.shortcodes = extensions.footnotes = True
    extensions.table = extensions.autolink = extensions.strikethrough = extensions.tasklist = True
    options = comrak.RenderOptions()
    options.unsafe_ = True
    return comrak.render_markdown(text, extension_options=extensions, render_options=options)


def seen(html: str) -> Seen:
    parser = Seen()
    parser.feed(html)
    return parser


ALLOWED = {
    "h2", "p", "code", "pre", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "strong",
    "details", "summary", "sub",
}  # fmt: skip


def check_rendering(html: str) -> None:
    parsed = seen(html)
    # A forge's own filter finds nothing to take out: the tables it leaves are those we meant.
    cleaned = seen(nh3.clean(html, tags=ALLOWED, attributes={"*": {"align", "style"}}))
    assert cleaned.rows == parsed.rows
    assert parsed.tags <= ALLOWED
    assert parsed.attributes <= {"align", "style"}
    assert "@" not in parsed.text
    assert "evil.example" not in parsed.text
    assert [set(table) for table in parsed.rows] == [{7}, {9}, {4}, {6}]


@pytest.mark.parametrize("render", [as_github, as_gitlab])
def test_render_comment__hostile_names__only_our_own_tags_come_out(render: Callable[[str], str]) -> None:
    for name in [*NASTY, "".join(NASTY)]:
        check_rendering(render(render_comment(hostile_decision(name), CONTEXT)))


@settings(max_examples=60, deadline=None)
@given(hostile)
def test_render_comment__any_name__tables_keep_their_shape_and_nothing_is_linked(name: str) -> None:
    text = render_comment(hostile_decision(name), CONTEXT)
    check_rendering(as_github(text))
    check_rendering(as_gitlab(text))
    assert not [line for line in text.splitlines() if line.startswith("/")]
    # Parsers drop cells that are too many, so the source is counted too: 7, 9, 4 and 6 columns.
    assert {line.count("|") for line in text.splitlines() if line.startswith("| ")} == {8, 10, 5, 7}
    text.encode("utf-8")


@settings(max_examples=25, deadline=None)
@given(hostile)
def test_render_html__any_name__page_has_no_script_link_or_event(name: str) -> None:
    page = render_html(hostile_decision(name), make_run("base", pairs=2, project=name), make_run("head", pairs=2))
    parsed = seen(page)
    assert not parsed.tags & {"script", "a", "img", "iframe", "object", "link", "form", "base"}
    assert not [name for name in parsed.attributes if name.startswith("on") or name in {"style", "href", "src"}]
    assert len(re.findall("<main>", page)) == 1
