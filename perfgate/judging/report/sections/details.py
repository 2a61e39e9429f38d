"""The end of the comment: the traces, then folded: unchanged metrics, how the verdict was reached, informing numbers."""

from __future__ import annotations

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.comparison import Paired
from perfgate.document.run import Artifact
from perfgate.judging.report.sections.section import SectionText, section, section_text
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.card import card_lines, outcome_counts, step_lines
from perfgate.judging.report.view.checklist import (
    changed_findings,
    quantile_rows,
    step_numbers,
    tally,
    uncompared,
)
from perfgate.judging.report.view.rows import (
    common_confidence,
    grouped,
    is_one_sided,
    row,
)
from perfgate.judging.report.view.summary import Summary

_MOST_CARDS = 10


@section("checklist in short")
def card(summary: Summary) -> SectionText | None:
    """One line for each workload: P50, utilization, top operators, batch knee and transfer, with base and main."""
    cards = card_lines(summary)
    most = min(_MOST_CARDS, summary.detail)
    if cards:
        return section_text(
            summary, "card", cards=cards[:most], more=numbers.beyond(cards, most)
        )
    return None


@section("trace")
def trace(summary: Summary) -> SectionText | None:
    """Kept traces of both sides, the page that draws them, and the command that repeats the check.

    None for a skipped change.
    """
    files: dict[str, list[Artifact]] = {}
    for link in summary.decision.measured.links:
        files.setdefault(link.kind, []).append(link)
    traces, flames = files.get("trace", []), files.get("flamegraph", [])
    if summary.verdict == "SKIPPED" or not (traces or summary.context.reproduce):
        return None
    return section_text(
        summary,
        "trace",
        context=summary.context,
        traces=traces,
        flame=flames[0] if flames else None,
    )


@section("new findings")
def findings(summary: Summary) -> SectionText | None:
    """New findings of the checklist, except those shown with their cause, and the findings that are gone."""
    new, gone = changed_findings(summary)
    new = [finding for finding in new if finding.block is None]
    if new or gone:
        return section_text(
            summary, "findings", new=new, gone=gone, detail=summary.detail
        )
    return None


@section("checklist", drop=70)
def checklist(summary: Summary) -> SectionText | None:
    """Every step of the head with its leading number, the decision, and a summary of the other numbers.

    ``outside`` are those outside main's range; the page has all numbers.
    """
    lines = step_lines(summary)
    if not lines:
        return None
    listed = lines[: summary.detail]
    every_number = step_numbers(summary)
    in_table = {(line.step.number, line.step.workload) for line in listed}
    further, resolved, outside = 0, 0, []
    for number in every_number:
        if number.row.leads and number.step in in_table:
            continue
        further += 1
        resolved += number.row.is_resolved
        if number.main and number.main.outside:
            outside.append(number)
    return section_text(
        summary,
        "checklist",
        tally=tally(summary.decision.checklist.steps),
        lines=listed,
        gate_step=GATE_STEP,
        gate_title=say(CARDS[GATE_STEP].title),
        verdict=Words(summary.verdict),
        outcomes=outcome_counts(summary),
        more=len(lines) - len(listed),
        more_numbers=further,
        more_resolved=resolved,
        outside=outside[: summary.detail],
        has_numbers=bool(every_number),
        uncompared=uncompared(summary.decision.warnings),
        stored=bool(summary.decision.checklist.stored),
    )


@section("quantiles", drop=75, fold="rest")
def quantiles(summary: Summary) -> SectionText | None:
    """P50, P90 and P99 of the requests and steps of jobs."""
    rows = quantile_rows(summary)[: summary.detail]
    if rows:
        return section_text(summary, "quantiles", rows=rows)
    return None


@section("unchanged metrics", drop=60, fold="rest")
def unchanged(summary: Summary) -> SectionText | None:
    """Unchanged metrics with both values and the slowdown that is excluded."""
    comparisons = summary.unchanged
    if not comparisons:
        return None
    listed = comparisons[: summary.detail]
    return section_text(
        summary,
        "unchanged",
        rows=grouped(row(comparison, summary) for comparison in listed),
        total=len(comparisons),
        not_worse=sum(map(is_one_sided, comparisons)),
        more=len(comparisons) - len(listed),
        margin=numbers.setting(summary.decision.excluded),
        confidence=common_confidence(listed),
        timed=any(
            isinstance(comparison, Paired) and comparison.is_of_call
            for comparison in comparisons
        ),
    )


@section("informing numbers", drop=65, fold="rest")
def informing(summary: Summary) -> SectionText | None:
    """Both sides' values of metrics that no test compares."""
    rows = summary.informing
    if rows:
        return section_text(summary, "informing", rows=rows, detail=summary.detail)
    return None


@section("recorded times", drop=70, fold="rest")
def recorded(summary: Summary) -> SectionText | None:
    """The profiler's times of whole steps and of their heaviest operators, side by side and not compared."""
    rows = summary.recorded
    if rows:
        return section_text(summary, "recorded", rows=rows, detail=summary.detail)
    return None


@section("undecided metrics", drop=80, fold="rest")
def undecided(summary: Summary) -> SectionText | None:
    """Inconclusive metrics, then those that are not comparable, and the evidence that would settle them."""
    rows = [*summary.inconclusive, *summary.not_comparable]
    if not rows:
        return None
    return section_text(
        summary,
        "undecided",
        rows=rows,
        detail=summary.detail,
        undecided=len(summary.inconclusive),
    )


@section("environment and samples", drop=90, fold="compared")
def environment(summary: Summary) -> SectionText | None:
    """Everything needed to reproduce the decision; None without a measurement."""
    if summary.is_measured:
        return section_text(summary, "environment", decision=summary.decision)
    return None
