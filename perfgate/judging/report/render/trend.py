"""The text of the weekly report: changes on main, since which commit, how certain, and which are still open.

One template is the issue in Markdown and the e-mail in HTML. Mail programs drop style sheets, scripts and SVG, and Gmail cuts a
message above 102 kB. So in an e-mail every element has its own style, and histories are drawn with block characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfgate.catalogue.lookup import CARDS, METRICS, metric
from perfgate.catalogue.names import NUMBER
from perfgate.document.conditions import BUSY
from perfgate.document.trend import TrendCause, TrendDocument, TrendSeries, place_of
from perfgate.judging.report.render.comment import tidied
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.sparkline import sparkline
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.summary import CommentContext
from perfgate.judging.report.view.trend_rows import (
    cause_row,
    day,
    expired_row,
    gates_line,
    headline,
    recent_uplifts,
    searched,
    short,
    sort_causes,
    uplift_row,
)
from perfgate.locale import Language, speaking

# Limits on the rows of a list, with the number of folds below them that are shown; the first that fits the budget is used.
_ROWS = (200, 60, 20, 6)
_MOST_OTHERS = 20
FOLDS = ("commits", "better", "runner", "not_looked_at", "numbers")
# Of an e-mail, with room below Gmail's limit for the headers and the encoding of a message.
MOST_BYTES = 96_000
_COLOURS = {"FAIL": Words("#b42318"), "PASS": Words("#18794e"), "SKIPPED": Words("#5c6470")}
_HISTORY = 16  # blocks
_MAX_NAMES = 30
_REASONS = {
    "too_short": phrase("have too few versions to distinguish a change from noise"),
    "not_measured": phrase("have no run in the last four weeks"),
    "old_testbed": phrase("are of a testbed no longer in use"),
    "metric": phrase("are of metrics that the gate does not judge; select them with `--metric`"),
}


def issue_title(key: str, language: Language) -> str:
    with speaking(language):
        title = say("perfgate: how main is doing")
    return f"{title} ({key})" if key else str(title)


def render_issue(document: TrendDocument, context: CommentContext, *, budget: int = 60_000) -> str:
    """The Markdown of the issue, at most ``budget`` characters.

    Over the budget, whole folds are dropped first, from the bottom, then rows at the end of long lists, with their number.
    Raises ValueError for a budget too small even for that.
    """
    with speaking(context.language):
        for values in _shorter_and_shorter(document, context):
            marks = {"marks": "trend/marks.md.j2", "changes": "trend/changes.md.j2"}
            text = tidied(render("trend/report.j2", "markdown", {**values, **marks})) + "\n"
            if len(text) <= budget:
                return text
    raise ValueError(f"a budget of {budget} characters is too small for any report")


def render_email(document: TrendDocument, language: Language) -> str:
    """The same text as the HTML of an e-mail, at most ``MOST_BYTES``; shortened like the issue."""
    causes = sort_causes(document)
    mark = "FAIL" if causes.new_worse or causes.still_open else "PASS" if document.looked_at else "SKIPPED"
    frame = {"marks": "trend/marks.html.j2", "changes": "trend/changes.html.j2", "colour": _COLOURS[mark]}
    with speaking(language):
        for values in _shorter_and_shorter(document, CommentContext(language=language)):
            text = str(render("trend/email.html.j2", "html", {**values, **frame}))
            if len(text.encode()) <= MOST_BYTES:
                break
    return text


def _shorter_and_shorter(document: TrendDocument, context: CommentContext) -> Iterator[Mapping[str, object]]:
    """The values of the template with all rows and folds, and ever fewer of them."""
    for rows in _ROWS:
        values = _values(document, context, rows)
        for count in range(len(FOLDS), -1, -1):
            yield {**values, "folds": FOLDS[:count]}


def render_news(document: TrendDocument, language: Language) -> str | None:
    """The comment with the news, None without any: editing an issue notifies no subscriber."""
    causes = sort_causes(document)
    grown = [cause for cause in causes.still_open if cause.news]
    ended = [cause for cause in causes.ended if cause.direction != "changed"]
    news = [*causes.new_worse, *grown, *causes.new_better, *ended]
    if not news and not document.gone:
        return None
    with speaking(language):
        values = {
            "headline": headline(document),
            "rows": [cause_row(cause, document, most=0) for cause in news[: _ROWS[-1]]],
            "more": max(0, len(news) - _ROWS[-1]),
        }
        return tidied(render("trend/news.md.j2", "markdown", values)) + "\n"


def _values(document: TrendDocument, context: CommentContext, rows: int) -> Mapping[str, object]:
    causes = sort_causes(document)
    leading = _leading(document)

    def listed(group: list[TrendCause]) -> Mapping[str, object]:
        return {
            "rows": [cause_row(cause, document, most=min(rows, _MOST_OTHERS)) for cause in group[:rows]],
            "more": max(0, len(group) - rows),
        }

    return {
        "headline": headline(document),
        "project": document.project,
        "runs": document.runs,
        "newest": day(document.newest),
        "since": day(document.since) if document.since else Words(""),
        "worse": listed(causes.new_worse),
        "other": listed(causes.new_other),
        "open": listed(causes.still_open),
        "ended": listed(causes.ended),
        "better": listed(causes.new_better),
        "better_count": len(causes.new_better),
        "gone": document.gone[:rows],
        "uplifts": [uplift_row(one, document, most=_MOST_OTHERS) for one in recent_uplifts(document)][:rows],
        "expired": [expired_row(entry) for entry in document.expired[:rows]],
        # The candidate commits of every cause that has several.
        "ranges": [
            {**cause_row(cause, document, most=0)["lead"], "more": cause.commit_count - len(cause.commits)}
            for cause in [one for one in (*causes.new_worse, *causes.still_open) if one.commit_count > 1][:rows]
        ],
        "looked_at": document.looked_at,
        "searched": searched(document),
        "gates": gates_line(document),
        "not_looked_at": [
            {
                "series": entry.series,
                "reason": say(_REASONS[entry.reason]),
                "names": entry.names[:_MAX_NAMES],
                "more": max(0, len(entry.names) - _MAX_NAMES),
            }
            for entry in document.not_looked_at
        ],
        "notes": document.notes[:rows],
        "numbers": [_number(series) for series in leading[:rows]],
        "more_numbers": len(leading[rows:]),
        **_runner_facts(document),
        "artifact_url": context.artifact_url,
        "job_url": context.job_url,
        "version": document.perfgate_version,
    }


def _runner_facts(document: TrendDocument) -> Mapping[str, object]:
    """How the newest runs went: failures, findings, noise floor, temperature, warnings, and a new testbed."""
    newest = document.health[-1] if document.health else None
    last = document.testbeds[-1] if len(document.testbeds) > 1 else None
    failed = [run for run in document.health if run.failed]
    floors = [run.noise_floor for run in document.health if run.noise_floor is not None]
    hot = [run.temperature for run in document.health if run.temperature is not None]
    waits = [run.waited for run in document.health if run.waited is not None and run.waited >= BUSY]
    throttled = [run.throttled for run in document.health if run.throttled]
    return {
        "weeks": [{"monday": Words(monday), "runs": runs} for monday, runs in list(document.weeks.items())[-4:]],
        "testbeds": len(document.testbeds),
        "new_testbed": {"since": day(last.first_seen), "differences": last.differences[:6]} if last else {},
        "opened": len(document.health),
        "failed": [
            {"when": day(run.started_at), "commit": short(run.commit), "what": run.failed[:4]} for run in failed[-6:]
        ],
        "attention": sorted((int(number) for number, status in newest.steps.items() if status == "attention"))
        if newest
        else [],
        "floor": numbers.percent(max(floors)) if floors else Words(""),
        "temperature": formats.quantity(max(hot), "Cel") if hot else Words(""),
        "disturbed": len(waits),
        "waited": numbers.percent(max(waits)) if waits else Words(""),
        "throttled": numbers.percent(max(throttled)) if throttled else Words(""),
        "warnings": newest.warnings[:6] if newest else [],
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
    number = metric(series.metric).step
    return {
        "step": number,
        "step_title": say(CARDS[number].title) if number in CARDS else Words(""),
        "metric": metric_name(series.metric),
        "place": place_of(series.workload, series.shape, series.labels),
        "value": formats.quantity(series.points[-1].value, series.unit, metric=series.metric),
        "history": Words(sparkline([point.value for point in series.points], _HISTORY)),
    }
