"""Table rows of comparisons, in words; shared by the comment, the terminal and the
page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.explanation import OperatorDelta
from perfgate.document.message import Message
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.names import place_of, title_of
from perfgate.judging.report.text.words import Words, phrases, say
from perfgate.judging.report.view.causes import CauseView
from perfgate.judging.report.view.summary import Summary

_OUTCOME_LABELS = phrases(
    {
        "improved": "better",
        "unchanged": "same",
        "inconclusive": "undecided",
        "not_comparable": "not compared",
        "informs": "informational",
    }
)


class ComparisonRow(NamedTuple):
    """One comparison as a row of a table, with several ``places`` if their rows are
    equal.

    ``block`` is the number of the cause that is shown above the table, ``failed_check``
    the message of a check.
    """

    comparison: Comparison
    places: tuple[str, ...]
    label: Words
    cause: str | None
    failed_check: Message | None
    listed_below: bool
    block: int | None

    @property
    def is_one_sided(self) -> bool:
        """Whether it is an unchanged number that is only shown to be "not worse"."""
        return is_one_sided(self.comparison)


def row(
    comparison: Comparison, summary: Summary, block: int | None = None
) -> ComparisonRow:
    cause = summary.cause_of(comparison)
    worded_cause = None
    failed_check = None
    if cause is not None:
        worded_cause = CauseView(cause).in_short
    if isinstance(comparison, Checked):
        failed_check = comparison.reason
    changed = comparison.place in summary.changed_places
    # A time, or a count without parts, does not show its own composition.
    is_whole = comparison.unit == "s" or (
        isinstance(comparison, Exact) and not comparison.parts
    )
    return ComparisonRow(
        comparison=comparison,
        places=(place_of(comparison),),
        label=label(comparison, summary),
        cause=worded_cause,
        failed_check=failed_check,
        listed_below=cause is None
        and changed
        and comparison.outcome == "regressed"
        and is_whole,
        block=block,
    )


def grouped(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """The rows; equal rows of several places are merged, e.g. a counter of every input
    shape.
    """
    merged: dict[tuple[object, ...], ComparisonRow] = {}
    for entry in rows:
        key = _cells(entry)
        if key in merged:
            first = merged[key]
            merged[key] = first._replace(places=(*first.places, *entry.places))
        else:
            merged[key] = entry
    return list(merged.values())


def _cells(entry: ComparisonRow) -> tuple[object, ...]:
    """Everything that a row shows, apart from its places."""
    comparison = entry.comparison
    base, head = formats.sides(comparison)
    change = formats.change(comparison)
    limit = formats.limit(comparison)
    cause = entry.block or entry.cause
    return (
        entry.label,
        title_of(comparison),
        base,
        head,
        change,
        limit,
        str(comparison.reason),
        cause,
    )


def is_one_sided(comparison: Comparison) -> bool:
    """Whether an unchanged number is only shown to be "not worse": its interval has no
    end on the worse side.
    """
    return (
        isinstance(comparison, Paired)
        and comparison.outcome == "unchanged"
        and comparison.is_better
    )


def label(comparison: Comparison, summary: Summary) -> Words:
    """The row's first word: FAIL only if it fails the gate, ``worse`` if it is merely
    noted.
    """
    if isinstance(comparison, Bound) and comparison.outcome == "unchanged":
        return say("met")
    if is_one_sided(comparison):
        if comparison.unit == "s":
            return say("not slower")
        return say("not worse")
    if (
        isinstance(comparison, Exact)
        and comparison.outcome == "unchanged"
        and comparison.base != comparison.head
    ):
        return say(
            "allowed"
        )  # another count, within the limit or for a reason other than a regression
    if comparison.outcome != "regressed":
        return say(_OUTCOME_LABELS[comparison.outcome])
    if comparison.accepted:
        return say("accepted")
    if comparison.gating and summary.verdict == "FAIL":
        return Words("FAIL")
    return say("worse")


def common_confidence(comparisons: Iterable[Comparison]) -> Words | None:
    """The common confidence level of the intervals, None if they differ or there is
    none.
    """
    levels = set()
    for comparison in comparisons:
        if (
            isinstance(comparison, Paired)
            and comparison.interval is not None
            and comparison.confidence is not None
        ):
            levels.add(comparison.confidence)
    if len(levels) == 1:
        return numbers.confidence(levels.pop())
    return None


def whole_call(test: OperatorDelta, summary: Summary) -> Words | None:
    """The change of the whole call in words, None if unknown."""
    for comparison in summary.metrics:
        if comparison.metric != LATENCY or comparison.place != test.place:
            continue
        if isinstance(comparison, Paired) and comparison.is_of_call:
            if comparison.delta is None or comparison.outcome == "not_comparable":
                return None
            if comparison.outcome == "inconclusive":
                return say("undecided")
            return formats.directed_percent(comparison.delta, comparison)
    return None
