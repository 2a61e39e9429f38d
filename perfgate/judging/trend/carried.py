"""Follow the changes of a testbed that was replaced on the testbed that replaced it.

Times of two testbeds do not compare, but relative changes do: a regression of the old
testbed is repaired if the new one gets faster by as much. Between the last version of
the old testbed and the first of the new one a change shows only in exact counts, which
compare without a bridge, and in a commit that was measured on both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfgate.document.trend import (
    Carried,
    TrendChange,
    TrendPoint,
    TrendSeries,
    Uplift,
)
from perfgate.judging.trend.find import direction_of, is_long_enough

# A bridge shows a change that is larger than this many standard errors.
_CERTAIN = 4.0
_Place = tuple[str, str, str, tuple[tuple[str, str], ...], str]


class Continuation(NamedTuple):
    """Where a series goes on, and the changes there, oldest first."""

    carried: Carried
    changes: list[TrendChange]


def replaced_testbeds(uplifts: Sequence[Uplift]) -> dict[str, Uplift]:
    """The replacement of each testbed, by its fingerprint; of several the first."""
    replacements: dict[str, Uplift] = {}
    for uplift in sorted(uplifts, key=lambda uplift: uplift.since):
        replacements.setdefault(uplift.before, uplift)
    return replacements


def continuations(
    series: Sequence[TrendSeries], replacements: Mapping[str, Uplift]
) -> dict[int, Continuation]:
    """The continuation of each series whose testbed was replaced, by its index."""
    index_of = {
        _place(entry, entry.fingerprint): index for index, entry in enumerate(series)
    }

    def follow(index: int) -> Continuation | None:
        entry = series[index]
        uplift = replacements.get(entry.fingerprint)
        if uplift is None:
            return None
        next_index = index_of.get(_place(entry, uplift.after))
        if next_index is None or not entry.points:
            return None
        following = series[next_index]
        bridge = _bridge_commit(entry, following)
        changes = [*_boundary(entry, following, bridge), *following.changes]
        later = follow(next_index)
        if later is not None:
            changes += later.changes
        commit = None if entry.is_exact else bridge
        return Continuation(
            Carried(
                fingerprint=following.fingerprint, since=uplift.since, commit=commit
            ),
            changes,
        )

    followed: dict[int, Continuation] = {}
    for index in range(len(series)):
        continuation = follow(index)
        if continuation is not None:
            followed[index] = continuation
    return followed


def _bridge_commit(old: TrendSeries, new: TrendSeries) -> str | None:
    """The newest commit that was measured on both testbeds."""
    commits = {point.commit for point in old.points}
    for point in reversed(new.points):
        if point.commit and point.commit in commits:
            return point.commit
    return None


def _boundary(
    old: TrendSeries, new: TrendSeries, bridge: str | None
) -> list[TrendChange]:
    """The change between the last version of the old testbed and the first of the new
    one, if one is certain.
    """
    last, first = old.points[-1], new.points[0]
    if old.is_exact:
        return (
            [_change(new, last, first, last.value, first.value)]
            if first.value != last.value
            else []
        )
    if bridge is None or first.commit != bridge or old.points[-1].commit != bridge:
        return []
    # The bridge is the old testbed's last version; what follows on the new one is
    # measured against it.
    end = new.changes[0].at if new.changes else len(new.points)
    level = [point.value for point in new.points[1:end]]
    # Both values are of the new testbed. Its noise counts alone once it has enough
    # versions to tell it.
    noise = new.noise or 0.0
    if not is_long_enough(new):
        noise = max(noise, old.noise or 0.0)
    if len(level) < 2 or not noise or first.value <= 0 or min(level) <= 0:
        return []
    middle = statistics.median(level)
    effect = math.log(middle / first.value)
    if abs(effect) < _CERTAIN * noise * math.sqrt(1 / first.runs + 1 / len(level)):
        return []
    return [_change(new, first, new.points[1], first.value, middle)]


def _change(
    series: TrendSeries, good: TrendPoint, bad: TrendPoint, before: float, after: float
) -> TrendChange:
    return TrendChange(
        at=0,
        direction=direction_of(series, after - before),
        before=before,
        after=after,
        delta=after / before - 1 if before else None,
        interval=None,
        last_good=good.commit,
        first_bad=bad.commit,
        first_seen=bad.started_at,
        evidence="exact" if series.is_exact else "suspected",
    )


def _place(series: TrendSeries, fingerprint: str) -> _Place:
    return (
        series.workload,
        series.shape,
        series.metric,
        tuple(sorted(series.labels.items())),
        fingerprint,
    )
