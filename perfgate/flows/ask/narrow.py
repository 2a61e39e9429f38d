"""A trend with some of its changes alone, short enough to be read as an answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.document.trend import (
    TrendCause,
    TrendChange,
    TrendDocument,
    TrendPlace,
    TrendSeries,
)


def narrowed(
    trend: TrendDocument, causes: Sequence[TrendCause], *, most: int | None = None
) -> TrendDocument:
    """The trend with these causes alone, of each the first ``most`` changes, or all.

    It keeps the series of the changes, with the points around them and the newest; and the conditions of the runs that
    one of the points names.
    """
    points: dict[int, set[int]] = defaultdict(set)
    for cause in causes:
        for place in cause.changes[:most]:
            points[place.series].add(place.change)
    series: list[TrendSeries] = []
    places: dict[TrendPlace, TrendPlace] = {}
    shown_runs: set[str] = set()
    for index, changes in sorted(points.items()):
        for new, old in enumerate(sorted(changes)):
            places[TrendPlace(series=index, change=old)] = TrendPlace(
                series=len(series), change=new
            )
        short = _short(trend.series[index], sorted(changes))
        shown_runs.update(point.run_id for point in short.points)
        series.append(short)
    short_causes: list[TrendCause] = []
    for cause in causes:
        own = [places[place] for place in cause.changes[:most]]
        short_causes.append(replace(cause, changes=own))
    return replace(
        trend,
        series=series,
        causes=short_causes,
        runs=replace(
            trend.runs,
            health=[run for run in trend.runs.health if run.run_id in shown_runs],
            weeks={},
        ),
    )


def _short(series: TrendSeries, changes: Sequence[int]) -> TrendSeries:
    """The series with these changes, the points around them, and the newest point."""
    indexes = {len(series.points) - 1}
    for number in changes:
        at = series.changes[number].at
        indexes |= {at - 1, at}
    positions = sorted(indexes)
    short_changes: list[TrendChange] = []
    for number in changes:
        change = series.changes[number]
        short_changes.append(replace(change, at=positions.index(change.at)))
    return replace(
        series,
        points=[series.points[position] for position in positions],
        changes=short_changes,
    )
