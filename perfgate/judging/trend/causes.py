"""Group the changes of metrics and counters that began with the same version of main into causes."""

from __future__ import annotations

from collections.abc import Sequence
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


class _Versions(NamedTuple):
    """The versions between which a series moved."""

    last_good: str | None
    first_bad: str | None


class _Member(NamedTuple):
    """A change with its series and its place among all of them."""

    place: TrendPlace
    series: TrendSeries
    change: TrendChange

    @property
    def is_live(self) -> bool:
        return self.change.standing in _LIVE


def align(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with every shift of times moved to a change of the same workload, if it may lie there.

    Noise displaces a shift by a version or two, and the effects of one commit would be reported as several causes. A
    counter gives the exact place; without one, the times with the clearest shift do. ``with_changes`` found the changes.
    """
    aligned = list(series)
    anchors_of: dict[tuple[str, str], list[_Versions]] = {}
    for place in _clearest_first(series):
        entry = aligned[place.series]
        anchors = anchors_of.setdefault((entry.workload, entry.fingerprint), [])
        change = entry.changes[place.change]
        if not entry.is_exact and _versions(change) not in anchors:
            change = _moved(entry, place.change, anchors)
            changes = list(entry.changes)
            changes[place.change] = change
            aligned[place.series] = msgspec.structs.replace(entry, changes=changes)
        if _versions(change) not in anchors:
            anchors.append(_versions(change))
    return aligned


def causes(series: Sequence[TrendSeries]) -> list[TrendCause]:
    """The changes of all series that are still measured, grouped by the versions between which they began, the worst first."""
    groups: dict[object, list[_Member]] = {}
    for place in _places(series):
        entry = series[place.series]
        change = entry.changes[place.change]
        if entry.current:
            key = _versions(change) if change.first_bad else (entry.key, change.first_seen)
            groups.setdefault(key, []).append(_Member(place, entry, change))

    def order(members: Sequence[_Member]) -> tuple[int, int, float, str, str]:
        cause = _cause(members)
        size = max(_size(member.change) for member in members)
        standing, moved = _TOLD.index(cause.standing), _DIRECTIONS.index(cause.direction)
        return standing, moved, -size, cause.first_seen, cause.first_bad or ""

    return [_cause(members) for members in sorted(groups.values(), key=order)]


def _places(series: Sequence[TrendSeries]) -> list[TrendPlace]:
    """The places of all changes."""
    places: list[TrendPlace] = []
    for index, entry in enumerate(series):
        places += [TrendPlace(series=index, change=number) for number in range(len(entry.changes))]
    return places


def _clearest_first(series: Sequence[TrendSeries]) -> list[TrendPlace]:
    """The places of all changes: exact changes first, then by their size relative to the noise."""

    def clearness(place: TrendPlace) -> tuple[bool, float]:
        entry = series[place.series]
        noise = max(entry.noise or 0.0, 1e-9)
        return not entry.is_exact, -_size(entry.changes[place.change]) / noise

    return sorted(_places(series), key=clearness)


def _versions(change: TrendChange) -> _Versions:
    return _Versions(change.last_good, change.first_bad)


def _moved(series: TrendSeries, at: int, anchors: Sequence[_Versions]) -> TrendChange:
    """The change at the likeliest anchor within its confidence set, else at its own place."""
    change = series.changes[at]
    earliest, latest = change.at - NEAR, change.at + NEAR
    neighbors = [0, *(entry.at for entry in series.changes), len(series.points)]
    places: list[int] = []
    for place in range(max(earliest, neighbors[at] + 1), min(latest, neighbors[at + 2] - 1) + 1):
        if _Versions(series.points[place - 1].commit, series.points[place].commit) in anchors:
            places.append(place)
    loss_at = losses(series, change, places)
    if not places or min(loss_at.values()) > _LOCATION_80:
        return change
    place = min(places, key=lambda place: (loss_at[place], abs(place - change.at), place))
    good, bad = series.points[place - 1], series.points[place]
    return msgspec.structs.replace(
        change, at=place, last_good=good.commit, first_bad=bad.commit, first_seen=bad.started_at
    )


def _cause(members: Sequence[_Member]) -> TrendCause:
    # Informing metrics moved with the others; they neither start nor prolong a cause.
    judged = [member for member in members if not member.series.informing] or members
    live = [member for member in judged if member.is_live] or judged
    direction = min((member.change.direction for member in live), key=_DIRECTIONS.index)
    deciding = [member for member in live if member.change.direction == direction]
    standing = min((member.change.standing for member in deciding), key=_STANDINGS.index)
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
        series.is_exact,
        _ORDER.get(series.metric, len(_ORDER)),
        -_size(change),
        series.metric,
        series.workload,
        series.shape,
        sorted(series.labels.items()),
    )


def _size(change: TrendChange) -> float:
    # A change from zero counts like a doubling.
    return 1.0 if change.delta is None else abs(change.delta)
