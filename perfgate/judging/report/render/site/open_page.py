"""open.html: regressions that are open, those that were accepted, what was measured side by side, and what is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, moment
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import OPEN, TRIAGE, SiteLinks, commit_anchor
from perfgate.judging.report.render.site.cells import CauseCard, cause_card, moved_cells, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.render.trend_page import ChangeCells, noise_words
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import (
    TRIAGE_STATES,
    CauseRow,
    TriageView,
    cause_row,
    mark_of,
    moved_by,
    triage_view,
)
from perfgate.locale import Language, speaking

_MAX_CAUSES, _MAX_ROWS = 60, 500
_OUTCOMES = {
    "regressed": phrase("confirmed: worse"),
    "improved": phrase("confirmed: better"),
    "unchanged": phrase("no change"),
    "inconclusive": phrase("undecided"),
    "not_comparable": phrase("not comparable"),
}


@dataclass(frozen=True)
class AboutCommit:
    """The full commit that a state is about, empty if it is none, and its place on the page, empty after the first entry."""

    commit: str
    anchor: Words


@dataclass(frozen=True)
class OpenPicture:
    """An open regression with the history of its leading change."""

    about: AboutCommit
    card: CauseCard
    chart: Markup
    noise: Words


@dataclass(frozen=True)
class ReturnedCause:
    """A regression that is back at the old level and may be marked as fixed."""

    about: AboutCommit
    row: CauseRow


@dataclass(frozen=True)
class FailedGate:
    """A commit that the gate failed, and that was neither withdrawn nor accepted."""

    about: AboutCommit
    gate: GateRecord
    change: Words
    triage: TriageView | None
    suggests: Words | None = None


@dataclass(frozen=True)
class AcceptedRow:
    """An acceptance, and whether it has expired."""

    entry: Acceptance
    expired: bool


@dataclass(frozen=True)
class ConfirmedRow:
    """The result of measuring two commits of main side by side."""

    entry: Confirmation
    metric: str
    outcome: Words
    interval: Words
    address: Words


@dataclass(frozen=True)
class TriageFields:
    """The form that gives a regression a state."""

    action: Words
    form_key: Words
    states: Sequence[tuple[Words, Words]]


@dataclass(frozen=True)
class OpenPage(TemplateView):
    """What is open, accepted, measured side by side, and settled."""

    mark: Words
    count: int
    pictures: Sequence[OpenPicture]
    more: int
    triage: TriageFields | None
    returned: Sequence[ReturnedCause]
    failed_gates: Sequence[FailedGate]
    accepted: Sequence[AcceptedRow]
    confirmed: Sequence[ConfirmedRow]
    settled: Sequence[ChangeCells]


class _Anchors:
    """The places of commits on the page: each is at the first entry about it, as a failed gate may be of a regression's."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def about(self, commit: str | None) -> AboutCommit:
        known = commit if commit and COMMIT_ID.fullmatch(commit) else ""
        anchor = commit_anchor(known) if known else Words("")
        if anchor in self._taken:
            anchor = Words("")
        self._taken.add(anchor)
        return AboutCommit(known, anchor)


def render_open(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root, anchors = links.root(OPEN), _Anchors()
        causes = content.trend.open_regressions
        # In this order on the page.
        pictures = [_picture(cause, content, links, anchors) for cause in causes[:_MAX_CAUSES]]
        returned = _returned(content, anchors)
        failed_gates = _failed_gates(content, anchors)
        today = moment(content.trend.made_at).date()
        page = OpenPage(
            mark=mark_of(content.trend, is_bad=bool(causes)),
            count=len(causes),
            pictures=pictures,
            more=numbers.beyond(causes, _MAX_CAUSES),
            triage=_triage_form(links) if links.triage else None,
            returned=returned,
            failed_gates=failed_gates,
            accepted=[_accepted(entry, today) for entry in content.acceptances[:_MAX_ROWS]],
            confirmed=_confirmed(content, links, root),
            settled=_settled(content, links, root),
        )
        return render_page("site/open.html.j2", say("Open"), OPEN, content, links, page)


def _picture(cause: TrendCause, content: SiteContent, links: SiteLinks, anchors: _Anchors) -> OpenPicture:
    lead, *_ = moved_by(cause, content.trend)
    return OpenPicture(
        about=anchors.about(cause.first_bad),
        card=cause_card(cause, content, links, links.root(OPEN)),
        chart=trend_svg.series_plot([lead.series], cause.first_bad or ""),
        noise=noise_words(lead.series),
    )


def _returned(content: SiteContent, anchors: _Anchors) -> list[ReturnedCause]:
    returned = [cause for cause in content.trend.causes if cause.suggests == "fixed"]
    rows = [
        ReturnedCause(anchors.about(cause.first_bad), cause_row(cause, content.trend, most=0)) for cause in returned
    ]
    return rows[:_MAX_CAUSES]


def _failed_gates(content: SiteContent, anchors: _Anchors) -> list[FailedGate]:
    gates = content.trend.gates
    if gates is None:
        return []
    states = {triage.commit: triage for triage in gates.triages}
    failed = []
    for gate in gates.standing[:_MAX_CAUSES]:
        triage = triage_view(states.get(gate.commit))
        failed.append(FailedGate(anchors.about(gate.commit), gate, Words(gate.change or ""), triage))
    return failed


def _triage_form(links: SiteLinks) -> TriageFields:
    states = [(Words(state), say(words)) for state, words in TRIAGE_STATES.items()]
    return TriageFields(Words(TRIAGE), Words(links.form_key), states)


def _accepted(entry: Acceptance, today: date) -> AcceptedRow:
    return AcceptedRow(entry, expired=not entry.counts_on(today))


def _confirmed(content: SiteContent, links: SiteLinks, root: Words) -> list[ConfirmedRow]:
    by_place: dict[tuple[str, ...], TrendSeries] = {}
    for series in content.trend.series:
        if not series.labels:
            by_place[series.workload, series.shape, series.metric, series.fingerprint] = series
    rows = []
    for entry in content.confirmations[:_MAX_ROWS]:
        measured = by_place.get((entry.workload, entry.shape, entry.metric, entry.fingerprint))
        outcome = say(_OUTCOMES[entry.outcome]) if entry.outcome in _OUTCOMES else Words(entry.outcome)
        address = under(root, links.series(measured)) if measured else Words("")
        interval = _interval(entry, measured.unit if measured else "")
        rows.append(ConfirmedRow(entry, metric_name(entry.metric), outcome, interval, address))
    return rows


def _interval(entry: Confirmation, unit: str) -> Words:
    if entry.low is None or entry.high is None:
        return numbers.DASH
    return formats.bounds((entry.low, entry.high), unit, metric=entry.metric)


def _settled(content: SiteContent, links: SiteLinks, root: Words) -> list[ChangeCells]:
    rows: list[ChangeCells] = []
    for cause in content.trend.causes:
        if cause.standing in ("accepted", "resolved", "refuted"):
            rows += [moved_cells(moved, links, root) for moved in moved_by(cause, content.trend)]
    return rows[:_MAX_ROWS]
