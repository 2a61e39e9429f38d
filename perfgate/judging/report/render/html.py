"""report.html: one self-contained page, no network, no script, readable in light and
dark.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.names import LATENCY
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.run import RunDocument
from perfgate.judging.report.text import numbers, svg
from perfgate.judging.report.text.media import ReadyHtml
from perfgate.judging.report.text.names import missing_words, place
from perfgate.judging.report.text.templates import inlined, render_page, render_part
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.blocks import blocks_with_more
from perfgate.judging.report.view.card import card_lines
from perfgate.judging.report.view.causes import (
    account_words,
    worded_causes,
    worst_cause,
)
from perfgate.judging.report.view.checklist import (
    changed_findings,
    quantile_rows,
    step_numbers,
    worded_steps,
)
from perfgate.judging.report.view.facts import (
    base_line,
    busy_line,
    counts_line,
    coverage_line,
    shared_failures,
)
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.page_tables import (
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
_OPERATOR_LABELS = phrases(
    {
        "regressed": "slower",
        "improved": "faster",
        "unchanged": "same",
        "inconclusive": "undecided",
    }
)
_OWN_PAGES = frozenset({"flame.html", "base/flame.html", "head/flame.html"})


class SamplesPlot(NamedTuple):
    """The calls of both sides of one workload and shape, drawn."""

    place: str
    histogram: Markup
    strip: Markup
    calls: Words
    pairs: int
    noise_pairs: int


def render_html(
    decision: DecisionDocument,
    base: RunDocument | None,
    head: RunDocument,
    language: Language,
    *,
    folder: str | None = None,
) -> str:
    """The report page; ``folder`` is described in ``CommentContext``."""
    with speaking(language):
        context = CommentContext(folder=folder)
        summary = Summary(decision, "html", context, detail=_MAX_ROWS)
        return render_page(
            "page/report.html.j2",
            style=inlined("page/style.css"),
            verdict=Words(decision.verdict),
            parts=[
                _head(summary),
                _regressions(summary),
                _suggestions(summary),
                _measurements(summary, base, head),
                _checklist(summary),
                _end(summary, base, head),
            ],
        )


def _head(summary: Summary) -> ReadyHtml:
    """The title, the facts below it, and the problems to read first."""
    decision = summary.decision
    counts = EMPTY
    if summary.is_measured:
        counts = counts_line(summary)
    return render_part(
        "page/head.html.j2",
        decision=decision,
        verdict=Words(decision.verdict),
        headline=headline(summary),
        cause=worst_cause(summary),
        busy=busy_line(summary),
        counts=counts,
        coverage=coverage_line(summary),
        base_line=base_line(summary),
        warnings=decision.warnings[:_MAX_ROWS],
        harness_changes=summary.telling_harness_changes[:_MAX_ROWS],
        remedy=remedy_lines(summary),
        missing=list(map(missing_words, decision.gaps.missing[:_MAX_ROWS])),
    )


def _regressions(summary: Summary) -> ReadyHtml:
    """Failures, regressions by cause, and all comparisons; all interval bars share one
    scale.
    """
    decision = summary.decision
    blocks, more = blocks_with_more(summary)
    quiet = [
        *summary.inconclusive,
        *summary.not_comparable,
        *summary.unchanged,
        *summary.informing,
    ]
    listed = [*summary.regressed, *summary.improved, *quiet][:_MAX_ROWS]
    intervals = []
    tolerances = []
    for comparison in listed:
        if isinstance(comparison, Paired) and comparison.interval:
            intervals.append(comparison.interval)
            tolerances.append(comparison.tolerance or 0)
    return render_part(
        "page/regressions.html.j2",
        decision=decision,
        failures=shared_failures(decision.gaps.failures)[:_MAX_PLOTS],
        blocks=blocks,
        more_causes=more,
        rows=[(comparison, label(comparison, summary)) for comparison in listed],
        scale=svg.scale_of(intervals, tolerances),
    )


def _suggestions(summary: Summary) -> ReadyHtml:
    introduced = []
    existing = []
    for tip in summary.decision.explained.suggestions:
        if tip.introduced:
            introduced.append(tip)
        else:
            existing.append(tip)
    return render_part(
        "page/suggestions.html.j2",
        causes=worded_causes(summary.causes[:_MAX_PLOTS]),
        account=account_words(summary),
        suggestions=introduced[:_MAX_ROWS],
        other_suggestions=existing[:_MAX_ROWS],
    )


def _measurements(
    summary: Summary, base: RunDocument | None, head: RunDocument
) -> ReadyHtml:
    """Samples, operators, counters and quantiles."""
    tests = []
    intervals = []
    for operator in summary.tested_operators[:_MAX_ROWS]:
        tests.append((operator, say(_OPERATOR_LABELS[operator.outcome])))
        if operator.interval:
            intervals.append(operator.interval)
    samples = list(paired_samples(base, head).items())[:_MAX_PLOTS]
    return render_part(
        "page/measurements.html.j2",
        decision=summary.decision,
        plots=[_plot(at, *sides, summary) for at, sides in samples],
        operator_tests=tests,
        operator_scale=svg.scale_of(intervals, []),
        operators=operator_tables(summary.decision, base, head),
        counters=counter_rows(base, head),
        quantiles=quantile_rows(summary)[:_MAX_ROWS],
    )


def _plot(
    at: tuple[str, str], base: svg.Floats, head: svg.Floats, summary: Summary
) -> SamplesPlot:
    noise = []
    for floor in summary.decision.measured.noise_floors:
        if floor.place == at and floor.metric == LATENCY:
            noise = floor.effects
            break
    strip = Markup("")
    pairs = 0
    call = _call_at(at, summary)
    if call is not None:
        strip = svg.dot_strip(call.effects, noise, call.tolerance)
        pairs = len(call.effects)
    return SamplesPlot(
        place=place(*at),
        histogram=svg.histogram(base, head),
        strip=strip,
        calls=numbers.counted(int(base.size + head.size), "call"),
        pairs=pairs,
        noise_pairs=len(noise),
    )


def _call_at(at: tuple[str, str], summary: Summary) -> Paired | None:
    """The time of a call that was compared in pairs, with effects that can be drawn."""
    for comparison in summary.decision.comparisons:
        is_call = comparison.place == at and comparison.metric == LATENCY
        if is_call and isinstance(comparison, Paired) and comparison.effects:
            return comparison
    return None


def _checklist(summary: Summary) -> ReadyHtml:
    """Changed findings, the numbers of every step, and the steps."""
    new, gone = changed_findings(summary)
    return render_part(
        "page/checklist.html.j2",
        verdict=Words(summary.verdict),
        new=new[:_MAX_ROWS],
        gone=gone[:_MAX_ROWS],
        steps=worded_steps(summary.decision.checklist.steps)[:_MAX_ROWS],
        cards=card_lines(summary)[:_MAX_ROWS],
        numbers=step_numbers(summary)[:_MAX_ROWS],
        gate_title=say(CARDS[GATE_STEP].title),
    )


def _end(summary: Summary, base: RunDocument | None, head: RunDocument) -> ReadyHtml:
    """The testbed, the kept files, and how the decision was made."""
    decision = summary.decision
    return render_part(
        "page/end.html.j2",
        decision=decision,
        testbed=testbed_rows(base, head),
        observed=sorted(head.testbed.observed.items())[:_MAX_ROWS],
        own_pages=_OWN_PAGES,
        rules=summary.is_about_rules,
        alpha=numbers.setting(decision.procedure.policy.alpha),
        margin=numbers.setting(decision.excluded),
    )
