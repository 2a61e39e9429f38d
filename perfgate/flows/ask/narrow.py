"""A trend with some of its changes alone, short enough to be read as an answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.document.trend import TrendCause, TrendDocument, TrendPlace, TrendSeries


def narrowed(trend: TrendDocument, causes: Sequence[TrendCause], *, most: int | None = None) -> TrendDocument:
    """The trend with these causes alone, of each the first ``most`` changes, or all.

    The series are those of the changes, with the points beside them and the newest; the conditions are those of runs that
    one of the points names.
    """
    kept: dict[int, set[int]] = defaultdict(set)
    for cause in causes:
        for place in cause.changes[:most]:
            kept[place.series].add(place.change)
    series: list[TrendSeries] = []
    places: dict[tuple[int, int], TrendPlace] = {}
    for index, changes in sorted(kept.items()):
        series.append(_short(trend.series[index], sorted(changes)))
        places |= {
            (index, old): TrendPlace(series=len(series) - 1, change=new) for new, old in enumerate(sorted(changes))
        }
    shown = {point.run_id for entry in series for point in entry.points}
    return replace(
        trend,
        series=series,
        causes=[
            replace(cause, changes=[places[place.series, place.change] for place in cause.changes[:most]])
            for cause in causes
        ],
        health=[run for run in trend.health if run.run_id in shown],
        weeks={},
    )


def _short(series: TrendSeries, changes: Sequence[int]) -> TrendSeries:
    """The series with these changes, the points beside them, and the newest."""
    beside = {place for change in changes for place in (series.changes[change].at - 1, series.changes[change].at)}
    wanted = sorted({*beside, len(series.points) - 1})
    return replace(
        series,
        points=[series.points[place] for place in wanted],
        changes=[replace(series.changes[change], at=wanted.index(series.changes[change].at)) for change in changes],
    )
