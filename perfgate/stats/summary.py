"""Quantiles of samples with exact order-statistic confidence intervals: no distribution
is assumed, no sample dropped.

The number of samples below the true p-quantile is binomial(n, p), so two order
statistics bracket it with a probability that follows from the binomial alone (David and
Nagaraja, Order Statistics, 3rd ed., section 7.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, ndtri

from perfgate.stats.arrays import Flags, Floats

CONFIDENCE = 0.95

# Below this many samples a P99 is not reported. It is MLPerf LoadGen's second floor
# (loadgen/early_stopping.cc): from 662 samples on the second largest, no longer the
# largest alone, lies above the true P99 with 99 % confidence.
P99_FLOOR = 662

# The spread of the slowest tenth needs at least ten samples in it.
TENTH_FLOOR = 100
_TENTH = 0.1

# The number of batches of consecutive samples that show how far samples depend on each
# other.
_BATCHES = 20

# values are cut at this number of standard deviations before their correlation with
# neighbours is taken
_WILD = 2.5
_MAD = 1.4826  # standard deviation over median absolute deviation, of normal values
_FEW = 2048  # values that are sorted sooner than numpy has looked at its arguments
_LOW_QUANTILES = (0.02, 0.04, 0.06, 0.08, 0.10)

Samples = npt.NDArray[np.generic]


class SampleEstimate(NamedTuple):
    """An estimate from samples with its confidence interval; an end that needs more
    samples is None.
    """

    value: float
    low: float | None
    high: float | None
    size: int

    @property
    def interval(self) -> tuple[float | None, float | None]:
        return self.low, self.high


def quantile(samples: Samples, probability: float) -> SampleEstimate:
    """The smallest sample with at least ``probability`` of all samples at or below it,
    and its interval.

    The interval is two-sided with equal tails: each end misses the true quantile with
    at most ``(1 - CONFIDENCE) / 2`` for independent samples. Calls that a neighbour
    slows down together are not: it speaks for this run alone. Raises ValueError without
    samples.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if ordered.size == 0:
        raise ValueError("a quantile needs at least one sample")
    lower, upper = interval_ranks(ordered.size, probability)
    low = high = None
    if lower is not None:
        low = float(ordered[lower - 1])
    if upper is not None:
        high = float(ordered[upper - 1])
    return SampleEstimate(
        float(ordered[_rank(ordered.size, probability) - 1]),
        low,
        high,
        int(ordered.size),
    )


def _rank(count: int, probability: float) -> int:
    # 0.07 * 100 is 7.000000000000001 in binary: a hair above a whole number is that
    # number.
    return min(count, max(1, math.ceil(probability * count - 1e-9)))


def interval_ranks(count: int, probability: float) -> tuple[int | None, int | None]:
    """The ranks (from 1) of the order statistics that are the ends of the interval;
    None if no rank suffices.

    The lower is the largest l with P(B < l) <= tail, the upper the smallest u with P(B
    >= u) <= tail, for B binomial(count, probability) and tail (1 - CONFIDENCE) / 2.
    """
    tail = (1.0 - CONFIDENCE) / 2.0
    lower = _last(count, lambda rank: float(bdtr(rank - 1, count, probability)) <= tail)
    beyond = _last(
        count, lambda rank: float(bdtrc(rank - 1, count, probability)) > tail
    )
    upper = None
    if beyond < count:
        upper = beyond + 1
    return lower or None, upper


def _last(count: int, holds: Callable[[int], bool]) -> int:
    """The largest rank up to ``count`` for which a condition still holds that, once
    lost, stays lost; else 0.
    """
    good, bad = 0, count + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def dependent_quantile(samples: Samples, probability: float) -> SampleEstimate:
    """A quantile of samples that follow each other and depend on their neighbours, as
    latencies in one queue do.

    The interval is computed for an equivalent number of independent samples: n / d,
    with d >= 1 the variance of the share of samples above the quantile over batches of
    consecutive samples, over the variance for independent samples (method of batch
    means: Law, Simulation Modeling and Analysis, 5th ed., section 9.5.3).
    """
    plain = quantile(samples, probability)
    values = np.asarray(samples, dtype=np.float64)
    alike = max(1, int(values.size / _dependence(values > plain.value)))
    lower, upper = interval_ranks(alike, probability)
    ordered = np.sort(values)
    ends = []
    for rank in (lower, upper):
        end = None
        if rank is not None:
            end = float(ordered[_rank(values.size, rank / alike) - 1])
        ends.append(end)
    return plain._replace(low=ends[0], high=ends[1])


def _dependence(above: Flags) -> float:
    """The factor by which the mean of these marks spreads more than the mean of
    independent marks; at least 1.
    """
    share = float(above.mean())
    length = above.size // _BATCHES
    if length < 2 or not 0 < share < 1:
        return 1.0
    means = above[: _BATCHES * length].reshape(_BATCHES, length).mean(axis=1)
    return max(1.0, float(means.var(ddof=1)) * length / (share * (1 - share)))


