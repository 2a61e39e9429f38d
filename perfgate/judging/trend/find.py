"""Find the changes of one series: the place, size and direction of each shift of its
level.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import metric
from perfgate.document.trend import Direction, TrendChange, TrendPoint, TrendSeries
from perfgate.stats.changes import (
    ENOUGH_VALUES,
    MIN_LAST,
    LevelShift,
    noise,
    shift_at,
    shifts,
    steps,
)

Floats = npt.NDArray[np.float64]

# Fewest versions in which a change can be found: a counter needs two to differ.
VERSIONS_NEEDED = ENOUGH_VALUES
EXACT_VERSIONS_NEEDED = 2
# A value far from its level costs at most this number of standard deviations where a
# shift is placed. Wild values are slow ones, so a slow one costs less; one right before
# a shift would otherwise move the shift to it.
CAP_OF_BETTER, CAP_OF_WORSE = 5.0, 3.0


def one_a_version(points: Sequence[TrendPoint]) -> list[TrendPoint]:
    """One point for consecutive runs of one commit: their median, at the place of the
    last of them.

    Several runs of a version are not evidence of a change: they differ from each other
    less than versions do.
    """
    values: list[TrendPoint] = []
    for commit, group in groupby(points, key=lambda point: point.commit):
        runs = list(group)
        if commit is None or len(runs) == 1:
            values += runs
        else:
            middle = statistics.median(point.value for point in runs)
            values.append(
                msgspec.structs.replace(runs[-1], value=middle, runs=len(runs))
            )
    return values


def is_long_enough(series: TrendSeries) -> bool:
    if series.is_exact:
        return len(series.points) >= EXACT_VERSIONS_NEEDED
    return len(series.points) >= VERSIONS_NEEDED


def with_changes(series: TrendSeries) -> TrendSeries:
    """A series with its changes, oldest first, and its noise. Every change is exact or
    suspected, and new.
    """
    values = _values(series)
    if not is_long_enough(series) or not np.isfinite(values).all():
        return series
    if series.is_exact:
        return msgspec.structs.replace(series, changes=_exact_changes(series, values))
    scaled, unit = _scaled(values)
    changes = [_shift(series, shift, unit) for shift in shifts(scaled)]
    searched = msgspec.structs.replace(
        series, changes=changes, noise=float(noise(scaled))
    )
    return msgspec.structs.replace(searched, changes=_placed(searched))


def change_at(
    series: TrendSeries, at: int, *, standard_errors: float
) -> TrendChange | None:
    """The change at a version that is known from elsewhere; None if it is no larger
    than this number of standard errors.

    The series is one that ``with_changes`` searched, and its values are above 0.
    """
    values = _values(series)
    if not np.isfinite(values).all() or not (values > 0).all():
        return None
    others = [change.at for change in series.changes]
    shift = shift_at(np.log(values), at, others)
    if shift.z < standard_errors:
        return None
    return _shift(series, shift, None)


def _placed(series: TrendSeries) -> list[TrendChange]:
    """The changes at the versions where they are likeliest, each between its
    neighbours.
    """
    placed: list[TrendChange] = []
    ends = [change.at for change in series.changes[1:]]
    ends.append(len(series.points) - MIN_LAST + 1)
    start = 0
    for change, end in zip(series.changes, ends):
        loss_at = losses(series, change)[start + 1 : end]
        start = start + 1 + int(np.argmin(loss_at))
        placed.append(moved(series, change, start))
    return placed


def moved(series: TrendSeries, change: TrendChange, at: int) -> TrendChange:
    """The change at another version of its series."""
    good, bad = series.points[at - 1], series.points[at]
    return msgspec.structs.replace(
        change,
        at=at,
        last_good=good.commit,
        first_bad=bad.commit,
        first_seen=bad.started_at,
    )


def noise_of(series: TrendSeries) -> float | None:
    """The standard deviation of one version in logarithms; None for too few versions,
    or values that have none.
    """
    values = _values(series)
    if (
        len(values) < ENOUGH_VALUES
        or not np.isfinite(values).all()
        or not (values > 0).all()
    ):
        return None
    return float(noise(np.log(values)))


def losses(series: TrendSeries, change: TrendChange) -> Floats:
    """The loss in 2 log likelihood with the shift at each place."""
    values, unit = _scaled(_values(series))
    levels = np.array([change.before, change.after])
    scaled = np.log(levels) if unit is None else levels / unit
    distances = (values - scaled[:, np.newaxis]) / max(series.noise or 0.0, 1e-9)
    is_better = distances < 0 if series.better == "lower" else distances > 0
    costs = np.minimum(
        distances**2, np.where(is_better, CAP_OF_BETTER, CAP_OF_WORSE) ** 2
    )
    # The additional cost of every value with the level before the shift rather than
    # with the level after it.
    more = costs[0] - costs[1]
    loss_at: Floats = np.concatenate([[0.0], np.cumsum(more)])
    loss_at -= loss_at[change.at]
    return loss_at


def _values(series: TrendSeries) -> Floats:
    return np.array([point.value for point in series.points], dtype=np.float64)


def _scaled(values: Floats) -> tuple[Floats, float | None]:
    """The values on a scale of relative effects: logarithms without a unit, or shares
    of it if any value is not positive.
    """
    if (values > 0).all():
        return np.log(values), None
    unit = float(np.median(np.abs(values))) or float(np.abs(values).max()) or 1.0
    return values / unit, unit


def _shift(series: TrendSeries, shift: LevelShift, unit: float | None) -> TrendChange:
    if unit is None:
        before, after = math.exp(shift.before), math.exp(shift.after)
        interval = math.expm1(shift.low), math.expm1(shift.high)
        return _change(
            series, shift.at, before, after, math.expm1(shift.effect), interval
        )
    before, after = shift.before * unit, shift.after * unit
    if not before:
        return _change(series, shift.at, before, after, None, None)
    share = unit / abs(before)
    return _change(
        series,
        shift.at,
        before,
        after,
        shift.effect * share,
        (shift.low * share, shift.high * share),
    )


def _exact_changes(series: TrendSeries, values: Floats) -> list[TrendChange]:
    changes: list[TrendChange] = []
    # A value that lasted for one version only was not a level to start from.
    before = float(values[0])
    for at in steps(values, metric(series.metric).gate.allowed_more):
        after = float(values[at])
        delta = after / before - 1 if before else None
        changes.append(_change(series, at, before, after, delta, None))
        before = after
    return changes


def _change(
    series: TrendSeries,
    at: int,
    before: float,
    after: float,
    delta: float | None,
    interval: tuple[float, float] | None,
) -> TrendChange:
    good, bad = series.points[at - 1], series.points[at]
    return TrendChange(
        at=at,
        direction=direction_of(series, after - before),
        before=before,
        after=after,
        delta=delta,
        interval=interval,
        last_good=good.commit,
        first_bad=bad.commit,
        first_seen=bad.started_at,
        evidence="exact" if series.is_exact else "suspected",
    )


def direction_of(series: TrendSeries, difference: float) -> Direction:
    """Whether a series that rose by ``difference`` got better or worse; informing and
    neutral metrics only change.
    """
    if series.informing or series.better == "neutral":
        return "changed"
    if (difference < 0) == (series.better == "lower"):
        return "better"
    return "worse"
