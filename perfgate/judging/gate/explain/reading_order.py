"""The order in which people read the comparisons of a decision."""

from __future__ import annotations

import math

from perfgate.catalogue.lookup import FAST_PATHS, METRICS
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    EvidenceUnit,
    Exact,
    NumberComparison,
    Paired,
    Recorded,
)

_OUTCOMES = ("regressed", "improved", "inconclusive")
_EVIDENCE: tuple[EvidenceUnit, ...] = ("pair", "turn", "quad")
# They move with other metrics: with all the other times, or with the times of operators.
_LISTED_LAST = {name for name, metric in METRICS.items() if metric.listed_last}
# They explain more than the metrics that move with them.
_LISTED_FIRST = {name for name, metric in METRICS.items() if metric.listed_first}


def reading_order(comparison: Comparison) -> tuple[float, ...]:
    """Regressions, the worst first; improvements, the largest first; undecided comparisons, blockers of the verdict first.

    Of paired times, the first to decide leads, not the largest: the largest would be the luckiest. The turnaround contains all
    other times, so it comes after them, and so do instructions. A counter with the line of its
    increase precedes one that only counts; the calls of an operator precede the memory that they take.
    """
    if comparison.outcome not in _OUTCOMES:
        return (len(_OUTCOMES),)
    outcome = _OUTCOMES.index(comparison.outcome)
    if comparison.outcome == "inconclusive":
        return outcome, not comparison.must_decide, not comparison.gating, -_excess(comparison)
    # An accepted one keeps its place, so the causes keep their numbers.
    is_counted = comparison.gating or comparison.accepted
    return outcome, not is_counted, *_order_within_evidence(comparison)


def _excess(comparison: Comparison) -> float:
    """The worsening beyond the tolerance."""
    if not isinstance(comparison, NumberComparison):
        return 0.0
    return max(0.0, comparison.worsening - (comparison.tolerance or 0.0))


def _order_within_evidence(comparison: Comparison) -> tuple[float, ...]:
    """Checks, bounds, times, counts and recordings, each sorted by its own criteria."""
    is_last = comparison.metric in _LISTED_LAST
    is_not_first = comparison.metric not in _LISTED_FIRST
    match comparison:
        case Checked():
            return (0,)
        case Bound():
            return 1, not comparison.is_of_kernels, comparison.limit is not None, is_last, is_not_first
        case Paired():
            unit = _EVIDENCE.index(comparison.evidence)
            follows_call = comparison.is_of_call and comparison.metric not in FAST_PATHS
            return 2, unit, is_last, is_not_first, follows_call, _largest_first(comparison)
        case Exact():
            has_line = any(part.line and part.head > part.base for part in comparison.parts)
            cause = math.inf if comparison.cause is None else comparison.cause
            return 3, not has_line, is_not_first, is_last, cause, _largest_first(comparison)
        case Recorded():
            return 4, is_last, is_not_first, _largest_first(comparison)


def _largest_first(comparison: NumberComparison) -> float:
    return -math.inf if comparison.delta is None else -abs(comparison.delta)
