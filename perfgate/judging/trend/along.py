"""Complete a change with the other times of the same calls that moved along.

To find a change among all versions of all series takes strong evidence. At a version at
which one time of the calls is known to have moved, another time needs only that of a
single test. Without this a repair that the throughput shows would leave a regression of
the latency open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from perfgate.document.trend import Direction, TrendChange, TrendSeries
from perfgate.judging.trend.find import change_at
from perfgate.judging.trend.near import NEAR, index_of
from perfgate.judging.trend.returns import LEFT_OVER

# A time has moved along if its shift is so many standard errors, and no more than twice
# as large or small as the known one.
_CERTAIN = 3.0
_TWICE = math.log(2)
# Workload, shape and testbed; and the first bad commit and the direction of a change.
_Calls = tuple[str, str, str]
_Event = tuple[str, str, str, str | None, Direction]


def with_changes_along(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with the changes that another time of the same calls shows; their own
    changes are aligned.
    """
    known: dict[_Calls, list[TrendChange]] = {}
    for entry in series:
        if entry.changes and _is_time(entry) and _is_positive(entry):
            known.setdefault(_calls(entry), []).extend(entry.changes)
    return [
        _with_known(entry, known.get(_calls(entry), ())) if _is_time(entry) else entry
        for entry in series
    ]


def with_outcomes_along(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series, whose changes are judged, with the outcome of a change for the other
    times of the same calls: it is undone for those that moved back by as much, and
    refuted for those that were not measured side by side.

    After a change of testbed a time moves back in the series that continues it.
    """
    outcomes = _Outcomes(series)
    completed: list[TrendSeries] = []
    for entry in series:
        changes = list(entry.changes)
        for number, change in enumerate(changes):
            if change.is_unsettled and _is_time(entry):
                changes[number] = outcomes.applied(entry, change)
        completed.append(msgspec.structs.replace(entry, changes=changes))
    return completed


class _Outcomes:
    """The repairs and the measurements of changes, which all times of the calls share."""

    def __init__(self, series: Sequence[TrendSeries]) -> None:
        self._series = series
        self._undone_by: dict[_Event, str] = {}
        self._measured: dict[_Event, list[TrendChange]] = {}
        for entry in filter(_is_time, series):
            for change in entry.changes:
                event = _event(entry, change)
                if change.standing == "resolved" and change.resolved_by:
                    self._undone_by[event] = change.resolved_by
                if change.confirmation is not None:
                    self._measured.setdefault(event, []).append(change)

    def applied(self, series: TrendSeries, change: TrendChange) -> TrendChange:
        """An unsettled change with the outcome of the other times, if there is one."""
        event = _event(series, change)
        measured = self._measured.get(event, [])
        if measured and all(other.standing == "refuted" for other in measured):
            return msgspec.structs.replace(
                change,
                evidence="refuted",
                standing="refuted",
                confirmation=measured[0].confirmation,
            )
        commit = self._undone_by.get(event)
        # A commit that undid one change of a series undid no other.
        repairs = {own.resolved_by for own in series.changes}
        if (
            commit
            and commit not in repairs
            and self._has_moved_back(series, change, commit)
        ):
            return msgspec.structs.replace(
                change, standing="resolved", resolved_by=commit
            )
        return change

    def _has_moved_back(
        self, series: TrendSeries, change: TrendChange, commit: str
    ) -> bool:
        """Whether this time moved at the commit by at least half of the change, in the
        other direction, on the testbed that has versions before it.
        """
        if not (change.before > 0 and change.after > 0):
            return False
        size = math.log(change.after / change.before)
        for entry in self._series:
            at = index_of(entry, commit)
            if at and _is_same_time(entry, series) and _is_positive(entry):
                values = np.log([point.value for point in entry.points])
                begin = index_of(entry, change.first_bad or "") or 0
                before = values[min(begin, at - 1) : at]
                back = float(np.median(values[at:]) - np.median(before))
                return back * size < 0 and abs(back) >= LEFT_OVER * abs(size)
        return False


def _event(series: TrendSeries, change: TrendChange) -> _Event:
    return (*_calls(series), change.first_bad, change.direction)


def _is_same_time(one: TrendSeries, other: TrendSeries) -> bool:
    """Whether both are one metric of the same calls, of any testbed."""
    return (one.workload, one.shape, one.metric, one.labels) == (
        other.workload,
        other.shape,
        other.metric,
        other.labels,
    )


def _calls(series: TrendSeries) -> _Calls:
    return series.workload, series.shape, series.fingerprint


def _is_time(series: TrendSeries) -> bool:
    return bool(series.noise) and not series.is_exact and not series.labels


def _with_known(series: TrendSeries, known: Sequence[TrendChange]) -> TrendSeries:
    changes = list(series.changes)
    for change in known:
        at = index_of(series, change.first_bad or "")
        if not at or any(abs(own.at - at) <= NEAR for own in changes):
            continue
        moved = change_at(series, at, standard_errors=_CERTAIN)
        if (
            moved is not None
            and moved.direction == change.direction
            and abs(math.log(_size(moved) / _size(change))) <= _TWICE
        ):
            changes.append(moved)
            changes.sort(key=lambda own: own.at)
            series = msgspec.structs.replace(series, changes=changes)
    return series


def _is_positive(series: TrendSeries) -> bool:
    return all(point.value > 0 for point in series.points)


def _size(change: TrendChange) -> float:
    """The size of a change of times, which are above 0."""
    return abs(math.log(change.after / change.before))