def linear_quantile(values: Floats, probability: float) -> float:
    """As ``np.quantile``, to the last bit, but in a tenth of the time if the values are
    few; none of them is NaN.
    """
    if values.size > _FEW:
        return float(np.quantile(values, probability))
    ordered = np.sort(values)
    place = (ordered.size - 1) * probability
    index = int(place)
    share = place - index
    low, high = float(ordered[index]), float(ordered[min(index + 1, ordered.size - 1)])
    if share < 0.5:
        return low + (high - low) * share
    return high - (high - low) * (1 - share)


def median(values: Samples | Sequence[float]) -> float:
    """As ``np.median``, to the last bit, but in a tenth of the time if the values are
    few; NaN for none, or if one is NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size > _FEW:
        return float(np.median(array))
    ordered = np.sort(array)
    if not ordered.size or np.isnan(ordered[-1]):  # NaN is sorted to the end
        return math.nan
    middle = ordered.size // 2
    upper = float(ordered[middle])
    if ordered.size % 2:
        return upper
    return (float(ordered[middle - 1]) + upper) / 2


def low_location(samples: Samples) -> float:
    """The mean of the logarithms of the 2nd, 4th, 6th, 8th and 10th percentile, as a
    number like the samples.

    It moves with the work of a call and hardly with other load on the machine. Samples
    must be above zero.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if ordered.size == 0:
        raise ValueError("a location needs at least one sample")
    picked = [
        ordered[_rank(ordered.size, probability) - 1] for probability in _LOW_QUANTILES
    ]
    return float(np.exp(np.mean(np.log(picked))))


def median_deviation(samples: Samples) -> float:
    """The median absolute deviation from the median, in the samples' own unit, without
    scaling.
    """
    values = np.asarray(samples, dtype=np.float64)
    return median(np.abs(values - median(values)))


def standard_deviation(samples: Samples) -> SampleEstimate:
    """The standard deviation of all samples, and its interval for samples that need not
    be normal.

    No interval of a standard deviation holds for every distribution (Bahadur & Savage,
    Ann. Math. Stat. 27, 1956): a slow sample that has not happened yet may be
    arbitrarily slow. This one takes the kurtosis from the samples, around a trimmed
    mean: Bonett, Approximate confidence interval for standard deviation of nonnormal
    distributions, Computational Statistics & Data Analysis 50 (2006). Of 95 % it holds
    94 to 95 of normal and slightly skewed samples, 85 of 700 samples of which 2 % are a
    hundred times as far from the rest, and 92 of 3000 such
    (tests/unit/stats/test_summary.py). Raises ValueError for fewer than two samples.
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    size = int(values.size)
    if size < 2:
        raise ValueError("a standard deviation needs at least two samples")
    deviation = float(values.std(ddof=1))
    z = float(ndtri((1 + CONFIDENCE) / 2))
    if size <= 4 or not deviation:
        return SampleEstimate(deviation, None, None, size)
    cut = int(size / (2 * math.sqrt(size - 4)))
    centre = median(values)
    if size > 2 * cut:
        centre = float(values[cut : size - cut].mean())
    kurtosis = (
        size
        * float(((values - centre) ** 4).sum())
        / float(((values - values.mean()) ** 2).sum()) ** 2
    )
    scale = size / (size - z)
    error = scale * math.sqrt(max(0.0, (kurtosis - (size - 3) / size) / (size - 1)))
    middle = math.sqrt(scale) * deviation
    return SampleEstimate(
        deviation,
        middle * math.exp(-z * error / 2),
        middle * math.exp(z * error / 2),
        size,
    )


def slowest_tenth(samples: Samples) -> SampleEstimate:
    """The mean of the largest tenth of all samples, and its interval.

    It rests on ten times the samples of a P99, so it is known about twice as well. The
    variance is computed as for a conditional tail expectation: Manistre & Hancock,
    Variance of the CTE estimator, North American Actuarial Journal 9 (2005). Raises
    ValueError for fewer than TENTH_FLOOR samples.
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    size = int(values.size)
    if size < TENTH_FLOOR:
        raise ValueError(f"the slowest tenth needs at least {TENTH_FLOOR} samples")
    start = size - size // 10
    slowest = values[start:]
    mean = float(slowest.mean())
    beyond = mean - float(values[start - 1])
    variance = (float(slowest.var(ddof=1)) + (1 - _TENTH) * beyond**2) / slowest.size
    half = float(ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return SampleEstimate(mean, mean - half, mean + half, size)


# --- values that follow each other


def neighbour_correlation(values: Floats) -> float:
    """The correlation of neighbours around 0, wild values cut; 0 for values that hardly
    differ.
    """
    most = _WILD * _MAD * median(np.abs(values))
    if not most:
        return 0.0
    # In units of the cut: squares of tiny numbers would underflow.
    cut = np.clip(values, -most, most) / most
    return float(np.mean(cut[1:] * cut[:-1]) / np.mean(cut**2))


def error_factor(correlation: float) -> float:
    """The factor on the error of a location for neighbours with this correlation.

    n such values are worth n (1 - r)/(1 + r) independent values. Source: Bayley &
    Hammersley, The "Effective" Number of Independent Observations, J. R. Stat. Soc.
    Suppl. 8 (1946).
    """
    return math.sqrt((1 + correlation) / (1 - correlation))
