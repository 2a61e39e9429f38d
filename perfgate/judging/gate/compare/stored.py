"""The head's own numbers beside those of main's stored runs. They inform: no verdict, title, count or order rests on them.

The level is the median of main's runs that were measured by the same procedure, and the interval is the prediction
interval for one more run, m ± t(0.99, S-1) s sqrt(1 + 1/S), from three runs on. It is taken of logarithms if all values are
positive. On a shared machine, runs of the same code differ by several percent, and one value in fifty lies outside by chance.

Improvements ratchet: after three runs in a row that the level shows as faster the level is theirs, so that a later return to
the old one is slower than main. One fast run alone moves nothing.

A run of main that the runs before it show as slower is stored like every other, and the trend sees it; but it does not become
part of the level by itself, or an unaccepted regression would hide behind its own repetition. The runs of the level are
selected at every reading, so that an acceptance counts from the moment it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice

import numpy as np
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import LATENCY, P50, P90, P99
from perfgate.document.conditions import conditions_of
from perfgate.document.decision import StoredComparison
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.run import RunDocument
from perfgate.judging.gate.evidence.numbers import leading_numbers, median
from perfgate.judging.gate.evidence.tolerance import key_matches
from perfgate.judging.gate.evidence.values import relative_change, rounded, zero_of

MIN_RUNS = 3
LEVEL = 0.99
# The number of newest values that the report draws.
_DRAWN = 60
_LARGEST_LOGARITHM = 700.0
# Accepting any of these metrics accepts all call times.
_OF_A_CALL = (LATENCY, P50, P90, P99)


def compare_stored(head: RunDocument, history: History) -> list[StoredComparison]:
    """The head's leading numbers beside the series of main that have a comparable run, or some that are not comparable."""
    busy_steps = {(step.workload, step.step) for step in conditions_of(head) if step.is_busy}
    numbers = {
        (number.workload, number.shape, number.metric, number.labels): (number.step, value.value)
        for number, value in leading_numbers(head).items()
    }
    rows = []
    for series in history.series:
        labels = tuple(sorted(series.labels.items()))
        step, value = numbers.get((series.workload, series.shape, series.metric, labels), (0, None))
        if value is not None and (series.values or series.left_out):
            is_busy = (series.workload, step) in busy_steps and metric(series.metric).depends_on_load
            rows.append(_compare(series, value, head_is_busy=is_busy))
    return rows


def level(values: Sequence[float], is_accepted: Callable[[int], bool], name: str) -> list[float]:
    """The values of a metric from main's runs, oldest first, that later ones are compared with.

    One that the level before it shows as regressed is left out. If ``is_accepted`` holds for its index, the level before it is
    left behind instead, as it is after ``MIN_RUNS`` improved ones in a row. If neither direction is the better one, no run is
    left out.
    """
    better = metric(name).better
    if better == "neutral":
        return list(values)
    current, improved = _Level(name), _Level(name)  # of the latter the newest in a row
    worse = 1 if better == "lower" else -1
    index = 0
    while index < len(values):
        if not improved.values:
            index = current.extend(values, index)
            if index == len(values):
                break
        value = values[index]
        side = current.side(value)
        if side == worse:
            if is_accepted(index):
                current, improved = _Level(name, [value]), _Level(name)
        elif side:
            improved.add(value)
            if len(improved.values) == MIN_RUNS:
                current, improved = improved, _Level(name)
        else:
            for one in (*improved.values, value):
                current.add(one)
            improved = _Level(name)
        index += 1
    return [*current.values, *improved.values]


