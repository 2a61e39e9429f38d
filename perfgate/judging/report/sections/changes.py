"""The middle of the comment: regressions and improvements, their causes, suggestions, and how to accept an intended change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfgate.document.comparison import Bound, Checked, Comparison, Exact
from perfgate.judging.report.sections.section import section
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.numbers import to_two_digits
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.view.blocks import block_numbers, blocks_with_more, listed_regressions
from perfgate.judging.report.view.facts import counts
from perfgate.judging.report.view.findings import changed_findings
from perfgate.judging.report.view.rows import (
    common_confidence,
    grouped,
    row,
    whole_call,
    worded_account,
    worded_causes,
)
from perfgate.judging.report.view.suggestions import introduced
from perfgate.judging.report.view.summary import Summary

_MOST_IMPROVED = 3
_MOST_CAUSES = 6
_MOST_OPERATORS = 3
_MOST_SUGGESTIONS = 5
_MOST_SETTINGS = 3
# Margin above the measured value, so that the next job's noise does not break a budget taken from this one.
_ROOM = 1.05


@section("causes")
def causes(summary: Summary) -> Values | None:
    """One block per cause, the most expensive first, with the findings it introduced."""
    (listed, more), (new, _) = blocks_with_more(summary), changed_findings(summary)
    findings = {number: _steps_of(number, new) for number in range(1, len(listed) + 1)}
    return {"blocks": listed, "more": more, "findings": findings} if listed else None


def _steps_of(block: int, findings: Iterable[Values]) -> Iterable[Values]:
    """The findings of a block, of which only step and line are shown: one in several shapes is one."""
    return {(one["step"], one["line"]): one for one in findings if one["block"] == block}.values()


@section("table", fold="moved")
def failing(summary: Summary) -> Values | None:
    """Regressed metrics, worst first, then improved ones; folded after causes or a PASS."""
    moved = [*summary.regressed, *summary.improved]
    if not moved:
        return None
    listed = moved[: summary.detail]
    numbers, of_metrics = block_numbers(summary), counts(summary)
    return {
        "rows": grouped(row(one, summary, numbers.get(id(one))) for one in listed),
        "more": len(moved) - len(listed),
        "confidence": common_confidence(listed),
        "fold": summary.verdict != "INCONCLUSIVE",
        "rules": of_metrics["rules"],
        "regressed": of_metrics["regressed"],
        "improved": of_metrics["improved"],
        "operators": sum(c.is_of_operator for c in moved),
    }


@section("improvements", drop=20)
def improved(summary: Summary) -> Values | None:
    """The largest improvements and the new baseline they justify; omitted if the change also fails."""
    better = [comparison for comparison in summary.improved if comparison.gating]
    if summary.verdict not in {"PASS", "WARN"} or not better:
        return None
    return {
        "better": better[:_MOST_IMPROVED],
        "counts": [comparison for comparison in better if isinstance(comparison, Exact)],
        "more": max(0, len(better) - _MOST_IMPROVED),
        "budgets": list(_tighter_budgets(summary, better))[:_MOST_IMPROVED],
    }


def _tighter_budgets(summary: Summary, better: list[Comparison]) -> Iterator[str]:
    """Yield the lines of ``[budget]`` that would preserve an improvement, in base units as perfgate.toml takes them."""
    improved = {(comparison.metric, comparison.workload, comparison.shape) for comparison in better}
    bounds = [one for one in summary.decision.comparisons if isinstance(one, Bound)]
    for budget in bounds:
        key = (budget.metric, budget.workload, budget.shape)
        if not budget.is_budget or budget.outcome != "unchanged" or key not in improved or not budget.head:
            continue
        tighter = budget.head * _ROOM if budget.better == "lower" else budget.head / _ROOM
        rounded = to_two_digits(tighter, up=budget.better == "lower")
        if rounded < budget.bound if budget.better == "lower" else rounded > budget.bound:
            yield f'"{budget.metric}@{budget.workload}/{budget.shape}" = {rounded:g}'


@section("why", drop=10, fold="moved")
def why(summary: Summary) -> Values | None:
    """Operator changes and counter parts, the largest first, and how much time they account for."""
    ranked = summary.causes if summary.verdict in {"FAIL", "WARN"} and summary.regressed else []
    if not ranked:
        return None
    most = min(_MOST_CAUSES, summary.detail)
    return {
        "causes": worded_causes(ranked[:most]),
        "more": max(0, len(ranked) - most),
        "account": worded_account(summary),
    }


@section("slower operators", drop=15, fold="moved")
def operators(summary: Summary) -> Values | None:
    """Operators that got slower by themselves, hardly visible in the whole call; none of them fails the gate."""
    slower = [operator for operator in summary.tested_operators if operator.alone]
    if not slower:
        return None
    most = min(_MOST_OPERATORS, summary.detail)
    return {
        "operators": [(test, whole_call(test, summary)) for test in slower[:most]],
        "total": len(slower),
        "more": max(0, len(slower) - most),
        "pairs": max(test.pairs or 0 for test in slower),
        "tested": len(summary.tested_operators),
    }


@section("what to try", drop=20, fold="suggestions")
def suggestions(summary: Summary) -> Values | None:
    """Suggestions on newly introduced problems that no cause shows; all others are in the page and in decision.json."""
    if summary.verdict not in {"FAIL", "WARN"}:
        return None
    tips = summary.decision.suggestions
    with_causes = [tips[one.suggestion] for one in listed_regressions(summary) if one.suggestion is not None]
    shown = {(word(tip.message), tip.line) for tip in with_causes}
    distinct = [tip for tip in introduced(tips) if (word(tip.message), tip.line) not in shown]
    if not distinct:
        return None
    return {
        "suggestions": distinct[:_MOST_SUGGESTIONS],
        "more": max(0, len(distinct) - _MOST_SUGGESTIONS),
    }


@section("if intended")
def intended(summary: Summary) -> Values | None:
    """The budgets and limits that would accept the change; a wrong output cannot be tolerated."""
    failing = [c for c in summary.regressed if c.gating]
    if summary.verdict != "FAIL" or summary.decision.comparing == "rules":
        return None
    budgets, limits = [], []
    for comparison in failing:
        if not isinstance(comparison, Bound):
            continue
        # The line that accepts the measured value, rounded away from it to two digits.
        bound = to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")
        if comparison.is_budget:
            budgets.append(f'"{comparison.metric}@{comparison.workload}/{comparison.shape}" = {bound:g}')
        elif comparison.limit is not None:
            limits.append(f'"{comparison.limit}" = {{ value = {bound:g}, gating = true }}')
    wrong_output = any(isinstance(c, Checked) for c in failing)
    if not (budgets or limits or wrong_output):
        return None
    return {
        "budgets": budgets[:_MOST_SETTINGS],
        "limits": limits[:_MOST_SETTINGS],
        "wrong_output": wrong_output,
    }
