"""One gate has one count: comment, folds, commit status, terminal and page agree on how many metrics there are and moved."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from rich.console import Console

from perfgate.document.decision import DecisionDocument
from perfgate.judging.report.render.ci import status_line
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.terminal import render_terminal
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_run,
    regressed_counters,
    regressed_time,
    unchanged_comparisons,
)
from tests.golden.test_comment_golden import decisions

SHAPES = ("short", "long", "longer")
# Counters of several shapes that a table joins to one row, and an operator that no metric shows.
OTHERS = {
    "rows of several shapes": make_decision(
        "FAIL",
        comparisons=[
            *(make_counter("counters.copies", 0, 2, shape=shape) for shape in SHAPES),
            *(make_counter("counters.syncs", 3, 1, shape=shape) for shape in SHAPES),
            *regressed_time(),
            *unchanged_comparisons(),
        ],
    ),
    "metrics that do not gate": make_decision(
        "FAIL",
        comparisons=[
            *regressed_time(),
            make_comparison(
                metric="latency.p99", outcome="regressed", gating=False, base=0.001, head=0.0014, delta=0.4
            ),
            make_comparison(metric="latency.wall", outcome="inconclusive", gating=False),
        ],
    ),
    "operators besides metrics": make_decision(
        "WARN", comparisons=[*regressed_counters(), make_counter("ops.count:aten::add", 12, 36)]
    ),
    "an operator alone": make_decision(
        "PASS",
        comparisons=[
            *unchanged_comparisons(),
            make_counter("ops.count:aten::div", 0, 1, gating=False),
            make_counter("ops.count:aten::mul", 1, 0, gating=False, outcome="improved"),
        ],
    ),
}
CASES = {**decisions(), **OTHERS}


@pytest.mark.parametrize("name", CASES)
def test_counts__every_place_that_gives_one__the_same(name: str) -> None:
    decision = CASES[name]
    comment = render_comment(decision, CommentContext(marker="<!-- m -->"), budget=10_000_000)
    texts = {
        "comment": comment,
        "status": status_line(decision),
        "terminal": terminal(decision),
        "page": render_html(decision, None, make_run("head")),
    }
    found: dict[str, dict[int, list[str]]] = {}
    for place, text in texts.items():
        for kind, number in counts_in(text):
            found.setdefault(kind, {}).setdefault(number, []).append(place)
    assert {kind: numbers for kind, numbers in found.items() if len(numbers) > 1} == {}


def test_counts__metrics_that_moved__are_the_decisions() -> None:
    decision = OTHERS["rows of several shapes"]
    comment = render_comment(decision, CommentContext(marker="<!-- m -->"))
    regressed = [c for c in decision.comparisons if c.outcome == "regressed"]
    moved = [c for c in decision.comparisons if c.outcome in ("regressed", "improved")]
    assert f"<summary>{len(moved)} metrics moved</summary>" in comment
    assert status_line(decision) == f"FAIL: {len(regressed)} of {len(decision.comparisons)} metrics regressed"


def test_counts__operators_alone_moved__no_metric_is_said_to_have() -> None:
    comment = render_comment(OTHERS["an operator alone"], CommentContext(marker="<!-- m -->"))
    assert "metrics moved</summary>" not in comment
    assert "<summary>1 operator moved</summary>" in comment


def terminal(decision: DecisionDocument) -> str:
    console = Console(file=io.StringIO(), width=500, color_system=None)
    render_terminal(decision, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def counts_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield every count in a text and what it counts."""
    plain = re.sub(r"</?(?:strong|b|span)[^>]*>", "", text)
    for number, total, outcome in re.findall(r"(\d+) of (\d+) metrics? (moved|regressed)", plain):
        yield outcome, int(number)
        yield "total", int(total)
    for number, outcome in re.findall(r"(?<!of )\b(\d+) metrics? (moved)", plain):
        yield outcome, int(number)
    for number in re.findall(r"· (\d+) regressions?\b", plain):
        yield "regressed", int(number)
    for number in re.findall(r"· (\d+) unchanged ·|<summary>(\d+) unchanged metrics?", plain):
        yield "unchanged", int("".join(number))
