"""The states that people gave main's regressions: the changes that each covers, and the
states that the histories suggest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

import msgspec

from perfgate.document.history import Acceptance, Triage, TriageState, moment
from perfgate.document.trend import TrendCause, TrendChange, TrendSeries
from perfgate.judging.trend.near import NEAR, index_of

# An acceptance that ended is reported for as long, and longer while its regression is
# open.
RECENT = timedelta(weeks=4)


class TriagedChanges:
    """The states of changes.

    A state is about the changes that name its commit as the first bad one or a
    candidate.

    Further runs may move a change by a version or two; a state of a commit that no
    change names any more stays with the nearest change of a series.
    """

    def __init__(
        self, triages: Iterable[Triage], series: Iterable[TrendSeries]
    ) -> None:
        self._newest_first = sorted(
            triages, key=lambda triage: moment(triage.changed_at), reverse=True
        )
        self._named: set[str | None] = set()
        for entry in series:
            self._named.update(*map(_commits, entry.changes))

    def of(self, change: TrendChange, series: TrendSeries) -> Triage | None:
        """The newest state of a regression."""
        if change.direction == "worse":
            for triage in self._newest_first:
                if self._is_about(triage, change, series):
                    return triage
        return None

    def _is_about(
        self, triage: Triage, change: TrendChange, series: TrendSeries
    ) -> bool:
        if triage.commit in self._named:
            return triage.commit in _commits(change)
        at = index_of(series, triage.commit)
        if at is None or abs(at - change.at) > NEAR:
            return False
        nearest = min(series.changes, key=lambda entry: abs(entry.at - at))
        return change.at == nearest.at


def with_triage(
    cause: TrendCause, series: Sequence[TrendSeries], triaged: TriagedChanges
) -> TrendCause:
    """A cause with the newest state of its changes, and the state that the histories
    suggest instead.
    """
    triages: list[Triage] = []
    for place in cause.changes:
        entry = series[place.series]
        state_of_change = triaged.of(entry.changes[place.change], entry)
        if state_of_change is not None:
            triages.append(state_of_change)
    is_resolved = cause.standing == "resolved"
    if not triages:
        return msgspec.structs.replace(
            cause, suggests="fixed" if is_resolved and cause.news else None
        )
    triage = max(triages, key=lambda triage: moment(triage.changed_at))
    suggests: TriageState | None = None
    if is_resolved and (
        triage.state == "acknowledged" or (triage.state == "new" and cause.news)
    ):
        suggests = "fixed"
    elif triage.state == "fixed" and cause.is_unsettled:
        newest = series[cause.changes[0].series].points[-1]
        if moment(newest.started_at) > moment(triage.changed_at):
            suggests = "new"
    return msgspec.structs.replace(cause, triage=triage, suggests=suggests)


def meant(
    acceptances: Iterable[Acceptance], triages: Iterable[Triage], today: date
) -> list[Acceptance]:
    """The acceptances that count today, and one for each regression of main that is
    expected.
    """
    counting = [acceptance for acceptance in acceptances if acceptance.counts_on(today)]
    for triage in triages:
        if triage.state == "expected":
            counting.append(
                Acceptance(
                    commit=triage.commit,
                    metric="*",
                    reason=triage.reason,
                    accepted_by=triage.author,
                    accepted_at=triage.changed_at,
                )
            )
    return counting


def expired(
    acceptances: Iterable[Acceptance], causes: Iterable[TrendCause], today: date
) -> list[Acceptance]:
    """The acceptances that ended in the last weeks, and acceptances that ended while
    their regression is open.
    """
    open_commits: set[str | None] = set()
    for cause in causes:
        if cause.is_unsettled:
            open_commits |= _commits(cause)
    recent = (today - RECENT).isoformat()
    ended = [
        acceptance for acceptance in acceptances if not acceptance.counts_on(today)
    ]
    return [
        entry
        for entry in ended
        if str(entry.until) >= recent or entry.commit in open_commits
    ]


def _commits(change: TrendChange | TrendCause) -> set[str | None]:
    return {change.first_bad, *(label.commit for label in change.commits)}
