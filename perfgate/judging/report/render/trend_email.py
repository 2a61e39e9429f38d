"""The weekly report as the HTML of an e-mail: inline styles, no script, no picture, nothing loaded, and small.

Mail programs drop style sheets, scripts and SVG, and Gmail cuts a message above 102 kB. So every element has its own style,
tables hold the columns, and histories are drawn with block characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.catalogue.lookup import CARDS, METRICS, metric
from perfgate.catalogue.names import NUMBER
from perfgate.document.trend import TrendCause, TrendDocument, TrendSeries, place_of
from perfgate.judging.report.render.trend import runner_facts
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.sparkline import sparkline
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import Words, translated
from perfgate.judging.report.view.trend_rows import (
    MovedSeries,
    cause_row,
    change_row,
    day,
    expired_row,
    gates_line,
    headline,
    recent_uplifts,
    searched,
    sort_causes,
    uplift_row,
)
from perfgate.locale import Language, speaking

# With room below Gmail's 102 kB for the headers and the encoding of a message.
MOST_BYTES = 96_000
# Limits on the causes of a list and on the leading numbers; the first that fits is used.
_ROWS = ((40, 200), (20, 80), (8, 30), (3, 8), (1, 0))
_MOST_COMMITS, _MOST_BRIDGED = 6, 12
_COLOURS = {"FAIL": Words("#b42318"), "PASS": Words("#18794e"), "SKIPPED": Words("#5c6470")}
_HISTORY = 16


def render_email(document: TrendDocument, language: Language) -> str:
    """The HTML, at most ``MOST_BYTES``. Over that, rows at the end of lists are left out, with their number."""
    with speaking(language):
        for causes, numbers in _ROWS:
            text = render("trend/email.html.j2", "html", _values(document, causes, numbers))
            if len(text.encode()) <= MOST_BYTES:
                break
        return str(text)


def _values(document: TrendDocument, most_causes: int, most_numbers: int) -> Mapping[str, object]:
    causes = sort_causes(document)
    mark = "FAIL" if causes.new_worse or causes.still_open else "PASS" if document.looked_at else "SKIPPED"

    def listed(group: Sequence[TrendCause]) -> Mapping[str, object]:
        return {"rows": [_cause(cause, document) for cause in group[:most_causes]], "more": len(group[most_causes:])}

    followed = _leading(document)
    return {
        "colour": _COLOURS[mark],
        "project": document.project,
        "headline": headline(document),
        "newest": day(document.newest),
        "since": day(document.since) if document.since else Words(""),
        "worse": listed(causes.new_worse),
        "open": listed(causes.still_open),
        "better": listed(causes.new_better),
        "other": listed(causes.new_other),
        "ended": listed(causes.ended),
        "gone": document.gone[:most_causes],
        "uplifts": [uplift_row(one, document, most=_MOST_BRIDGED) for one in recent_uplifts(document)][:most_causes],
        "expired": [expired_row(entry) for entry in document.expired[:most_causes]],
        "numbers": [_number(series) for series in followed[:most_numbers]],
        "more_numbers": len(followed[most_numbers:]),
        "searched": searched(document),
        "gates": gates_line(document),
        "runs": document.runs,
        "notes": document.notes[:most_causes],
        **runner_facts(document),
        "version": document.perfgate_version,
    }


def _cause(cause: TrendCause, document: TrendDocument) -> Mapping[str, object]:
    row = cause_row(cause, document, most=0)
    lead = row["lead"]
    commits = lead["commits"] if lead["commit_count"] > 1 else []
    return {
        "row": row,
        "direction": Words(cause.direction),
        "commits": commits[:_MOST_COMMITS],
        "more_commits": max(0, lead["commit_count"] - _MOST_COMMITS) if commits else 0,
    }


def _leading(document: TrendDocument) -> list[TrendSeries]:
    """The numbers that lead the steps of the checklist, cold start and compile time among them, in the order of the steps."""
    cards = [(series, metric(series.metric)) for series in document.series if series.current and series.points]
    known = [
        series
        for series, card in cards
        if card.leading or card.trend or card.followed or series.metric.startswith(NUMBER)
    ]
    order = {name: place for place, name in enumerate(METRICS)}

    def place(series: TrendSeries) -> tuple[object, ...]:
        labels = sorted(series.labels.items())
        return metric(series.metric).step, order.get(series.metric, len(order)), series.workload, series.shape, labels

    return sorted(known, key=place)


def _number(series: TrendSeries) -> Mapping[str, object]:
    moved = [change for change in series.changes if change.standing != "refuted"]
    last = MovedSeries(series, moved[-1]) if moved else None
    number = metric(series.metric).step
    return {
        "step": number,
        "step_title": translated(CARDS[number].title) if number in CARDS else Words(""),
        "metric": metric_name(series.metric),
        "place": place_of(series.workload, series.shape, series.labels),
        "value": formats.quantity(series.points[-1].value, series.unit, metric=series.metric),
        "history": sparkline([point.value for point in series.points], _HISTORY),
        "change": change_row(last) if last else None,
        "direction": Words(last.change.direction if last else ""),
    }
