"""Find the changes of one series: the place, size and direction of each shift of its level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.terms import Better
from perfgate.document.trend import Direction, TrendChange, TrendPoint, TrendSeries
from perfgate.stats.changes import CAP, ENOUGH_VALUES, LevelShift, noise, shifts, steps

Floats = npt.NDArray[np.float64]

# Fewest versions in which a change can be found: a counter needs two to differ.
VERSIONS_NEEDED = ENOUGH_VALUES
EXACT_VERSIONS_NEEDED = 2


def one_a_version(points: Sequence[TrendPoint]) -> list[TrendPoint]:
    """One point for consecutive runs of one commit: their median, at the place of the last of them.

    Several runs of a version are no evidence of a change: they differ from each other less than versions do.
    """
    values: list[TrendPoint] = []
    for commit, group in groupby(points, key=lambda point: point.commit):
        runs = list(group)
        if commit is None or len(runs) == 1:
            values += runs
        else:
            middle = float(np.median([point.value for point in runs]))
            values.append(msgspec.structs.replace(runs[-1], value=middle, runs=len(runs)))
    return values


def is_long_enough(series: TrendSeries) -> bool:
    return len(series.points) >= (EXACT_VERSIONS_NEEDED if series.is_exact else VERSIONS_NEEDED)


def with_changes(series: TrendSeries) -> TrendSeries:
    """A series with its changes, oldest first, and its noise. Every change is exact or suspected, and new."""
    values = np.array([point.value for point in series.points], dtype=np.float64)
    if not is_long_enough(series) or not np.isfinite(values).all():
        return series
    if series.is_exact:
        return msgspec.structs.replace(series, changes=_exact_changes(series, values))
    scaled, unit = _scaled(values)
    changes = [_change(series, shift, unit) for shift in shifts(scaled)]
    return msgspec.structs.replace(series, changes=changes, noise=float(noise(scaled)))


def noise_of(series: TrendSeries) -> float | None:
    """The standard deviation of one version in logarithms; None for too few versions, or values that have none."""
    values = np.array([point.value for point in series.points], dtype=np.float64)
    if len(values) < ENOUGH_VALUES or not np.isfinite(values).all() or not (values > 0).all():
        return None
    return float(noise(np.log(values)))


def losses(series: TrendSeries, change: TrendChange, places: Iterable[int]) -> dict[int, float]:
    """The loss in 2 log likelihood with the shift at each of these places; outliers are capped like in the search."""
    values, unit = _scaled(np.array([point.value for point in series.points], dtype=np.float64))

    def costs(level: float) -> Floats:
        """The cost of every value at a level."""
        scaled = math.log(level) if unit is None else level / unit
        distance = (values - scaled) / max(series.noise or 0.0, 1e-9)
        return np.minimum(distance**2, CAP**2)

    # The additional cost of every value with the level before the shift rather than with the level after it.
    more = costs(change.before) - costs(change.after)
    loss_at: dict[int, float] = {}
    for place in places:
        if place > change.at:
            loss_at[place] = float(more[change.at : place].sum())
        else:
            loss_at[place] = -float(more[place : change.at].sum())
    return loss_at


def _scaled(values: Floats) -> tuple[Floats, float | None]:
    """The values on a scale of relative effects: logarithms without a unit, or shares of it if any value is not positive."""
    if (values > 0).all():
        return np.log(values), None
    unit = float(np.median(np.abs(values))) or float(np.abs(values).max()) or 1.0
    return values / unit, unit


def _change(series: TrendSeries, shift: LevelShift, unit: float | None) -> TrendChange:
    if unit is None:
        before, after = math.exp(shift.before), math.exp(shift.after)
        delta: float | None = math.expm1(shift.effect)
        interval: tuple[float, float] | None = (math.expm1(shift.low), math.expm1(shift.high))
    else:
        before, after = shift.before * unit, shift.after * unit
        share = unit / abs(before) if before else None
        delta = None if share is None else shift.effect * share
        interval = None if share is None else (shift.low * share, shift.high * share)
    return _described(series, shift.at, before, after, delta, interval, is_exact=False)


def _exact_changes(series: TrendSeries, values: Floats) -> list[TrendChange]:
    changes: list[TrendChange] = []
    for at in steps(values, metric(series.metric).allowed_more):
        # A value that lasted for one version only was no level to start from.
        before, after = changes[-1].after if changes else float(values[0]), float(values[at])
        delta = after / before - 1 if before else None
        changes.append(_described(series, at, before, after, delta, None, is_exact=True))
    return changes


def _described(
    series: TrendSeries,
    at: int,
    before: float,
    after: float,
    delta: float | None,
    interval: tuple[float, float] | None,
    *,
    is_exact: bool,
) -> TrendChange:
    good, bad = series.points[at - 1], series.points[at]
    return TrendChange(
        at=at,
        direction="changed" if series.informing else direction(series.better, after - before),
        before=before,
        after=after,
        delta=delta,
        interval=interval,
        last_good=good.commit,
        first_bad=bad.commit,
        first_seen=bad.started_at,
        evidence="exact" if is_exact else "suspected",
    )


def direction(better: Better, difference: float) -> Direction:
    """Whether a metric that rose by ``difference`` got better or worse; some metrics have no better direction."""
    if better == "neutral":
        return "changed"
    return "better" if (difference < 0) == (better == "lower") else "worse"
