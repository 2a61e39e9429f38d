"""The end of the comment: the traces, then folded: unchanged metrics, how the verdict was reached, informing numbers."""

from __future__ import annotations

from perfgate.document.comparison import Paired
from perfgate.judging.report.sections.section import section
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.view.card import card_lines, decision_row, step_lines
from perfgate.judging.report.view.checklist import quantile_rows, step_numbers, tally, uncompared
from perfgate.judging.report.view.findings import changed_findings
from perfgate.judging.report.view.rows import common_confidence, grouped, is_one_sided, row
from perfgate.judging.report.view.summary import Summary

_MOST_CARDS = 10


@section("checklist in short")
def card(summary: Summary) -> Values | None:
    """One line for each workload: P50, utilization, top operators, batch knee and transfer, beside base and main."""
    cards = card_lines(summary)
    most = min(_MOST_CARDS, summary.detail)
    return {"cards": cards[:most], "more": max(0, len(cards) - most)} if cards else None


@section("trace")
def trace(summary: Summary) -> Values | None:
    """Kept traces of both sides, the page that draws them, and the command that repeats the check; none if nothing ran."""
    traces = [link for link in summary.decision.links if link.kind == "trace"]
    if summary.verdict == "SKIPPED" or not (traces or summary.context.reproduce):
        return None
    flames = [link for link in summary.decision.links if link.kind == "flamegraph"]
    return {"context": summary.context, "traces": traces, "flame": next(iter(flames), None)}


@section("new findings")
def findings(summary: Summary) -> Values | None:
    """New findings of the checklist, except those shown with their cause, and the findings that are gone."""
    new, gone = changed_findings(summary)
    new = [finding for finding in new if finding["block"] is None]
    return {"new": new, "gone": gone, "detail": summary.detail} if new or gone else None


@section("checklist", drop=70)
def checklist(summary: Summary) -> Values | None:
    """Every step of the head with its status, its leading number and its findings; the page has all numbers."""
    lines = step_lines(summary)
    if not lines:
        return None
    listed = lines[: summary.detail]
    every_number = step_numbers(summary)
    shown = {(line.step["number"], line.step["workload"]) for line in listed}
    others = [
        number for number in every_number if not (number["leads"] and (number["step"], number["workload"]) in shown)
    ]
    return {
        "tally": tally(summary.decision.steps),
        "lines": listed,
        "decision": decision_row(summary),
        "more": len(lines) - len(listed),
        "more_numbers": len(others),
        "more_resolved": sum(number["is_resolved"] for number in others),
        "outside": [number for number in others if number["main"] and number["main"]["outside"]][: summary.detail],
        "has_numbers": bool(every_number),
        "uncompared": uncompared(summary.decision.warnings),
        "stored": bool(summary.decision.stored),
    }


@section("quantiles", drop=75, fold="rest")
def quantiles(summary: Summary) -> Values | None:
    """P50, P90 and P99 of the requests and steps of jobs."""
    rows = quantile_rows(summary)[: summary.detail]
    return {"rows": rows} if rows else None


@section("unchanged metrics", drop=60, fold="rest")
def unchanged(summary: Summary) -> Values | None:
    """Unchanged metrics with both values and the slowdown that is excluded."""
    comparisons = summary.unchanged
    if not comparisons:
        return None
    listed = comparisons[: summary.detail]
    return {
        "rows": grouped(row(comparison, summary) for comparison in listed),
        "total": len(comparisons),
        "not_worse": sum(map(is_one_sided, comparisons)),
        "more": len(comparisons) - len(listed),
        "margin": numbers.setting(summary.decision.excluded),
        "confidence": common_confidence(listed),
        "timed": any(isinstance(c, Paired) and c.is_of_call for c in comparisons),
    }


@section("informing numbers", drop=65, fold="rest")
def informing(summary: Summary) -> Values | None:
    """Both sides' values of metrics that no test compares."""
    rows = summary.informing
    return {"rows": rows, "detail": summary.detail} if rows else None


@section("recorded times", drop=70, fold="rest")
def recorded(summary: Summary) -> Values | None:
    """The profiler's times of whole steps and of their heaviest operators, side by side and not compared."""
    rows = summary.recorded
    return {"rows": rows, "detail": summary.detail} if rows else None


@section("undecided metrics", drop=80, fold="rest")
def undecided(summary: Summary) -> Values | None:
    """Inconclusive and not comparable metrics, and the evidence that would settle them; undecided ones first."""
    rows = [*summary.inconclusive, *summary.not_comparable]
    return {"rows": rows, "undecided": len(summary.inconclusive), "detail": summary.detail} if rows else None


@section("environment and samples", drop=90, fold="compared")
def environment(summary: Summary) -> Values | None:
    """Everything needed to reproduce the decision; None if nothing was measured."""
    return {"decision": summary.decision} if summary.is_measured else None
