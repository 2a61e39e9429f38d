"""Find permanent level shifts of a series: robust segmentation of one value a version,
with the size of each shift.

A history of a benchmark is not a clean staircase: single values are wild, neighbours
are alike, the level wanders. So a wild value costs a bounded amount, the noise is read
from the series itself, and a shift counts only when it lasts, when it is large against
the noise of both sides, and large enough to matter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfgate.stats.arrays import Floats
from perfgate.stats.robust import CENTER_ERROR, center, theil_sen
from perfgate.stats.summary import error_factor, neighbour_correlation

# A value further away than this number of standard deviations costs no more: it is an
# outlier, not a level.
CAP = 4.0
# The gain required of one more shift, times log(number of values). Two parameters a
# shift (a place, a level) make 1 the price of the Schwarz criterion in these units;
# four times that keeps a few wild neighbours from being a level.
PENALTY = 4.0
MIN_EFFECT = math.log1p(0.01)
MIN_Z = 5.25
# A shorter segment is an excursion, not a level; only the last level may have just
# begun.
MIN_VALUES = 6
MIN_LAST = 2
# With fewer values no change can be found.
ENOUGH_VALUES = MIN_VALUES + MIN_LAST

_MAD = 1.4826  # standard deviation over median absolute deviation, of normal values
_UPPER = 1.0337  # the same over their quantile of two thirds
# The largest of the estimates of ``noise`` exceeds a standard deviation of normal
# values by this over the root of their number (simulated: 1.25 of it for 8 values,
# 1.20 for 14, 1.14 for 30, 1.08 for 100).
_BIAS = 0.8
_Z95 = 1.96
_MAX_LEVELS = 512
_MOST_ALIKE = 0.9  # more is indistinguishable from the history


class LevelShift(NamedTuple):
    """One shift of level: ``at`` is the place of the first value after it.

    ``before`` and ``after`` are the levels of the two segments (``center``), ``effect``
    their difference with its interval of about 95 % from ``low`` to ``high``, all on
    the scale of the series; ``z`` is the effect over its standard error.
    """

    at: int
    before: float
    after: float
    effect: float
    low: float
    high: float
    z: float


def shifts(series: Floats, *, min_effect: float = MIN_EFFECT) -> list[LevelShift]:
    """The shifts of level of a series, oldest first; logarithms of values make effects
    relative.

    1. Noise: the standard deviation of one value, from differences of neighbours
       (``noise``). Where most of them are equal, the noise of the others is tried as
       well.
    2. Segmentation: the levels that make sum of min((x - level)^2 / noise^2, CAP^2) +
       PENALTY log(n) (shifts) least, found by dynamic programming over (value, level),
       the levels being observed values. Source: the biweight loss of Fearnhead &
       Rigaill, Changepoint Detection in the Presence of Outliers, JASA 114 (2019), with
       K as ``CAP``; they let levels be any.
    3. Levels and errors: Huber's estimate (``center``), with its error for normal
       values, wider where neighbours are alike (``_error_factor``), because values that
       wander together are fewer than they seem.
    4. Merging: of the shifts next to a segment of fewer than ``MIN_VALUES``
       (``MIN_LAST`` where it is the last), smaller than ``min_effect`` or less than
       ``MIN_Z`` times their standard error, the weakest goes and its segments become
       one, until none is left. The shifts at the ends of the new segment move to where
       they fit its level best.
    Raises ValueError for values that are not finite.
    """
    series = np.asarray(series, dtype=np.float64)
    if not np.isfinite(series).all():
        raise ValueError("a series holds a value that is not a finite number")
    if series.size < ENOUGH_VALUES:
        return []
    price = PENALTY * math.log(series.size)
    scale = _scale(series)
    begins = _segment(series, scale, price)
    rises = series[1:] - series[:-1]
    if rises.any() and not np.median(np.abs(rises)):
        # Compared with a level of bit-equal values, every value with noise would be an
        # outlier.
        begins = sorted(
            {
                *begins,
                *_segment(series, _spread(rises[rises != 0]) / math.sqrt(2), price),
            }
        )
    return _merge(series, scale, begins, min_effect)


def shift_at(series: Floats, at: int, others: Sequence[int]) -> LevelShift:
    """The shift at a place that is known from elsewhere, between the levels on both
    sides of it; ``others`` are the places of the other shifts.

    Its ``z`` is that of a single test. Raises ValueError for fewer than three values,
    and for a place without a value before it.
    """
    if not 0 < at < series.size:
        raise ValueError("a shift needs values on both sides")
    edges = sorted({0, *others, at, series.size})
    place = edges.index(at)
    return _shift(
        series,
        _scale(series),
        _error_factor(series, edges),
        *edges[place - 1 : place + 2],
    )


def steps(series: Floats, allowed: float = 0.0) -> list[int]:
    """The changes of a series without noise, oldest first: a value that returns after
    one entry has not changed.

    Values up to ``allowed`` apart are the same level.
    """
    last = series.size - 1
    places = []
    level = series[0] if series.size else 0.0
    for index in range(1, series.size):
        went_away = index < last and abs(series[index + 1] - level) <= allowed
        if abs(series[index] - level) > allowed and not went_away:
            places.append(index)
            level = series[index]
    return places


def noise(series: Floats) -> float:
    """The standard deviation of one value around its level, from differences of
    neighbours and of values two apart.

    Differences forget the level, so shifts hardly enter; quantiles of them forget the
    wild. The largest of several estimates counts, because each can miss part of the
    noise: noise that wanders differs more between values two apart than between
    neighbours; noise with two modes appears in the upper third if most neighbours are
    of one mode. Source: Rice, Bandwidth choice for nonparametric regression, Ann. Stat.
    12 (1984), with quantiles for the mean.
    """
    if series.size < 3:
        raise ValueError("the noise of a series needs at least three values")
    apart = (series[1:] - series[:-1], series[2:] - series[:-2])
    largest = max(_spread(differences) for differences in apart) / math.sqrt(2)
    return largest / (1 + _BIAS / math.sqrt(series.size))


def _scale(series: Floats) -> float:
    """The noise of a series; one of equal values has no noise but rounding."""
    return max(noise(series), 1e-9 * max(1.0, float(np.abs(series).max())))


def _spread(differences: Floats) -> float:
    """The robust standard deviation of differences around 0."""
    middle, upper = np.quantile(np.abs(differences), [1 / 2, 2 / 3])
    return max(_MAD * float(middle), _UPPER * float(upper))


def _segment(series: Floats, scale: float, price: float) -> list[int]:
    """The starts of the segments of least cost, 0 first (Viterbi over levels; the price
    is the same for every shift).
    """
    levels = np.unique(series)
    if levels.size > _MAX_LEVELS:
        levels = levels[
            np.linspace(0, levels.size - 1, _MAX_LEVELS).round().astype(np.intp)
        ]
    cost = np.zeros(levels.size)
    changed = np.zeros((series.size, levels.size), dtype=bool)
    came_from = np.zeros(series.size, dtype=np.intp)
    for index, value in enumerate(series):
        if index:
            best = int(np.argmin(cost))
            came_from[index] = best
            changed[index] = cost > cost[best] + price
            cost = np.minimum(cost, cost[best] + price)
        cost = cost + np.minimum(((value - levels) / scale) ** 2, CAP**2)
    level = int(np.argmin(cost))
    begins = []
    for index in range(series.size - 1, 0, -1):
        if changed[index, level]:
            begins.append(index)
            level = int(came_from[index])
    return [0, *reversed(begins)]


def _merge(
    series: Floats, scale: float, begins: list[int], min_effect: float
) -> list[LevelShift]:
    while len(begins) > 1:
        edges = [*begins, series.size]
        factor = _error_factor(series, edges)
        candidates = []
        strengths = []
        for start, index, end in zip(edges, edges[1:], edges[2:]):
            candidates.append(_shift(series, scale, factor, start, index, end))
            strengths.append(
                _strength(candidates[-1], start, end, series.size, min_effect)
            )
        weakest = int(np.argmin(strengths))
        if strengths[weakest] >= 1:
            return candidates
        del begins[weakest + 1]
        for boundary in (weakest, weakest + 1):
            if 0 < boundary < len(begins):
                begins[boundary] = _best_place(
                    series, scale, [*begins, series.size][boundary - 1 : boundary + 2]
                )
    return []


def _best_place(series: Floats, scale: float, edges: list[int]) -> int:
    """The place of the shift between two segments that costs least with the levels that
    they have now.
    """
    start, index, end = edges
    costs = []
    for side in (series[start:index], series[index:end]):
        distances = (series[start:end] - np.median(side)) / scale
        costs.append(np.minimum(distances**2, CAP**2))
    before, after = costs
    # The cost of each place up to a constant: every value before it has the first
    # level, all others have the second.
    cost_at = np.cumsum(before - after)[:-1]
    best = int(np.argmin(cost_at))
    is_better = cost_at[best] < cost_at[index - 1 - start]
    return start + 1 + best if is_better else index


def _strength(
    shift: LevelShift, start: int, end: int, size: int, min_effect: float
) -> float:
    """How far a shift between two segments exceeds the requirements: 1 is enough, below
    a half one segment is too short.
    """
    before, after = shift.at - start, end - shift.at
    # The last segment may be going on still; every other has ended, and an excursion
    # that went away is not a shift.
    least_after = MIN_LAST if end == size else MIN_VALUES
    if before < MIN_VALUES or after < least_after:
        return 0.5 * min(before, after) / size
    return 0.5 + 0.5 * min(abs(shift.effect) / min_effect, shift.z / MIN_Z)


def _error_factor(series: Floats, edges: list[int]) -> float:
    """The factor on the error of a level for dependent values: 1 if neighbours are
    uncorrelated.

    Their correlation r is estimated from the residuals of the levels, and from
    differences of neighbours, which correlate by (r - 1)/2 and are free of levels and
    undetected drifts; the smaller estimate counts.
    """
    residuals = []
    for start, end in itertools.pairwise(edges):
        segment = series[start:end]
        residuals.append(segment - np.median(segment))
    rises = series[1:] - series[:-1]
    correlation = min(
        neighbour_correlation(np.concatenate(residuals)),
        1 + 2 * neighbour_correlation(rises - np.median(rises)),
    )
    return error_factor(min(max(correlation, 0.0), _MOST_ALIKE))


def _shift(
    series: Floats, scale: float, factor: float, start: int, index: int, end: int
) -> LevelShift:
    levels = []
    errors = []
    for side in (series[start:index], series[index:end]):
        deviation = _MAD * float(np.median(np.abs(side - np.median(side))))
        spread = max(scale, deviation)
        levels.append(center(side, spread))
        errors.append(spread / math.sqrt(side.size))
    before, after = levels
    error = CENTER_ERROR * factor * math.hypot(*errors)
    effect = after - before
    return LevelShift(
        index,
        before,
        after,
        effect,
        effect - _Z95 * error,
        effect + _Z95 * error,
        abs(effect) / error,
    )


# The most windows, and the calls in each if there are enough: a median of fewer is a
# call, not a level.
_WINDOWS = 60
_WINDOW_CALLS = 10


class Steadiness(NamedTuple):
    """How steady a stretch of calls was.

    ``drift`` is how much slower the last calls are than the first, as a share, with its
    interval of 95 % from ``low`` to ``high``; ``start`` is the first call of the
    longest stretch at one level, and ``end`` the first call after it. ``levels`` is the
    number of levels.
    """

    drift: float
    low: float
    high: float
    start: int
    end: int
    levels: int


def steadiness(times: Floats) -> Steadiness | None:
    """Look at the times of calls, all above 0, in call order; None for fewer than can
    show anything.

    The drift is the Theil-Sen slope over the logarithms of the medians of equal
    windows, so that a slow call does not look like a drift; its interval is wider if
    neighbouring windows are correlated (``error_factor``). Levels come from ``shifts``
    in the same medians: a shift lasts, exceeds 1 %, and is large against the noise.
    """
    count = min(_WINDOWS, max(ENOUGH_VALUES, times.size // _WINDOW_CALLS))
    if times.size < ENOUGH_VALUES:
        return None
    edges = np.linspace(0, times.size, count + 1).round().astype(int)
    medians = np.log(
        [np.median(times[start:end]) for start, end in itertools.pairwise(edges)]
    )
    slope = theil_sen(medians)
    rest = medians - np.arange(count) * slope.value
    correlation = min(
        _MOST_ALIKE, max(0.0, neighbour_correlation(rest - np.median(rest)))
    )
    wider = error_factor(correlation)
    assert slope.low is not None
    assert slope.high is not None
    low, high = (
        slope.value + (end - slope.value) * wider for end in (slope.low, slope.high)
    )
    drift, low, high = (
        math.expm1(value * (count - 1)) for value in (slope.value, low, high)
    )
    begins = [0, *(shift.at for shift in shifts(medians)), count]
    start, end = max(
        itertools.pairwise(begins), key=lambda stretch: stretch[1] - stretch[0]
    )
    return Steadiness(
        drift, low, high, int(edges[start]), int(edges[end]), len(begins) - 1
    )
