"""Wilcoxon's signed-rank test as the gate needs it: exact one-sided p-values and bounds
for the median paired effect.

Source: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd ed., 3.1-3.3
(test, Hodges-Lehmann estimate, confidence bounds from Walsh averages). The random order
of base and head makes the paired differences symmetric around the effect, which is all
the test assumes; that one pair in eight is wild does not matter to it.

Differences may be weighted, by anything that does not change when base and head are
swapped: the test is then a test of the weighted differences, as exact as before, and
the Walsh averages are weighted averages.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc, ndtr, ndtri, owens_t

from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.summary import median

EXACT_UP_TO = 50
_LARGEST_SHIFT = 10.0  # standard deviations, beyond which every difference has one sign
_BISECTIONS = 40

# Up to this number of differences, the indices of all pairs are kept: for the 128 pairs
# of a gate they take 130 kB.
_KEPT_UP_TO = 128


def walsh_averages(differences: Floats, weights: Floats | None) -> Floats:
    """All (w_i d_i + w_j d_j)/(w_i + w_j) with i <= j, sorted; shape n(n+1)/2."""
    return np.sort(_averages(differences, weights))


def _averages(differences: Floats, weights: Floats | None) -> Floats:
    """The Walsh averages in no order: to sort them takes longer than to make them."""
    if differences.size <= _KEPT_UP_TO:
        rows, columns = _index_pairs(differences.size)
    else:
        rows, columns = np.triu_indices(differences.size)
    if weights is None:
        return (differences[rows] + differences[columns]) / 2
    weighted = differences * weights
    return (weighted[rows] + weighted[columns]) / (weights[rows] + weights[columns])


@lru_cache(maxsize=32)
def _index_pairs(count: int) -> tuple[Ints, Ints]:
    """The indices i <= j of all pairs."""
    return np.triu_indices(count)


def estimate(differences: Floats, weights: Floats | None = None) -> float:
    """The Hodges-Lehmann estimate of the effect: the median of the Walsh averages."""
    return median(_averages(differences, weights))


def p_above(differences: Floats, margin: float, weights: Floats | None = None) -> float:
    """The one-sided p-value of "the effect is at most ``margin``".

    The statistic is the number of Walsh averages above the margin, which is the
    signed-rank statistic without its trouble with ties; ties count for the null
    hypothesis.
    """
    count = int(np.count_nonzero(_averages(differences, weights) > margin))
    n = differences.size
    if count <= 0:
        return 1.0
    if n > EXACT_UP_TO:
        mean, deviation = _normal_moments(n)
        return float(ndtr(-(count - 0.5 - mean) / deviation))
    return float(_cumulative_null(n)[n * (n + 1) // 2 - count])  # the null is symmetric


def p_below(differences: Floats, margin: float, weights: Floats | None = None) -> float:
    """The one-sided p-value of "the effect is at least ``margin``"."""
    return p_above(-differences, -margin, weights)


def lower_bound(
    differences: Floats, alpha: float, weights: Floats | None = None
) -> float:
    """The one-sided lower confidence bound at level 1 - alpha; -inf when the pairs are
    too few for a bound.
    """
    averages = walsh_averages(differences, weights)
    k = _critical(differences.size, alpha)
    if k is None:
        return -math.inf
    return float(averages[k])


def upper_bound(
    differences: Floats, alpha: float, weights: Floats | None = None
) -> float:
    """The one-sided upper confidence bound at level 1 - alpha; +inf when the pairs are
    too few for a bound.
    """
    return -lower_bound(-differences, alpha, weights)


def power(n: int, alpha: float, shift: float) -> float:
    """How probably ``n`` normal differences show an effect of ``shift`` standard
    deviations at ``alpha``, one-sided.

    Mean and variance of W+ under a normal shift are from Lehmann, Nonparametrics:
    Statistical Methods Based on Ranks (1975), section 2.2. Near its end W+ is skewed,
    so a beta distribution with these moments approximates it: simulated power lies
    within 1.5 points of the result from 10 to 64 differences, while a normal one is up
    to 3 points too high.
    """
    critical = _critical(n, alpha)
    if critical is None:
        return 0.0
    p_one = ndtr(shift)  # P(X > 0)
    p_two = ndtr(math.sqrt(2) * shift)  # P(X + Y > 0)
    p_three = p_two - 2 * owens_t(
        math.sqrt(2) * shift, math.sqrt(1 / 3)
    )  # P(X + Y > 0 and X + Z > 0)
    mean = n * p_one + n * (n - 1) / 2 * p_two
    variance = (
        n * (n - 1) * (n - 2) * (p_three - p_two**2)
        + n * (n - 1) / 2 * (2 * (p_one - p_two) ** 2 + 3 * p_two * (1 - p_two))
        + n * p_one * (1 - p_one)
    )
    most = n * (n + 1) // 2
    width = most + 1  # half a step of continuity on either side
    centre, relative = (mean + 0.5) / width, variance / width**2
    if relative <= 1e-12:
        return 1.0
    sharpness = centre * (1 - centre) / relative - 1
    return float(
        1
        - betainc(
            centre * sharpness, (1 - centre) * sharpness, (most - critical) / width
        )
    )


@lru_cache(maxsize=256)
def detectable_shift(n: int, alpha: float, probability: float) -> float | None:
    """The effect, in standard deviations, that ``n`` normal differences show at
    ``alpha`` with ``probability``.

    None if no effect is large enough, because the differences are too few to reach
    ``alpha``.
    """
    low, high = 0.0, _LARGEST_SHIFT
    if power(n, alpha, high) < probability:
        return None
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if power(n, alpha, middle) >= probability:
            high = middle
        else:
            low = middle
    return high


def _critical(n: int, alpha: float) -> int | None:
    """The largest k with P(W+ <= k) <= alpha under the null, None when there is none."""
    if n > EXACT_UP_TO:
        mean, deviation = _normal_moments(n)
        k = int(np.floor(mean + deviation * ndtri(alpha) - 0.5))
    else:
        k = int(np.count_nonzero(_cumulative_null(n) <= alpha)) - 1
    return k if k >= 0 else None


@lru_cache(maxsize=128)
def _cumulative_null(n: int) -> Floats:
    """P(W+ <= k) for k = 0 … n(n+1)/2, by convolving the n coin flips "rank r counts or
    not".
    """
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
        ways /= 2.0
    return np.cumsum(ways)


def _normal_moments(n: int) -> tuple[float, float]:
    return n * (n + 1) / 4, float(np.sqrt(n * (n + 1) * (2 * n + 1) / 24))
