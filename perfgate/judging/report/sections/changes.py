"""The middle of the comment: regressions and improvements, their causes, suggestions, and how to accept an intended change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfgate.document.comparison import Bound, Checked, Comparison, Exact
from perfgate.document.decision import Suggestion
from perfgate.document.explanation import OperatorDelta
from perfgate.judging.report.sections.section import section
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import named
from perfgate.judging.report.text.numbers import beyond, span, to_two_digits
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, joined
from perfgate.judging.report.view.blocks import RegressionBlock, block_numbers, blocks_with_more, listed_regressions
from perfgate.judging.report.view.causes import Account, CauseView, worded_account, worded_causes
from perfgate.judging.report.view.facts import counts
from perfgate.judging.report.view.findings import FindingView, changed_findings
from perfgate.judging.report.view.rows import ComparisonRow, common_confidence, grouped, row, whole_call
from perfgate.judging.report.view.suggestions import introduced
from perfgate.judging.report.view.summary import Summary

_MOST_IMPROVED = 3
_MOST_CAUSES = 6
_MOST_OPERATORS = 3
_MOST_SUGGESTIONS = 5
_MOST_SETTINGS = 3
# Margin above the measured value, so that the next job's noise does not break a budget taken from this one.
_ROOM = 1.05


@dataclass(frozen=True)
class CausedBlock:
    """A block with the findings that its cause introduced."""

    block: RegressionBlock
    findings: Sequence[FindingView]


@dataclass(frozen=True)
class CausesSection(TemplateView):
    """One block per cause, the most expensive first."""

    listed: Sequence[CausedBlock]
    more: int


@dataclass(frozen=True)
class MovedSection(TemplateView):
    """Regressed metrics, worst first, then improved ones."""

    rows: Sequence[ComparisonRow]
    more: int
    confidence: Words | None
    fold: bool
    rules: bool
    regressed: int
    improved: int
    operators: int


@dataclass(frozen=True)
class ImprovementsSection(TemplateView):
    """The largest improvements, and the lines of ``[budget]`` that would preserve them."""

    better: Sequence[str]
    more: int
    budgets: Sequence[str]


@dataclass(frozen=True)
class ContributionsSection(TemplateView):
    """Operator changes and counter parts, the largest first, and how much time they account for."""

    causes: Sequence[CauseView]
    more: int
    account: Account | None


@dataclass(frozen=True)
class SlowerOperatorsSection(TemplateView):
    """Operators that got slower by themselves, each with the change of the whole call, if it is known."""

    operators: Sequence[tuple[OperatorDelta, Words | None]]
    total: int
    more: int
    pairs: int
    tested: int


@dataclass(frozen=True)
class ToTrySection(TemplateView):
    """Suggestions on newly introduced problems."""

    suggestions: Sequence[Suggestion]
    more: int


@dataclass(frozen=True)
class IntendedSection(TemplateView):
    """The budgets and limits that would accept the change; a wrong output cannot be tolerated."""

    budgets: Sequence[str]
    limits: Sequence[str]
    wrong_output: bool


@section("causes")
def causes(summary: Summary) -> CausesSection | None:
    blocks, more = blocks_with_more(summary)
    new, _ = changed_findings(summary)
    listed = [CausedBlock(block, _steps_of(number, new)) for number, block in enumerate(blocks, 1)]
    return CausesSection(listed, more) if listed else None


def _steps_of(number: int, findings: Iterable[FindingView]) -> list[FindingView]:
    """The findings of a block, of which only step and line are shown: one in several shapes is one."""
    distinct: dict[tuple[int, str | None], FindingView] = {}
    for finding in findings:
        if finding.block == number:
            distinct[finding.step, finding.line] = finding
    return list(distinct.values())


@section("table", fold="moved")
def failing(summary: Summary) -> MovedSection | None:
    """Folded after causes or a PASS."""
    moved = [*summary.regressed, *summary.improved]
    if not moved:
        return None
    listed = moved[: summary.detail]
    numbers, of_metrics = block_numbers(summary), counts(summary)
    return MovedSection(
        rows=grouped(row(comparison, summary, numbers.get(id(comparison))) for comparison in listed),
        more=len(moved) - len(listed),
        confidence=common_confidence(listed),
        fold=summary.verdict != "INCONCLUSIVE",
        rules=of_metrics.rules,
        regressed=of_metrics.regressed,
        improved=of_metrics.improved,
        operators=sum(comparison.is_of_operator for comparison in moved),
    )


@section("improvements", drop=20)
def improved(summary: Summary) -> ImprovementsSection | None:
    """The new baseline that they justify; omitted if the change also fails."""
    better = [comparison for comparison in summary.improved if comparison.gating]
    if summary.verdict not in {"PASS", "WARN"} or not better:
        return None
    return ImprovementsSection(
        better=[_improvement(comparison) for comparison in better[:_MOST_IMPROVED]],
        more=beyond(better, _MOST_IMPROVED),
        budgets=_tighter_budgets(summary, better)[:_MOST_IMPROVED],
    )


def _improvement(comparison: Comparison) -> str:
    both, size = span(*formats.sides(comparison)), formats.percent_change(comparison)
    if size and not isinstance(comparison, Exact):
        return joined([named(comparison), Words(f" {formats.change(comparison)}: {both}")])
    return joined([named(comparison), Words(f" {size} ({both})" if size else f" ({both})")])


def _tighter_budgets(summary: Summary, better: Iterable[Comparison]) -> list[str]:
    """The lines of ``[budget]`` that would preserve an improvement, in base units as perfgate.toml takes them."""
    improved = {(comparison.metric, comparison.place) for comparison in better}
    lines = []
    for budget in summary.decision.comparisons:
        if not isinstance(budget, Bound) or not budget.is_budget or budget.outcome != "unchanged":
            continue
        if (budget.metric, budget.place) in improved and budget.head:
            tighter = _with_room(budget, budget.head)
            is_tighter = tighter < budget.bound if budget.better == "lower" else tighter > budget.bound
            if is_tighter:
                lines.append(_budget_line(budget, tighter))
    return lines


def _with_room(budget: Bound, measured: float) -> float:
    if budget.better == "lower":
        return to_two_digits(measured * _ROOM, up=True)
    return to_two_digits(measured / _ROOM, up=False)


def _budget_line(budget: Bound, bound: float) -> str:
    return f'"{budget.metric}@{budget.workload}/{budget.shape}" = {bound:g}'


@section("why", drop=10, fold="moved")
def why(summary: Summary) -> ContributionsSection | None:
    if summary.verdict not in {"FAIL", "WARN"} or not summary.regressed or not summary.causes:
        return None
    most = min(_MOST_CAUSES, summary.detail)
    shown = worded_causes(summary.causes[:most])
    return ContributionsSection(shown, beyond(summary.causes, most), worded_account(summary))


@section("slower operators", drop=15, fold="moved")
def operators(summary: Summary) -> SlowerOperatorsSection | None:
    """Hardly visible in the whole call; none of them fails the gate."""
    slower = [operator for operator in summary.tested_operators if operator.alone]
    if not slower:
        return None
    most = min(_MOST_OPERATORS, summary.detail)
    return SlowerOperatorsSection(
        operators=[(test, whole_call(test, summary)) for test in slower[:most]],
        total=len(slower),
        more=beyond(slower, most),
        pairs=max(test.pairs or 0 for test in slower),
        tested=len(summary.tested_operators),
    )


@section("what to try", drop=20, fold="suggestions")
def suggestions(summary: Summary) -> ToTrySection | None:
    """Suggestions that no cause shows; all others are in the page and in decision.json."""
    if summary.verdict not in {"FAIL", "WARN"}:
        return None
    tips = summary.decision.suggestions
    shown = set()
    for regression in listed_regressions(summary):
        if regression.suggestion is not None:
            shown.add(_identity(tips[regression.suggestion]))
    distinct = [tip for tip in introduced(tips) if _identity(tip) not in shown]
    return ToTrySection(distinct[:_MOST_SUGGESTIONS], beyond(distinct, _MOST_SUGGESTIONS)) if distinct else None


def _identity(tip: Suggestion) -> tuple[str, str | None]:
    return word(tip.message), tip.line


@section("if intended")
def intended(summary: Summary) -> IntendedSection | None:
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
            bound = to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")
            if comparison.is_budget:
                budgets.append(_budget_line(comparison, bound))
            elif comparison.limit is not None:
                limits.append(f'"{comparison.limit}" = {{ value = {bound:g}, gating = true }}')
    if not (budgets or limits or wrong_output):
        return None
    return IntendedSection(budgets[:_MOST_SETTINGS], limits[:_MOST_SETTINGS], wrong_output)
