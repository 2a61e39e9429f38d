"""Table rows of comparisons, in words; shared by the comment, the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from perfgate.document.decision import Comparison
from perfgate.judging.report import format as formats
from perfgate.judging.report.causes import Cause, cause_of
from perfgate.judging.report.headline import named_change
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.words import Words

_OUTCOME_LABELS = {
    "improved": "better",
    "unchanged": "same",
    "inconclusive": "undecided",
    "not_comparable": "not compared",
}


def row(comparison: Comparison, summary: Summary, known: Iterable[Cause] = ()) -> dict[str, object]:
    """Return one comparison as the words of a table row."""
    cause = cause_of(comparison, known)
    return {
        **named_change(comparison),
        "label": label(comparison, summary),
        "cause": None if cause is None else worded_cause(cause),
    }


def label(comparison: Comparison, summary: Summary) -> Words:
    """Return the row's first word: FAIL only for what fails the gate, ``worse`` for what it merely notes."""
    if comparison.outcome != "regressed":
        return Words(_OUTCOME_LABELS[comparison.outcome])
    fails = comparison.gating and summary.verdict == "FAIL"
    suspects = comparison.method == "screen" and summary.verdict == "WARN"
    if fails or suspects:
        return Words(summary.verdict)
    return Words("worse")


def worded_cause(cause: Cause) -> dict[str, object]:
    """Return one operator's change in words; what did not change or is unknown is None."""
    counted = cause.base_count is not None and cause.head_count is not None
    more = cause.more_count
    return {
        "op": cause.op,
        "place": cause.place,
        "line": cause.line,
        "more": formats.difference(0, more, "1") if counted and more else None,
        "one": abs(more) == 1,
        "base": formats.whole(cause.base_count or 0) if counted else None,
        "head": formats.whole(cause.head_count or 0) if counted else None,
        "bytes": _grown(cause.more_bytes, "B"),
        "time": _grown(cause.more_time, "s"),
    }


def common_confidence(comparisons: Iterable[Comparison]) -> Optional[Words]:
    """Return the confidence level the intervals share, None where they differ or there is none."""
    levels = {c.confidence for c in comparisons if c.interval is not None and c.confidence is not None}
    return formats.setting(levels.pop()) if len(levels) == 1 else None


def _grown(amount: Optional[float], unit: str) -> Optional[Words]:
    return formats.quantity(amount, unit) if amount is not None and amount > 0 else None
