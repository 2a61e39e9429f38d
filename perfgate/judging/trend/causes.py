"""Group the changes of metrics and counters that began with the same version of main into causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.document.trend import Direction, Standing, TrendCause, TrendChange, TrendPlace, TrendSeries
from perfgate.judging.trend.find import losses
from perfgate.stats.changes import CAP

# A shift lies, with 80 % confidence, at one of the places with a 2 log likelihood ratio below this:
# (1 - exp(-x / 2))^2 = 0.80. Source: Eo & Morley, Likelihood-ratio-based confidence sets for the timing of structural breaks,
# Quantitative Economics 6 (2015), for a shift of a mean that is small against the noise. Of shifts of 3 % in noise of 1.2 %,
# 95 % are aligned with the counter of their commit, 75 % without alignment; if only the next commit moved a counter, half
# are aligned with the next.
_LOCATION_80 = 4.5
# A shift is moved by at most this many versions.
_FARTHEST = 8
# A cause has the first of these standings that any of its changes has.
_STANDINGS: tuple[Standing, ...] = ("open", "new", "accepted", "superseded", "resolved", "refuted")
_REPORTED_ORDER: tuple[Standing, ...] = ("new", "open", "accepted", "superseded", "resolved", "refuted")
_DIRECTIONS: tuple[Direction, ...] = ("worse", "better", "changed")
_METRICS_LEADING_FIRST = sorted(METRICS, key=lambda name: not METRICS[name].display.leading)
_ORDER = {name: place for place, name in enumerate(_METRICS_LEADING_FIRST)}


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
        return self.change.standing in ("new", "open")


def align(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with every shift of times moved to a change of the same workload, if it may lie there.

    Noise displaces a shift by a version or two, and the effects of one commit would be reported as several causes. A
    counter gives the exact place; without one, the times with the clearest shift do. ``with_changes`` found the changes.
    """
    aligned = list(series)
    # The versions to which shifts may be moved, with the most loss. One wild value, whose cost is capped, may lie between the
    # shifts of two shapes; a counter may be another commit's.
    anchors_of: dict[tuple[str, str, Direction], dict[_Versions, float]] = {}
    for place, _, _ in _clearest_first(series):
        entry = aligned[place.series]
        change = entry.changes[place.change]
        anchors = anchors_of.get((entry.workload, entry.fingerprint, change.direction), {})
        if not entry.is_exact and _versions(change) not in anchors:
            change = _moved(entry, place.change, anchors)
            changes = list(entry.changes)
            changes[place.change] = change
            aligned[place.series] = msgspec.structs.replace(entry, changes=changes)
        # A commit with other counts may move times in any direction, and informing metrics have none.
        directions: set[Direction] = {change.direction, "changed"}
        most_loss = _LOCATION_80 + CAP**2
        if entry.is_exact:
            directions, most_loss = set(_DIRECTIONS), _LOCATION_80
        for direction in directions:
            anchors = anchors_of.setdefault((entry.workload, entry.fingerprint, direction), {})
            anchors.setdefault(_versions(change), most_loss)
    return aligned


def causes(series: Sequence[TrendSeries]) -> list[TrendCause]:
    """The changes of all series that are still measured, grouped by the versions between which they began, the worst first.

    The changes of a testbed that was replaced are followed on the new one.
    """
    groups: dict[object, list[_Member]] = {}
    for member in _members(series):
        if member.series.current or member.change.carried is not None:
            key: object = _versions(member.change)
            if not member.change.first_bad:
                key = member.series.key, member.change.first_seen
            groups.setdefault(key, []).append(member)

    def order(cause: TrendCause) -> tuple[int, int, float, str, str]:
        sizes = [_size(series[place.series].changes[place.change]) for place in cause.changes]
        standing, direction = _REPORTED_ORDER.index(cause.standing), _DIRECTIONS.index(cause.direction)
        return standing, direction, -max(sizes), cause.first_seen, cause.first_bad or ""

    return sorted(map(_cause, groups.values()), key=order)


