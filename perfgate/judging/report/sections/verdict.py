"""The top of the comment: the verdict, the facts under it, the remedy, and failures to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.decision import HarnessChange
from perfgate.document.message import Message
from perfgate.judging.report.sections.section import Section, section
from perfgate.judging.report.text.numbers import beyond
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.causes import worst_cause
from perfgate.judging.report.view.checklist import other_notes
from perfgate.judging.report.view.coverage import coverage_line
from perfgate.judging.report.view.facts import (
    FailureView,
    base_line,
    busy_line,
    counts_line,
    worded_failures,
)
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.missing import MissingList, missing_list
from perfgate.judging.report.view.remedy import Remedy, has_remedy
from perfgate.judging.report.view.remedy import remedy as worded_remedy
from perfgate.judging.report.view.summary import Summary

_MOST_WARNINGS = 4
_MOST_CHANGES = 10
_MOST_FAILURES = 3
# With lists this short, tracebacks are shortened too.
_SHORT_LISTS = 10


# A visual cue in a thread of comments; the word follows it for screen readers.
SIGNS = {"PASS": "✅", "WARN": "⚠️", "FAIL": "❌", "INCONCLUSIVE": "❔", "SKIPPED": "⏭️"}


@dataclass(frozen=True)
class TitleSection(TemplateView):
    """The first line; ``cause`` is that of the regression in the headline."""

    sign: Words
    headline: Words
    cause: str | None


@dataclass(frozen=True)
class CoverageSection(TemplateView):
    """How many of the changed functions were measured, and the others."""

    coverage: Words


@dataclass(frozen=True)
class NotesSection(TemplateView):
    """Notes to read first: a busy machine, and the gate's warnings."""

    busy: Words | None
    warnings: Sequence[Message]
    more: int


@dataclass(frozen=True)
class FactsSection(TemplateView):
    """Counts and noise floor; base, head and testbed."""

    counts: Words
    base: Words
    fold: bool


@dataclass(frozen=True)
class HarnessSection(TemplateView):
    """How an edited workload file changed the measurement itself."""

    changes: Sequence[HarnessChange]
    more: int


@dataclass(frozen=True)
class FailuresSection(TemplateView):
    """Failed measurements, each with the last ``lines`` of its traceback."""

    failures: Sequence[FailureView]
    more: int
    lines: int


@dataclass(frozen=True)
class MissingSection(MissingList):
    """Values missing from the documents."""

    count: int


def title_view(summary: Summary) -> TitleSection:
    return TitleSection(Words(SIGNS[summary.verdict]), headline(summary, "markdown"), worst_cause(summary))


title = Section("title", "title", title_view)


@section("changed functions")
def coverage(summary: Summary) -> CoverageSection | None:
    line = coverage_line(summary, "markdown")
    return None if line is None else CoverageSection(line)


@section("notes")
def notes(summary: Summary) -> NotesSection | None:
    warnings, busy = other_notes(summary.decision.warnings), busy_line(summary, "markdown")
    if not warnings and busy is None:
        return None
    return NotesSection(busy, warnings[:_MOST_WARNINGS], beyond(warnings, _MOST_WARNINGS))


@section("how it was compared", fold="compared")
def facts(summary: Summary) -> FactsSection | None:
    """Folded, unless the testbeds are the problem."""
    if summary.is_unread:
        return None
    differs = summary.verdict == "INCONCLUSIVE" and bool(summary.decision.testbed_differences)
    counts = counts_line(summary, "markdown") if summary.is_measured else Words("")
    return FactsSection(counts, base_line(summary, "markdown"), fold=summary.is_measured and not differs)


@section("what to do")
def remedy(summary: Summary) -> Remedy | None:
    """The reasons of a verdict other than PASS, and of a FAIL without a regression, and the next action."""
    return worded_remedy(summary) if has_remedy(summary) else None


@section("workload file")
def harness(summary: Summary) -> HarnessSection | None:
    """Whatever the verdict."""
    changes = summary.telling_harness_changes
    return HarnessSection(changes[:_MOST_CHANGES], beyond(changes, _MOST_CHANGES)) if changes else None


@section("errors")
def failures(summary: Summary) -> FailuresSection | None:
    if not summary.failures:
        return None
    worded = worded_failures(summary.failures)
    lines = 12 if summary.detail > _SHORT_LISTS else 4
    return FailuresSection(worded[:_MOST_FAILURES], beyond(worded, _MOST_FAILURES), lines)


@section("missing numbers", fold="moved")
def missing(summary: Summary) -> MissingSection | None:
    """Of a FAIL; an undecided verdict lists them as a reason, with the remedy."""
    entries = summary.decision.missing
    if summary.verdict != "FAIL" or not entries:
        return None
    listed = missing_list(entries)
    return MissingSection(listed.missing, listed.more_missing, len(entries))
