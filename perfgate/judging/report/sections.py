"""The sections of the comment, in three parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from perfgate.catalogue.lookup import CARDS, metric
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.decision import Suggestion
from perfgate.document.message import Message
from perfgate.document.run import Artifact
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import named
from perfgate.judging.report.text.numbers import beyond, span, to_two_digits
from perfgate.judging.report.text.templates import render_with_summary
from perfgate.judging.report.text.words import EMPTY, Words, joined, say
from perfgate.judging.report.view.blocks import (
    block_numbers,
    blocks_with_more,
    listed_regressions,
)
from perfgate.judging.report.view.card import card_lines, outcome_counts, step_lines
from perfgate.judging.report.view.causes import (
    account_words,
    worded_causes,
    worst_cause,
)
from perfgate.judging.report.view.checklist import (
    NOT_IN_TURNS,
    changed_findings,
    notes_except,
    quantile_rows,
    step_numbers,
    tally,
    uncompared,
)
from perfgate.judging.report.view.facts import (
    base_line,
    busy_line,
    counts,
    counts_line,
    coverage_line,
    shared_failures,
)
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.remedy import has_remedy, missing_numbers, remedy_text
from perfgate.judging.report.view.rows import (
    common_confidence,
    grouped,
    is_one_sided,
    row,
    whole_call,
)
from perfgate.judging.report.view.summary import Summary

KEEP = 0


class SectionText(NamedTuple):
    """The Markdown of a section, and the title of its fold, which is empty if the
    section stays outside of folds.
    """

    text: Words
    summary: Words


Fill = Callable[[Summary], "SectionText | None"]


@dataclass(frozen=True)
class Section:
    """One section of the comment.

    ``fill`` gives its text, None if the section does not apply. ``title`` names the
    section in the comment's list of omissions. ``drop`` is its rank for removal if the
    comment is over its size budget: KEEP never, else the highest first. Neighbours of
    the same ``fold`` share one.
    """

    title: str
    fill: Fill
    drop: int = KEEP
    fold: str = ""


def section(
    title: str, *, drop: int = KEEP, fold: str = ""
) -> Callable[[Fill], Section]:
    """A decorator that makes a section of the function that fills it."""
    return lambda fill: Section(title, fill, drop, fold)


def section_text(summary: Summary, name: str, **values: object) -> SectionText:
    """Render ``templates/comment/NAME.md.j2``, which may set a ``summary``.

    ``detail`` limits the length of its lists.
    """
    values["detail"] = summary.detail
    return SectionText(
        *render_with_summary(f"comment/{name}.md.j2", summary.medium, **values)
    )


# --- the top: the verdict, the facts under it, the remedy, failures to measure

_MOST_WARNINGS = 4
_MOST_CHANGES = 10
_MOST_FAILURES = 3
# With lists this short, tracebacks are shortened too.
_SHORT_LISTS = 10


# A visual cue in a thread of comments; the word follows it for screen readers.
SIGNS = {"PASS": "✅", "WARN": "⚠️", "FAIL": "❌", "INCONCLUSIVE": "❔", "SKIPPED": "⏭️"}


@section("title")
def title(summary: Summary) -> SectionText:
    """The verdict with its explanation, and the cause of the regression in it."""
    return section_text(
        summary,
        "title",
        sign=Words(SIGNS[summary.verdict]),
        headline=headline(summary),
        cause=worst_cause(summary),
    )


@section("changed functions")
def coverage(summary: Summary) -> SectionText | None:
    """How many of the changed functions were measured, and the others."""
    line = coverage_line(summary)
    if line is None:
        return None
    return SectionText(line, EMPTY)


@section("notes")
def notes(summary: Summary) -> SectionText | None:
    """Notes to read first: a busy machine, and the gate's warnings."""
    warnings = notes_except(NOT_IN_TURNS, summary.decision.warnings)
    busy = busy_line(summary)
    if not warnings and busy is None:
        return None
    return section_text(
        summary,
        "notes",
        busy=busy,
        warnings=warnings[:_MOST_WARNINGS],
        more=beyond(warnings, _MOST_WARNINGS),
    )


