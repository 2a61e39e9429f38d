"""The middle of the comment: regressions and improvements, their causes, suggestions, and how to accept an intended change."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.comparison import Bound, Checked, Comparison, Exact
from perfgate.document.decision import Suggestion
from perfgate.judging.report.sections.section import SectionText, section, section_text
from perfgate.judging.report.text import formats
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import named
from perfgate.judging.report.text.numbers import beyond, span, to_two_digits
from perfgate.judging.report.text.words import Words, joined
from perfgate.judging.report.view.blocks import (
    block_numbers,
    blocks_with_more,
    listed_regressions,
)
from perfgate.judging.report.view.causes import account_words, worded_causes
from perfgate.judging.report.view.checklist import FindingView, changed_findings
from perfgate.judging.report.view.facts import counts
from perfgate.judging.report.view.rows import (
    common_confidence,
    grouped,
    row,
    whole_call,
)
from perfgate.judging.report.view.summary import Summary

_MOST_IMPROVED = 3
_MOST_CAUSES = 6
_MOST_OPERATORS = 3
_MOST_SUGGESTIONS = 5
_MOST_SETTINGS = 3


@section("causes")
def causes(summary: Summary) -> SectionText | None:
    """One block per cause with the findings that it introduced, the most expensive first."""
    blocks, more = blocks_with_more(summary)
    if not blocks:
        return None
    new, _ = changed_findings(summary)
    return section_text(
        summary,
        "causes",
        listed=[
            (block, _steps_of(number, new)) for number, block in enumerate(blocks, 1)
        ],
        more=more,
    )


def _steps_of(number: int, findings: Iterable[FindingView]) -> list[FindingView]:
    """The findings of a block, of which only step and line are shown: one in several shapes is one."""
    distinct: dict[tuple[int, str | None], FindingView] = {}
    for finding in findings:
        if finding.block == number:
            distinct[finding.step, finding.line] = finding
    return list(distinct.values())


@section("table", fold="moved")
def failing(summary: Summary) -> SectionText | None:
    """Regressed metrics, worst first, then improvements. Folded after causes or a PASS."""
    moved = [*summary.regressed, *summary.improved]
    if not moved:
        return None
    listed = moved[: summary.detail]
    numbers = block_numbers(summary)
    rows = [
        row(comparison, summary, numbers.get(id(comparison))) for comparison in listed
    ]
    return section_text(
        summary,
        "failing",
        rows=grouped(rows),
        more=len(moved) - len(listed),
        confidence=common_confidence(listed),
        fold=summary.verdict != "INCONCLUSIVE",
        counts=counts(summary),
        operators=sum(comparison.is_of_operator for comparison in moved),
    )


@section("improvements", drop=20)
def improved(summary: Summary) -> SectionText | None:
    """The largest improvements; omitted if the change also fails."""
    better = [comparison for comparison in summary.improved if comparison.gating]
    if summary.verdict not in {"PASS", "WARN"} or not better:
        return None
    return section_text(
        summary,
        "improved",
        better=[_improvement(comparison) for comparison in better[:_MOST_IMPROVED]],
        more=beyond(better, _MOST_IMPROVED),
    )


def _improvement(comparison: Comparison) -> str:
    both, size = span(*formats.sides(comparison)), formats.percent_change(comparison)
    words = f" ({both})"
    if size and isinstance(comparison, Exact):
        words = f" {size} ({both})"
    elif size:
        words = f" {formats.change(comparison)}: {both}"
    return joined(named(comparison), Words(words))


def _budget_line(budget: Bound, bound: float) -> str:
    return f'"{budget.metric}@{budget.workload}/{budget.shape}" = {bound:g}'


@section("why", drop=10, fold="moved")
def why(summary: Summary) -> SectionText | None:
    """Operator changes and counter parts, the largest first, and how much time they account for."""
    if (
        summary.verdict not in {"FAIL", "WARN"}
        or not summary.regressed
        or not summary.causes
    ):
        return None
    most = min(_MOST_CAUSES, summary.detail)
    return section_text(
        summary,
        "why",
        causes=worded_causes(summary.causes[:most]),
        more=beyond(summary.causes, most),
        account=account_words(summary),
    )


@section("slower operators", drop=15, fold="moved")
def operators(summary: Summary) -> SectionText | None:
    """Operators that got slower by themselves, hardly visible in the whole call; none of them fails the gate."""
    slower, pairs = [], 0
    for operator in summary.tested_operators:
        if operator.alone:
            slower.append((operator, whole_call(operator, summary)))
            pairs = max(pairs, operator.pairs or 0)
    if not slower:
        return None
    most = min(_MOST_OPERATORS, summary.detail)
    return section_text(
        summary,
        "operators",
        operators=slower[:most],
        total=len(slower),
        more=beyond(slower, most),
        pairs=pairs,
        tested=len(summary.tested_operators),
    )


@section("what to try", drop=20, fold="suggestions")
def suggestions(summary: Summary) -> SectionText | None:
    """Suggestions that no cause shows; all others are in the page and in decision.json."""
    if summary.verdict not in {"FAIL", "WARN"}:
        return None
    tips = summary.decision.explained.suggestions
    in_blocks = set()
    for regression in listed_regressions(summary):
        if regression.suggestion is not None:
            in_blocks.add(_identity(tips[regression.suggestion]))
    distinct = [tip for tip in summary.introduced if _identity(tip) not in in_blocks]
    if not distinct:
        return None
    return section_text(
        summary,
        "suggestions",
        suggestions=distinct[:_MOST_SUGGESTIONS],
        more=beyond(distinct, _MOST_SUGGESTIONS),
    )


def _identity(tip: Suggestion) -> tuple[str, str | None]:
    return word(tip.message), tip.line


@section("if intended")
def intended(summary: Summary) -> SectionText | None:
    """The budgets and limits that would accept the change; a wrong output cannot be tolerated."""
    if summary.verdict != "FAIL" or summary.is_about_rules:
        return None
    budgets, limits, wrong_output = [], [], False
    for comparison in summary.regressed:
        if not comparison.gating:
            continue
        if isinstance(comparison, Checked):
            wrong_output = True
        elif isinstance(comparison, Bound):
            # The line that accepts the measured value, rounded away from it to two digits.
            bound = to_two_digits(
                comparison.head or 0.0, up=comparison.better == "lower"
            )
            if comparison.is_budget:
                budgets.append(_budget_line(comparison, bound))
            elif comparison.limit is not None:
                limits.append(
                    f'"{comparison.limit}" = {{ value = {bound:g}, gating = true }}'
                )
    if not (budgets or limits or wrong_output):
        return None
    return section_text(
        summary,
        "intended",
        budgets=budgets[:_MOST_SETTINGS],
        limits=limits[:_MOST_SETTINGS],
        wrong_output=wrong_output,
    )
