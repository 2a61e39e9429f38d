"""open.html: open regressions, acceptances, measurements side by side, and settled
regressions.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup
from msgspec.structs import replace

from perfgate.document.history import Confirmation, GateRecord, Triage, moment
from perfgate.document.trend import TrendCause, TrendDocument, TrendSeries
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.cells import CauseCard, cause_card, moved_cells
from perfgate.judging.report.render.site.page import TRIAGE, SitePage, commit_anchor
from perfgate.judging.report.render.trend_page import ChangeCells
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.trend_rows import (
    TRIAGE_STATES,
    CauseRow,
    MovedSeries,
    cause_row,
    mark_of,
    moved_by,
    shown_triage,
)

_MAX_CAUSES, _MAX_ROWS = 60, 500
# Versions before a change that is older than the chart's room.
_VERSIONS_BEFORE = 40
_OUTCOMES = phrases(
    {
        "regressed": "confirmed: worse",
        "improved": "confirmed: better",
        "unchanged": "no change",
        "inconclusive": "undecided",
        "not_comparable": "not comparable",
    }
)


class AboutCommit(NamedTuple):
    """The full commit of a state, empty if it has none, and its place on the page,
    empty after the first entry.
    """

    commit: str
    anchor: Words


class ConfirmedRow(NamedTuple):
    """The result of measuring two commits of main side by side."""

    entry: Confirmation
    outcome: Words
    interval: Words
    address: Words


class _Anchors:
    """The places of commits on the page: each is at the first entry about it, as a gate
    may have failed on a regression.
    """

    def __init__(self) -> None:
        self._anchors: set[str] = set()

    def about(self, commit: str | None) -> AboutCommit:
        if not commit or not COMMIT_ID.fullmatch(commit):
            return AboutCommit("", EMPTY)
        anchor = commit_anchor(commit)
        if anchor in self._anchors:
            return AboutCommit(commit, EMPTY)
        self._anchors.add(anchor)
        return AboutCommit(commit, anchor)


def render_open(page: SitePage) -> str:
    """The page of all regressions by their standing."""
    anchors = _Anchors()
    trend = page.content.trend
    causes = trend.open_regressions
    # In this order on the page.
    pictures = [_picture(cause, page, anchors) for cause in causes[:_MAX_CAUSES]]
    today = moment(trend.made_at).date()
    return page.render(
        "open",
        say("Open"),
        mark=mark_of(trend, is_bad=bool(causes)),
        count=len(causes),
        pictures=pictures,
        more=numbers.beyond(causes, _MAX_CAUSES),
        triage_address=TRIAGE,
        triage_states=TRIAGE_STATES,
        returned=_returned(trend, anchors),
        failed_gates=_failed_gates(trend, anchors),
        accepted=[
            (entry, not entry.counts_on(today))
            for entry in page.content.acceptances[:_MAX_ROWS]
        ],
        confirmed=_confirmed(page),
        settled=_settled(page),
    )


def _picture(
    cause: TrendCause, page: SitePage, anchors: _Anchors
) -> tuple[AboutCommit, CauseCard, Markup]:
    """An open regression with the history of its leading change."""
    lead = moved_by(cause, page.content.trend)[0]
    chart = trend_svg.series_plot([_around(lead)], cause.first_bad or "")
    return anchors.about(cause.first_bad), cause_card(cause, page), chart


def _around(moved: MovedSeries) -> TrendSeries:
    """The newest versions that the chart has room for, or the versions around an older
    change.
    """
    points = moved.series.points
    begin = max(
        0, min(len(points) - trend_svg.MAX_POINTS, moved.change.at - _VERSIONS_BEFORE)
    )
    end = begin + trend_svg.MAX_POINTS
    changes = []
    for change in moved.series.changes:
        if begin < change.at < end:
            changes.append(replace(change, at=change.at - begin))
    return replace(moved.series, points=points[begin:end], changes=changes)


def _returned(
    trend: TrendDocument, anchors: _Anchors
) -> list[tuple[AboutCommit, CauseRow]]:
    """The regressions that are back at the old level and may be marked as fixed."""
    rows: list[tuple[AboutCommit, CauseRow]] = []
    for cause in trend.causes:
        if cause.suggests == "fixed" and len(rows) < _MAX_CAUSES:
            rows.append(
                (anchors.about(cause.first_bad), cause_row(cause, trend, most=0))
            )
    return rows


def _failed_gates(
    trend: TrendDocument, anchors: _Anchors
) -> list[tuple[AboutCommit, GateRecord, Triage | None]]:
    """The commits that the gate failed, and that were neither withdrawn nor accepted."""
    if trend.gates is None:
        return []
    states = {triage.commit: triage for triage in trend.gates.triages}
    rows = []
    for gate in trend.gates.standing[:_MAX_CAUSES]:
        rows.append(
            (anchors.about(gate.commit), gate, shown_triage(states.get(gate.commit)))
        )
    return rows


def _confirmed(page: SitePage) -> list[ConfirmedRow]:
    by_place = {}
    for series in page.content.trend.series:
        place = (series.workload, series.shape, series.metric, series.fingerprint)
        if not series.labels:
            by_place[place] = series
    rows = []
    for entry in page.content.confirmations[:_MAX_ROWS]:
        place = (entry.workload, entry.shape, entry.metric, entry.fingerprint)
        measured = by_place.get(place)
        outcome = Words(entry.outcome)
        if entry.outcome in _OUTCOMES:
            outcome = say(_OUTCOMES[entry.outcome])
        interval = numbers.DASH
        address = EMPTY
        if entry.low is not None and entry.high is not None:
            measure = measured or formats.Measure("", entry.metric)
            interval = formats.bounds((entry.low, entry.high), measure)
        if measured:
            address = page.to_series(measured)
        rows.append(ConfirmedRow(entry, outcome, interval, address))
    return rows


def _settled(page: SitePage) -> list[ChangeCells]:
    rows = []
    for cause in page.content.trend.causes:
        if cause.standing in ("accepted", "resolved", "refuted", "superseded"):
            rows += [
                moved_cells(moved, page)
                for moved in moved_by(cause, page.content.trend)
            ]
    return rows[:_MAX_ROWS]