def with_superseded(series: Sequence[TrendSeries], explained: Sequence[TrendCause]) -> list[TrendSeries]:
    """The series with the open changes before a change of the benchmark superseded: their levels do not compare any more."""
    completed = list(series)
    for cause in explained:
        if cause.origin != "benchmark":
            continue
        for place in cause.changes:
            entry = completed[place.series]
            changes = list(entry.changes)
            for number, change in enumerate(changes[: place.change]):
                if change.is_unsettled:
                    first_bad = changes[place.change].first_bad
                    changes[number] = msgspec.structs.replace(change, standing="superseded", resolved_by=first_bad)
            completed[place.series] = msgspec.structs.replace(entry, changes=changes)
    return completed


def _members(series: Sequence[TrendSeries]) -> list[_Member]:
    """The changes of all series."""
    members: list[_Member] = []
    for index, entry in enumerate(series):
        for number, change in enumerate(entry.changes):
            members.append(_Member(TrendPlace(series=index, change=number), entry, change))
    return members


def _clearest_first(series: Sequence[TrendSeries]) -> list[_Member]:
    """All changes: exact changes first, then by their size relative to the noise."""
    return sorted(_members(series), key=_clearness)


def _clearness(member: _Member) -> tuple[bool, float]:
    noise = max(member.series.noise or 0.0, 1e-9)
    return not member.series.is_exact, -_size(member.change) / noise


def _versions(change: TrendChange) -> _Versions:
    return _Versions(change.last_good, change.first_bad)


def _moved(series: TrendSeries, at: int, anchors: Mapping[_Versions, float]) -> TrendChange:
    """The change at the likeliest anchor whose loss is not too large, else at its own place."""
    change = series.changes[at]
    earliest, latest = change.at - _FARTHEST, change.at + _FARTHEST
    # It stays between the changes before and after it.
    if at > 0:
        earliest = max(earliest, series.changes[at - 1].at + 1)
    if at + 1 < len(series.changes):
        latest = min(latest, series.changes[at + 1].at - 1)
    most_loss: dict[int, float] = {}
    for place in range(max(earliest, 1), min(latest, len(series.points) - 1) + 1):
        versions = _Versions(series.points[place - 1].commit, series.points[place].commit)
        if versions in anchors:
            most_loss[place] = anchors[versions]
    loss_at = losses(series, change, most_loss)
    likely = [place for place in most_loss if loss_at[place] <= most_loss[place]]
    if not likely:
        return change
    place = min(likely, key=lambda place: (loss_at[place], abs(place - change.at), place))
    good, bad = series.points[place - 1], series.points[place]
    return msgspec.structs.replace(
        change, at=place, last_good=good.commit, first_bad=bad.commit, first_seen=bad.started_at
    )


def _cause(members: Sequence[_Member]) -> TrendCause:
    # Informing metrics moved with the others; they neither start nor prolong a cause.
    judged = [member for member in members if not member.series.informing] or members
    live = _live(judged)
    directions = {member.change.direction for member in live}
    direction = min(directions, key=_DIRECTIONS.index)
    deciding = [member.change for member in live if member.change.direction == direction]
    standings = {change.standing for change in deciding}
    standing = min(standings, key=_STANDINGS.index)
    ordered = sorted(members, key=lambda member: _relevance(member, direction, standing))
    first = ordered[0].change
    return TrendCause(
        direction=direction,
        standing=standing,
        news=any(change.news for change in deciding),
        last_good=first.last_good,
        first_bad=first.first_bad,
        first_seen=first.first_seen,
        commits=first.commits,
        commit_count=first.commit_count,
        changes=[member.place for member in ordered],
    )


def _live(members: Sequence[_Member]) -> list[_Member]:
    """The members that are not settled, of the places whose clearest change is not; if all are settled, the clearest.

    A return that is lost in the noise of one metric is seen in another one of the same place.
    """
    clearest: dict[tuple[str, str, str], _Member] = {}
    for member in members:
        place = member.series.workload, member.series.shape, member.series.fingerprint
        if place not in clearest or _clearness(member) < _clearness(clearest[place]):
            clearest[place] = member
    live: list[_Member] = []
    for member in members:
        place = member.series.workload, member.series.shape, member.series.fingerprint
        if member.is_live and clearest[place].is_live:
            live.append(member)
    return live or list(clearest.values())


def _relevance(member: _Member, direction: Direction, standing: Standing) -> tuple[object, ...]:
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