@section("how it was compared", fold="compared")
def facts(summary: Summary) -> SectionText | None:
    """Counts and noise floor; base, head and testbed.

    Folded, unless the testbeds are the problem.
    """
    if summary.is_unread:
        return None
    differs = summary.verdict == "INCONCLUSIVE" and bool(
        summary.decision.sides.testbed_differences
    )
    return section_text(
        summary,
        "facts",
        counts=counts_line(summary) if summary.is_measured else EMPTY,
        base=base_line(summary),
        fold=summary.is_measured and not differs,
    )


@section("what to do")
def remedy(summary: Summary) -> SectionText | None:
    """The reasons of a verdict other than PASS, and of a FAIL without a regression, and
    the next action.
    """
    if has_remedy(summary):
        return SectionText(remedy_text(summary), EMPTY)
    return None


@section("workload file")
def harness(summary: Summary) -> SectionText | None:
    """How an edited workload file changed the measurement itself; shown with any
    verdict.
    """
    changes = summary.telling_harness_changes
    if not changes:
        return None
    return section_text(
        summary,
        "harness",
        changes=changes[:_MOST_CHANGES],
        more=beyond(changes, _MOST_CHANGES),
    )


@section("errors")
def failures(summary: Summary) -> SectionText | None:
    """Failed measurements, each with the last lines of its traceback."""
    if not summary.failures:
        return None
    listed = shared_failures(summary.failures)
    lines = 12 if summary.detail > _SHORT_LISTS else 4
    return section_text(
        summary,
        "failures",
        failures=listed[:_MOST_FAILURES],
        more=beyond(listed, _MOST_FAILURES),
        lines=lines,
    )


@section("missing numbers", fold="moved")
def missing(summary: Summary) -> SectionText | None:
    """Values missing from the documents of a FAIL; an undecided verdict lists them as a
    reason, with the remedy.
    """
    entries = summary.decision.gaps.missing
    if summary.verdict != "FAIL" or not entries:
        return None
    listed, more = missing_numbers(entries)
    return section_text(
        summary, "missing", missing=listed, more_missing=more, count=len(entries)
    )


# --- the middle: regressions and improvements, their causes, how to accept them

_MOST_IMPROVED = 3
_MOST_CAUSES = 6
_MOST_OPERATORS = 3
_MOST_SUGGESTIONS = 5
_MOST_SETTINGS = 3


@section("causes")
def causes(summary: Summary) -> SectionText | None:
    """One block per cause with the findings that it introduced, the most expensive
    first.
    """
    blocks, more = blocks_with_more(summary)
    if not blocks:
        return None
    new, _ = changed_findings(summary)
    listed = []
    for number, block in enumerate(blocks, 1):
        # Only step and line of a finding are shown: one in several shapes is one.
        findings = {}
        for finding in new:
            if finding.block == number:
                findings[finding.step, finding.line] = finding
        listed.append((block, list(findings.values())))
    return section_text(summary, "causes", listed=listed, more=more)


@section("table", fold="moved")
def failing(summary: Summary) -> SectionText | None:
    """Regressed metrics, worst first, then improvements.

    Folded after causes or a PASS.
    """
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
        better=list(map(_improvement, better[:_MOST_IMPROVED])),
        more=beyond(better, _MOST_IMPROVED),
    )


def _improvement(comparison: Comparison) -> str:
    both = span(*formats.sides(comparison))
    size = formats.percent_change(comparison)
    words = f" ({both})"
    if size and isinstance(comparison, Exact):
        words = f" {size} ({both})"
    elif size:
        words = f" {formats.change(comparison)}: {both}"
    return joined(named(comparison), Words(words))


@section("why", drop=10, fold="moved")
def why(summary: Summary) -> SectionText | None:
    """Operator changes and counter parts, the largest first, and how much time they
    account for.
    """
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
    """Operators that got slower by themselves, hardly visible in the whole call; none
    of them fails the gate.
    """
    slower = []
    pairs = 0
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
    """The budgets and limits that would accept the change; a wrong output cannot be
    tolerated.
    """
    if summary.verdict != "FAIL" or summary.is_about_rules:
        return None
    budgets = []
    limits = []
    wrong_output = False
    for comparison in summary.regressed:
        if not comparison.gating:
            continue
        if isinstance(comparison, Checked):
            wrong_output = True
        elif isinstance(comparison, Bound):
            bound = _accepting_bound(comparison)
            if comparison.is_budget:
                place = "/".join(filter(None, comparison.place))
                written = _written_budget(comparison)
                budgets.append(f'"{comparison.metric}@{place}" = {written}')
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


