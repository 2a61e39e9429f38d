"""How certain a change is, and its standing: measured side by side or not, accepted,
resolved, reported before or new.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

import msgspec

from perfgate.document.budget import parse_place
from perfgate.document.history import Acceptance, Confirmation, moment
from perfgate.document.trend import (
    MOST_KNOWN,
    Direction,
    Evidence,
    KnownChange,
    Standing,
    TrendChange,
    TrendSeries,
    TrendState,
)
from perfgate.judging.trend.carried import Continuation
from perfgate.judging.trend.near import NEAR, index_of
from perfgate.judging.trend.returns import undone_by
from perfgate.judging.trend.triage import TriagedChanges

# Older improvements that were never reported are part of the past; a regression that
# persists is reported at any age.
RECENT_DAYS = 28
_OUTCOMES = {"worse": "regressed", "better": "improved"}


def judged(
    series: TrendSeries,
    *,
    confirmations: Sequence[Confirmation],
    accepted: Sequence[Acceptance],
    triaged: TriagedChanges,
    before: TrendState | None,
    newest: str,
    continuation: Continuation | None = None,
) -> TrendSeries:
    """A series with the evidence and the standing of its changes, by measurements,
    statements of people and the last report.

    ``accepted`` are the acceptances that count, ``newest`` is the start of the newest
    run, and ``continuation`` the changes on the testbed that replaced this one.
    """
    changes = [
        _with_evidence(change, series, confirmations) for change in series.changes
    ]
    valid = [
        number for number, change in enumerate(changes) if change.evidence != "refuted"
    ]
    history = [changes[number] for number in valid]
    if continuation is not None:
        history += continuation.changes
    undone = undone_by(history, is_exact=series.is_exact)
    back_at = {
        valid[index]: change for index, change in undone.items() if index < len(valid)
    }
    for number, change in enumerate(changes):
        standing = _standing(change, back_at.get(number), series, accepted, triaged)
        if continuation is not None:
            standing = msgspec.structs.replace(standing, carried=continuation.carried)
        changes[number] = _with_news(standing, series, before, newest)
    return msgspec.structs.replace(series, changes=changes)


def state_of(series: Sequence[TrendSeries], newest: str) -> TrendState:
    """The state that the next report needs from this one; if there is more than fits,
    informing metrics are dropped first.
    """
    rank = ("open", "new", "accepted", "refuted", "superseded", "resolved")
    ranked: list[
        tuple[bool, int, float, tuple[str, str, Direction, Standing, str]]
    ] = []
    for entry in series:
        for change in entry.changes:
            if change.first_bad and (entry.current or change.carried):
                size, order = -abs(change.delta or 1.0), rank.index(change.standing)
                row = (
                    entry.key,
                    change.first_bad[:12],
                    change.direction,
                    change.standing,
                    name_of(entry),
                )
                ranked.append((change.direction == "changed", order, size, row))
    changes = [KnownChange(*row) for *_, row in sorted(ranked)[:MOST_KNOWN]]
    return TrendState(newest=newest, known=changes)


def gone(before: TrendState | None, series: Sequence[TrendSeries]) -> list[str]:
    """The names of regressions that were open and that this report no longer finds, in
    series that it examined.
    """
    if before is None:
        return []
    by_key = {entry.key: entry for entry in series if entry.current}
    names: list[str] = []
    for earlier in before.known:
        entry = by_key.get(earlier.series)
        is_open = earlier.standing in ("new", "open") and earlier.direction == "worse"
        if is_open and entry is not None:
            same = [
                change for change in entry.changes if _is_same(earlier, change, entry)
            ]
            if not same:
                names.append(earlier.name)
    return sorted(names)


def is_recent(when: str, newest: str) -> bool:
    """Whether a run or change lies within the last weeks before the newest run."""
    return moment(newest) - moment(when) <= timedelta(days=RECENT_DAYS)


def name_of(series: TrendSeries) -> str:
    return f"{series.metric} · {series.place_words}"[:80]


def _is_same(earlier: KnownChange, change: TrendChange, series: TrendSeries) -> bool:
    if (earlier.series, earlier.direction) != (series.key, change.direction):
        return False
    at = index_of(series, earlier.commit)
    return at is not None and abs(at - change.at) <= NEAR


def _with_evidence(
    change: TrendChange, series: TrendSeries, confirmations: Sequence[Confirmation]
) -> TrendChange:
    fitting = [
        confirmation
        for confirmation in confirmations
        if is_about(confirmation, change, series)
    ]
    if not fitting:
        return change
    newest = max(fitting, key=lambda confirmation: confirmation.confirmed_at)
    if change.evidence == "exact":
        return msgspec.structs.replace(change, confirmation=newest)
    return msgspec.structs.replace(
        change, evidence=_evidence(newest, change), confirmation=newest
    )


def is_about(
    confirmation: Confirmation, change: TrendChange, series: TrendSeries
) -> bool:
    place = (
        confirmation.workload,
        confirmation.shape,
        confirmation.metric,
        confirmation.fingerprint,
    )
    if (
        place != (series.workload, series.shape, series.metric, series.fingerprint)
        or series.labels
    ):
        return False
    before = index_of(series, confirmation.before)
    after = index_of(series, confirmation.after)
    if before is None or after is None or not before < after:
        return False
    if series.is_exact:
        return before < change.at <= after
    if change not in _nearest(series.changes, before, after):
        return False
    return abs(before - (change.at - 1)) <= NEAR and abs(after - change.at) <= NEAR


def _nearest(
    changes: Sequence[TrendChange], before: int, after: int
) -> list[TrendChange]:
    """The changes that are nearest to two points: a measurement of both is about no
    other one.
    """

    def distance(change: TrendChange) -> int:
        return abs(before - (change.at - 1)) + abs(after - change.at)

    least = min(map(distance, changes), default=0)
    return [change for change in changes if distance(change) == least]


def _evidence(confirmation: Confirmation, change: TrendChange) -> Evidence:
    if confirmation.outcome == _OUTCOMES.get(change.direction):
        return "confirmed"
    if confirmation.outcome == "not_comparable" or change.delta is None:
        return "suspected"
    low, high = confirmation.low, confirmation.high
    if low is None or high is None:
        is_refuted = confirmation.outcome == "unchanged"
    elif (change.delta > 0 and low > 0) or (change.delta <= 0 and high < 0):
        return "confirmed"
    else:
        # A change below the gate's tolerance may still be as large as the suspected
        # one.
        is_refuted = not low <= change.delta <= high
    return "refuted" if is_refuted else "suspected"


def _standing(
    change: TrendChange,
    back: TrendChange | None,
    series: TrendSeries,
    accepted: Sequence[Acceptance],
    triaged: TriagedChanges,
) -> TrendChange:
    if change.evidence == "refuted":
        return msgspec.structs.replace(change, standing="refuted")
    if back is not None:
        return msgspec.structs.replace(
            change, standing="resolved", resolved_by=back.first_bad
        )
    for acceptance in accepted:
        if _accepts(acceptance, change, series):
            reason = f"{acceptance.accepted_by}: {acceptance.reason}"
            until = acceptance.until
            return msgspec.structs.replace(
                change, standing="accepted", accepted=reason, accepted_until=until
            )
    state = triaged.of(change, series)
    if state is not None and state.state == "expected":
        return msgspec.structs.replace(
            change, standing="accepted", accepted=f"{state.author}: {state.reason}"
        )
    return change


def _accepts(acceptance: Acceptance, change: TrendChange, series: TrendSeries) -> bool:
    if change.direction != "worse":
        return False
    place = parse_place(acceptance.metric)
    if not (
        fnmatchcase(series.metric, place.metric)
        and place.covers(series.workload, series.shape)
    ):
        return False
    return acceptance.commit in {
        change.first_bad,
        *(commit.commit for commit in change.commits),
    }


def _with_news(
    change: TrendChange, series: TrendSeries, before: TrendState | None, newest: str
) -> TrendChange:
    reported: Standing | None = None
    if before is not None:
        same = [
            earlier.standing
            for earlier in before.known
            if _is_same(earlier, change, series)
        ]
        reported = same[0] if same else None
    if change.standing != "new":
        return msgspec.structs.replace(change, news=reported in ("new", "open"))
    is_worse = change.direction == "worse"
    if reported is None and (is_worse or is_recent(change.first_seen, newest)):
        return msgspec.structs.replace(change, standing="new", news=True)
    # An acceptance may have expired since.
    return msgspec.structs.replace(
        change, standing="open", news=is_worse and reported == "accepted"
    )
