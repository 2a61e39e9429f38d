"""The head's own numbers next to main's stored runs.

They inform: no verdict, title, count or order rests on them.

The level is the median of main's runs that were measured by the same procedure, and the
interval is the prediction interval for one more run, from three runs on. On a shared
machine, runs of the same code differ by several percent, and one value in fifty lies
outside by chance.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from msgspec.structs import replace
from scipy.special import stdtrit

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import LATENCY, P50, P90, P99
from perfgate.document.decision import StoredComparison
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.shape import ShapePlace
from perfgate.document.site import BesideLevel, Position
from perfgate.document.trend import TrendSeries
from perfgate.judging.gate.evidence.checklist import HeadNumber, NumberKey, median
from perfgate.judging.gate.evidence.tolerance import key_matches
from perfgate.judging.gate.evidence.values import relative_change, rounded, zero_of

MIN_RUNS = 3
LEVEL = 0.99
_LARGEST = sys.float_info.max
_LARGEST_LOGARITHM = 700.0


def level(
    values: Sequence[float], is_accepted: Callable[[int], bool], name: str
) -> list[float]:
    """The values of a metric from main's runs, oldest first, that later runs are
    compared with.

    A run that the level before it shows as regressed is left out. If ``is_accepted``
    holds for its index, the level before it is left behind instead, as after
    ``MIN_RUNS`` improved runs in a row. If neither direction is the better one, no run
    is left out.
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

    A noisy number that all runs agree on has shown no spread yet, which is not the same
    as having none.
    """
    return _Level(name, values).interval()


class _Level:
    """The values of a level with their interval.

    One more value changes it without a look at all others.

    Source: Welford, Note on a method for calculating corrected sums of squares and
    products, Technometrics 4 (1962).
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
        """-1 for a value below the interval, 1 for one above it, else 0; all are inside
        while there is no interval.
        """
        interval = self.interval()
        if interval is None:
            return 0
        low, high = interval
        return int(value > high) - int(value < low)

    def interval(self) -> tuple[float, float] | None:
        """m ± t(0.99, S-1) s sqrt(1 + 1/S), of logarithms if all values are positive.

        An end that no float holds, as of values too far apart, is the largest one.
        """
        runs = len(self.values)
        has_spread = self._lowest < self._highest
        if runs < MIN_RUNS or not (has_spread or self._metric.is_exact):
            return None
        if not has_spread:
            return self._lowest, self._lowest
        half = _half_width(runs) * math.sqrt(self._squares)
        # In this order NaN, the difference of two infinities, is no end either.
        low = max(-_LARGEST, self._mean - half)
        high = min(_LARGEST, self._mean + half)
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
    """Half of the interval for one more run, over the root of the sum of squares;
    Student's t at LEVEL.
    """
    return float(stdtrit(runs - 1, LEVEL)) * math.sqrt((1 + 1 / runs) / (runs - 1))


# The number of newest values that the report draws.
_DRAWN = 60
# Accepting any of these metrics accepts all call times.
_OF_A_CALL = (LATENCY, P50, P90, P99)


def compare_stored(
    numbers: Mapping[NumberKey, HeadNumber], history: History
) -> list[StoredComparison]:
    """The head's leading numbers next to main's series with a comparable run, or with
    runs that are not comparable.
    """
    rows = []
    for series in history.series:
        labels = tuple(sorted(series.labels.items()))
        number = numbers.get(
            NumberKey(series.workload, series.shape, series.metric, labels)
        )
        if number is not None and (series.values or series.left_out):
            rows.append(_compare(series, number.value, head_is_busy=number.is_busy))
    return rows


def accepts(acceptance: Acceptance, name: str, place: ShapePlace) -> bool:
    """Whether an acceptance covers a metric; accepting one time of a call accepts that
    calls take longer.
    """
    names = _OF_A_CALL if name in _OF_A_CALL else (name,)
    return any(key_matches(acceptance.metric, covered, place) for covered in names)


def _compare(
    series: HistorySeries, value: float, *, head_is_busy: bool
) -> StoredComparison:
    compared = StoredComparison(
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
        values=[rounded(value) for value in series.values[-_DRAWN:]],
    )
    if not series.values:
        return compared
    # Main's level, and the interval for one more run if there is one.
    typical = median(series.values, series.metric)
    zero = zero_of(series.metric)
    compared = replace(
        compared,
        typical=rounded(typical),
        delta=relative_change(zero + typical, zero + value),
    )
    bounds = prediction_interval(series.values, series.metric)
    if bounds is None:
        return compared
    interval = rounded(bounds[0]), rounded(bounds[1])
    return replace(compared, interval=interval, confidence=rounded(2 * LEVEL - 1))


# --- numbers of two stored runs


def beside_level(
    series: TrendSeries, value: float | None, versions: Sequence[float]
) -> BesideLevel:
    """A number of a run next to its level, of which ``versions`` are all others."""
    interval = prediction_interval(versions, series.metric)
    return BesideLevel(
        series=series,
        value=value,
        versions=len(versions),
        typical=rounded(median(versions, series.metric)) if versions else None,
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        position=_position(value, interval, len(versions)),
    )


def _position(
    value: float | None, interval: tuple[float, float] | None, count: int
) -> Position:
    if value is None:
        return "unknown"
    if interval is None:
        if count >= MIN_RUNS:
            return "no_spread"
        return "unknown"
    low, high = interval
    if value < low:
        return "below"
    if value > high:
        return "above"
    return "inside"


def run_to_run(
    series: TrendSeries,
    before: float | None,
    value: float | None,
    versions: Sequence[float],
) -> BesideLevel:
    """A number of two runs; ``versions`` are those of the earlier run's level without
    the later run's.

    They are empty if the runs are of two testbeds; then they are not compared.
    """
    placed = beside_level(series, value, versions)
    position: Position = placed.position
    if before is None or value is None:
        position = "unknown"
    elif versions and series.is_exact:
        position = "same" if before == value else "differs"
    return replace(placed, before=before, position=position)
