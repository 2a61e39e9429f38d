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
    undone: dict[_Event, str] = {}
    measured: dict[_Event, list[TrendChange]] = {}
    for entry in filter(_is_time, series):
        for change in entry.changes:
            if change.standing == "resolved" and change.resolved_by:
                undone[_event(entry, change)] = change.resolved_by
            if change.confirmation is not None:
                measured.setdefault(_event(entry, change), []).append(change)
    completed: list[TrendSeries] = []
    for entry in series:
        changes = list(entry.changes)
        # A commit that undid one change of a series undid no other.
        repairs = {change.resolved_by for change in changes}
        for number, change in enumerate(changes):
            if not change.is_unsettled or not _is_time(entry):
                continue
            commit = undone.get(_event(entry, change))
            outcomes = measured.get(_event(entry, change), [])
            if change.confirmation is None and _are_refuted(outcomes):
                changes[number] = msgspec.structs.replace(
                    change,
                    evidence="refuted",
                    standing="refuted",
                    confirmation=outcomes[0].confirmation,
                )
            elif (
                commit
                and commit not in repairs
                and _moved_back(change, commit, _of_place(entry, series))
            ):
                changes[number] = msgspec.structs.replace(
                    change, standing="resolved", resolved_by=commit
                )
        completed.append(msgspec.structs.replace(entry, changes=changes))
    return completed


def _are_refuted(changes: Sequence[TrendChange]) -> bool:
    """Whether all of at least one change are."""
    return bool(changes) and all(change.standing == "refuted" for change in changes)


def _event(series: TrendSeries, change: TrendChange) -> _Event:
    return (*_calls(series), change.first_bad, change.direction)


def _of_place(
    series: TrendSeries, candidates: Sequence[TrendSeries]
) -> list[TrendSeries]:
    """This metric of these calls on all testbeds."""
    return [
        other
        for other in candidates
        if (other.workload, other.shape, other.metric, other.labels)
        == (series.workload, series.shape, series.metric, series.labels)
    ]


def _moved_back(
    change: TrendChange, commit: str, testbeds: Sequence[TrendSeries]
) -> bool:
    """Whether a time moved at this commit by at least half of the change, in the other
    direction.
    """
    for series in testbeds:
        at = index_of(series, commit)
        if at and _is_positive(series):
            values = np.log([point.value for point in series.points])
            back = float(np.median(values[at:]) - np.median(values[:at]))
            size = math.log(change.after / change.before)
            return back * size < 0 and abs(back) >= LEFT_OVER * abs(size)
    return False


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
