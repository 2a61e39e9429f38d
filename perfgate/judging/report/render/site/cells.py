"""Cells that several pages show: changes with their links, open regressions as cards, testbeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from perfgate.document.history import StoredRun
from perfgate.document.site import BesideLevel, Position, SiteContent
from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.page import SitePage, TestbedLink
from perfgate.judging.report.render.trend_page import (
    ChangeCells,
    change_cells,
    runs_beside,
)
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import (
    CauseRow,
    MovedSeries,
    cause_row,
    moved_by,
)

_MAX_OTHERS = 200
_POSITIONS: Mapping[Position, str] = {
    "inside": phrase("inside"),
    "above": phrase("above"),
    "below": phrase("below"),
    "same": phrase("the same count"),
    "differs": phrase("another count"),
    "no_spread": phrase("no spread known yet"),
    "unknown": phrase("not known"),
}


@dataclass(frozen=True)
class CauseCard:
    """A regression or improvement: its leading change, the history of that, and everything else that it moved.

    ``subject`` and ``author`` belong to the first bad run's commit.
    """

    row: CauseRow
    change: ChangeCells
    subject: str
    author: str
    plot: Markup
    further: Sequence[ChangeCells]
    count: int
    testbed: TestbedLink

    @property
    def direction(self) -> Words:
        return self.change.direction


@dataclass(frozen=True)
class RunCells:
    """A run as a row of a list; ``address`` is empty if it has no page."""

    run: StoredRun
    id: Words
    address: Words
    testbed: TestbedLink


@dataclass(frozen=True)
class LevelCells:
    """A number of one or two runs and main's level, in one unit."""

    metric: str
    place: str
    before: Words
    value: Words
    typical: Words
    interval: Words
    position: Words
    position_words: Words
    plot: Markup
    address: Words


def is_regressed(series: TrendSeries) -> bool:
    """Whether a series has a regression that is open."""
    return any(change.is_open_regression for change in series.changes)


def moved_cells(moved: MovedSeries, page: SitePage) -> ChangeCells:
    """A change as a row of a table, with links to its series and to the runs on both sides of it."""
    cells = change_cells(moved)
    status = cells.status
    # The pages compare with no earlier report, to which a change could be new.
    if moved.change.is_unsettled:
        status = say("open")
    return replace(
        cells,
        status=status,
        address=page.to_series(moved.series),
        compare=page.to_both(*runs_beside(moved)),
    )


def cause_card(cause: TrendCause, page: SitePage) -> CauseCard:
    trend = page.content.trend
    lead, *further = moved_by(cause, trend)
    first_bad = _first_bad(cause, page.content)
    return CauseCard(
        row=cause_row(cause, trend, most=0),
        change=moved_cells(lead, page),
        subject=first_bad.subject or "" if first_bad else "",
        author=first_bad.author or "" if first_bad else "",
        plot=trend_svg.small_plot(lead.series, lead.change.at),
        further=[moved_cells(moved, page) for moved in further[:_MAX_OTHERS]],
        count=len(further),
        testbed=page.testbed(lead.series.fingerprint),
    )


def _first_bad(cause: TrendCause, content: SiteContent) -> StoredRun | None:
    """A run of the first bad commit: it has the subject and the author, so no clone is needed."""
    for run in content.runs:
        if cause.first_bad and run.commit == cause.first_bad:
            return run
    return None


def run_cells(run: StoredRun, page: SitePage) -> RunCells:
    return RunCells(
        run, Words(run.id[:12]), page.to_run(run.id), page.testbed(run.fingerprint)
    )


def split_levels(
    rows: Sequence[BesideLevel], page: SitePage
) -> tuple[list[LevelCells], list[LevelCells]]:
    """The numbers apart from main's level, and the others."""
    apart: list[LevelCells] = []
    rest: list[LevelCells] = []
    for placed in rows:
        cells = _level_cells(placed, page)
        if placed.is_apart:
            apart.append(cells)
        else:
            rest.append(cells)
    return apart, rest


def _level_cells(placed: BesideLevel, page: SitePage) -> LevelCells:
    series = placed.series
    ends = placed.interval or (None, None)
    values = [placed.before, placed.value, placed.typical, *ends]
    before, value, typical, low, high = formats.quantities(values, series)
    is_too_short = (
        placed.value is not None and placed.interval is None and placed.versions > 0
    )
    position, plot = say(_POSITIONS[placed.position]), Markup("")
    if placed.is_apart:
        plot = trend_svg.small_plot(series)
    if is_too_short and placed.position == "unknown":
        position = say("too few versions")
    return LevelCells(
        metric=metric_name(series.metric),
        place=series.place_words,
        before=before,
        value=value,
        typical=typical,
        interval=numbers.reach(low, high),
        position=Words(placed.position),
        position_words=position,
        plot=plot,
        address=page.to_series(series),
    )
