"""series/: the list of all series, and the page of one: its chart, changes, values, and the way to its neighbours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from perfgate.document.site import SiteContent
from perfgate.document.trend import NotLookedAt, TrendPoint, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import ALL_SERIES, SiteLinks, series_address
from perfgate.judging.report.render.site.cells import TestbedLink, is_regressed, moved_cells, testbed_link, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.render.trend_page import ChangeCells, SeriesCells, noise_words, series_cells
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import MovedSeries
from perfgate.locale import Language, speaking

_MAX_ROWS, _MAX_CHOICES, _MAX_VALUES, _VALUES_SHOWN = 2000, 60, 240, 12
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class ListedSeries:
    """A series as a row of the list, with its page and its testbed."""

    cells: SeriesCells
    address: Words
    testbed: TestbedLink


@dataclass(frozen=True)
class SeriesGroup:
    """The series of a workload."""

    name: str
    anchor: Words
    rows: list[ListedSeries]


@dataclass(frozen=True)
class SeriesList(TemplateView):
    """All series, by workload."""

    count: int
    groups: Sequence[SeriesGroup]
    more: int
    not_looked_at: Sequence[NotLookedAt]


@dataclass(frozen=True)
class ValueRow:
    """A version of a series, with the interval of its run if it is known."""

    point: TrendPoint
    value: Words
    interval: Words
    address: Words


@dataclass(frozen=True)
class FilterChoice:
    """A value of a property, and the series that it leads to."""

    name: str
    address: Words
    is_current: bool


@dataclass(frozen=True)
class SeriesFilter:
    """A property of a series with the other values of it."""

    name: Words
    choices: Sequence[FilterChoice]


@dataclass(frozen=True)
class SeriesPage(TemplateView):
    """A series, of the runs of one branch alone if ``branch`` is not empty."""

    series: TrendSeries
    metric: str
    place: str
    branch: str
    testbed: TestbedLink
    newest_value: Words
    noise: Words
    filters: Sequence[SeriesFilter]
    plot: Markup
    rows: Sequence[ChangeCells]
    has_open: bool
    values: Sequence[ValueRow]
    more_values: Sequence[ValueRow]
    left_out: int


def workload_anchor(workload: str) -> Words:
    """The place of a workload in the list of series: a readable part, and a unique one."""
    digest = hashlib.sha256(workload.encode(errors="replace")).hexdigest()[:6]
    name = _NOT_PLAIN.sub("-", workload.lower()).strip("-")[:40]
    return Words(f"{name}-{digest}".lstrip("-"))


def render_series_list(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root = links.root(ALL_SERIES)
        listed = sorted(content.trend.series, key=lambda entry: (entry.workload, not entry.current, entry.shape))
        groups: dict[str, SeriesGroup] = {}
        for entry in listed[:_MAX_ROWS]:
            name = entry.workload
            group = groups.setdefault(name, SeriesGroup(name, workload_anchor(name), []))
            testbed = testbed_link(entry.fingerprint, content, root)
            group.rows.append(ListedSeries(series_cells([entry]), under(root, links.series(entry)), testbed))
        not_looked_at = content.trend.not_looked_at
        page = SeriesList(len(listed), list(groups.values()), numbers.beyond(listed, _MAX_ROWS), not_looked_at)
        return render_page("site/series_list.html.j2", say("Series"), ALL_SERIES, content, links, page)


def render_series(
    series: TrendSeries, content: SiteContent, links: SiteLinks, language: Language, *, branch: str = ""
) -> str:
    with speaking(language):
        address = series_address(series, branch)
        root = links.root(address)
        points = series.points[-_MAX_VALUES:]
        values = [_value_row(point, series, links, root) for point in reversed(points)]
        metric, place = metric_name(series.metric), place_of(series.workload, series.shape, series.labels)
        page = SeriesPage(
            series=series,
            metric=metric,
            place=place,
            branch=branch,
            testbed=testbed_link(series.fingerprint, content, root),
            newest_value=formats.quantity(series.points[-1].value, series.unit, metric=series.metric),
            noise=noise_words(series),
            filters=_Filters(series, content, links, root, branch).all(),
            plot=trend_svg.series_plot([series], None, lambda point: under(root, links.run(point.run_id))),
            rows=[moved_cells(MovedSeries(series, change), links, root) for change in reversed(series.changes)],
            has_open=is_regressed(series),
            values=values[:_VALUES_SHOWN],
            more_values=values[_VALUES_SHOWN:],
            left_out=numbers.beyond(series.points, _MAX_VALUES),
        )
        title = Words(f"{metric} · {clean(place)}")
        return render_page("site/series.html.j2", title, address, content, links, page)


def _value_row(point: TrendPoint, series: TrendSeries, links: SiteLinks, root: Words) -> ValueRow:
    ends = point.interval or (None, None)
    value, low, high = formats.quantities([point.value, *ends], series.unit, metric=series.metric)
    interval = Words("") if None in ends else numbers.reach(low, high)
    return ValueRow(point, value, interval, under(root, links.run(point.run_id)))


class _Filters:
    """The ways to the neighbours of a series: for each property the other values of it, the rest as it is if possible."""

    def __init__(self, series: TrendSeries, content: SiteContent, links: SiteLinks, root: Words, branch: str) -> None:
        self._series, self._content = series, content
        self._links, self._root, self._branch = links, root, branch

    def all(self) -> list[SeriesFilter]:
        names = say("workload"), say("shape"), say("metric"), say("testbed")
        filters = [SeriesFilter(name, self._choices(number)) for number, name in enumerate(names)]
        if self._content.branches:
            filters.append(SeriesFilter(say("branch"), self._branches()))
        return [entry for entry in filters if len(entry.choices) > 1]

    def _choices(self, number: int) -> list[FilterChoice]:
        """The values of one property: each leads to the series with most of the other properties in common."""
        own = _properties(self._series)
        best: dict[str, tuple[int, TrendSeries]] = {}
        for entry in self._content.branches.get(self._branch, []) if self._branch else self._content.trend.series:
            theirs = _properties(entry)
            same = sum(a == b for a, b in zip(own, theirs)) - (own[number] == theirs[number])
            # A metric is chosen for the same place, a place for the same metric; a workload may have other shapes.
            is_near = same == len(own) - 1 or (number == 0 and own[2] == theirs[2])
            value = theirs[number]
            if is_near and (value not in best or same > best[value][0]):
                best[value] = (same, entry)
        choices = []
        for value, (_, entry) in list(best.items())[:_MAX_CHOICES]:
            address = self._links.series(entry, self._branch)
            if address:
                choices.append(FilterChoice(value, under(self._root, address), value == own[number]))
        return choices

    def _branches(self) -> list[FilterChoice]:
        main = under(self._root, self._links.series(self._series))
        choices = [FilterChoice(say("all"), main, not self._branch)]
        for name, entries in self._content.branches.items():
            if any(entry.key == self._series.key for entry in entries):
                address = under(self._root, self._links.series(self._series, name))
                choices.append(FilterChoice(name, address, name == self._branch))
        return [choice for choice in choices if choice.address]


def _properties(series: TrendSeries) -> tuple[str, str, str, str]:
    """Workload, shape, metric and testbed, as a page names them."""
    shape = place_of(series.shape or "–", "", series.labels)
    return series.workload, shape, metric_name(series.metric), series.fingerprint[:10]
