"""Estimates that outliers hardly move: the shift between two samples, a slope, and the
cost of a transfer by its size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from perfgate.stats.arrays import Floats
from perfgate.stats.summary import CONFIDENCE, SampleEstimate

# Residuals beyond this number of standard deviations weigh less and less (Huber 1964),
# which is 95 % efficient for normal noise.
_HUBER_REACH = 1.345
CENTER_ERROR = 1 / math.sqrt(0.95)
# The same in median deviations, of which a standard deviation is 1.4826.
_HUBER = _HUBER_REACH * 1.4826
_ROUNDS = 20
# A center that moves by less of a standard deviation has settled.
_SETTLED = 1e-4


def shift(first: Floats, second: Floats) -> SampleEstimate:
    """The Hodges-Lehmann shift from the first sample to the second: the median of all
    differences.

    Source: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd ed.,
    4.2-4.3, with the normal approximation of the Mann-Whitney distribution. Raises
    ValueError for an empty sample.
    """
    if not first.size or not second.size:
        raise ValueError("a shift needs two samples that are not empty")
    differences = np.sort((second[None, :] - first[:, None]).ravel())
    spread = math.sqrt(first.size * second.size * (first.size + second.size + 1) / 12)
    rank = math.floor(
        differences.size / 2 - float(ndtri((1 + CONFIDENCE) / 2)) * spread
    )
    low = high = None
    if rank >= 1:
        low, high = float(differences[rank - 1]), float(differences[-rank])
    return SampleEstimate(
        float(np.median(differences)), low, high, first.size + second.size
    )


def center(values: Floats, spread: float) -> float:
    """Huber's estimate of location for a known standard deviation above 0: values
    further than 1.345 of it from the center weigh less, so that they are pulled in.

    Its standard error is ``CENTER_ERROR`` times that of the mean of normal values.
    Source: Huber, Robust Estimation of a Location Parameter, Ann. Math. Stat. 35
    (1964), by iterated reweighting from the median.
    """
    middle = float(np.median(values))
    reach = _HUBER_REACH * spread
    for _ in range(_ROUNDS):
        weights = reach / np.maximum(np.abs(values - middle), reach)
        before, middle = middle, float(weights @ values / weights.sum())
        if abs(middle - before) <= _SETTLED * spread:
            break
    return middle


class TransferLine(NamedTuple):
    """Time = ``start_up`` + size / ``bandwidth``: seconds, and bytes a second (infinite
    if size has no cost).

    ``r2`` is the share of the variance of log time that the line explains, ``residual``
    the median relative miss.
    """

    start_up: float
    bandwidth: float
    r2: float
    residual: float


def theil_sen(series: Floats) -> SampleEstimate:
    """How much a series rises from one entry to the next: the median of the slopes
    between all pairs, and its interval.

    Source: Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63
    (1968); Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd ed.,
    9.2-9.3, with the normal approximation. A fifth of the entries may be wild. Both
    ends are known. Raises ValueError for fewer than two entries.
    """
    count = series.size
    if count < 2:
        raise ValueError("a slope needs at least two entries")
    earlier, later = np.triu_indices(count, k=1)
    slopes = np.sort((series[later] - series[earlier]) / (later - earlier))
    reach = float(ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(
        count * (count - 1) * (2 * count + 5) / 18
    )
    low = max(0, math.floor((slopes.size - reach) / 2) - 1)
    high = min(slopes.size - 1, math.ceil((slopes.size + reach) / 2))
    return SampleEstimate(
        float(np.median(slopes)), float(slopes[low]), float(slopes[high]), count
    )


def transfer_line(sizes: Floats, seconds: Floats) -> TransferLine:
    """Fit time = start-up + size / bandwidth, both at least 0, by relative misses.

    Times span orders of magnitude, so a miss counts relative to the time; misses far
    beyond the others weigh less, by iterated reweighting. Raises ValueError for fewer
    than three points.
    """
    if sizes.size < 3:
        raise ValueError("a line of start-up and bandwidth needs at least three sizes")
    columns = np.stack([1.0 / seconds, sizes / seconds], axis=1)
    weights = np.ones_like(seconds)
    for _ in range(_ROUNDS):
        factors = _not_negative(columns * weights[:, None], weights)
        misses = np.abs(columns @ factors - 1.0)
        reach = _HUBER * max(float(np.median(misses)), 1e-9)
        weights = np.sqrt(np.minimum(1.0, reach / np.maximum(misses, 1e-12)))
    start_up, per_byte = factors.tolist()
    bandwidth = math.inf
    if per_byte > 0:
        bandwidth = 1.0 / per_byte
    fitted = np.maximum(start_up + per_byte * sizes, 1e-12)
    measured = np.log(seconds)
    total = float(((measured - measured.mean()) ** 2).sum())
    r2 = 1.0
    if total:
        r2 -= float(((measured - np.log(fitted)) ** 2).sum()) / total
    return TransferLine(
        start_up,
        bandwidth,
        r2,
        residual=float(np.median(np.abs(fitted / seconds - 1.0))),
    )


def _not_negative(columns: Floats, target: Floats) -> Floats:
    """The two non-negative factors with which the columns come closest to the target."""
    both = np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], dtype=np.float64)
    if (both >= 0).all():
        return both
    # If the optimum lies outside, the best point inside lies on an edge: only one of
    # the columns takes part.
    edges = np.diag((columns * target[:, None]).sum(axis=0) / (columns**2).sum(axis=0))
    return min(
        edges, key=lambda factors: float(((columns @ factors - target) ** 2).sum())
    )