def _accepting_bound(comparison: Bound) -> float:
    """The bound that accepts the measured value, rounded away from it to two digits."""
    return to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")


def _written_budget(comparison: Bound) -> str:
    """A budget as perfgate.toml has it: a number, or a text if the metric alone does
    not tell its direction, or if it holds at a rate.
    """
    number = f"{_accepting_bound(comparison):g}"
    rate = _rate_of(comparison)
    if rate is None and metric(comparison.metric).better == comparison.better:
        return number
    sign = ">"
    if comparison.better == "lower":
        sign = "<"
    words = f"{sign} {number} {comparison.unit.removeprefix('1')}".rstrip()
    if rate is not None:
        words += f" at {rate:g} QPS"
    return f'"{words}"'


def _rate_of(comparison: Bound) -> float | None:
    """The calls per second at which a bound holds; None if it holds for any calls."""
    if not isinstance(comparison.reason, Message):
        return None
    rate = comparison.reason.values.get("rate")
    if isinstance(rate, (int, float)):
        return rate
    return None


# --- the end: traces, and folded all other numbers

_MOST_CARDS = 10


@section("checklist in short")
def card(summary: Summary) -> SectionText | None:
    """One line for each workload: P50, utilization, top operators, batch knee and
    transfer, with base and main.
    """
    cards = card_lines(summary)
    most = min(_MOST_CARDS, summary.detail)
    if cards:
        return section_text(
            summary, "card", cards=cards[:most], more=numbers.beyond(cards, most)
        )
    return None


@section("trace")
def trace(summary: Summary) -> SectionText | None:
    """Kept traces of both sides, the page that draws them, and the command that repeats
    the check.

    None for a skipped change.
    """
    files: dict[str, list[Artifact]] = {}
    for link in summary.decision.measured.links:
        files.setdefault(link.kind, []).append(link)
    traces = files.get("trace", [])
    flames = files.get("flamegraph", [])
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
    """New findings of the checklist, except those shown with their cause, and the
    findings that are gone.
    """
    new, gone = changed_findings(summary)
    new = [finding for finding in new if finding.block is None]
    if new or gone:
        return section_text(summary, "findings", new=new, gone=gone)
    return None


@section("checklist", drop=70)
def checklist(summary: Summary) -> SectionText | None:
    """Every step of the head with its leading number, the decision, and a summary of
    the other numbers.

    ``outside`` are those outside main's range; the page has all numbers.
    """
    lines = step_lines(summary)
    if not lines:
        return None
    listed = lines[: summary.detail]
    every_number = step_numbers(summary)
    in_table = {(line.step.number, line.step.workload) for line in listed}
    further = 0
    resolved = 0
    outside = []
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
        return section_text(summary, "informing", rows=rows)
    return None


@section("recorded times", drop=70, fold="rest")
def recorded(summary: Summary) -> SectionText | None:
    """The profiler's times of whole steps and of their heaviest operators, side by side
    and not compared.
    """
    rows = summary.recorded
    if rows:
        return section_text(summary, "recorded", rows=rows)
    return None


@section("undecided metrics", drop=80, fold="rest")
def undecided(summary: Summary) -> SectionText | None:
    """Inconclusive metrics, then those that are not comparable, and the evidence that
    would settle them.
    """
    rows = [*summary.inconclusive, *summary.not_comparable]
    if not rows:
        return None
    return section_text(
        summary, "undecided", rows=rows, undecided=len(summary.inconclusive)
    )


@section("environment and samples", drop=90, fold="compared")
def environment(summary: Summary) -> SectionText | None:
    """Everything needed to reproduce the decision; None without a measurement."""
    if summary.is_measured:
        return section_text(summary, "environment", decision=summary.decision)
    return None


# In the order of the comment.
SECTIONS = (
    title,
    coverage,
    notes,
    remedy,
    causes,
    findings,
    harness,
    failures,
    improved,
    intended,
    card,
    trace,
    failing,
    missing,
    why,
    operators,
    suggestions,
    checklist,
    unchanged,
    undecided,
    quantiles,
    informing,
    recorded,
    facts,
    environment,
)
