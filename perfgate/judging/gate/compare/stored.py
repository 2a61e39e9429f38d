"""The head's own numbers next to main's stored runs. They inform: no verdict, title, count or order rests on them.

The level is the median of main's runs that were measured by the same procedure, and the interval is the prediction
interval for one more run, from three runs on. On a shared machine, runs of the same code differ by several percent, and one
value in fifty lies outside by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import LATENCY, P50, P90, P99
from perfgate.document.decision import StoredComparison
from perfgate.document.history import Acceptance, History, HistorySeries
from perfgate.document.shape import ShapePlace
from perfgate.document.site import BesideLevel, Position
from perfgate.document.trend import TrendSeries
from perfgate.judging.gate.compare.main_level import (
    LEVEL,
    MIN_RUNS,
    prediction_interval,
)
from perfgate.judging.gate.evidence.checklist import HeadNumber, NumberKey, median
from perfgate.judging.gate.evidence.tolerance import key_matches
from perfgate.judging.gate.evidence.values import relative_change, rounded, zero_of

# The number of newest values that the report draws.
_DRAWN = 60
# Accepting any of these metrics accepts all call times.
_OF_A_CALL = (LATENCY, P50, P90, P99)


def compare_stored(
    numbers: Mapping[NumberKey, HeadNumber], history: History
) -> list[StoredComparison]:
    """The head's leading numbers next to main's series with a comparable run, or with runs that are not comparable."""
    rows = []
    for series in history.series:
        labels = tuple(sorted(series.labels.items()))
        number = numbers.get(
            NumberKey(series.workload, series.shape, series.metric, labels)
        )
        if number is not None and (series.values or series.left_out):
            rows.append(_compare(series, number.value, head_is_busy=number.is_busy))
    return rows


def accepts(acceptance: Acceptance, metric: str, place: ShapePlace) -> bool:
    """Whether an acceptance covers this metric; accepting one time of a call accepts that calls take longer."""
    names = _OF_A_CALL if metric in _OF_A_CALL else (metric,)
    return any(key_matches(acceptance.metric, name, place) for name in names)


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
    if series.values:
        return _with_level(compared, series, value)
    return compared


def _with_level(
    compared: StoredComparison, series: HistorySeries, value: float
) -> StoredComparison:
    """The comparison with main's level, and the interval for one more run if there is one."""
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
    series: TrendSeries, value: float | None, level: Sequence[float]
) -> BesideLevel:
    """A number of a run next to its level; ``level`` are the level's versions without the run itself."""
    interval = prediction_interval(level, series.metric)
    return BesideLevel(
        series=series,
        value=value,
        versions=len(level),
        typical=rounded(median(level, series.metric)) if level else None,
        interval=interval,
        confidence=rounded(2 * LEVEL - 1) if interval else None,
        position=_position(value, interval, len(level)),
    )


def _position(
    value: float | None, interval: tuple[float, float] | None, versions: int
) -> Position:
    if value is None:
        return "unknown"
    if interval is None:
        if versions >= MIN_RUNS:
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
    level: Sequence[float],
) -> BesideLevel:
    """A number of two runs; ``level`` are the versions of the earlier run's level without the later run's.

    It is empty if the runs are of two testbeds; then they are not compared.
    """
    placed = beside_level(series, value, level)
    position: Position = placed.position
    if before is None or value is None:
        position = "unknown"
    elif level and series.is_exact:
        position = "same" if before == value else "differs"
    return replace(placed, before=before, position=position)
