"""The top of the comment: the verdict, the facts under it, the remedy, and failures to measure."""

from __future__ import annotations

from perfgate.judging.report.sections.section import SectionText, section, section_text
from perfgate.judging.report.text.numbers import beyond
from perfgate.judging.report.text.words import EMPTY, Words
from perfgate.judging.report.view.causes import worst_cause
from perfgate.judging.report.view.checklist import other_notes
from perfgate.judging.report.view.facts import (
    base_line,
    busy_line,
    counts_line,
    coverage_line,
    shared_failures,
)
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.remedy import has_remedy, missing_numbers, remedy_text
from perfgate.judging.report.view.summary import Summary

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
    warnings, busy = other_notes(summary.decision.warnings), busy_line(summary)
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
    """Counts and noise floor; base, head and testbed. Folded, unless the testbeds are the problem."""
    if summary.is_unread:
        return None
    differs = summary.verdict == "INCONCLUSIVE" and bool(
        summary.decision.sides.testbed_differences
    )
    counts = counts_line(summary) if summary.is_measured else EMPTY
    return section_text(
        summary,
        "facts",
        counts=counts,
        base=base_line(summary),
        fold=summary.is_measured and not differs,
    )


@section("what to do")
def remedy(summary: Summary) -> SectionText | None:
    """The reasons of a verdict other than PASS, and of a FAIL without a regression, and the next action."""
    if has_remedy(summary):
        return SectionText(remedy_text(summary), EMPTY)
    return None


@section("workload file")
def harness(summary: Summary) -> SectionText | None:
    """How an edited workload file changed the measurement itself; shown with any verdict."""
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
    """Values missing from the documents of a FAIL; an undecided verdict lists them as a reason, with the remedy."""
    entries = summary.decision.gaps.missing
    if summary.verdict != "FAIL" or not entries:
        return None
    listed, more = missing_numbers(entries)
    return section_text(
        summary, "missing", missing=listed, more_missing=more, count=len(entries)
    )
