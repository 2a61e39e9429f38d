"""The middle of the comment: what got worse and better, why, what to try, and what to do where it is intended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from perfgate.document.decision import RULE_METHODS, Comparison
from perfgate.judging.report.sections.section import Section
from perfgate.judging.report.text.format import to_two_digits
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.causes import across_places, causes
from perfgate.judging.report.view.headline import named_change
from perfgate.judging.report.view.records import AccountView, CauseView, Change, OperatorView, Row, SuggestionView
from perfgate.judging.report.view.rows import (
    common_confidence,
    grouped,
    row,
    slower_operators,
    worded_account,
    worded_cause,
    worded_test,
)
from perfgate.judging.report.view.suggestions import introduced, worded_suggestion
from perfgate.judging.report.view.summary import Summary

_MOST_IMPROVED = 3
_MOST_CAUSES = 6
_MOST_OPERATORS = 3
_MOST_SUGGESTIONS = 5
_MOST_SETTINGS = 3
# Room above what was measured, so that the next job's noise does not break a budget that was taken from this one.
_ROOM = 1.05


@dataclass(frozen=True)
class _Table:
    rows: list[Row]
    more: int
    confidence: Words | None
    fold: bool
    improved: int


def _table(summary: Summary) -> _Table | None:
    """Regressed metrics, worst first, then improved ones. A PASS folds its improvements."""
    moved = [*summary.regressed, *summary.improved]
    if not moved:
        return None
    changes = causes(summary)
    listed = moved[: summary.detail]
    return _Table(
        rows=grouped(row(comparison, summary, changes) for comparison in listed),
        more=len(moved) - len(listed),
        confidence=common_confidence(listed),
        fold=summary.verdict == "PASS",
        improved=len(summary.improved),
    )


@dataclass(frozen=True)
class _Improved:
    better: list[Change]
    more: int
    budgets: list[str]


def _improved(summary: Summary) -> _Improved | None:
    """The largest improvements and the new baseline that they propose. A change that also fails has other news first."""
    better = [comparison for comparison in summary.improved if comparison.gating]
    if summary.verdict not in {"PASS", "WARN"} or not better:
        return None
    return _Improved(
        better=[named_change(comparison) for comparison in better[:_MOST_IMPROVED]],
        more=max(0, len(better) - _MOST_IMPROVED),
        budgets=list(_tighter_budgets(summary, better))[:_MOST_IMPROVED],
    )


def _tighter_budgets(summary: Summary, better: list[Comparison]) -> Iterator[str]:
    """Yield the lines of ``[budget]`` that would hold on to an improvement, in base units as perfgate.toml takes them."""
    improved = {(comparison.metric, comparison.workload, comparison.shape) for comparison in better}
    for budget in summary.decision.comparisons:
        key = (budget.metric, budget.workload, budget.shape)
        if budget.method != "budget" or budget.outcome != "unchanged" or key not in improved or not budget.head:
            continue
        tighter = budget.head * _ROOM if budget.better == "lower" else budget.head / _ROOM
        rounded = to_two_digits(tighter, up=budget.better == "lower")
        if budget.base is not None and (rounded < budget.base if budget.better == "lower" else rounded > budget.base):
            yield f'"{budget.metric}@{budget.workload}/{budget.shape}" = {rounded:g}'


@dataclass(frozen=True)
class _Why:
    causes: list[CauseView]
    more: int
    account: AccountView | None


def _why(summary: Summary) -> _Why | None:
    """Operator changes and counter parts, the largest first, and how much time they account for."""
    ranked = across_places(causes(summary)) if summary.verdict in {"FAIL", "WARN"} and summary.regressed else []
    if not ranked:
        return None
    most = min(_MOST_CAUSES, summary.detail)
    return _Why(
        causes=[worded_cause(cause) for cause in ranked[:most]],
        more=max(0, len(ranked) - most),
        account=worded_account(summary),
    )


@dataclass(frozen=True)
class _Operators:
    operators: list[OperatorView]
    total: int
    more: int
    pairs: int
    tested: int


def _operators(summary: Summary) -> _Operators | None:
    """Operators that got slower by themselves, which the whole call may hardly show; none fails the gate."""
    slower = slower_operators(summary)
    if not slower:
        return None
    most = min(_MOST_OPERATORS, summary.detail)
    return _Operators(
        operators=[worded_test(test, summary) for test in slower[:most]],
        total=len(slower),
        more=max(0, len(slower) - most),
        pairs=max(test.pairs for test in slower),
        tested=len(summary.decision.operator_tests),
    )


@dataclass(frozen=True)
class _Suggestions:
    suggestions: list[SuggestionView]
    more: int


def _suggestions(summary: Summary) -> _Suggestions | None:
    """What to try about what the change brought; everything else stands in the page and in decision.json."""
    distinct = introduced(summary.decision.suggestions)
    if not distinct or summary.verdict not in {"FAIL", "WARN"}:
        return None
    return _Suggestions(
        suggestions=[worded_suggestion(suggestion) for suggestion in distinct[:_MOST_SUGGESTIONS]],
        more=max(0, len(distinct) - _MOST_SUGGESTIONS),
    )


@dataclass(frozen=True)
class _Intended:
    settings: list[str]
    budgets: list[str]
    limits: list[str]
    acceptable: bool
    more: int
    wrong_output: bool
    from_zero: bool


def _intended(summary: Summary) -> _Intended | None:
    """How to accept it, and the tolerances and budgets that would let it pass; a wrong output cannot be tolerated."""
    failing = [c for c in summary.regressed if c.gating]
    if summary.verdict != "FAIL" or not failing or summary.decision.comparing == "rules":
        return None
    largest: dict[str, float] = {}
    budgets, limits = [], []
    for comparison in failing:
        share = _passing_tolerance(comparison)
        if share is not None:
            largest[comparison.metric] = max(share, largest.get(comparison.metric, 0.0))
        # The line that holds the value as it is, with two digits of room.
        bound = to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")
        if comparison.method == "budget" and not comparison.metric.startswith("sla."):
            budgets.append(f'"{comparison.metric}@{comparison.workload}/{comparison.shape}" = {bound:g}')
        elif comparison.method == "limit":
            limits.append(f'"{comparison.limit}" = {{ value = {bound:g}, gating = true }}')
    return _Intended(
        # TOML, not prose: the number as perfgate.toml takes it.
        settings=[f'"{name}" = {share:.2f}' for name, share in largest.items()][:_MOST_SETTINGS],
        budgets=budgets[:_MOST_SETTINGS],
        limits=limits[:_MOST_SETTINGS],
        acceptable=any(c.method != "check" for c in failing),
        more=max(0, len(largest) - _MOST_SETTINGS),
        wrong_output=any(c.method == "check" for c in failing),
        from_zero=any(c.method == "exact" and c.delta is None for c in failing),
    )


def _passing_tolerance(comparison: Comparison) -> float | None:
    """The tolerance that lets a worsening pass, rounded up to whole percents; None where none would."""
    if comparison.delta is None or comparison.method in {"check", *RULE_METHODS}:
        return None
    worst = max((abs(end) for end in comparison.interval or ()), default=abs(comparison.delta))
    return math.ceil(max(worst, abs(comparison.delta)) * 100 - 1e-9) / 100 if math.isfinite(worst) else None


TABLE = Section("failing", "table", _table)
IMPROVED = Section("improved", "improvements", _improved, drop=20)
WHY = Section("why", "why", _why, drop=10, numbered=True)
OPERATORS = Section("operators", "slower operators", _operators, drop=15)
SUGGESTIONS = Section("suggestions", "what to try", _suggestions, drop=20, numbered=True)
INTENDED = Section("intended", "if intended", _intended, numbered=True)
