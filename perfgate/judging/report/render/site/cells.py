"""Cells that several pages show: changes with their links, open regressions as cards,
testbeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from perfgate.document.columns import run_of_commit
from perfgate.document.site import BesideLevel, Position
from perfgate.document.trend import TrendCause, TrendSeries
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.page import SitePage, TestbedLink
from perfgate.judging.report.render.trend_page import (
    ChangeCells,
    change_cells,
    runs_beside,
)
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.words import Words, phrases, say
from perfgate.judging.report.view.trend_rows import (
    CauseRow,
    MovedSeries,
    cause_row,
    moved_by,
)

_MAX_OTHERS = 200
_POSITIONS: Mapping[Position, str] = phrases(
    {
        "inside": "inside",
        "above": "above",
        "below": "below",
        "same": "the same count",
        "differs": "another count",
        "no_spread": "no spread known yet",
        "unknown": "not known",
    }
)


class CauseCard(NamedTuple):
    """A regression or improvement: its leading change, and the others.

    ``subject`` and ``author`` belong to the first bad run's commit.
    """

    row: CauseRow
    change: ChangeCells
    subject: str
    author: str
    further: Sequence[ChangeCells]
    testbed: TestbedLink


class LevelCells(NamedTuple):
    """A number of one or two runs and main's level, in one unit."""

    source: BesideLevel
    before: Words
    value: Words
    typical: Words
    interval: Words
    position: Words
    plot: Markup


def is_regressed(series: TrendSeries) -> bool:
    """Whether a series has a regression that is open."""
    return any(change.is_open_regression for change in series.changes)


def moved_cells(moved: MovedSeries, page: SitePage) -> ChangeCells:
    """A change as a row of a table, with links to its series and to the runs on both
    sides of it.
    """
    cells = change_cells(moved)
    status = cells.status
    # The pages compare with no earlier report, to which a change could be new.
    if moved.change.is_unsettled:
        status = say("open")
    return cells._replace(
        status=status,
        address=page.to_series(moved.series),
        compare=page.to_both(*runs_beside(moved)),
    )


def cause_card(cause: TrendCause, page: SitePage) -> CauseCard:
    trend = page.content.trend
    lead, *further = moved_by(cause, trend)
    subject = ""
    author = ""
    # The run of the first bad commit has both, so no clone is needed.
    run = run_of_commit(page.content.runs, cause.first_bad or "")
    if run is not None:
        subject = run.subject or ""
        author = run.author or ""
    return CauseCard(
        row=cause_row(cause, trend, most=0),
        change=moved_cells(lead, page),
        subject=subject,
        author=author,
        further=[moved_cells(moved, page) for moved in further[:_MAX_OTHERS]],
        testbed=page.testbed(lead.series.fingerprint),
    )


def split_levels(
    rows: Sequence[BesideLevel],
) -> tuple[list[LevelCells], list[LevelCells]]:
    """The numbers apart from main's level, and the others."""
    apart = []
    rest = []
    for placed in rows:
        if placed.is_apart:
            apart.append(_level_cells(placed))
        else:
            rest.append(_level_cells(placed))
    return apart, rest


def _level_cells(placed: BesideLevel) -> LevelCells:
    series = placed.series
    ends = placed.interval or (None, None)
    values = [placed.before, placed.value, placed.typical, *ends]
    before, value, typical, low, high = formats.quantities(values, series)
    is_too_short = (
        placed.value is not None and placed.interval is None and placed.versions > 0
    )
    position = say(_POSITIONS[placed.position])
    plot = Markup("")
    if placed.is_apart:
        plot = trend_svg.small_plot(series)
    if is_too_short and placed.position == "unknown":
        position = say("too few versions")
    return LevelCells(
        source=placed,
        before=before,
        value=value,
        typical=typical,
        interval=numbers.reach(low, high),
        position=position,
        plot=plot,
    )
