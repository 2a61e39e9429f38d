"""series/: the list of all series, and the page of one: its chart, changes, values, and
the way to its neighbours.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from perfgate.document.trend import TrendPoint, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.cells import is_regressed, moved_cells
from perfgate.judging.report.render.site.page import SitePage
from perfgate.judging.report.render.trend_page import SeriesCells, series_cells
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.judging.report.view.trend_rows import MovedSeries

_MAX_ROWS, _MAX_CHOICES, _MAX_VALUES, _VALUES_SHOWN = 2000, 60, 240, 12
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")


class SeriesGroup(NamedTuple):
    """The series of a workload."""

    name: str
    anchor: Words
    rows: list[SeriesCells]


class ValueRow(NamedTuple):
    """A version of a series, with the interval of its run if it is known."""

    point: TrendPoint
    value: Words
    interval: Words


class FilterChoice(NamedTuple):
    """A value of a property, and the series that it leads to."""

    name: str
    address: Words
    is_current: bool


def workload_anchor(workload: str) -> Words:
    """The place of a workload in the list of series: a readable part, and a unique one."""
    digest = hashlib.sha256(workload.encode(errors="replace")).hexdigest()[:6]
    name = _NOT_PLAIN.sub("-", workload.lower()).strip("-")[:40]
    return Words(f"{name}-{digest}".lstrip("-"))


def render_series_list(page: SitePage) -> str:
    """All series, by workload."""
    listed = sorted(
        page.content.trend.series,
        key=lambda entry: (entry.workload, not entry.current, entry.shape),
    )
    groups: dict[str, SeriesGroup] = {}
    for entry in listed[:_MAX_ROWS]:
        name = entry.workload
        group = groups.setdefault(name, SeriesGroup(name, workload_anchor(name), []))
        group.rows.append(series_cells([entry]))
    return page.render(
        "series_list",
        say("Series"),
        count=len(listed),
        groups=list(groups.values()),
        more=numbers.beyond(listed, _MAX_ROWS),
    )


def render_series(series: TrendSeries, branch: str, page: SitePage) -> str:
    """The page of a series, of the runs of one branch alone if ``branch`` is not empty."""
    points = series.points[-_MAX_VALUES:]
    values = [_value_row(point, series) for point in reversed(points)]
    return page.render(
        "series",
        Words(f"{metric_name(series.metric)} · {clean(series.place_words)}"),
        series=series,
        branch=branch,
        filters=_filters(series, page, branch),
        plot=trend_svg.series_plot(
            [series], None, lambda point: page.to_run(point.run_id)
        ),
        rows=[
            moved_cells(MovedSeries(series, change), page)
            for change in reversed(series.changes)
        ],
        has_open=is_regressed(series),
        values=values[:_VALUES_SHOWN],
        more_values=values[_VALUES_SHOWN:],
        left_out=numbers.beyond(series.points, _MAX_VALUES),
    )


def _value_row(point: TrendPoint, series: TrendSeries) -> ValueRow:
    ends = point.interval or (None, None)
    value, low, high = formats.quantities([point.value, *ends], series)
    interval = EMPTY
    if point.interval:
        interval = numbers.reach(low, high)
    return ValueRow(point, value, interval)


def _filters(
    series: TrendSeries, page: SitePage, branch: str
) -> list[tuple[Words, list[FilterChoice]]]:
    """The ways to the neighbours of a series: for each property its other values, the
    rest unchanged if possible.
    """
    names = say("workload"), say("shape"), say("metric"), say("testbed")
    filters = []
    for number, name in enumerate(names):
        choices = _choices(number, series, page, branch)
        if len(choices) > 1:
            filters.append((name, choices))
    branches = _branches(series, page, branch)
    if len(branches) > 1:
        filters.append((say("branch"), branches))
    return filters


def _choices(
    number: int, series: TrendSeries, page: SitePage, branch: str
) -> list[FilterChoice]:
    """The values of one property: each leads to the series with most of the other
    properties in common.
    """
    own = _properties(series)
    best: dict[str, tuple[int, TrendSeries]] = {}
    candidates = page.content.trend.series
    if branch:
        candidates = page.content.branches.get(branch, [])
    for entry in candidates:
        theirs = _properties(entry)
        same = sum(a == b for a, b in zip(own, theirs)) - (
            own[number] == theirs[number]
        )
        # A metric is chosen for the same place, a place for the same metric; a workload
        # may have other shapes.
        is_near = same == len(own) - 1 or (number == 0 and own[2] == theirs[2])
        value = theirs[number]
        if is_near and (value not in best or same > best[value][0]):
            best[value] = (same, entry)
    choices = []
    for value, (_, entry) in list(best.items())[:_MAX_CHOICES]:
        address = page.to_series(entry, branch)
        if address:
            choices.append(FilterChoice(value, address, value == own[number]))
    return choices


def _branches(series: TrendSeries, page: SitePage, branch: str) -> list[FilterChoice]:
    choices = [FilterChoice(say("all"), page.to_series(series), not branch)]
    for name, entries in page.content.branches.items():
        if any(entry.key == series.key for entry in entries):
            choices.append(
                FilterChoice(name, page.to_series(series, name), name == branch)
            )
    return [choice for choice in choices if choice.address]


def _properties(series: TrendSeries) -> tuple[str, str, str, str]:
    """Workload, shape, metric and testbed, as a page names them."""
    shape = place_of(series.shape or "–", "", series.labels)
    return series.workload, shape, metric_name(series.metric), series.fingerprint[:10]
