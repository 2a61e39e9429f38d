"""Which of the changed functions were measured, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.coverage import ChangedFunction
from perfgate.judging.report.text.templates import Medium, Values, line
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.summary import Summary

_MOST_NAMED = 6


def coverage_values(summary: Summary) -> Values | None:
    """The values of ``shared/coverage.j2``; None if all changed functions were measured, or nothing is known of them."""
    coverage = summary.decision.coverage
    if coverage is None or not coverage.functions or (summary.is_measured and not coverage.not_executed):
        return None
    open_ones = [function for function in coverage.functions if function.executed == "unknown"]
    missed = [function for function in coverage.functions if function.executed in {"no", "definition"}]
    return {
        "is_measured": summary.is_measured,
        "measured": len(coverage.executed),
        "total": len(coverage.functions),
        "missed": _named(summary, missed),
        "more_missed": max(0, len(missed) - _MOST_NAMED),
        "open": _named(summary, open_ones),
        "more_open": max(0, len(open_ones) - _MOST_NAMED),
        "doubt": next(iter(coverage.doubts), None),
        "nearest": coverage.nearest,
    }


def coverage_line(summary: Summary, medium: Medium) -> Words | None:
    values = coverage_values(summary)
    return None if values is None else line("shared/coverage.j2", medium, {"coverage": values})


def _named(summary: Summary, functions: Sequence[ChangedFunction]) -> list[Values]:
    """The names of the first of these functions, each with the line at which it changed."""
    return [
        {
            "name": function.function or None,
            "line": summary.linked(function.line) if function.side == "head" else function.line,
        }
        for function in functions[:_MOST_NAMED]
    ]
