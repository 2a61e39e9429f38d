"""The end of the comment: the traces, then folded: unchanged metrics, how the verdict was reached, informing numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.document.run import Artifact
from perfgate.judging.report.sections.section import section
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.card import CardLine, DecisionRow, StepLine, card_lines, decision_row, step_lines
from perfgate.judging.report.view.checklist import (
    NumberView,
    QuantileRow,
    quantile_rows,
    step_numbers,
    tally,
    uncompared,
)
from perfgate.judging.report.view.findings import FindingView, changed_findings
from perfgate.judging.report.view.rows import ComparisonRow, common_confidence, grouped, is_one_sided, row
from perfgate.judging.report.view.summary import CommentContext, Summary

_MOST_CARDS = 10


@dataclass(frozen=True)
class CardsSection(TemplateView):
    """One line for each workload: P50, utilization, top operators, batch knee and transfer, beside base and main."""

    cards: Sequence[CardLine]
    more: int


@dataclass(frozen=True)
class TracesSection(TemplateView):
    """Kept traces of both sides, the page that draws them, and the command that repeats the check."""

    context: CommentContext
    traces: Sequence[Artifact]
    flame: Artifact | None


@dataclass(frozen=True)
class FindingsSection(TemplateView):
    """New findings of the checklist, except those shown with their cause, and the findings that are gone."""

    new: Sequence[FindingView]
    gone: Sequence[FindingView]
    detail: int


@dataclass(frozen=True)
class ChecklistSection(TemplateView):
    """Every step of the head with its leading number, the decision, and a look at the other numbers.

    ``outside`` are those outside main's range, ``uncompared`` the notes on steps without turns.
    """

    tally: Sequence[Words]
    lines: Sequence[StepLine]
    decision: DecisionRow
    more: int
    more_numbers: int
    more_resolved: int
    outside: Sequence[NumberView]
    has_numbers: bool
    uncompared: Sequence[Message]
    stored: bool


@dataclass(frozen=True)
class QuantilesSection(TemplateView):
    """P50, P90 and P99 of the requests and steps of jobs."""

    rows: Sequence[QuantileRow]


@dataclass(frozen=True)
class UnchangedSection(TemplateView):
    """Unchanged metrics with both values and the slowdown that is excluded."""

    rows: Sequence[ComparisonRow]
    total: int
    not_worse: int
    more: int
    margin: Words
    confidence: Words | None
    timed: bool


@dataclass(frozen=True)
class NumbersSection(TemplateView):
    """Numbers of both sides that are shown and not decided."""

    rows: Sequence[Comparison]
    detail: int


@dataclass(frozen=True)
class UndecidedSection(NumbersSection):
    """Inconclusive and not comparable metrics, and the evidence that would settle them; ``undecided`` ones first."""

    undecided: int


@dataclass(frozen=True)
class EnvironmentSection(TemplateView):
    """Everything needed to reproduce the decision."""

    decision: DecisionDocument


@section("checklist in short")
def card(summary: Summary) -> CardsSection | None:
    cards = card_lines(summary)
    most = min(_MOST_CARDS, summary.detail)
    return CardsSection(cards[:most], numbers.beyond(cards, most)) if cards else None


@section("trace")
def trace(summary: Summary) -> TracesSection | None:
    """None if nothing ran."""
    traces = _links(summary, "trace")
    if summary.verdict == "SKIPPED" or not (traces or summary.context.reproduce):
        return None
    flames = _links(summary, "flamegraph")
    return TracesSection(summary.context, traces, flames[0] if flames else None)


def _links(summary: Summary, kind: str) -> list[Artifact]:
    return [link for link in summary.decision.links if link.kind == kind]


@section("new findings")
def findings(summary: Summary) -> FindingsSection | None:
    new, gone = changed_findings(summary)
    new = [finding for finding in new if finding.block is None]
    return FindingsSection(new, gone, summary.detail) if new or gone else None


@section("checklist", drop=70)
def checklist(summary: Summary) -> ChecklistSection | None:
    """The page has all numbers."""
    lines = step_lines(summary)
    if not lines:
        return None
    listed = lines[: summary.detail]
    every_number = step_numbers(summary)
    shown = {(line.step.number, line.step.workload) for line in listed}
    others = [number for number in every_number if not number.row.leads or number.step not in shown]
    outside = [number for number in others if number.main and number.main.outside]
    return ChecklistSection(
        tally=tally(summary.decision.steps),
        lines=listed,
        decision=decision_row(summary),
        more=len(lines) - len(listed),
        more_numbers=len(others),
        more_resolved=sum(number.row.is_resolved for number in others),
        outside=outside[: summary.detail],
        has_numbers=bool(every_number),
        uncompared=uncompared(summary.decision.warnings),
        stored=bool(summary.decision.stored),
    )


@section("quantiles", drop=75, fold="rest")
def quantiles(summary: Summary) -> QuantilesSection | None:
    rows = quantile_rows(summary)[: summary.detail]
    return QuantilesSection(rows) if rows else None


@section("unchanged metrics", drop=60, fold="rest")
def unchanged(summary: Summary) -> UnchangedSection | None:
    comparisons = summary.unchanged
    if not comparisons:
        return None
    listed = comparisons[: summary.detail]
    return UnchangedSection(
        rows=grouped(row(comparison, summary) for comparison in listed),
        total=len(comparisons),
        not_worse=sum(map(is_one_sided, comparisons)),
        more=len(comparisons) - len(listed),
        margin=numbers.setting(summary.decision.excluded),
        confidence=common_confidence(listed),
        timed=any(isinstance(comparison, Paired) and comparison.is_of_call for comparison in comparisons),
    )


@section("informing numbers", drop=65, fold="rest")
def informing(summary: Summary) -> NumbersSection | None:
    """Both sides' values of metrics that no test compares."""
    return NumbersSection(summary.informing, summary.detail) if summary.informing else None


@section("recorded times", drop=70, fold="rest")
def recorded(summary: Summary) -> NumbersSection | None:
    """The profiler's times of whole steps and of their heaviest operators, side by side and not compared."""
    return NumbersSection(summary.recorded, summary.detail) if summary.recorded else None


@section("undecided metrics", drop=80, fold="rest")
def undecided(summary: Summary) -> UndecidedSection | None:
    rows = [*summary.inconclusive, *summary.not_comparable]
    return UndecidedSection(rows, summary.detail, len(summary.inconclusive)) if rows else None


@section("environment and samples", drop=90, fold="compared")
def environment(summary: Summary) -> EnvironmentSection | None:
    """None if nothing was measured."""
    return EnvironmentSection(summary.decision) if summary.is_measured else None
