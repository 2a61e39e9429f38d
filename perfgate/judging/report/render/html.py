"""report.html: one self-contained page, no network, no script, readable in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.names import LATENCY
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import DecisionDocument, HarnessChange, Suggestion, TestbedDifference
from perfgate.document.explanation import OperatorDelta
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.report.text import numbers, svg
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.templates import Inlined, TemplateView, inlined, render_page
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.blocks import RegressionBlock, blocks_with_more
from perfgate.judging.report.view.card import CardLine, card_lines
from perfgate.judging.report.view.causes import Account, CauseView, worded_account, worded_causes, worst_cause
from perfgate.judging.report.view.checklist import (
    NumberView,
    QuantileRow,
    StepView,
    quantile_rows,
    step_numbers,
    worded_steps,
)
from perfgate.judging.report.view.coverage import coverage_line
from perfgate.judging.report.view.facts import FailureView, base_line, busy_line, counts_line, worded_failures
from perfgate.judging.report.view.findings import FindingView, changed_findings
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.missing import missing_words
from perfgate.judging.report.view.page_tables import (
    CounterRow,
    OperatorTable,
    counter_rows,
    operator_tables,
    paired_samples,
    testbed_rows,
)
from perfgate.judging.report.view.remedy import remedy_lines
from perfgate.judging.report.view.rows import label
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

_MAX_ROWS = 2000
_MAX_PLOTS = 40
_OPERATOR_LABELS = {
    "regressed": phrase("slower"),
    "improved": phrase("faster"),
    "unchanged": phrase("same"),
    "inconclusive": phrase("undecided"),
}
_OWN_PAGES = frozenset({"flame.html", "base/flame.html", "head/flame.html"})


@dataclass(frozen=True)
class PageHead(TemplateView):
    """The title, the facts below it, and the problems to read first."""

    style: Inlined
    decision: DecisionDocument
    verdict: Words
    rules: bool
    headline: Words
    cause: str | None
    busy: Words | None
    counts: Words
    coverage: Words | None
    base_line: Words
    warnings: Sequence[Message]
    harness_changes: Sequence[HarnessChange]
    remedy: Sequence[Words]
    missing: Sequence[str]


@dataclass(frozen=True)
class PageCauses(TemplateView):
    """Failures, regressions by cause, and suggestions."""

    failures: Sequence[FailureView]
    blocks: Sequence[RegressionBlock]
    more_causes: int
    causes: Sequence[CauseView]
    account: Account | None
    suggestions: Sequence[Suggestion]
    other_suggestions: Sequence[Suggestion]


@dataclass(frozen=True)
class SamplesPlot:
    """The calls of both sides of one workload and shape, drawn."""

    place: str
    histogram: Markup
    strip: Markup
    calls: Words
    pairs: int
    noise_pairs: int


@dataclass(frozen=True)
class PageTables(TemplateView):
    """Comparisons, samples, operators and counters; the scales are those of the interval bars."""

    rows: Sequence[tuple[Comparison, Words]]
    scale: float
    plots: Sequence[SamplesPlot]
    operator_tests: Sequence[tuple[OperatorDelta, Words]]
    operator_scale: float
    operators: Sequence[OperatorTable]
    counters: Sequence[CounterRow]


@dataclass(frozen=True)
class PageChecklist(TemplateView):
    """The checklist: changed findings, the numbers of every step, and the steps."""

    new: Sequence[FindingView]
    gone: Sequence[FindingView]
    steps: Sequence[StepView]
    cards: Sequence[CardLine]
    numbers: Sequence[NumberView]
    quantiles: Sequence[QuantileRow]
    gate_title: Words


@dataclass(frozen=True)
class PageEnd(TemplateView):
    """The testbed, the kept files, and how the decision was made."""

    testbed: Sequence[TestbedDifference]
    observed: Sequence[tuple[str, str]]
    own_pages: frozenset[str]
    alpha: Words
    margin: Words


def render_html(
    decision: DecisionDocument, base: RunDocument | None, head: RunDocument, language: Language = "en"
) -> str:
    with speaking(language):
        summary = Summary(decision, CommentContext(marker=""), _MAX_ROWS)
        return render_page(
            "page/report.html.j2",
            _head(summary),
            _causes(summary),
            _tables(summary, base, head),
            _checklist(summary),
            _end(decision, base, head),
        )


def _head(summary: Summary) -> PageHead:
    decision = summary.decision
    return PageHead(
        style=inlined("page/style.css"),
        decision=decision,
        verdict=Words(decision.verdict),
        rules=summary.is_about_rules,
        headline=headline(summary, "html"),
        cause=worst_cause(summary),
        busy=busy_line(summary, "html"),
        counts=counts_line(summary, "html") if summary.is_measured else Words(""),
        coverage=coverage_line(summary, "html"),
        base_line=base_line(summary, "html"),
        warnings=decision.warnings[:_MAX_ROWS],
        harness_changes=summary.telling_harness_changes[:_MAX_ROWS],
        remedy=remedy_lines(summary, "html"),
        missing=[missing_words(entry) for entry in decision.missing[:_MAX_ROWS]],
    )


def _causes(summary: Summary) -> PageCauses:
    decision = summary.decision
    blocks, more = blocks_with_more(summary)
    return PageCauses(
        failures=worded_failures(decision.failures)[:_MAX_PLOTS],
        blocks=blocks,
        more_causes=more,
        causes=worded_causes(summary.causes[:_MAX_PLOTS]),
        account=worded_account(summary),
        suggestions=[tip for tip in decision.suggestions if tip.introduced][:_MAX_ROWS],
        other_suggestions=[tip for tip in decision.suggestions if not tip.introduced][:_MAX_ROWS],
    )


def _tables(summary: Summary, base: RunDocument | None, head: RunDocument) -> PageTables:
    quiet = [*summary.inconclusive, *summary.not_comparable, *summary.unchanged, *summary.informing]
    listed = [*summary.regressed, *summary.improved, *quiet][:_MAX_ROWS]
    tested = summary.tested_operators[:_MAX_ROWS]
    intervals, tolerances = [], []
    for comparison in listed:
        if isinstance(comparison, Paired) and comparison.interval:
            intervals.append(comparison.interval)
            tolerances.append(comparison.tolerance or 0)
    samples = list(paired_samples(base, head).items())[:_MAX_PLOTS]
    return PageTables(
        rows=[(comparison, label(comparison, summary)) for comparison in listed],
        scale=svg.scale_of(intervals, tolerances),
        plots=[_plot(at, *sides, summary) for at, sides in samples],
        operator_tests=[(operator, say(_OPERATOR_LABELS[operator.outcome])) for operator in tested],
        operator_scale=svg.scale_of([operator.interval for operator in tested if operator.interval], []),
        operators=operator_tables(summary.decision, base, head),
        counters=counter_rows(base, head),
    )


def _plot(at: tuple[str, str], base: svg.Floats, head: svg.Floats, summary: Summary) -> SamplesPlot:
    call = _call_at(at, summary)
    noise: Sequence[float] = []
    for floor in summary.decision.noise_floors:
        if floor.place == at and floor.metric == LATENCY:
            noise = floor.effects
            break
    return SamplesPlot(
        place=place(*at),
        histogram=svg.histogram(base, head),
        strip=svg.dot_strip(call.effects, noise, call.tolerance) if call else Markup(""),
        calls=numbers.counted(int(base.size + head.size), "call"),
        pairs=len(call.effects) if call else 0,
        noise_pairs=len(noise),
    )


def _call_at(at: tuple[str, str], summary: Summary) -> Paired | None:
    """The time of a call that was compared in pairs, whose effects can be drawn."""
    for comparison in summary.decision.comparisons:
        is_call = comparison.place == at and comparison.metric == LATENCY
        if is_call and isinstance(comparison, Paired) and comparison.effects:
            return comparison
    return None


def _checklist(summary: Summary) -> PageChecklist:
    new, gone = changed_findings(summary)
    return PageChecklist(
        new=new[:_MAX_ROWS],
        gone=gone[:_MAX_ROWS],
        steps=worded_steps(summary.decision.steps)[:_MAX_ROWS],
        cards=card_lines(summary)[:_MAX_ROWS],
        numbers=step_numbers(summary)[:_MAX_ROWS],
        quantiles=quantile_rows(summary)[:_MAX_ROWS],
        gate_title=say(CARDS[GATE_STEP].title),
    )


def _end(decision: DecisionDocument, base: RunDocument | None, head: RunDocument) -> PageEnd:
    return PageEnd(
        testbed=testbed_rows(base, head),
        observed=sorted(head.testbed.observed.items())[:_MAX_ROWS],
        own_pages=_OWN_PAGES,
        alpha=numbers.setting(decision.policy.alpha),
        margin=numbers.setting(decision.excluded),
    )
