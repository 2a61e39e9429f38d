"""Comparisons in words, each with the unit of its metric.

Changes are worded (slower/faster, more/fewer), never shown by a sign, which would mean
another thing for each metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import JOB_OUTPUT, JOB_WORK, SIGNATURE
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    Exact,
    NumberComparison,
    Outcome,
    Paired,
    Recorded,
)
from perfgate.document.explanation import OperatorDelta
from perfgate.judging.report.text.numbers import (
    DASH,
    NO_CHANGE,
    amounts,
    counted,
    percent,
    percent_number,
    setting,
    whole,
)
from perfgate.judging.report.text.words import EMPTY, Words, phrase, phrases, say

# Words for a larger and a smaller value of each unit.
_DIRECTIONS = phrases(
    {
        "s": ("{size} slower", "{size} faster"),
        "B": ("{size} more", "{size} less"),
        "1": ("{size} more", "{size} fewer"),
    }
)
_HIGHER_LOWER = (phrase("{size} higher"), phrase("{size} lower"))
_LARGER_SMALLER = (phrase("{size} larger"), phrase("{size} smaller"))
# Checks that compare both sides: a difference is not a failure of the head alone.
_CHANGED = phrases(
    {
        SIGNATURE: "output changed",
        JOB_OUTPUT: "output changed",
        JOB_WORK: "different work",
    }
)


class HasMeasure(Protocol):
    """A number's metric and unit, which every record of a number has."""

    @property
    def metric(self) -> str: ...

    @property
    def unit(self) -> str: ...


class Measure(NamedTuple):
    """The metric and unit of numbers that have no record."""

    unit: str
    metric: str = ""


SECONDS = Measure("s")


def measure_of(metric: str) -> Measure:
    """The measure of a metric; a name that is not in the catalogue has no unit."""
    unit = "1"
    if metric in METRICS:
        unit = METRICS[metric].unit
    return Measure(unit, metric)


def _is_share(measure: HasMeasure) -> bool:
    """Whether a metric of unit 1 is a share of a whole rather than a count."""
    metric = METRICS.get(measure.metric)
    return metric is not None and metric.number.sort == "share"


def is_leak(metric: str) -> bool:
    """Whether a metric is memory that every call leaves behind; it repeats, but not to
    the byte.
    """
    return metric in METRICS and METRICS[metric].origin.leak


def time_of(operator: OperatorDelta) -> Paired:
    """The time of an operator as its test compared it."""
    outcome: Outcome = "informs"
    if operator.outcome != "untested":
        outcome = operator.outcome
    return Paired(
        workload=operator.workload,
        shape=operator.shape,
        metric=f"ops.time:{operator.op}",
        unit="s",
        better="lower",
        outcome=outcome,
        gating=False,
        base=operator.base,
        head=operator.head,
        delta=operator.delta,
        interval=operator.interval,
        confidence=operator.confidence,
        pairs=operator.pairs,
    )


def sides(comparison: Comparison) -> tuple[Words, Words]:
    """Base and head of a comparison, in one unit; a check has words instead, and a
    bound has no base.
    """
    if isinstance(comparison, Bound):
        return DASH, quantity(comparison.head, comparison)
    if isinstance(comparison, Checked) and not comparison.is_count:
        if comparison.metric in _CHANGED:
            return DASH, say("changed")
        return _passed(comparison.base), _passed(comparison.head)
    base, head = quantities([comparison.base, comparison.head], comparison)
    differs = isinstance(comparison, Exact) and comparison.base != comparison.head
    if differs and base == head and comparison.unit == "B":
        return _in_bytes(comparison.base), _in_bytes(comparison.head)
    return base, head


def _in_bytes(size: float | None) -> Words:
    """Every byte of a size: exact sizes may differ by less than their digits show."""
    if size is None:
        return DASH
    return Words(f"{whole(size)} B")


def quantity(value: float | None, measure: HasMeasure) -> Words:
    """A value with its unit, e.g. ``36.1 ms``; a dash for None."""
    return quantities([value], measure)[0]


def quantities(values: Sequence[float | None], measure: HasMeasure) -> list[Words]:
    """Values for reading side by side: one common unit, with enough digits to
    distinguish them.
    """
    return amounts(values, measure.unit, share=_is_share(measure))


def change(comparison: Comparison) -> Words:
    """How far the head is from the base, in words and with its interval."""
    match comparison:
        case Bound(is_of_kernels=True):
            return _expectation(comparison)
        case Bound():
            return _distance(comparison)
        case Checked(is_count=False) if comparison.metric in _CHANGED:
            return say(_CHANGED[comparison.metric])
        case Checked(is_count=False):
            if comparison.outcome == "regressed":
                return say("check failed")
            return say("check passed")
        case _ if comparison.outcome == "not_comparable" and not isinstance(
            comparison, Checked
        ):
            return DASH
        case Exact() | Checked():
            return change_of_count(comparison.base, comparison.head, comparison)
        case Paired():
            return _change_in_pairs(comparison)
        case Recorded():
            return percent_change(comparison) or DASH


def _change_in_pairs(comparison: Paired) -> Words:
    # Some tests decide without an interval.
    if comparison.interval is None and comparison.outcome in ("regressed", "improved"):
        return percent_change(comparison) or DASH
    return change_of_level(comparison.delta, comparison.interval, comparison)


