"""report.html: one self-contained page, no network, no script, readable in light and dark."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.run import RunDocument
from perfgate.judging.report.text import numbers, svg
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.templates import environment, inlined
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.blocks import blocks_with_more
from perfgate.judging.report.view.card import card_lines
from perfgate.judging.report.view.checklist import quantile_rows, step_numbers, worded_steps
from perfgate.judging.report.view.coverage import coverage_line
from perfgate.judging.report.view.facts import base_line, busy_line, counts_line, worded_failures
from perfgate.judging.report.view.findings import changed_findings
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.page_tables import (
    counter_rows,
    operator_tables,
    paired_samples,
    testbed_rows,
)
from perfgate.judging.report.view.remedy import remedy_lines
from perfgate.judging.report.view.rows import label, worded_account, worded_causes, worst_cause
from perfgate.judging.report.view.summary import CommentContext, Summary
from perfgate.locale import Language, speaking

_MAX_ROWS = 2000
_MAX_PLOTS = 40
_OWN_PAGES = frozenset({"flame.html", "base/flame.html", "head/flame.html"})


def render_html(
    decision: DecisionDocument, base: RunDocument | None, head: RunDocument, language: Language = "en"
) -> str:
    with speaking(language):
        return _render(decision, base, head)


def _render(decision: DecisionDocument, base: RunDocument | None, head: RunDocument) -> str:
    summary = Summary(decision, CommentContext(marker=""), _MAX_ROWS)
    values = {
        **inlined("page/style.css"),
        **_top(summary),
        **_tables(summary, base, head),
        **_end(summary, base, head),
    }
    return environment("html").get_template("page/report.html.j2").render(values)


def _top(summary: Summary) -> Mapping[str, object]:
    decision = summary.decision
    listed, more = blocks_with_more(summary)
    return {
        "project": decision.project,
        "verdict": Words(decision.verdict),
        "headline": headline(summary, "html"),
        "cause": worst_cause(summary),
        "subject": decision.head.subject,
        "branch": decision.head.branch,
        "busy": busy_line(summary, "html"),
        "counts": counts_line(summary, "html") if summary.is_measured else Words(""),
        "coverage": coverage_line(summary, "html"),
        "base_line": base_line(summary, "html"),
        "warnings": decision.warnings[:_MAX_ROWS],
        "recorded": decision.recorded,
        "rules": decision.comparing == "rules",
        "harness_changes": summary.telling_harness_changes[:_MAX_ROWS],
        "remedy": remedy_lines(summary, "html"),
        "missing": decision.missing[:_MAX_ROWS],
        "failures": worded_failures(decision.failures)[:_MAX_PLOTS],
        "blocks": listed,
        "more_causes": more,
        "causes": worded_causes(summary.causes[:_MAX_PLOTS]),
        "account": worded_account(summary),
        "suggestions": [tip for tip in decision.suggestions if tip.introduced][:_MAX_ROWS],
        "other_suggestions": [tip for tip in decision.suggestions if not tip.introduced][:_MAX_ROWS],
    }


def _tables(summary: Summary, base: RunDocument | None, head: RunDocument) -> Mapping[str, object]:
    quiet = [*summary.inconclusive, *summary.not_comparable, *summary.unchanged, *summary.informing]
    listed = [*summary.regressed, *summary.improved, *quiet][:_MAX_ROWS]
    tested = summary.tested_operators[:_MAX_ROWS]
    paired = [c for c in listed if isinstance(c, Paired) and c.interval]
    scale = svg.scale_of([c.interval for c in paired if c.interval], [c.tolerance or 0 for c in paired])
    return {
        "rows": [(comparison, label(comparison, summary)) for comparison in listed],
        "scale": scale,
        "plots": [
            _plot(at, *samples, summary) for at, samples in list(paired_samples(base, head).items())[:_MAX_PLOTS]
        ],
        "operator_tests": tested,
        "operator_scale": svg.scale_of([operator.interval for operator in tested if operator.interval], []),
        "operators": operator_tables(summary.decision, base, head),
        "counters": counter_rows(base, head),
    }


def _plot(at: tuple[str, str], base: svg.Floats, head: svg.Floats, summary: Summary) -> Mapping[str, object]:
    """The calls of both sides of one workload and shape, drawn."""
    decision, of_calls = summary.decision, (*at, LATENCY)
    paired = [c for c in decision.comparisons if isinstance(c, Paired) and c.effects]
    call = next((c for c in paired if (c.workload, c.shape, c.metric) == of_calls), None)
    floor = next((f for f in decision.noise_floors if (f.workload, f.shape, f.metric) == of_calls), None)
    noise = floor.effects if floor else []
    return {
        "place": place(*at),
        "histogram": svg.histogram(base, head),
        "strip": svg.dot_strip(call.effects, noise, call.tolerance) if call else Words(""),
        "calls": numbers.counted(int(base.size + head.size), "call"),
        "pairs": len(call.effects) if call else 0,
        "noise_pairs": len(noise),
    }


def _end(summary: Summary, base: RunDocument | None, head: RunDocument) -> Mapping[str, object]:
    decision = summary.decision
    steps = worded_steps(decision.steps)[:_MAX_ROWS]
    new, gone = changed_findings(summary)
    return {
        "new": new[:_MAX_ROWS],
        "gone": gone[:_MAX_ROWS],
        "steps": steps,
        "cards": card_lines(summary)[:_MAX_ROWS],
        "numbers": step_numbers(summary)[:_MAX_ROWS],
        "quantiles": quantile_rows(summary)[:_MAX_ROWS],
        "testbed": testbed_rows(base, head),
        "observed": sorted(head.testbed.observed.items())[:_MAX_ROWS],
        "links": decision.links[:_MAX_ROWS],
        "own_pages": _OWN_PAGES,
        "procedure": decision.procedure,
        "procedure_version": decision.procedure.version,
        "gate_title": say(CARDS[20].title),
        "seed": str(decision.procedure.seed),
        "alpha": numbers.setting(decision.policy.alpha),
        "margin": numbers.setting(decision.excluded),
        "version": decision.perfgate_version,
        "sha256": {"base": decision.base.sha256, "head": decision.head.sha256},
    }
