"""Group the changes of metrics and counters that began with the same version of main
into causes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.document.trend import (
    CommitLabel,
    Direction,
    Standing,
    TrendCause,
    TrendChange,
    TrendPlace,
    TrendSeries,
)
from perfgate.judging.trend.along import with_changes_along
from perfgate.judging.trend.find import (
    CAP_OF_WORSE,
    direction_of,
    losses,
    moved,
)
from perfgate.stats.arrays import Floats

# A shift lies, with 80 % confidence, at one of the places with a 2 log likelihood ratio
# below this: (1 - exp(-x / 2))^2 = 0.80. Source: Eo & Morley, Likelihood-ratio-based
# confidence sets for the timing of structural breaks, Quantitative Economics 6 (2015),
# for a shift of a mean that is small against the noise. Of shifts of 3 % in noise of
# 1.2 %, 95 % are aligned with the counter of their commit, 75 % without alignment; if
# only the next commit moved a counter, half are aligned with the next.
_LOCATION_80 = 4.5
# No shift moves at a greater loss: one wild value, whose cost is capped, may lie
# between the shifts of two shapes.
_MOST_LOSS = _LOCATION_80 + CAP_OF_WORSE**2
# Two commits that by chance move two workloads one after the other: 2 log of one window
# in twenty, and of one version of its twelve. Noise that displaces all shapes of a
# workload by a version costs less, a shift that is there costs more.
_TWO_COMMITS = 2 * math.log(20 * 12)
# A cause has the first of these standings that any of its changes has.
_STANDINGS: tuple[Standing, ...] = (
    "open",
    "new",
    "accepted",
    "superseded",
    "resolved",
    "refuted",
)
_REPORTED_ORDER: tuple[Standing, ...] = (
    "new",
    "open",
    "accepted",
    "superseded",
    "resolved",
    "refuted",
)
_DIRECTIONS: tuple[Direction, ...] = ("worse", "better", "changed")
_METRICS_LEADING_FIRST = sorted(
    METRICS, key=lambda name: not METRICS[name].display.leading
)
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

    @property
    def is_side_of_repair(self) -> bool:
        resolved_by = self.change.resolved_by
        return resolved_by is not None and resolved_by == self.change.first_bad


def align(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with the shifts of times of each workload at as few versions as they
    may lie at. ``with_changes`` found them.

    Noise displaces a shift by some versions, and the effects of one commit would be
    reported as several causes. Counters give the exact place, and so do machines that
    measured the same commits. Last come the changes of other times that moved along.
    """
    aligned = list(series)
    groups: dict[str, list[int]] = {}
    for index, entry in enumerate(series):
        if entry.changes:
            groups.setdefault(entry.workload, []).append(index)
    for indices in groups.values():
        alignment = _Alignment([series[index] for index in indices])
        for index, entry in zip(indices, alignment.align()):
            aligned[index] = entry
    return with_changes_along(_with_joined_workloads(aligned))


