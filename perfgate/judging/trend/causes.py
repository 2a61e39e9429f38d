"""Group the changes of metrics and counters that began with the same version of main into causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.document.trend import Direction, Standing, TrendCause, TrendChange, TrendPlace, TrendSeries
from perfgate.judging.trend.find import losses
from perfgate.judging.trend.near import NEAR

# A shift lies, with 80 % confidence, at one of the places with a 2 log likelihood ratio below this:
# (1 - exp(-x / 2))^2 = 0.80. Source: Eo & Morley, Likelihood-ratio-based confidence sets for the timing of structural breaks,
# Quantitative Economics 6 (2015), for a shift of a mean that is small against the noise. Of shifts of 3 % in noise of 1.2 %,
# 95 % are aligned with the counter of their own commit, 75 % without alignment; if only the next commit moved a counter, half
# are aligned with that one.
_LOCATION_80 = 4.5
_LIVE: tuple[Standing, ...] = ("new", "open")
# A cause has the first of these standings that any of its changes has.
_STANDINGS: tuple[Standing, ...] = ("open", "new", "accepted", "resolved", "refuted")
_TOLD: tuple[Standing, ...] = ("new", "open", "accepted", "resolved", "refuted")
_DIRECTIONS: tuple[Direction, ...] = ("worse", "better", "changed")
_ORDER = {name: place for place, name in enumerate(sorted(METRICS, key=lambda name: not METRICS[name].leading))}


# The versions between which a series moved: the last good one and the first bad one.
_Where = tuple[str | None, str | None]


class _Member(NamedTuple):
    place: TrendPlace
    series: TrendSeries
    change: TrendChange

    @property
    def is_live(self) -> bool:
        return self.change.standing in _LIVE


def align(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with every shift of times moved to a change of the same workload, if it may lie there.

    Noise displaces a shift by a version or two, and the effects of one commit would be reported as those of several. A
    counter gives the exact place; without one, the times with the clearest shift do. ``with_changes`` found the changes.
    """
    aligned = list(series)
    known: dict[tuple[str, str], list[_Where]] = {}
    for index, at in _clearest_first(series):
        entry = aligned[index]
        anchors = known.setdefault((entry.workload, entry.fingerprint), [])
        change = entry.changes[at]
        where = (change.last_good, change.first_bad)
        if entry.kind != "exact" and where not in anchors:
            moved = _moved(entry, at, anchors)
            changes = [*entry.changes[:at], moved, *entry.changes[at + 1 :]]
            aligned[index] = msgspec.structs.replace(entry, changes=changes)
            where = (moved.last_good, moved.first_bad)
        if where not in anchors:
            anchors.append(where)
    return aligned


def causes(series: Sequence[TrendSeries]) -> list[TrendCause]:
    """The changes of all series that are still measured, grouped by the versions between which they began, the worst first."""
    members: dict[object, list[_Member]] = {}
    for index, entry in enumerate(series):
        for number, change in enumerate(entry.changes if entry.current else []):
            where = (change.last_good, change.first_bad)
            key = where if change.first_bad else (entry.key, change.first_seen)
            members.setdefault(key, []).append(_Member(TrendPlace(series=index, change=number), entry, change))
    grouped = [(_cause(group), max(_size(member.change) for member in group)) for group in members.values()]

    def order(entry: tuple[TrendCause, float]) -> tuple[int, int, float, str, str]:
        cause, size = entry
        standing, moved = _TOLD.index(cause.standing), _DIRECTIONS.index(cause.direction)
        return standing, moved, -size, cause.first_seen, cause.first_bad or ""

    return [cause for cause, _ in sorted(grouped, key=order)]


def _clearest_first(series: Sequence[TrendSeries]) -> Iterable[tuple[int, int]]:
    """The changes as indices of series and change: exact ones first, then by their size relative to the noise."""
    places = [(index, at) for index, entry in enumerate(series) for at in range(len(entry.changes))]

    def clearness(place: tuple[int, int]) -> tuple[bool, float]:
        entry = series[place[0]]
        return entry.kind != "exact", -_size(entry.changes[place[1]]) / max(entry.noise or 0.0, 1e-9)

    return sorted(places, key=clearness)


def _moved(series: TrendSeries, at: int, anchors: Sequence[_Where]) -> TrendChange:
    """The change at the likeliest anchor within its confidence set, else at its own place."""
    change = series.changes[at]
    earliest = series.changes[at - 1].at + 1 if at else 1
    latest = series.changes[at + 1].at - 1 if at + 1 < len(series.changes) else len(series.points) - 1
    places = [
        place
        for place in range(max(earliest, change.at - NEAR), min(latest, change.at + NEAR) + 1)
        if (series.points[place - 1].commit, series.points[place].commit) in anchors
    ]
    possible = [(loss, abs(place - change.at), place) for place, loss in losses(series, change, places).items()]
    if not possible or min(possible)[0] > _LOCATION_80:
        return change
    place = min(possible)[2]
    good, bad = series.points[place - 1], series.points[place]
    return msgspec.structs.replace(
        change, at=place, last_good=good.commit, first_bad=bad.commit, first_seen=bad.started_at
    )


def _cause(members: Sequence[_Member]) -> TrendCause:
    # Informing metrics moved with the others; they neither start nor prolong a cause.
    judged = [member for member in members if not member.series.informing] or members
    live = [member for member in judged if member.is_live] or judged
    direction = next(name for name in _DIRECTIONS if any(member.change.direction == name for member in live))
    deciding = [member for member in live if member.change.direction == direction]
    standing = next(name for name in _STANDINGS if any(member.change.standing == name for member in deciding))
    ordered = sorted(members, key=lambda member: _telling(member, direction, standing))
    first = ordered[0].change
    return TrendCause(
        direction=direction,
        standing=standing,
        news=any(member.change.news for member in deciding),
        last_good=first.last_good,
        first_bad=first.first_bad,
        first_seen=first.first_seen,
        commits=first.commits,
        commit_count=first.commit_count,
        changes=[member.place for member in ordered],
    )


def _telling(member: _Member, direction: Direction, standing: Standing) -> tuple[object, ...]:
    """Order the changes of a cause by importance: first those that moved as the cause did; times first, then by size."""
    series, change = member.series, member.change
    return (
        series.informing,
        change.direction != direction,
        not member.is_live,
        not member.is_live and change.standing != standing,
        series.kind == "exact",
        _ORDER.get(series.metric, len(_ORDER)),
        -_size(change),
        series.metric,
        series.workload,
        series.shape,
        sorted(series.labels.items()),
    )


def _size(change: TrendChange) -> float:
    # A change from zero counts as much as a doubling.
    return 1.0 if change.delta is None else abs(change.delta)
