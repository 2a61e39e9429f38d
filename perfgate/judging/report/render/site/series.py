"""series/: the list of all series, and the page of one: its chart, changes, values, and
the way to its neighbours.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
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
    rows = []
    for change in reversed(series.changes):
        rows.append(moved_cells(MovedSeries(series, change), page))
    plot = trend_svg.series_plot(
        [series], None, lambda point: page.to_run(point.run_id)
    )
    return page.render(
        "series",
        Words(f"{metric_name(series.metric)} · {clean(series.place_words)}"),
        series=series,
        branch=branch,
        filters=_Neighbours(series, branch, page).filters(),
        plot=plot,
        rows=rows,
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


class _Properties(NamedTuple):
    """The properties of a series, as a page names them."""

    workload: str
    shape: str
    metric: str
    testbed: str

    @classmethod
    def of(cls, series: TrendSeries) -> _Properties:
        shape = place_of(series.shape or "–", "", series.labels)
        testbed = series.fingerprint[:10]
        return cls(series.workload, shape, metric_name(series.metric), testbed)

    def differing(self, other: _Properties) -> set[str]:
        """The names of the properties that differ."""
        names = zip(self._fields, self, other)
        return {name for name, own, theirs in names if own != theirs}


class _Neighbours:
    """The ways from a series, of all runs or of those of a branch, to its neighbours."""

    def __init__(self, series: TrendSeries, branch: str, page: SitePage) -> None:
        self._series = series
        self._own = _Properties.of(series)
        self._branch = branch
        self._page = page

    def filters(self) -> list[tuple[Words, list[FilterChoice]]]:
        """For each property its other values, the rest unchanged if possible."""
        filters = [
            (say("workload"), self._choices("workload")),
            (say("shape"), self._choices("shape")),
            (say("metric"), self._choices("metric")),
            (say("testbed"), self._choices("testbed")),
            (say("branch"), self._branches()),
        ]
        return [(name, choices) for name, choices in filters if len(choices) > 1]

    def _choices(self, name: str) -> list[FilterChoice]:
        """The values of one property: each leads to the series with most of the other
        properties in common.

        A metric is chosen for the same place, a place for the same metric; a workload
        may have other shapes.
        """
        nearest: dict[str, TrendSeries] = {}
        distances: dict[str, int] = {}
        for entry in self._candidates():
            properties = _Properties.of(entry)
            differing = self._own.differing(properties) - {name}
            if differing and (name != "workload" or "metric" in differing):
                continue
            value = properties._asdict()[name]
            if value not in nearest or len(differing) < distances[value]:
                nearest[value] = entry
                distances[value] = len(differing)
        own = self._own._asdict()[name]
        choices = []
        for value, entry in list(nearest.items())[:_MAX_CHOICES]:
            address = self._page.to_series(entry, self._branch)
            choices.append(FilterChoice(value, address, value == own))
        return _with_page(choices)

    def _candidates(self) -> Sequence[TrendSeries]:
        content = self._page.content
        if self._branch:
            return content.branches.get(self._branch, [])
        return content.trend.series

    def _branches(self) -> list[FilterChoice]:
        series = self._series
        choices = [
            FilterChoice(say("all"), self._page.to_series(series), not self._branch)
        ]
        for name, entries in self._page.content.branches.items():
            if any(entry.key == series.key for entry in entries):
                address = self._page.to_series(series, name)
                choices.append(FilterChoice(name, address, name == self._branch))
        return _with_page(choices)


def _with_page(choices: Iterable[FilterChoice]) -> list[FilterChoice]:
    return [choice for choice in choices if choice.address]
