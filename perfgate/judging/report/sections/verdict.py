"""The top of the comment: the verdict, the facts under it, the remedy, and failures to measure."""

from __future__ import annotations

from perfgate.judging.report.sections.section import Section, section
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.checklist import other_notes
from perfgate.judging.report.view.coverage import coverage_line
from perfgate.judging.report.view.facts import base_line, busy_line, counts_line, worded_failures
from perfgate.judging.report.view.headline import headline, missing_values
from perfgate.judging.report.view.remedy import has_remedy
from perfgate.judging.report.view.remedy import remedy as worded_remedy
from perfgate.judging.report.view.rows import worst_cause
from perfgate.judging.report.view.summary import Summary

_MOST_WARNINGS = 4
_MOST_CHANGES = 10
_MOST_FAILURES = 3
# With lists this short, tracebacks are shortened too.
_SHORT_LISTS = 10


# A visual cue in a thread of comments; the word follows it for screen readers.
SIGNS = {"PASS": "✅", "WARN": "⚠️", "FAIL": "❌", "INCONCLUSIVE": "❔", "SKIPPED": "⏭️"}


def title_values(summary: Summary) -> Values:
    return {
        "sign": Words(SIGNS[summary.verdict]),
        "headline": headline(summary, "markdown"),
        "cause": worst_cause(summary),
    }


title = Section("title", "title", title_values)


@section("changed functions")
def coverage(summary: Summary) -> Values | None:
    """How many of the changed functions were measured, and the others."""
    line = coverage_line(summary, "markdown")
    return None if line is None else {"coverage": line}


@section("notes")
def notes(summary: Summary) -> Values | None:
    """Notes to read first: a busy machine, and the gate's warnings."""
    warnings, busy = other_notes(summary.decision.warnings), busy_line(summary, "markdown")
    if not warnings and busy is None:
        return None
    return {"busy": busy, "warnings": warnings[:_MOST_WARNINGS], "more": max(0, len(warnings) - _MOST_WARNINGS)}


@section("how it was compared", fold="compared")
def facts(summary: Summary) -> Values | None:
    """Counts and noise floor; base, head and testbed. Folded, unless they are the problem."""
    if summary.is_unread:
        return None
    differs = summary.verdict == "INCONCLUSIVE" and summary.decision.testbed_differences
    return {
        "counts": counts_line(summary, "markdown") if summary.is_measured else Words(""),
        "base": base_line(summary, "markdown"),
        "fold": summary.is_measured and not differs,
    }


@section("what to do")
def remedy(summary: Summary) -> Values | None:
    """The reasons of a verdict other than PASS, and of a FAIL without a regression, and the next action for each."""
    return worded_remedy(summary) if has_remedy(summary) else None


@section("workload file")
def harness(summary: Summary) -> Values | None:
    """How an edited workload file changed the measurement itself, whatever the verdict."""
    changes = summary.telling_harness_changes
    return {"changes": changes[:_MOST_CHANGES], "more": max(0, len(changes) - _MOST_CHANGES)} if changes else None


@section("errors")
def failures(summary: Summary) -> Values | None:
    """Failed measurements, each with the end of its traceback."""
    if not summary.failures:
        return None
    worded = worded_failures(summary.failures)
    return {
        "failures": worded[:_MOST_FAILURES],
        "more": max(0, len(worded) - _MOST_FAILURES),
        "lines": 12 if summary.detail > _SHORT_LISTS else 4,
    }


@section("missing numbers", fold="moved")
def missing(summary: Summary) -> Values | None:
    """Values missing from the documents of a FAIL; an undecided verdict lists them as a reason, with the remedy."""
    if summary.verdict != "FAIL" or not summary.decision.missing:
        return None
    return {**missing_values(summary), "count": len(summary.decision.missing)}
