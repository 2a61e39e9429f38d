"""The versions of main on the level of a given run: the stretch between two changes
that the run belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.history import StoredRun, moment
from perfgate.document.trend import TrendPoint, TrendSeries


def level_around(
    series: TrendSeries, run: StoredRun, *, without: Sequence[StoredRun]
) -> list[float]:
    """The values of the level that a run is on, oldest first, without the versions of
    the runs ``without``.

    Empty if the run was measured on another testbed than the series.
    """
    if run.fingerprint != series.fingerprint or not series.points:
        return []
    at = _place(series.points, run)
    start, end = 0, len(series.points)
    for change in series.changes:
        if change.standing == "refuted":
            continue
        if change.at <= at:
            start = max(start, change.at)
        else:
            end = min(end, change.at)
    values = []
    for point in series.points[start:end]:
        if not any(_is_of(point, entry) for entry in without):
            values.append(point.value)
    return values


def _place(points: Sequence[TrendPoint], run: StoredRun) -> int:
    """The index of a run's version; for a run without a point, the index of the version
    before it.
    """
    # From the end, as most queries are about new runs.
    for index in reversed(range(len(points))):
        if _is_of(points[index], run):
            return index
    began = moment(run.started_at)
    earlier = [point for point in points if moment(point.started_at) <= began]
    return max(len(earlier) - 1, 0)


def _is_of(point: TrendPoint, run: StoredRun) -> bool:
    return point.run_id == run.id or (
        run.commit is not None and point.commit == run.commit
    )
