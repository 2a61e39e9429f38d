"""Whether two workloads of one machine took the same course around a change: then the
machine moved both, not a commit.

A machine that slows down little by little has no version at which it moved: the search
places a step of each series at another version. So the workloads are compared version
by version, over the whole drift that the change is a part of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfgate.document.trend import TrendChange, TrendSeries
from perfgate.judging.trend.near import index_of
from perfgate.stats.arrays import Floats
from perfgate.stats.changes import CAP, noise

Course = Literal["alike", "other", "unknown"]
# The versions before and after a drift in which the workloads are compared, and the
# fewest of each. Changes in one direction that are no further apart are parts of one
# drift.
_WINDOW, _FEWEST = 12, 3
# The workloads moved alike if the shift of one is this share of the other's.
_ALIKE = (0.5, 1.6)
# Two commits that each move one workload by as much within a window are rare: 2 log of
# one window in twenty.
_PRIOR = 6.0


class _Stretch(NamedTuple):
    """The versions from ``start`` to ``end``, of which those from ``first`` to ``last``
    drift; a single step has one.
    """

    start: int
    first: int
    last: int
    end: int


class _Courses(NamedTuple):
    """The logarithms of both workloads by version, and the place of each version in the
    leading series.
    """

    lead: Floats
    another: Floats
    places: Floats

    def share(self, stretch: _Stretch) -> float | None:
        """The shift of the second workload over the shift of the first; None with too
        few versions.
        """
        before, after = self.places < stretch.first, self.places >= stretch.last
        if min(before.sum(), after.sum()) < _FEWEST:
            return None
        shift = float(np.median(self.lead[after]) - np.median(self.lead[before]))
        shift_of_another = float(
            np.median(self.another[after]) - np.median(self.another[before])
        )
        return shift_of_another / shift if shift else None


def common_course(
    lead: TrendSeries,
    change: TrendChange,
    own: Sequence[TrendSeries],
    another: Sequence[TrendSeries],
) -> Course:
    """Whether the shapes ``another`` of a second workload moved like the ``own`` ones
    of the first at the change of ``lead``.

    Unknown with too few versions.
    """
    stretch = _stretch(lead, change, _clearest(another))
    courses = _courses(lead, own, another, stretch)
    share = courses.share(stretch)
    if share is None:
        return "unknown"
    if not _ALIKE[0] <= share <= _ALIKE[1]:
        return "other"
    # A sensitive workload suffers more from a slow machine. The share is distorted by a
    # commit within a drift.
    is_alike = _is_common(courses, share, lead, change, another)
    return "alike" if is_alike else "other"


def _is_common(
    courses: _Courses,
    share: float,
    lead: TrendSeries,
    change: TrendChange,
    another: Sequence[TrendSeries],
) -> bool:
    """Whether one course explains both workloads around a change better than the
    separate steps that were found.
    """
    difference = courses.lead - courses.another / share
    scale = max(noise(difference), 1e-9)
    around = _around(lead, change)
    is_near = (courses.places >= around.start) & (courses.places < around.end)
    difference, places = difference[is_near], courses.places[is_near]
    alone = _steps([change], lead, places)
    both = alone - _steps(_clearest(another).changes, lead, places) / share
    likeliest = min(_cost((difference - course) / scale) for course in (alone, both))
    return _cost(difference / scale) <= likeliest + _PRIOR


def _cost(residuals: Floats) -> float:
    return float(np.minimum((residuals - np.median(residuals)) ** 2, CAP**2).sum())


def _steps(changes: Sequence[TrendChange], lead: TrendSeries, places: Floats) -> Floats:
    """The logarithms of a course that has only these changes."""
    course = np.zeros(places.size)
    for change in changes:
        at = index_of(lead, change.first_bad or "")
        if at is not None and change.before > 0 and change.after > 0:
            course[places >= at] += math.log(change.after / change.before)
    return course


def _clearest(shapes: Sequence[TrendSeries]) -> TrendSeries:
    return min(shapes, key=lambda entry: entry.noise or math.inf)


def _stretch(lead: TrendSeries, change: TrendChange, another: TrendSeries) -> _Stretch:
    """The drift that a change is a part of, with the versions around it up to the next
    changes.

    A slow machine moves both workloads, but the search finds a step of one where it
    finds none of the other.
    """
    first = last = change.at
    is_rise = change.after > change.before
    rises = sorted({*_rises(lead, lead), *_rises(another, lead)})
    for at, rises_too in reversed(rises):
        if at <= first:
            if rises_too != is_rise or first - at > _WINDOW:
                break
            first = at
    for at, rises_too in rises:
        if at >= last:
            if rises_too != is_rise or at - last > _WINDOW:
                break
            last = at
    return _between(lead, first, last)


def _rises(series: TrendSeries, lead: TrendSeries) -> list[tuple[int, bool]]:
    """The places of a series' changes in the leading one, and whether they are rises."""
    rises: list[tuple[int, bool]] = []
    for change in series.changes:
        at = index_of(lead, change.first_bad or "")
        if at is not None:
            rises.append((at, change.after > change.before))
    return rises


def _around(lead: TrendSeries, change: TrendChange) -> _Stretch:
    """The versions around a change up to the next ones."""
    return _between(lead, change.at, change.at)


def _between(lead: TrendSeries, first: int, last: int) -> _Stretch:
    earlier = [change.at for change in lead.changes if change.at < first]
    later = [change.at for change in lead.changes if change.at > last]
    earliest = max(earlier, default=0)
    latest = min(later, default=len(lead.points))
    return _Stretch(
        max(earliest, first - _WINDOW), first, last, min(latest, last + _WINDOW)
    )


def _courses(
    lead: TrendSeries,
    own: Sequence[TrendSeries],
    another: Sequence[TrendSeries],
    stretch: _Stretch,
) -> _Courses:
    """Both courses for the versions of the stretch that all series have."""
    places: list[int] = []
    commits: list[str] = []
    shapes = [_positive_values(entry) for entry in (*own, *another)]
    for index in range(stretch.start, stretch.end):
        commit = lead.points[index].commit
        if commit and all(commit in of_shape for of_shape in shapes):
            places.append(index)
            commits.append(commit)
    logarithms = np.array(
        [[math.log(of_shape[commit]) for commit in commits] for of_shape in shapes]
    )
    course, course_of_another = logarithms[: len(own)], logarithms[len(own) :]
    return _Courses(
        _undisturbed(course, own),
        _undisturbed(course_of_another, another),
        np.array(places, dtype=np.float64),
    )


def _positive_values(series: TrendSeries) -> dict[str, float]:
    return {
        point.commit: point.value
        for point in series.points
        if point.commit and point.value > 0
    }


def _undisturbed(logarithms: Floats, shapes: Sequence[TrendSeries]) -> Floats:
    """The best shape of each version, all on one level: a wild value is a slow one, and
    seldom hits all shapes.
    """
    if not logarithms.size:
        return np.zeros(0)
    centred = logarithms - np.median(logarithms, axis=1, keepdims=True)
    best: Floats = centred.min(axis=0)
    if shapes[0].better == "higher":
        best = centred.max(axis=0)
    return best