def change_of_count(
    base: float | None, head: float | None, measure: HasMeasure
) -> Words:
    """``24 more (exact)``; a dash if a side has no count."""
    if base is None or head is None:
        return DASH
    size = difference(base, head, measure)
    if not is_leak(measure.metric):
        return say("{change} (exact)", change=size)
    if head > base:
        return say("{change} (a leak)", change=size)
    return size


def change_of_level(
    delta: float | None, ends: tuple[float, float] | None, measure: HasMeasure
) -> Words:
    """``6.8 % slower (5.9 to 7.7 %)``; a dash without a difference."""
    if delta is None:
        return DASH
    if ends is None:
        return say("not resolved")
    change = directed_percent(delta, measure)
    reach = bounds(ends, measure)
    if reach == say("no change"):
        return change
    return Words(f"{change} ({reach})")


def percent_change(comparison: Comparison) -> Words | None:
    """The relative change alone, None if there is none."""
    if not isinstance(comparison, NumberComparison) or comparison.delta is None:
        return None
    if isinstance(comparison, Exact):
        return exact_percent(comparison.delta, comparison)
    return directed_percent(comparison.delta, comparison)


def interval(comparison: Comparison) -> Words:
    """The confidence interval of a change in words, empty without one."""
    if not isinstance(comparison, Paired) or comparison.interval is None:
        return EMPTY
    return bounds(comparison.interval, comparison)


def bounds(ends: tuple[float, float], measure: HasMeasure) -> Words:
    """The ends of an interval of a relative change: ``5.9 to 7.7 %`` if both lie on one
    side of no change.
    """
    if not all(map(math.isfinite, ends)):
        return say("no bound")
    if ends[0] >= 0 or ends[1] <= 0:
        near, far = sorted(ends, key=abs)
        if percent(near) == percent(far):
            return percent(far)
        return say(
            "{low} to {high}", low=Words(percent_number(near)), high=percent(far)
        )
    low = directed_percent(ends[0], measure)
    high = directed_percent(ends[1], measure)
    if low == high:
        return low
    return say("{low} to {high}", low=low, high=high)


def directed_percent(share: float, measure: HasMeasure) -> Words:
    """A relative change in words: ``6.8 % slower``, ``12 % fewer``, ``no change``."""
    if not math.isfinite(share):
        return say("no bound")
    if abs(share) < NO_CHANGE:
        return say("no change")
    return exact_percent(share, measure)


def exact_percent(share: float, measure: HasMeasure) -> Words:
    """A relative change between exact numbers, which is a change however small:
    ``under 0.1 % fewer``.
    """
    if share == 0:
        return say("no change")
    more, less = _directions(measure)
    if _is_share(measure):
        more, less = _HIGHER_LOWER
    if share > 0:
        return say(more, size=percent(share))
    return say(less, size=percent(share))


def difference(base: float, head: float, measure: HasMeasure) -> Words:
    """An absolute change in words: ``24 more``, ``1.90 ms slower``, ``the same``."""
    if base == head:
        return say("the same")
    more, less = _directions(measure)
    size = quantity(abs(head - base), measure)
    if head > base:
        return say(more, size=size)
    return say(less, size=size)


def _directions(measure: HasMeasure) -> tuple[str, str]:
    metric = METRICS.get(measure.metric)
    if measure.unit == "s" and metric and not metric.number.speed:
        return _LARGER_SMALLER
    return _DIRECTIONS.get(measure.unit, _HIGHER_LOWER)


def limit(comparison: Comparison) -> Words:
    """The allowed worsening of a metric, or the bound itself; a dash if neither
    applies.
    """
    if isinstance(comparison, Bound):
        return quantity(comparison.bound, comparison)
    if (
        isinstance(comparison, Checked)
        or comparison.tolerance is None
        or comparison.outcome == "improved"
    ):
        return DASH
    entry = METRICS.get(comparison.metric)
    if (
        isinstance(comparison, Exact)
        and entry
        and entry.gate.allowed_more
        and comparison.base is not None
    ):
        # The allowance is an amount, shown as such instead of as a share of the base.
        amount = round(comparison.tolerance * max(comparison.base, 1))
        return difference(0, amount, comparison)
    if comparison.tolerance == 0:
        return Words("0")
    return setting(comparison.tolerance)


def _distance(comparison: Bound) -> Words:
    """How far a value is from its bound; for a bound of 0 this cannot be a share."""
    name = _name_of(comparison)
    if comparison.head is None:
        return say("not shown to be met")
    if comparison.head == comparison.bound:
        return say("at {bound}", bound=name)
    is_above = comparison.head > comparison.bound
    if not comparison.bound and is_above:
        return say("above {bound}", bound=name)
    if not comparison.bound:
        return say("below {bound}", bound=name)
    size = percent(comparison.head / comparison.bound - 1)
    if is_above:
        return say("{size} above {bound}", size=size, bound=name)
    return say("{size} below {bound}", size=size, bound=name)


def _name_of(bound: Bound) -> Words:
    if bound.is_sla:
        return say("the SLA")
    if bound.is_budget:
        return say("the budget")
    return say("the limit")


def _expectation(comparison: Bound) -> Words:
    """How many of the expected kernels did not run."""
    if comparison.head is None:
        return say("not shown to be met")
    missing = int(comparison.bound - comparison.head)
    if missing:
        return counted(missing, "missing", "missing")
    return say("all ran")


def _passed(value: float | None) -> Words:
    if value is None:
        return DASH
    if value:
        return say("passed")
    return say("failed")
