"""What a forge's reader gets of a comment with hostile names, and what must be true of it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from html import unescape

import cmarkgfm
import comrak
import msgspec
import nh3
from cmarkgfm.cmark import Options

from perfgate.document.decision import DecisionDocument, HarnessRemoval, JudgedFinding
from perfgate.document.explanation import Part
from perfgate.document.run import ErrorDetail
from perfgate.judging.forge.comment import marker, without_commands
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.text.escape import code_span, prose
from perfgate.judging.report.text.kernels import with_short_kernel
from perfgate.locale import Language
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_difference,
    make_failure,
    make_harness_change,
    make_package,
    suggestions,
    traces,
)

MARKER = marker("default")
# Tags of our own templates; nothing a name says may add one.
OUR_TAGS = {
    "h2", "p", "code", "pre", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "strong", "details",
    "summary", "sub",
}  # fmt: skip
# What the filters behind the parser make of plain text: mentions, references, links, emoji, mathematics, footnotes.
MEANINGS = re.compile(r"@\w|[#!&%~$]\d|GH-\d|://|\bwww\.|:[a-z+]\w*:|\$\$|\[\^|[0-9a-f]{40}")
_TOKEN = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)([^<>]*)>|<!--.*?-->|([^<]+)|(<)", re.DOTALL)


def as_github(text: str) -> str:
    return cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES)


def as_gitlab(text: str) -> str:
    extensions = comrak.ExtensionOptions()
    extensions.math_code = extensions.math_dollars = extensions.shortcodes = extensions.footnotes = True
    extensions.table = extensions.autolink = extensions.strikethrough = extensions.tasklist = True
    options = comrak.RenderOptions()
    options.unsafe_ = True
    return comrak.render_markdown(text, extension_options=extensions, render_options=options)


RENDER = {"cmark-gfm": as_github, "comrak": as_gitlab}
PARSERS = tuple(RENDER)


@dataclass
class Seen:
    """A rendered page: tags and attributes, its tables as cells of code texts, and all text that is not code."""

    tags: Counter[str] = field(default_factory=Counter)
    attributes: set[str] = field(default_factory=set)
    tables: list[list[list[list[str]]]] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)


def see(html: str) -> Seen:
    """Read what a parser wrote; a "<" that begins no tag would be raw HTML of a name."""
    seen, code = Seen(), 0
    for slash, tag, attributes, text, stray in _TOKEN.findall(html):
        assert not stray, "an unescaped < came through"
        if text:
            if not code:
                seen.plain.append(unescape(text))
            elif seen.tables and code == 1 and seen.tables[-1] and seen.tables[-1][-1]:
                seen.tables[-1][-1][-1][-1:] = [seen.tables[-1][-1][-1][-1] + unescape(text)]
        elif tag:
            code += (tag in ("code", "pre")) * (-1 if slash else 1)
            if not slash:
                _open(seen, tag, attributes)
            elif tag == "table":
                seen.tables.append([])
    seen.tables = [table for table in seen.tables if table]
    return seen


def _open(seen: Seen, tag: str, attributes: str) -> None:
    seen.tags[tag] += 1
    seen.attributes.update(re.findall(r"([\w-]+)=", attributes))
    if tag == "table":
        seen.tables.append([])
    elif tag == "tr":
        seen.tables[-1].append([])
    elif tag in ("td", "th"):
        seen.tables[-1][-1].append([])
    elif tag == "code" and seen.tables and seen.tables[-1] and seen.tables[-1][-1]:
        seen.tables[-1][-1][-1].append("")


def shown(name: str, limit: int = 120) -> str:
    """Return what a reader should see of a name in a code span: said again here, independent of escape.py."""
    hidden = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    made = []
    for character in name[: 8 * limit]:
        category = unicodedata.category(character)
        space = character in "\n\r\t\v\f" or category == "Zs"
        made.append(" " if space else "\ufffd" if category in hidden else character)
    text = "".join(made) + (" …" if len(name) > 8 * limit else "")
    if len(text) > limit:
        text = text[: limit - 1].rstrip() + "…"
    text = text.strip().replace("|", "\u2223")
    return (text.replace("`", "\u02cb") if "`" * 80 in text else text) or "(empty)"


def check_spans(names: list[str], parser: str) -> None:
    """A table with a row a name: its code span in one cell, its prose in the other."""
    rows = [f"| {code_span(name)} | {prose(name)} |" for name in names]
    assert not any(row.splitlines() != [row] for row in rows)
    seen = see(RENDER[parser]("\n".join(["| a | b |", "|---|---|", *rows])))
    (table,) = seen.tables
    assert len(table) == 1 + len(names)
    assert {len(row) for row in table} == {2}
    for name, (span, _) in zip(names, table[1:]):
        assert span == [shown(name)]
    _nothing_means_anything(seen)


def decision_of(names: list[str]) -> DecisionDocument:
    """Return a decision that carries every name as workload, shape, cause, line, reason and finding; some elsewhere too."""
    replace = msgspec.structs.replace

    def at(index: int) -> str:
        return names[index % len(names)]

    base, head = make_decision().sides.base, make_decision().sides.head
    failing = [
        make_counter(
            "counters.framework_ops",
            index,
            index + 9,
            workload=name,
            shape=f"{index}",
            parts=[Part(name=at(index + 1), base=index, head=index + 9, line=at(index + 2))],
            accepted=at(index + 3) if index % 7 == 3 else None,
        )
        for index, name in enumerate(names)
    ]
    undecided = [
        make_comparison(
            at(index + 4), workload=f"{index}", shape=name, unit=at(index + 5), outcome="inconclusive", reason=name
        )
        for index, name in enumerate(names)
    ]
    error = ErrorDetail(kind="exception", message=at(1), traceback=f"{at(2)}\n{at(3)}", signal=at(4), log_tail=at(5))
    return make_decision(
        "FAIL",
        project=at(6),
        perfgate_version=at(7),
        device=at(8),
        base=replace(base, commit=at(9), branch=at(10), subject=at(11), chosen_because=at(12), sha256=at(13)),
        head=replace(head, commit=None, branch=at(14), subject=at(15), chosen_because=at(16), sha256=at(17)),
        reasons=[at(18)],
        warnings=[at(19), at(20), at(21), at(22)],
        comparisons=failing + undecided,
        testbed_differences=[make_difference(at(n), at(n + 1), at(n + 2)) for n in range(23, 53, 3)],
        package_differences=[make_package(at(n), at(n + 1), at(n + 2)) for n in range(53, 113, 3)],
        harness_changes=[make_harness_change(HarnessRemoval, at(n)) for n in range(113, 117)],
        suggestions=[
            replace(one, message=at(120 + n), line=at(121 + n), rule=at(122 + n), code=at(123 + n), command=at(124 + n),
                    source=at(125 + n), evidence={"op": at(126 + n)})
            for n, one in enumerate(suggestions())
        ],
        steps=[
            replace(make_decision().checklist.steps[3], slug="ops", workload=name, reason=at(index + 1),
                    findings=[JudgedFinding(rule=at(index + 2), severity="warning", message=at(index + 3))])
            for index, name in enumerate(names)
        ],
        failures=[make_failure(side, workload=at(130), what=at(131), error=error) for side in ("head", "pair")],
        links=[replace(link, path=at(132)) for link in traces()],
    )  # fmt: skip


def check_comment(names: list[str], parser: str, language: Language) -> None:
    """Render a comment with these names as it is posted, and hold it to everything that may not happen."""
    decision = decision_of(names)
    seen = check_posted(_comment(decision, language), parser)
    # Not one heading, item, row, line or fold more or less than with names that mean nothing; prose has code where it must.
    assert {**seen.tags, "code": 0} == {**_harmless_tags(len(names), parser, language), "code": 0}
    failing, steps, undecided = seen.tables
    # The last step is the decision.
    assert len(steps.pop()) == 9
    for table, columns in ((failing, 7), (steps, 9), (undecided, 6)):
        assert len(table) == 1 + len(names)
        assert {len(row) for row in table} == {columns}
    expected = [comparison for comparison in decision.comparisons if comparison.outcome == "regressed"]
    # A name like that of a long kernel is shortened like one.
    names_of_places = [with_short_kernel(f"{comparison.workload}/{comparison.shape}") for comparison in expected]
    places = Counter(map(shown, names_of_places))
    assert Counter(row[1][0] for row in failing[1:]) == places
    assert Counter(row[1][-1] for row in steps[1:]) == Counter(
        shown(with_short_kernel(step.workload)) for step in decision.checklist.steps
    )


@cache
def _harmless_tags(count: int, parser: str, language: Language) -> Counter[str]:
    text = _comment(decision_of([f"name{index:05}" for index in range(count)]), language)
    return see(RENDER[parser](text)).tags


def _comment(decision: DecisionDocument, language: Language) -> str:
    context = CommentContext(marker=MARKER, reproduce="perfgate local", language=language)
    return render_comment(decision, context, budget=10_000_000)


def check_posted(text: str, parser: str, *, more: frozenset[str] = frozenset()) -> Seen:
    """Hold a text to what is true of all we post: only our tags, nothing a filter would take out, no command, no mention.

    ``more`` are tags that templates of this text have besides.
    """
    ours = OUR_TAGS | more
    assert not [line for line in text.splitlines() if line.startswith("/")]
    posted = "\n".join(without_commands(text.splitlines()))
    assert not [line for line in posted.splitlines() if line.lstrip().startswith("/")]
    posted.encode("utf-8")
    html = RENDER[parser](posted)
    seen = see(html)
    assert set(seen.tags) <= ours, set(seen.tags) - ours
    assert seen.attributes <= {"align", "style"}
    cleaned = nh3.clean(html, tags=ours, attributes={"*": {"align", "style"}})
    assert Counter(re.findall(r"<([a-z0-9]+)", cleaned)) == seen.tags
    _nothing_means_anything(seen)
    return seen


def _nothing_means_anything(seen: Seen) -> None:
    found = [text for text in seen.plain if MEANINGS.search(text)]
    assert found == []
