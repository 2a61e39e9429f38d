"""The knee of a sweep over batch sizes: the smallest size that is about as fast per
item as the best one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE

# The items per second of each size, one value a round; all sizes have equally many.
Rates = Mapping[int, Sequence[float]]
# Sizes with a smaller difference in throughput count as equally good: the smallest of
# them is the best.
NEARLY = 1.02


class Knee(NamedTuple):
    """The smallest size that is about as fast as the best one, and the range that the
    rounds leave open.

    ``earliest`` is the smallest size that is not shown to be slower, ``shown`` the
    smallest that is shown not to be. ``visits`` is how often each size was measured.
    """

    earliest: int
    size: int
    shown: int
    visits: int


def nearly_best(typical: Mapping[int, float], gain: float) -> int:
    """The smallest size with a rate that, times ``gain``, reaches the highest rate."""
    highest = max(typical.values())
    return min(size for size, rate in typical.items() if rate * gain >= highest)


def smallest_within(rates: Rates, gain: float, *, size: int | None = None) -> Knee:
    """The smallest size that the best one is not ``gain`` times as fast as, with its
    range.

    Sizes are compared round by round, so that a disturbance of a whole round cancels
    out. ``size`` is the answer if it is known from more than these rounds; the range
    then includes it.
    """
    typical = typical_rates(rates)
    sizes = sorted(rates)
    best = max(sizes, key=typical.__getitem__)
    if size is None:
        size = nearly_best(typical, gain)
    tail = (1 - CONFIDENCE) / 2
    earliest, latest = size, max(size, best)
    for smaller in sizes[: sizes.index(best)]:
        behind = np.log(np.asarray(rates[best])) - np.log(np.asarray(rates[smaller]))
        if lower_bound(behind, tail) <= math.log(gain):
            earliest = min(earliest, smaller)
        if upper_bound(behind, tail) < math.log(gain):
            latest = min(latest, max(size, smaller))
    return Knee(earliest, size, latest, len(rates[best]))


def find_knee(rates: Rates, gain: float) -> Knee | None:
    """The size from which on the best one is not ``gain`` times as fast; None if only
    the largest qualifies.
    """
    if len(rates) < 2:
        return None
    knee = smallest_within(rates, gain)
    if knee.size == max(rates):
        return None
    return knee


def paired_knees(base: Rates, head: Rates, gain: float) -> tuple[Knee, Knee] | None:
    """The knees of two sides that were measured round by round; None if a side did not
    reach one.
    """
    if len(base) < 2:
        return None
    before, after = paired_smallest(base, head, gain)
    if before.size == max(base) or after.size == max(head):
        return None
    return before, after


def paired_smallest(base: Rates, head: Rates, gain: float) -> tuple[Knee, Knee]:
    """``smallest_within`` of two sides with the same sizes, measured round by round."""
    before, after = _paired_rates(base, head)
    return (
        smallest_within(base, gain, size=nearly_best(before, gain)),
        smallest_within(head, gain, size=nearly_best(after, gain)),
    )


def typical_rates(rates: Rates) -> dict[int, float]:
    """The median rate of each size, in rising order of sizes."""
    return {size: float(np.median(rates[size])) for size in sorted(rates)}


def _paired_rates(
    base: Rates, head: Rates
) -> tuple[dict[int, float], dict[int, float]]:
    """The typical rates of both sides, which differ at those sizes alone at which the
    rounds show a difference.

    Equal code has the same rates, and so the same best size on both sides. The sizes
    share the error (Bonferroni); a few rounds that all agree count as a difference
    though they cannot reach that level.
    """
    before, after = typical_rates(base), typical_rates(head)
    for size in base:
        tail = max((1 - CONFIDENCE) / 2 / len(base), 0.5 ** len(base[size]))
        effects = np.log(np.asarray(head[size])) - np.log(np.asarray(base[size]))
        if lower_bound(effects, tail) <= 0.0 <= upper_bound(effects, tail):
            before[size] = after[size] = math.sqrt(before[size] * after[size])
        else:
            after[size] = before[size] * math.exp(estimate(effects))
    return before, after
