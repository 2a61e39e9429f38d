"""Which of the changed functions were measured, in one line."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.coverage import ChangedFunction
from perfgate.judging.report.text.names import listed
from perfgate.judging.report.text.templates import Medium, line
from perfgate.judging.report.text.words import SentencePieces, Words, joined
from perfgate.judging.report.view.summary import Summary

_MOST_NAMED = 6


def coverage_line(summary: Summary, medium: Medium) -> Words | None:
    """None if all changed functions were measured, or nothing is known of them."""
    coverage = summary.decision.coverage
    if coverage is None or not coverage.functions or (summary.is_measured and not coverage.not_executed):
        return None
    missed = [function for function in coverage.functions if function.executed in {"no", "definition"}]
    unseen = [function for function in coverage.functions if function.executed == "unknown"]
    return line(
        "shared/coverage.j2",
        medium,
        is_measured=summary.is_measured,
        measured=len(coverage.executed),
        total=len(coverage.functions),
        missed=_named(summary, missed),
        unseen=_named(summary, unseen),
        doubt=next(iter(coverage.doubts), None),
        nearest=coverage.nearest,
    )


def _named(summary: Summary, functions: Iterable[ChangedFunction]) -> SentencePieces:
    """The names of the first of these functions, each with the line at which it changed."""
    names = []
    for function in functions:
        changed = summary.linked(function.line) if function.side == "head" else function.line
        names.append(joined([function.function, Words(" ("), changed, Words(")")]) if function.function else changed)
    return listed(names, _MOST_NAMED)
