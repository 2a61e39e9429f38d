"""open.html: regressions that are open, those that were accepted, what was measured side by side, and what is settled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from perfgate.document.history import Acceptance, Confirmation, moment
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendCause, TrendSeries, place_of
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import OPEN, TRIAGE, SiteLinks, commit_anchor
from perfgate.judging.report.render.site.cells import cause_card, moved_cells, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import TRIAGE_STATES, cause_row, day, moved_by, short, triage_view
from perfgate.locale import Language, speaking

_MAX_CAUSES, _MAX_ROWS = 60, 500
_OUTCOMES = {
    "regressed": phrase("confirmed: worse"),
    "improved": phrase("confirmed: better"),
    "unchanged": phrase("no change"),
    "inconclusive": phrase("undecided"),
    "not_comparable": phrase("not comparable"),
}


def render_open(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root = links.root(OPEN)
        causes = content.trend.open_regressions
        today = moment(content.trend.made_at).date()
        gates = content.trend.gates
        settled = [cause for cause in content.trend.causes if cause.standing in ("accepted", "resolved", "refuted")]
        by_place = {(s.workload, s.shape, s.metric, s.fingerprint): s for s in content.trend.series if not s.labels}
        pictures = [_picture(cause, content, links, root) for cause in causes[:_MAX_CAUSES]]
        # Regressions that are back at the old level and may be marked as fixed.
        returned = [
            {
                **_about_commit(cause.first_bad),
                "row": cause_row(cause, content.trend, most=0),
                "suggested": Words("fixed"),
            }
            for cause in content.trend.causes
            if cause.suggests == "fixed"
        ]
        states = {triage.commit: triage for triage in (gates.triages if gates else [])}
        failed_gates = [
            {
                **_about_commit(gate.commit),
                "when": day(gate.judged_at),
                "short": short(gate.commit),
                "change": Words(gate.change or ""),
                "row": {"triage": triage_view(states.get(gate.commit)), "suggests": None},
            }
            for gate in (gates.standing if gates else [])[:_MAX_CAUSES]
        ]
        # The place of each commit is the first entry about it: a failed gate may be of the commit of a regression.
        anchors: set[object] = set()
        for entry in (*pictures, *returned, *failed_gates):
            if entry["anchor"] in anchors:
                entry["anchor"] = Words("")
            anchors.add(entry["anchor"])
        values = {
            "title": say("Open"),
            "mark": Words("FAIL" if causes else "PASS" if content.trend.looked_at else "SKIPPED"),
            "count": len(causes),
            "pictures": pictures,
            "more": max(0, len(causes) - _MAX_CAUSES),
            # The values of the form that gives a regression a state.
            "triage": {
                "action": Words(TRIAGE),
                "form_key": Words(links.form_key),
                "states": [(Words(state), say(words)) for state, words in TRIAGE_STATES.items()],
            }
            if links.triage
            else None,
            "returned": returned[:_MAX_CAUSES],
            "failed_gates": failed_gates,
            "accepted": [_acceptance(entry, today) for entry in content.acceptances[:_MAX_ROWS]],
            "confirmed": [
                _confirmation(
                    entry, by_place.get((entry.workload, entry.shape, entry.metric, entry.fingerprint)), links, root
                )
                for entry in content.confirmations[:_MAX_ROWS]
            ],
            "settled": [
                moved_cells(moved, links, root) for cause in settled for moved in moved_by(cause, content.trend)
            ][:_MAX_ROWS],
        }
        return render_page("site/open.html.j2", OPEN, content, links, values)


def _picture(cause: TrendCause, content: SiteContent, links: SiteLinks, root: Words) -> dict[str, object]:
    lead, *_ = moved_by(cause, content.trend)
    return {
        **cause_card(cause, content, links, root),
        **_about_commit(cause.first_bad),
        "suggested": Words("acknowledged"),
        "chart": trend_svg.series_plot([lead.series], cause.first_bad or ""),
        "noise": numbers.plus_minus(lead.series.noise) if lead.series.noise is not None else Words(""),
    }


def _about_commit(commit: str | None) -> Mapping[str, object]:
    """The full commit that a state is about, empty if it is none, and its place on the page."""
    known = commit if commit and COMMIT_ID.fullmatch(commit) else ""
    return {"commit": known, "anchor": commit_anchor(known) if known else Words("")}


def _acceptance(entry: Acceptance, today: date) -> Mapping[str, object]:
    return {
        "when": day(entry.accepted_at),
        "commit": short(entry.commit),
        "metric": entry.metric,
        "reason": entry.reason,
        "by": entry.accepted_by,
        "until": day(entry.until) if entry.until else numbers.DASH,
        "expired": not entry.counts_on(today),
    }


def _confirmation(
    entry: Confirmation, series: TrendSeries | None, links: SiteLinks, root: Words
) -> Mapping[str, object]:
    known = entry.low is not None and entry.high is not None
    unit = series.unit if series else ""
    return {
        "when": day(entry.confirmed_at),
        "before": short(entry.before),
        "after": short(entry.after),
        "metric": metric_name(entry.metric),
        "place": place_of(entry.workload, entry.shape, {}),
        "outcome": say(_OUTCOMES[entry.outcome]) if entry.outcome in _OUTCOMES else Words(entry.outcome),
        "key": Words(entry.outcome),
        "interval": formats.bounds((entry.low or 0.0, entry.high or 0.0), unit, metric=entry.metric)
        if known
        else numbers.DASH,
        "address": under(root, links.series(series)) if series else Words(""),
    }
