"""The states that people gave main's regressions: which change each of them is about, and what the histories say to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

import msgspec

from perfgate.document.history import Acceptance, Triage, moment
from perfgate.document.trend import TrendCause, TrendChange, TrendSeries
from perfgate.judging.trend.near import NEAR, index_of

# An acceptance that ended is reported for as long, and longer while its regression is open.
RECENT = timedelta(weeks=4)


class TriagedChanges:
    """The states of changes. A state is about the changes that name its commit as the first bad one or a candidate.

    Further runs may move a change by a version or two; a state of a commit that no change names any more stays with the nearest
    change of a series.
    """

    def __init__(self, triages: Iterable[Triage], series: Iterable[TrendSeries]) -> None:
        self._newest_first = sorted(triages, key=lambda triage: moment(triage.changed_at), reverse=True)
        self._named = {commit for entry in series for change in entry.changes for commit in _commits(change)}

    def of(self, change: TrendChange, series: TrendSeries) -> Triage | None:
        """The newest state of a regression."""
        if change.direction != "worse":
            return None
        return next((triage for triage in self._newest_first if self._is_about(triage, change, series)), None)

    def _is_about(self, triage: Triage, change: TrendChange, series: TrendSeries) -> bool:
        if triage.commit in self._named:
            return triage.commit in _commits(change)
        at = index_of(series, triage.commit)
        if at is None or abs(at - change.at) > NEAR:
            return False
        return change is min(series.changes, key=lambda other: abs(other.at - at))


def with_triage(cause: TrendCause, series: Sequence[TrendSeries], triaged: TriagedChanges) -> TrendCause:
    """A cause with the newest state of its changes, and the state that the histories suggest instead."""
    entries = [series[place.series] for place in cause.changes]
    changes = [entry.changes[place.change] for entry, place in zip(entries, cause.changes)]
    found = [given for change, entry in zip(changes, entries) if (given := triaged.of(change, entry)) is not None]
    triage = max(found, key=lambda given: moment(given.changed_at), default=None)
    state = triage.state if triage else "new"
    cause = msgspec.structs.replace(cause, triage=triage)
    if cause.standing == "resolved" and (state == "acknowledged" or (state == "new" and cause.news)):
        return msgspec.structs.replace(cause, suggests="fixed")
    if triage and state == "fixed" and cause.standing in ("new", "open"):
        is_measured_since = moment(entries[0].points[-1].started_at) > moment(triage.changed_at)
        return msgspec.structs.replace(cause, suggests="new") if is_measured_since else cause
    return cause


def meant(acceptances: Iterable[Acceptance], triages: Iterable[Triage], today: date) -> list[Acceptance]:
    """The acceptances that count today, and one for each regression of main that is expected."""
    return [
        *(acceptance for acceptance in acceptances if acceptance.counts_on(today)),
        *(
            Acceptance(
                commit=triage.commit,
                metric="*",
                reason=triage.reason,
                accepted_by=triage.author,
                accepted_at=triage.changed_at,
            )
            for triage in triages
            if triage.state == "expected"
        ),
    ]


def expired(acceptances: Iterable[Acceptance], causes: Iterable[TrendCause], today: date) -> list[Acceptance]:
    """The acceptances that ended in the last weeks, and those that ended while their regression is open."""
    is_open = {
        commit
        for cause in causes
        if cause.standing in ("new", "open")
        for commit in (cause.first_bad, *(label.commit for label in cause.commits))
    }
    recent = (today - RECENT).isoformat()
    return [
        acceptance
        for acceptance in acceptances
        if not acceptance.counts_on(today) and (str(acceptance.until) >= recent or acceptance.commit in is_open)
    ]


def _commits(change: TrendChange) -> set[str | None]:
    return {change.first_bad, *(label.commit for label in change.commits)}
