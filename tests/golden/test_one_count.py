"""One gate has one count: comment, folds, commit status, terminal and page agree on how many metrics there are and moved."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import msgspec
import pytest
from rich.console import Console

from perfgate.document.comparison import Recorded
from perfgate.document.decision import DecisionDocument, Missing, QuantileComparison
from perfgate.judging.report.render.ci import status_line
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.terminal import render_terminal
from perfgate.judging.report.view.summary import Summary
from tests.fakes.documents import (
    make_comparison,
    make_counter,
    make_decision,
    make_run,
    operator_changes,
    operator_tests,
    regressed_counters,
    regressed_time,
    suggestions,
    traces,
    unchanged_comparisons,
)
from tests.golden.test_comment_golden import decisions, numbers_of_steps

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


def texts_of(decision: DecisionDocument) -> dict[str, str]:
    comment = render_comment(decision, CommentContext(marker="<!-- m -->"), budget=10_000_000)
    return {
        "comment": comment,
        "status": status_line(decision, language="en"),
        "terminal": terminal(decision),
        "page": render_html(decision, None, make_run("head"), language="en"),
    }


MOST_FOLDS = 5


@pytest.mark.parametrize("name", CASES)
def test_decision__every_place_that_gives_a_count__the_same_and_few_folds(name: str) -> None:
    texts = texts_of(CASES[name])
    assert_one_number_of_regressions(CASES[name], texts)
    assert texts["comment"].count("<details>") <= MOST_FOLDS
    found: dict[str, dict[int, list[str]]] = {}
    for place, text in texts.items():
        for kind, number in counts_in(text):
            found.setdefault(kind, {}).setdefault(number, []).append(place)
    assert {kind: numbers for kind, numbers in found.items() if len(numbers) > 1} == {}


def assert_one_number_of_regressions(decision: DecisionDocument, texts: dict[str, str]) -> None:
    expected = sum(c.outcome == "regressed" for c in Summary(decision, "markdown").metrics)
    for place, text in texts.items():
        numbers = [number for kind, number in counts_in(text) if kind == "regressed"]
        # The comment gives it above the table and where it says how it was compared; that nothing regressed, nobody says.
        assert set(numbers) <= {expected}, place
        if expected:
            assert len(numbers) >= (2 if place == "comment" else 1), place


def test_folds__all_that_there_can_be__are_few_and_hold_each_section_once() -> None:
    quantiles = QuantileComparison(
        workload="encoder", metric="serving.latency", base=[0.1, 0.2, 0.3], head=[0.1, 0.2, 0.3], counts=(9, 9)
    )
    everything = make_decision(
        "FAIL",
        comparisons=[
            *regressed_time(),
            *regressed_counters(),
            make_counter("memory.peak", 2, 1),
            make_comparison("latency.p90"),
            make_comparison("latency.p99", outcome="inconclusive", gating=False),
            Recorded(
                workload="encoder",
                shape="long",
                metric="latency.std",
                unit="s",
                better="lower",
                outcome="informs",
                gating=False,
            ),
        ],
        operator_changes=operator_changes(),
        operator_tests=operator_tests(),
        suggestions=[*suggestions(), msgspec.structs.replace(suggestions()[0], line="model.py:7")],
        missing=[Missing(workload="encoder", metric="latency.low", side="head")],
        job_quantiles=[quantiles],
        links=traces(),
        numbers=numbers_of_steps(),
    )
    comment = texts_of(everything)["comment"]
    assert comment.count("<details>") == comment.count("</details>") == MOST_FOLDS
    parts = (
        "5 regressions · 1 improvement",
        "1 number missing",
        "Contributing operators",
        "1 operator independently slower",
        "1 more suggestion",
        "Checklist:",
        "1 unchanged metric",
        "1 undecided",
        "Requests and steps",
        "1 number recorded",
        "How it was compared",
        "Procedure, noise and discarded samples",
    )
    summaries = " · ".join(re.findall(r"<summary>(.*?)</summary>", comment))
    assert [part for part in parts if summaries.count(part) != 1] == []


def test_counts__metrics_that_moved__are_the_decisions() -> None:
    decision = OTHERS["rows of several shapes"]
    comment = render_comment(decision, CommentContext(marker="<!-- m -->"))
    regressed = [c for c in decision.comparisons if c.outcome == "regressed"]
    improved = [c for c in decision.comparisons if c.outcome == "improved"]
    assert f"<summary>{len(regressed)} regressions · {len(improved)} improvements</summary>" in comment
    assert (
        status_line(decision, language="en")
        == f"FAIL: {len(regressed)} of {len(decision.comparisons)} metrics regressed"
    )


def test_counts__operators_alone_moved__no_metric_is_said_to_have() -> None:
    comment = render_comment(OTHERS["an operator alone"], CommentContext(marker="<!-- m -->"))
    assert "regression" not in comment
    assert "<summary>1 operator changed</summary>" in comment


def terminal(decision: DecisionDocument) -> str:
    console = Console(file=io.StringIO(), width=500, color_system=None)
    render_terminal(decision, console, language="en")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def counts_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield every count in a text and what it counts."""
    plain = re.sub(r"</?(?:strong|b|span)[^>]*>", "", text)
    for number, total, outcome in re.findall(r"(\d+) of (\d+) metrics? (changed|regressed)", plain):
        yield outcome, int(number)
        yield "total", int(total)
    for number in re.findall(r"(?:· |<summary>)(\d+) regressions?\b", plain):
        yield "regressed", int(number)
    for number in re.findall(r"· (\d+) unchanged ·|<summary>(\d+) unchanged metrics?", plain):
        yield "unchanged", int("".join(number))
