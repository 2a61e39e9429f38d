"""trend.html: every series, the checklist and the runner over time; one self-contained
page, no network, no script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from perfgate.catalogue.lookup import CARDS
from perfgate.document.kept import KeptLink
from perfgate.document.trend import RunHealth, TrendCause, TrendDocument, TrendSeries
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.media import is_linkable
from perfgate.judging.report.text.templates import inlined, render_page
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.trend_rows import (
    CauseRow,
    ChangeView,
    MovedSeries,
    biased_machine_lines,
    cause_row,
    change_row,
    change_words,
    gates_line,
    headline,
    mark_of,
    moved_by,
    searched,
    skipped_series,
    sort_causes,
    uplift_row,
)
from perfgate.locale import Language, speaking

MAX_PICTURES = 60
_MAX_ROWS = 1000
_MAX_NAMES = 60
_STEPS = range(1, 20)
_STANDINGS = phrases(
    {
        "new": "new",
        "open": "open",
        "resolved": "the level is back",
        "superseded": "the benchmark was changed since",
        "accepted": "accepted",
        "refuted": "refuted",
    }
)
# One metric on all its testbeds, the newest last.
Group = Sequence[TrendSeries]


class ChangeCells(NamedTuple):
    """A change as a row of a table, with a line of its history; the addresses are empty
    without such a page.
    """

    row: ChangeView
    status: Words
    plot: Markup
    address: Words = EMPTY
    compare: Words = EMPTY


class KeptFiles(NamedTuple):
    """The kept files of a run before or after a change, with their addresses."""

    side: Words
    links: Sequence[tuple[str, Words]]


class CausePicture(NamedTuple):
    """One cause: the history of its leading change, and everything else that it moved."""

    row: CauseRow
    plot: Markup
    testbeds: int
    change: ChangeCells
    further: Sequence[ChangeCells]
    kept_files: Sequence[KeptFiles]


class SeriesCells(NamedTuple):
    """A series as a row of a table; ``change`` is its newest open change."""

    series: TrendSeries
    plot: Markup
    change: Words
    direction: Words


def render_trend_page(
    document: TrendDocument,
    language: Language,
    kept_files: Mapping[str, Sequence[KeptLink]] | None,
) -> str:
    """The page; ``kept`` are the kept files of the runs before and after changes, by
    the id of the run.
    """
    with speaking(language):
        causes = sort_causes(document)
        groups = _groups(document)
        health = document.runs.health
        pictures = [
            _picture(cause, document, groups, kept_files or {})
            for cause in document.causes[:MAX_PICTURES]
        ]
        uplifts = [
            uplift_row(uplift, document, most=_MAX_NAMES)
            for uplift in document.uplifts[:_MAX_ROWS]
        ]
        return render_page(
            "trend/page.html.j2",
            style=inlined("page/style.css", "trend/style.css"),
            document=document,
            mark=mark_of(document, is_bad=bool(causes.new_worse or causes.still_open)),
            headline=headline(document),
            searched=searched(document),
            gates=gates_line(document),
            biased_machines=biased_machine_lines(document),
            pictures=pictures,
            more_pictures=numbers.beyond(document.causes, MAX_PICTURES),
            most=_MAX_ROWS,
            uplifts=uplifts,
            rows=list(map(series_cells, groups[:_MAX_ROWS])),
            matrix=trend_svg.steps_matrix(health, step_titles(health)),
            statuses=trend_svg.steps_legend(),
            has_pairs=any(
                run.conditions.discarded is not None
                or run.conditions.noise_floor is not None
                for run in health
            ),
            not_looked_at=[
                skipped_series(entry, most=_MAX_NAMES)
                for entry in document.searched.not_looked_at
            ],
        )


def _groups(document: TrendDocument) -> list[Group]:
    """The series by metric, those that moved most first."""
    order = {span.fingerprint: index for index, span in enumerate(document.testbeds)}
    groups: dict[tuple[object, ...], list[TrendSeries]] = {}
    for series in document.series:
        key = (
            series.workload,
            series.shape,
            series.metric,
            *sorted(series.labels.items()),
        )
        groups.setdefault(key, []).append(series)
    for group in groups.values():
        group.sort(key=lambda series: order.get(series.fingerprint, 0))
    return sorted(groups.values(), key=_rank)


def _rank(group: Group) -> tuple[float, str, str, str]:
    weight = 0.0
    first = group[0]
    for series in group:
        for change in series.changes:
            if change.is_unsettled or change.news:
                base = 1.0
                if change.is_open_regression:
                    base = 2.0
                weight = max(weight, base + min(abs(change.delta or 1.0), 1.0))
    return -weight, first.workload, first.shape, first.metric


def _picture(
    cause: TrendCause,
    document: TrendDocument,
    groups: Sequence[Group],
    kept_files: Mapping[str, Sequence[KeptLink]],
) -> CausePicture:
    lead, *further = moved_by(cause, document)
    group: Group = [lead.series]
    for candidate in groups:
        if any(series is lead.series for series in candidate):
            group = candidate
    return CausePicture(
        row=cause_row(cause, document, most=0),
        plot=trend_svg.series_plot(group, cause.first_bad or ""),
        testbeds=len(group),
        change=change_cells(lead),
        further=list(map(change_cells, further[:_MAX_ROWS])),
        kept_files=_kept_beside(lead, kept_files),
    )


def _kept_beside(
    moved: MovedSeries, kept_files: Mapping[str, Sequence[KeptLink]]
) -> list[KeptFiles]:
    if not kept_files:
        return []
    sides = []
    for side, run_id in zip((say("before"), say("after")), runs_beside(moved)):
        links = []
        for link in kept_files.get(run_id, []):
            if is_linkable(link.address):
                links.append((link.path, Words(link.address)))
        if links:
            sides.append(KeptFiles(side, links))
    return sides


def runs_beside(moved: MovedSeries) -> tuple[str, str]:
    """The ids of the runs before and after a change."""
    points = moved.series.points
    at = moved.change.at
    return points[at - 1].run_id, points[at].run_id


def change_cells(moved: MovedSeries) -> ChangeCells:
    return ChangeCells(
        change_row(moved),
        _status(moved),
        trend_svg.small_plot(moved.series, moved.change.at),
    )


def _status(moved: MovedSeries) -> Words:
    change = moved.change
    if change.standing == "open" and change.direction != "worse":
        return say("before the last report")
    return say(_STANDINGS[change.standing])


def series_cells(group: Group) -> SeriesCells:
    last = group[-1]
    change = EMPTY
    direction = EMPTY
    for latest in last.changes:
        if last.current and latest.is_unsettled:
            change = change_words(MovedSeries(last, latest))
            direction = Words(latest.direction)
    return SeriesCells(last, trend_svg.small_plot(last), change, direction)


def step_titles(health: Sequence[RunHealth]) -> dict[int, str]:
    """The steps that any of the runs has, with their titles."""
    present: set[str] = set()
    for run in health:
        present |= run.steps.keys()
    return {
        number: say(CARDS[number].title) for number in _STEPS if str(number) in present
    }