def prediction_interval(values: Sequence[float], name: str) -> tuple[float, float] | None:
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
        self._lowest, self._highest = min(values, default=math.inf), max(values, default=-math.inf)
        self._in_logarithms, self._is_whole = self._lowest > 0, self._metric.is_whole
        # The mean, and the sum of squared deviations from it.
        self._mean, self._squares = 0.0, 0.0
        if values:
            self._sum_up()

    def _sum_up(self) -> None:
        numbers = np.array(self.values, dtype=np.float64)
        numbers = np.log(numbers) if self._in_logarithms else numbers
        self._mean = float((numbers / numbers.size).sum())  # a sum of the largest numbers would overflow
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
        number = math.log(value) if self._in_logarithms else value
        apart = number - self._mean
        self._mean += apart / len(self.values)
        self._squares += apart * (number - self._mean)

    def extend(self, values: Sequence[float], index: int) -> int:
        """Add the values from an index on that lie inside; return the index of the first that does not."""
        while index < len(values) and not self.side(values[index]):
            self.add(values[index])
            index = self._extend_by_logarithms(values, index + 1)
        return index

    def _extend_by_logarithms(self, values: Sequence[float], index: int) -> int:
        """As ``extend``, but end at the first value that takes more than one comparison."""
        if not (self._in_logarithms and self._lowest < self._highest and len(self.values) >= MIN_RUNS):
            return index
        first, runs, mean, squares = index, len(self.values), self._mean, self._squares
        for value in islice(values, first, None):
            apart = (math.log(value) if value > 0 else math.inf) - mean
            if abs(apart) > _half_width(runs) * math.sqrt(squares):
                break
            runs += 1
            step = apart / runs
            mean += step
            squares += apart * (apart - step)
            index += 1
        if added := values[first:index]:
            self.values += added
            self._mean, self._squares = mean, squares
            self._lowest, self._highest = min(self._lowest, *added), max(self._highest, *added)
        return index

    def side(self, value: float) -> int:
        """-1 for a value below the interval, 1 for one above it, else 0; all are inside while there is no interval."""
        low, high = self.interval() or (-math.inf, math.inf)
        return 1 if value > high else -1 if value < low else 0

    def interval(self) -> tuple[float, float] | None:
        runs, has_spread = len(self.values), self._lowest < self._highest
        if runs < MIN_RUNS or (not has_spread and self._metric.kind == "noisy"):
            return None
        if not has_spread:
            return self._lowest, self._lowest
        half = _half_width(runs) * math.sqrt(self._squares)
        low, high = self._mean - half, self._mean + half
        if self._in_logarithms:
            low, high = math.exp(min(low, _LARGEST_LOGARITHM)), math.exp(min(high, _LARGEST_LOGARITHM))
        if self._lowest == 0:
            low = max(0.0, low)
        return (math.floor(low), math.ceil(high)) if self._is_whole else (low, high)


@cache
def _half_width(runs: int) -> float:
    """Half of the interval for one more run, over the root of the sum of squares; Student's t at LEVEL."""
    return float(stdtrit(runs - 1, LEVEL)) * math.sqrt((1 + 1 / runs) / (runs - 1))


def accepts(acceptance: Acceptance, metric: str, workload: str, shape: str) -> bool:
    """Whether an acceptance covers this metric; accepting one time of a call accepts that calls take longer."""
    names = _OF_A_CALL if metric in _OF_A_CALL else (metric,)
    return any(key_matches(acceptance.metric, name, workload, shape) for name in names)


def _compare(series: HistorySeries, value: float, *, head_is_busy: bool) -> StoredComparison:
    bounds = prediction_interval(series.values, series.metric)
    interval = (rounded(bounds[0]), rounded(bounds[1])) if bounds else None
    typical = median(series.values, series.metric) if series.values else None
    zero = zero_of(series.metric)
    return StoredComparison(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        labels=series.labels,
        unit=metric(series.metric).unit,
        head=rounded(value),
        runs=len(series.values),
        left_out=series.left_out,
        busy=series.busy,
        head_is_busy=head_is_busy,
        typical=None if typical is None else rounded(typical),
        delta=None if typical is None else relative_change(zero + typical, zero + value),
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        values=[rounded(value) for value in series.values[-_DRAWN:]],
    )
