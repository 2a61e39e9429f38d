"""The level of main's stored runs: the values that later runs are compared with.

Improvements ratchet: after three runs in a row that the level shows as faster the level is theirs, so that a later return to
the old one is slower than main. One fast run alone does not move it.

A run of main that the runs before it show as slower is stored like every other, and the trend sees it; but it does not become
part of the level by itself, or an unaccepted regression would hide behind its own repetition. The runs of the level are
selected at every reading, so that an acceptance counts from the moment it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric

MIN_RUNS = 3
LEVEL = 0.99
_LARGEST_LOGARITHM = 700.0


def level(
    values: Sequence[float], is_accepted: Callable[[int], bool], name: str
) -> list[float]:
    """The values of a metric from main's runs, oldest first, that later runs are compared with.

    A run that the level before it shows as regressed is left out. If ``is_accepted`` holds for its index, the level before
    it is left behind instead, as after ``MIN_RUNS`` improved runs in a row. If neither direction is the better one, no run is
    left out.
    """
    better = metric(name).better
    if better == "neutral":
        return list(values)
    worse = 1 if better == "lower" else -1
    current = _Level(name)
    improved = _Level(name)  # the newest in a row
    for index, value in enumerate(values):
        side = current.side(value)
        if side == worse:
            if is_accepted(index):
                current = _Level(name, [value])
                improved = _Level(name)
        elif side:
            improved.add(value)
            if len(improved.values) == MIN_RUNS:
                current = improved
                improved = _Level(name)
        else:
            for inside in (*improved.values, value):
                current.add(inside)
            improved = _Level(name)
    return [*current.values, *improved.values]


def prediction_interval(
    values: Sequence[float], name: str
) -> tuple[float, float] | None:
    """The interval in which one more run of the same code lies; None of too few runs.

    A noisy number that all runs agree on has shown no spread yet, which is not the same as having none.
    """
    return _Level(name, values).interval()


class _Level:
    """The values of a level with their interval. One more value changes it without a look at all others.

    Source: Welford, Note on a method for calculating corrected sums of squares and products, Technometrics 4 (1962).
    """

    def __init__(self, name: str, values: Sequence[float] = ()) -> None:
        self.values = list(values)
        self._metric = metric(name)
        self._lowest = min(values, default=math.inf)
        self._highest = max(values, default=-math.inf)
        self._in_logarithms = self._lowest > 0
        self._is_whole = self._metric.is_whole
        # The mean, and the sum of squared deviations from it.
        self._mean = 0.0
        self._squares = 0.0
        if values:
            self._sum_up()

    def _sum_up(self) -> None:
        numbers = np.array(self.values, dtype=np.float64)
        if self._in_logarithms:
            numbers = np.log(numbers)
        self._mean = float(
            (numbers / numbers.size).sum()
        )  # a sum of the largest numbers would overflow
        with np.errstate(over="ignore"):
            self._squares = float(np.square(numbers - self._mean).sum())

    def add(self, value: float) -> None:
        self.values.append(value)
        self._lowest = min(self._lowest, value)
        self._highest = max(self._highest, value)
        if self._in_logarithms and value <= 0:
            self._in_logarithms = False
            self._sum_up()
            return
        number = value
        if self._in_logarithms:
            number = math.log(value)
        apart = number - self._mean
        self._mean += apart / len(self.values)
        self._squares += apart * (number - self._mean)

    def side(self, value: float) -> int:
        """-1 for a value below the interval, 1 for one above it, else 0; all are inside while there is no interval."""
        interval = self.interval()
        if interval is None:
            return 0
        low, high = interval
        return int(value > high) - int(value < low)

    def interval(self) -> tuple[float, float] | None:
        """m ± t(0.99, S-1) s sqrt(1 + 1/S), of logarithms if all values are positive."""
        runs = len(self.values)
        has_spread = self._lowest < self._highest
        if runs < MIN_RUNS or not (has_spread or self._metric.is_exact):
            return None
        if not has_spread:
            return self._lowest, self._lowest
        half = _half_width(runs) * math.sqrt(self._squares)
        low = self._mean - half
        high = self._mean + half
        if self._in_logarithms:
            low = math.exp(min(low, _LARGEST_LOGARITHM))
            high = math.exp(min(high, _LARGEST_LOGARITHM))
        if self._lowest == 0:
            low = max(0.0, low)
        if self._is_whole:
            return (math.floor(low), math.ceil(high))
        return (low, high)


@cache
def _half_width(runs: int) -> float:
    """Half of the interval for one more run, over the root of the sum of squares; Student's t at LEVEL."""
    return float(stdtrit(runs - 1, LEVEL)) * math.sqrt((1 + 1 / runs) / (runs - 1))
