"""Whether calls that follow each other for a long time keep their speed: drift, changes of level, the longest level."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from perfgate.stats.arrays import Floats
from perfgate.stats.changes import ENOUGH_VALUES, shifts
from perfgate.stats.robust import theil_sen
from perfgate.stats.summary import error_factor, neighbour_correlation

# The most windows, and the calls in each if there are enough: a median of fewer is a call, not a level.
_WINDOWS = 60
_WINDOW_CALLS = 10
_MOST_ALIKE = 0.9


class Steadiness(NamedTuple):
    """How steady a stretch of calls was.

    ``drift`` is how much slower the last calls are than the first, as a share, with its interval of 95 % from ``low`` to
    ``high``; ``start`` is the first call of the longest stretch at one level, and ``end`` the first call after it. ``levels``
    is the number of levels.
    """

    drift: float
    low: float
    high: float
    start: int
    end: int
    levels: int


def steadiness(times: Floats) -> Steadiness | None:
    """Look at the times of calls, all above 0, in call order; None for fewer than can show anything.

    The drift is the Theil-Sen slope over the logarithms of the medians of equal windows, so that a slow call does not
    look like a drift; its interval is wider if neighbouring windows are correlated (``error_factor``). Levels come from
    ``shifts`` in the same medians: a shift lasts, exceeds 1 %, and is large against the noise.
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
