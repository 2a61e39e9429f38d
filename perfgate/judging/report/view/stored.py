"""A value of the head compared with main's stored runs, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.decision import StoredComparison
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.words import Words, phrase, say

_STANDINGS = {
    None: phrase("inside the range"),
    "above": phrase("above the range"),
    "below": phrase("below the range"),
}
_OUTSIDE = {
    "above": phrase("head {head}, above {range}"),
    "below": phrase("head {head}, below {range}"),
}


@dataclass(frozen=True)
class StoredRow:
    """A value of the head, and main's level.

    ``outside`` is set if it lies outside the range of one more run of main. If the level is not known, ``runs`` counts the
    incomparable runs.
    """

    name: str
    place: str
    head: Words
    typical: Words
    range: Words
    standing: Words
    runs: Words
    busy: Words | None
    head_is_busy: bool
    difference: Words
    outside: Words | None
    is_known: bool


def stored_row(
    comparison: StoredComparison, neighbours: Sequence[float | None] = ()
) -> StoredRow:
    """A row with a unit and digits that suit the ``neighbours`` too."""
    ends = comparison.interval or (None, None)
    row = [comparison.head, comparison.typical, *ends, *neighbours]
    head, typical, low, high, *_ = formats.quantities(
        row, comparison.unit, metric=comparison.metric
    )
    reach = _reach(low, high)
    outside, busy = None, None
    if comparison.busy:
        busy = numbers.whole(comparison.busy)
    if comparison.outside:
        outside = say(_OUTSIDE[comparison.outside], head=head, range=reach)
    return StoredRow(
        name=metric_name(comparison.metric),
        place=place(comparison.workload, comparison.shape),
        head=head,
        typical=typical,
        range=reach,
        standing=_standing(comparison),
        runs=numbers.counted(comparison.runs or comparison.left_out, "run"),
        busy=busy,
        head_is_busy=comparison.head_is_busy,
        difference=_from_main(comparison),
        outside=outside,
        is_known=comparison.typical is not None,
    )


def _standing(comparison: StoredComparison) -> Words:
    if comparison.interval is None:
        return say("too few runs")
    if comparison.head_is_busy:
        return say("busy machine")
    return say(_STANDINGS[comparison.outside])


def _reach(low: Words, high: Words) -> Words:
    """The ends of a range, or the level that all runs of an exact number agree on."""
    if low == high:
        return low
    return say("{low} to {high}", low=low, high=high)


def _from_main(comparison: StoredComparison) -> Words:
    """How far the head is from main's level."""
    if comparison.typical is None:
        return numbers.DASH
    if comparison.head == comparison.typical:
        return say("equal")
    if comparison.delta is None:
        return formats.difference(
            comparison.typical,
            comparison.head,
            comparison.unit,
            metric=comparison.metric,
        )
    return numbers.signed_percent(comparison.delta)