def _with_joined_workloads(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with the shifts of a machine's workloads at one version that are
    likelier one event than two commits.
    """
    joined = list(series)
    machines: dict[str, list[int]] = {}
    for index, entry in enumerate(series):
        if entry.changes:
            machines.setdefault(entry.fingerprint, []).append(index)
    for indices in machines.values():
        alignment = _Alignment([series[index] for index in indices])
        for index, entry in zip(indices, alignment.join_workloads()):
            joined[index] = entry
    return joined


def causes(series: Sequence[TrendSeries]) -> list[TrendCause]:
    """The changes of all series that are still measured, grouped by the versions
    between which they began, the worst first.

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
        sizes = [
            _size(series[place.series].changes[place.change]) for place in cause.changes
        ]
        standing = _REPORTED_ORDER.index(cause.standing)
        direction = _DIRECTIONS.index(cause.direction)
        return standing, direction, -max(sizes), cause.first_seen, cause.first_bad or ""

    return sorted(map(_cause, groups.values()), key=order)


def with_culprits(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series whose changes name the culprit that a bisection found as their only
    commit.
    """
    culprits: dict[_Versions, str] = {}
    for member in _members(series):
        culprit = culprit_of([member.change])
        if culprit:
            culprits[_versions(member.change)] = culprit
    completed: list[TrendSeries] = []
    for entry in series:
        changes = [
            _with_culprit(change, culprits.get(_versions(change)))
            for change in entry.changes
        ]
        completed.append(msgspec.structs.replace(entry, changes=changes))
    return completed


def _with_culprit(change: TrendChange, culprit: str | None) -> TrendChange:
    if culprit is None:
        return change
    labels = [label for label in change.commits if label.commit == culprit]
    return msgspec.structs.replace(
        change,
        commits=labels or [CommitLabel(commit=culprit, subject="")],
        commit_count=1,
    )


def with_superseded(
    series: Sequence[TrendSeries], explained: Sequence[TrendCause]
) -> list[TrendSeries]:
    """The series with the open changes before a change of the benchmark superseded:
    their levels do not compare any more.
    """
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
                    changes[number] = msgspec.structs.replace(
                        change, standing="superseded", resolved_by=first_bad
                    )
            completed[place.series] = msgspec.structs.replace(entry, changes=changes)
    return completed


def with_repairs(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The series with the other side of each repair settled: the end of an improvement
    that the regression brought.

    A commit that makes calls slower may save memory, and its revert needs the memory
    again. That is no regression of the revert if the level from before is back. If what
    the commit improved ranks first, it was an optimization, and its revert is a
    regression.
    """
    completed = list(series)
    groups: dict[_Versions, list[_Member]] = {}
    for member in _members(series):
        if not member.series.informing:
            groups.setdefault(_versions(member.change), []).append(member)
    for members in groups.values():
        leading = min(members, key=_rank).change
        if leading.direction != "worse" or not leading.resolved_by:
            continue
        for member in members:
            change = member.change
            if (
                change.direction == "better"
                and change.resolved_by == leading.resolved_by
            ):
                index = member.place.series
                completed[index] = _without_end_of(change, completed[index])
    return completed


def _without_end_of(improvement: TrendChange, series: TrendSeries) -> TrendSeries:
    """The series with the change that ended an improvement settled, unless it left a
    worse level than before.
    """
    changes = list(series.changes)
    for number, change in enumerate(changes):
        is_end = change.first_bad == improvement.resolved_by
        if is_end and change.is_unsettled and _is_back(improvement, change, series):
            changes[number] = msgspec.structs.replace(
                change, standing="resolved", resolved_by=change.first_bad, news=False
            )
    return msgspec.structs.replace(series, changes=changes)


def _is_back(improvement: TrendChange, end: TrendChange, series: TrendSeries) -> bool:
    """Whether the level after the end of an improvement is no worse than before it, up
    to the noise of its versions.
    """
    difference = end.after - improvement.before
    if direction_of(series, difference) != "worse":
        return True
    noise = 0.0 if series.is_exact else series.noise or 0.0
    return abs(difference) <= 2 * noise * abs(improvement.before)


def _members(series: Sequence[TrendSeries]) -> list[_Member]:
    """The changes of all series."""
    members: list[_Member] = []
    for index, entry in enumerate(series):
        for number, change in enumerate(entry.changes):
            members.append(
                _Member(TrendPlace(series=index, change=number), entry, change)
            )
    return members


def _clearness(member: _Member) -> tuple[bool, float]:
    noise = max(member.series.noise or 0.0, 1e-9)
    return not member.series.is_exact, -_size(member.change) / noise


def _versions(change: TrendChange) -> _Versions:
    return _Versions(change.last_good, change.first_bad)


class _Move(NamedTuple):
    """A shift's new place, its loss there, and how much more that is than at its
    present place.
    """

    member: _Member
    at: int
    loss: float
    more_loss: float


class _Alignment:
    """Series of one workload or machine, whose shifts of times are moved together until
    no fewer versions hold all.
    """

    def __init__(self, series: Sequence[TrendSeries]) -> None:
        self._series = list(series)
        self._losses: dict[TrendPlace, Floats] = {}
        for member in _members(series):
            if not member.series.is_exact:
                self._losses[member.place] = losses(member.series, member.change)
        # Of each series the places of its commits, once they are asked for.
        self._places: dict[int, dict[str | None, list[int]]] = {}

    def align(self) -> list[TrendSeries]:
        while moves := self._cheapest_moves():
            for move in moves:
                self._apply(move)
        return self._series

    def join_workloads(self) -> list[TrendSeries]:
        while moves := self._cheapest_join():
            for move in moves:
                self._apply(move)
        return self._series

    def _cheapest_join(self) -> list[_Move]:
        """The moves of all changes at one version to changes of another workload at the
        least loss; empty if none is likely.
        """
        events: dict[Direction, list[_TimesMoved]] = {}
        for versions, members in self._by_versions().items():
            event = _times_moved(versions, members)
            if event is not None:
                events.setdefault(event.direction, []).append(event)
        best: list[_Move] = []
        least = _TWO_COMMITS
        for alike in events.values():
            for event, target in permutations(alike, 2):
                if event.is_counted or event.workloads & target.workloads:
                    continue
                moves = self._all_moved(event.members, target.versions)
                if moves:
                    loss = _loss_of_shapes(moves)
                    if loss < least:
                        best, least = moves, loss
        return best

    def _all_moved(
        self, members: Sequence[_Member], versions: _Versions
    ) -> list[_Move]:
        """The moves of all members to the versions; empty if one has to stay."""
        moves: list[_Move] = []
        for member in members:
            move = self._move(member, versions)
            if move is None:
                return []
            moves.append(move)
        return moves

    def _by_versions(self) -> dict[_Versions, list[_Member]]:
        by_versions: dict[_Versions, list[_Member]] = {}
        for member in _members(self._series):
            by_versions.setdefault(_versions(member.change), []).append(member)
        return by_versions

    def _cheapest_moves(self) -> list[_Move]:
        """The moves that clear one version of changes at the least loss; empty if none
        can be cleared.
        """
        by_versions = self._by_versions()
        best: list[_Move] = []
        least = math.inf
        for members in by_versions.values():
            moves = self._moves_of(members, by_versions)
            loss = sum(move.more_loss for move in moves)
            if moves and loss < least:
                best, least = moves, loss
        return best

    def _moves_of(
        self,
        members: Sequence[_Member],
        by_versions: Mapping[_Versions, Sequence[_Member]],
    ) -> list[_Move]:
        """The moves of all changes at one version; empty if one has to stay.

        Times of one shape follow the clearest.
        """
        targets: dict[tuple[str, str], _Versions] = {}
        moves: list[_Move] = []
        for member in sorted(members, key=_clearness):
            if member.series.is_exact:
                return []
            measured = member.series.shape, member.series.fingerprint
            if measured not in targets:
                target = self._likeliest(member, by_versions)
                if target is None:
                    return []
                targets[measured] = target
            move = self._move(member, targets[measured])
            if move is None:
                return []
            moves.append(move)
        return moves

    def _likeliest(
        self, member: _Member, by_versions: Mapping[_Versions, Sequence[_Member]]
    ) -> _Versions | None:
        """The version with other changes to which a shift moves at the least loss."""
        best: _Versions | None = None
        least = math.inf
        for versions in self._near(member, by_versions):
            move = self._move(member, versions)
            most = _most_loss(member, by_versions[versions])
            if move is not None and move.loss < min(least, most):
                best, least = versions, move.loss
        return best

    def _near(
        self, member: _Member, by_versions: Mapping[_Versions, Sequence[_Member]]
    ) -> list[_Versions]:
        """The versions with changes at which a shift may lie, in their order: a project
        has hundreds of others.
        """
        points = member.series.points
        loss_at = self._losses[member.place][1 : len(points)]
        near: set[_Versions] = set()
        for before in np.flatnonzero(loss_at < _MOST_LOSS).tolist():
            good, bad = points[before], points[before + 1]
            near.add(_Versions(good.commit, bad.commit))
        changed = [versions for versions in near if versions in by_versions]
        if len(changed) > 1:
            changed.sort(key=list(by_versions).index)
        return changed

    def _move(self, member: _Member, versions: _Versions) -> _Move | None:
        """The move of a shift; None if it would not stay between the changes before and
        after it.
        """
        at, now = self._place_of(member, versions), member.change.at
        changes, number = member.series.changes, member.place.change
        if at is None or at == now:
            return None
        if number > 0 and at <= changes[number - 1].at:
            return None
        if number + 1 < len(changes) and at >= changes[number + 1].at:
            return None
        loss_at = self._losses[member.place]
        return _Move(member, at, float(loss_at[at]), float(loss_at[at] - loss_at[now]))

    def _place_of(self, member: _Member, versions: _Versions) -> int | None:
        """The newest place at which a series has these two versions one after the
        other.
        """
        number, points = member.place.series, member.series.points
        if number not in self._places:
            places: dict[str | None, list[int]] = {}
            for at, point in enumerate(points):
                places.setdefault(point.commit, []).append(at)
            self._places[number] = places
        for at in reversed(self._places[number].get(versions.first_bad, [])):
            if at > 0 and points[at - 1].commit == versions.last_good:
                return at
        return None

    def _apply(self, move: _Move) -> None:
        place = move.member.place
        entry = self._series[place.series]
        changes = list(entry.changes)
        changes[place.change] = moved(entry, changes[place.change], move.at)
        self._series[place.series] = msgspec.structs.replace(entry, changes=changes)


class _TimesMoved(NamedTuple):
    """Two versions between which times of some workloads moved in one direction, and
    whether a counter tells that it was there.
    """

    versions: _Versions
    members: Sequence[_Member]
    workloads: frozenset[str]
    direction: Direction
    is_counted: bool


def _times_moved(versions: _Versions, members: Sequence[_Member]) -> _TimesMoved | None:
    """None if no time moved, or times moved in both directions."""
    workloads: set[str] = set()
    directions: set[Direction] = set()
    is_counted = False
    for member in members:
        if member.series.is_exact:
            is_counted = True
        elif not member.series.informing:
            workloads.add(member.series.workload)
            directions.add(member.change.direction)
    if len(directions) != 1:
        return None
    return _TimesMoved(
        versions, members, frozenset(workloads), directions.pop(), is_counted
    )


def _loss_of_shapes(moves: Sequence[_Move]) -> float:
    """The loss of the clearest time of each shape, because its times share their noise."""
    losses_of: dict[tuple[str, str], float] = {}
    for move in sorted(moves, key=lambda move: _clearness(move.member)):
        series = move.member.series
        losses_of.setdefault((series.workload, series.shape), move.more_loss)
    return sum(losses_of.values())


def _most_loss(member: _Member, others: Sequence[_Member]) -> float:
    """The most loss of a shift that moves to other changes; negative if none is of its
    kind.

    A counter may be another commit's.
    """
    most = -math.inf
    for another in others:
        directions = {another.change.direction, member.change.direction}
        if another.series.is_exact:
            # A machine may count what others do not.
            if another.series.fingerprint == member.series.fingerprint:
                most = max(most, _LOCATION_80)
        elif len(directions) == 1 or "changed" in directions:
            # A commit with other counts may move times in any direction, and informing
            # metrics have none.
            most = max(most, _MOST_LOSS)
    return most


def _cause(members: Sequence[_Member]) -> TrendCause:
    # Informing metrics moved with the others; they neither start nor prolong a cause.
    judged = [member for member in members if not member.series.informing] or members
    # The end of an improvement, settled by its own commit, is the other side of a
    # repair.
    judged = [member for member in judged if not member.is_side_of_repair] or judged
    live = _live(judged)
    directions = {member.change.direction for member in live}
    direction = min(directions, key=_DIRECTIONS.index)
    deciding = [
        member.change for member in live if member.change.direction == direction
    ]
    standings = {change.standing for change in deciding}
    standing = min(standings, key=_STANDINGS.index)
    ordered = sorted(
        members, key=lambda member: _relevance(member, direction, standing)
    )
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


def culprit_of(changes: Iterable[TrendChange]) -> str | None:
    """The commit that a bisection found, "" if it found none; None if none of the
    changes was bisected.
    """
    culprits: list[str] = []
    for change in changes:
        if change.confirmation is not None and change.confirmation.culprit is not None:
            culprits.append(change.confirmation.culprit)
    return max(culprits, default=None)


def _live(members: Sequence[_Member]) -> list[_Member]:
    """The members that are not settled, of the places whose clearest change is not; if
    all are settled, the clearest.

    A return that is lost in the noise of one metric is seen in another one of the same
    place.
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


def _relevance(
    member: _Member, direction: Direction, standing: Standing
) -> tuple[object, ...]:
    """Order the changes of a cause by importance: first those that moved as the cause
    did; times first, then by size.
    """
    series, change = member.series, member.change
    return (
        series.informing,
        change.direction != direction,
        not member.is_live,
        not member.is_live and change.standing != standing,
        *_rank(member),
    )


def _rank(member: _Member) -> tuple[object, ...]:
    """Order changes whatever their direction: times first, then by metric and size."""
    series = member.series
    return (
        series.is_exact,
        _ORDER.get(series.metric, len(_ORDER)),
        -_size(member.change),
        series.metric,
        series.workload,
        series.shape,
        sorted(series.labels.items()),
    )


def _size(change: TrendChange) -> float:
    # A change from zero counts like a doubling.
    return 1.0 if change.delta is None else abs(change.delta)
