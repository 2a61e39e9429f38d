"""The text of the weekly report: changes on main, since which commit, how certain, and
which are still open.

One template is the issue in Markdown, the e-mail in HTML, and the text in the terminal.
Mail programs drop style sheets, scripts and SVG, and Gmail cuts a message above 102 kB.
So in an e-mail every element has its own style, and histories are drawn with block
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console

from perfgate.catalogue.lookup import CARDS, METRICS, metric
from perfgate.catalogue.names import NUMBER
from perfgate.document.conditions import BUSY
from perfgate.document.message import Message
from perfgate.document.trend import (
    RunHealth,
    TestbedSpan,
    TrendCause,
    TrendDocument,
    TrendSeries,
)
from perfgate.judging.report.render.comment import tidied
from perfgate.judging.report.render.terminal import print_words
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import day
from perfgate.judging.report.text.templates import Medium, render
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.judging.report.view.summary import CommentContext
from perfgate.judging.report.view.trend_rows import (
    CauseRow,
    biased_machine_lines,
    cause_row,
    gates_line,
    headline,
    mark_of,
    recent_uplifts,
    searched,
    skipped_series,
    sort_causes,
    uplift_row,
)
from perfgate.locale import Language, speaking

# Limits on the rows of a list, with the number of folds below them that are shown; the
# first that fits the budget is used.
_ROWS = (200, 60, 20, 6)
_MOST_OTHERS = 20
FOLDS = ("commits", "better", "runner", "not_looked_at", "numbers")
# Of an e-mail, with room below Gmail's limit for the headers and the encoding of a
# message.
MOST_BYTES = 96_000
_COLOURS = {
    "FAIL": Words("#b42318"),
    "PASS": Words("#18794e"),
    "SKIPPED": Words("#5c6470"),
}
_MAX_NAMES = 30
_PRINTED_ROWS, _PRINTED_FOLDS = 40, 2
_ENDINGS: dict[Medium, str] = {"markdown": "md", "html": "html", "terminal": "txt"}
_MAX_WEEKS, _MAX_FAILED, _MAX_WARNINGS = 4, 6, 6


class CauseList(NamedTuple):
    """The first causes of a kind, and how many others there are."""

    rows: Sequence[CauseRow]
    more: int


class LeadingNumber(NamedTuple):
    """A number that leads a step of the checklist."""

    series: TrendSeries
    step: int
    step_title: Words


class RunnerFacts(NamedTuple):
    """How the newest runs went: runs by week, failures, findings, noise floor,
    temperature, warnings, and a new testbed.
    """

    weeks: Sequence[tuple[str, int]]
    new_testbed: TestbedSpan | None
    opened: int
    failed: Sequence[RunHealth]
    attention: Sequence[int]
    floor: Words
    temperature: Words
    disturbed: int
    waited: Words
    throttled: Words
    warnings: Sequence[Message]


def issue_title(key: str, language: Language) -> str:
    with speaking(language):
        title = say("perfgate: how main is doing")
    if key:
        return f"{title} ({key})"
    return str(title)


def render_issue(
    document: TrendDocument, context: CommentContext, *, budget: int = 60_000
) -> str:
    """The Markdown of the issue, at most ``budget`` characters.

    Over the budget, whole folds are dropped first, from the bottom, then rows at the
    end of long lists, with their number. Raises ValueError for a budget too small even
    for that.
    """
    with speaking(context.language):
        for report, folds in _lengths(document, context):
            text = tidied(report.render("trend/report.j2", "markdown", folds)) + "\n"
            if len(text) <= budget:
                return text
    raise ValueError(f"a budget of {budget} characters is too small for any report")


def render_email(document: TrendDocument, language: Language) -> str:
    """The same text as the HTML of an e-mail, at most ``MOST_BYTES``; shortened like
    the issue.
    """
    text = ""
    with speaking(language):
        for report, folds in _lengths(document, CommentContext(language=language)):
            text = report.render("trend/email.html.j2", "html", folds)
            if len(text.encode()) <= MOST_BYTES:
                break
    return str(text)


def _lengths(
    document: TrendDocument, context: CommentContext
) -> Iterator[tuple[_Report, int]]:
    """The reports with the number of their folds, the longest first."""
    for rows in _ROWS:
        report = _Report(document, context, rows)
        for folds in range(len(FOLDS), -1, -1):
            yield report, folds


def render_trend(document: TrendDocument, console: Console, language: Language) -> None:
    """Print the same text with the folds of causes."""
    with speaking(language):
        report = _Report(document, CommentContext(language=language), _PRINTED_ROWS)
        print_words(
            report.render("trend/report.j2", "terminal", _PRINTED_FOLDS), console
        )


def render_news(document: TrendDocument, language: Language) -> str | None:
    """The comment with the news, None without any: editing an issue notifies no
    subscriber.
    """
    causes = sort_causes(document)
    news = list(causes.new_worse)
    for cause in causes.still_open:
        if cause.news:
            news.append(cause)
    news += causes.new_better
    for cause in causes.ended:
        if cause.direction != "changed":
            news.append(cause)
    if not news and not document.searched.gone:
        return None
    most = _ROWS[-1]
    with speaking(language):
        return (
            tidied(
                render(
                    "trend/news.md.j2",
                    "markdown",
                    headline=headline(document),
                    rows=[cause_row(cause, document, most=0) for cause in news[:most]],
                    more=numbers.beyond(news, most),
                )
            )
            + "\n"
        )


class _Report:
    """The content of the report with at most ``rows`` rows in each list."""

    def __init__(
        self, document: TrendDocument, context: CommentContext, rows: int
    ) -> None:
        self._document = document
        self._rows = rows
        causes = sort_causes(document)
        urgent = [*causes.new_worse, *causes.still_open]
        several = [cause for cause in urgent if cause.commit_count > 1]
        uplifts = [
            uplift_row(uplift, document, most=_MOST_OTHERS)
            for uplift in recent_uplifts(document)[:rows]
        ]
        leading = _leading(document)
        since = EMPTY
        if document.searched.since:
            since = day(document.searched.since)
        self._render = partial(
            render,
            document=document,
            headline=headline(document),
            newest=day(document.runs.newest),
            since=since,
            searched=searched(document),
            gates=gates_line(document),
            biased_machines=biased_machine_lines(document),
            context=context,
            colour=_COLOURS[mark_of(document, is_bad=bool(urgent))],
            worse=self._listed(causes.new_worse),
            other=self._listed(causes.new_other),
            open=self._listed(causes.still_open),
            ended=self._listed(causes.ended),
            better=self._listed(causes.new_better),
            better_count=len(causes.new_better),
            # The changes with several candidate commits.
            ranges=[
                cause_row(cause, document, most=0).lead for cause in several[:rows]
            ],
            most=rows,
            uplifts=uplifts,
            not_looked_at=[
                skipped_series(entry, most=_MAX_NAMES)
                for entry in document.searched.not_looked_at
            ],
            numbers=list(map(_number, leading[:rows])),
            more_numbers=numbers.beyond(leading, rows),
            runner=_runner_facts(document),
        )

    def render(self, template: str, medium: Medium, folds: int) -> Words:
        """Render the report with its first ``folds`` folds."""
        ending = _ENDINGS[medium]
        return self._render(
            template,
            medium,
            folds=FOLDS[:folds],
            marks=f"trend/marks.{ending}.j2",
            changes=f"trend/changes.{ending}.j2",
        )

    def _listed(self, causes: Sequence[TrendCause]) -> CauseList:
        most = min(self._rows, _MOST_OTHERS)
        rows = [
            cause_row(cause, self._document, most=most)
            for cause in causes[: self._rows]
        ]
        return CauseList(rows, numbers.beyond(causes, self._rows))


def _runner_facts(document: TrendDocument) -> RunnerFacts:
    runs = document.runs.health
    floors = []
    temperatures = []
    throttled = []
    waits = []
    for run in runs:
        floors.append(run.conditions.noise_floor)
        temperatures.append(run.conditions.temperature)
        throttled.append(run.conditions.throttled or None)
        if run.conditions.waited is not None and run.conditions.waited >= BUSY:
            waits.append(run.conditions.waited)
    attention = []
    warnings = []
    new_testbed = None
    if runs:
        warnings = runs[-1].warnings[:_MAX_WARNINGS]
        for number, status in runs[-1].steps.items():
            if status == "attention":
                attention.append(number)
    if len(document.testbeds) > 1:
        new_testbed = document.testbeds[-1]
    return RunnerFacts(
        weeks=list(document.runs.weeks.items())[-_MAX_WEEKS:],
        new_testbed=new_testbed,
        opened=len(runs),
        failed=[run for run in runs if run.failed][-_MAX_FAILED:],
        attention=sorted(map(int, attention)),
        floor=_largest(floors, numbers.percent),
        temperature=_largest(temperatures, lambda value: numbers.amount(value, "Cel")),
        disturbed=len(waits),
        waited=_largest(waits, numbers.percent),
        throttled=_largest(throttled, numbers.percent),
        warnings=warnings,
    )


def _largest(values: Sequence[float | None], words: Callable[[float], Words]) -> Words:
    """The largest value in words; empty without any."""
    present = [value for value in values if value is not None]
    if present:
        return words(max(present))
    return EMPTY


def _leading(document: TrendDocument) -> list[TrendSeries]:
    """The numbers that lead the steps of the checklist, cold start and compile time
    among them, in the order of the steps.
    """
    leading = []
    for series in document.series:
        if series.current and series.points:
            entry = metric(series.metric)
            if (
                entry.display.leading
                or entry.trend.judged
                or entry.trend.followed
                or series.metric.startswith(NUMBER)
            ):
                leading.append(series)
    return sorted(leading, key=_rank)


def _rank(series: TrendSeries) -> tuple[object, ...]:
    order = list(METRICS)
    place = len(order)
    if series.metric in METRICS:
        place = order.index(series.metric)
    return (
        metric(series.metric).step,
        place,
        series.workload,
        series.shape,
        sorted(series.labels.items()),
    )


def _number(series: TrendSeries) -> LeadingNumber:
    step = metric(series.metric).step
    step_title = EMPTY
    if step in CARDS:
        step_title = say(CARDS[step].title)
    return LeadingNumber(series, step, step_title)
