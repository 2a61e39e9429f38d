"""series/: the list of all series, and the page of one: its chart, changes, values, and the way to its neighbours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendPoint, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import ALL_SERIES, SiteLinks, series_address
from perfgate.judging.report.render.site.cells import is_regressed, moved_cells, testbed_link, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.render.trend_page import series_cells
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import MovedSeries, day, short
from perfgate.locale import Language, speaking

_MAX_ROWS, _MAX_CHOICES, _MAX_VALUES, _VALUES_SHOWN = 2000, 60, 240, 12
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
# The series that a filter leads to, by the property that alone differs: none may be there.
Choice = tuple[str, TrendSeries]


def workload_anchor(workload: str) -> Words:
    """The place of a workload in the list of series: a readable part, and a unique one."""
    digest = hashlib.sha256(workload.encode(errors="replace")).hexdigest()[:6]
    return Words(f"{_NOT_PLAIN.sub('-', workload.lower()).strip('-')[:40]}-{digest}".lstrip("-"))


def render_series_list(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root = links.root(ALL_SERIES)
        listed = sorted(content.trend.series, key=lambda entry: (entry.workload, not entry.current, entry.shape))
        groups: dict[str, list[TrendSeries]] = {}
        for entry in listed[:_MAX_ROWS]:
            groups.setdefault(entry.workload, []).append(entry)
        values = {
            "title": say("Series"),
            "count": len(listed),
            "groups": [
                {
                    "name": name,
                    "anchor": workload_anchor(name),
                    "rows": [
                        {
                            **series_cells([entry]),
                            "address": under(root, links.series(entry)),
                            "testbed": testbed_link(entry.fingerprint, content, root),
                        }
                        for entry in entries
                    ],
                }
                for name, entries in groups.items()
            ],
            "more": max(0, len(listed) - _MAX_ROWS),
            "not_looked_at": content.trend.not_looked_at,
        }
        return render_page("site/series_list.html.j2", ALL_SERIES, content, links, values)


def render_series(
    series: TrendSeries, content: SiteContent, links: SiteLinks, language: Language, *, branch: str = ""
) -> str:
    """The page of a series, of the runs of one branch alone if ``branch`` is not empty."""
    with speaking(language):
        address = series_address(series, branch)
        root = links.root(address)
        changes = [moved_cells(MovedSeries(series, change), links, root) for change in reversed(series.changes)]
        rows = [_value_row(point, series, links, root) for point in reversed(series.points[-_MAX_VALUES:])]
        name, place = metric_name(series.metric), place_of(series.workload, series.shape, series.labels)
        values = {
            "title": Words(f"{name} · {place}"),
            "metric": name,
            "place": place,
            "branch": branch,
            "testbed": testbed_link(series.fingerprint, content, root),
            "newest_value": formats.quantity(series.points[-1].value, series.unit, metric=series.metric),
            "noise": numbers.plus_minus(series.noise) if series.noise is not None else Words(""),
            "versions": len(series.points),
            "current": series.current,
            "informing": series.informing,
            "filters": _filters(series, content, links, root, branch),
            "plot": trend_svg.series_plot([series], None, lambda point: under(root, links.run(point.run_id))),
            "rows": changes,
            "has_open": is_regressed(series),
            "values": rows[:_VALUES_SHOWN],
            "more_values": rows[_VALUES_SHOWN:],
            "left_out": max(0, len(series.points) - _MAX_VALUES),
        }
        return render_page("site/series.html.j2", address, content, links, values)


def _value_row(point: TrendPoint, series: TrendSeries, links: SiteLinks, root: Words) -> Mapping[str, object]:
    low, high = point.interval or (None, None)
    value, *ends = formats.quantities([point.value, low, high], series.unit, metric=series.metric)
    return {
        "when": day(point.started_at),
        "commit": short(point.commit),
        "value": value,
        "interval": Words("") if low is None or high is None else numbers.reach(*ends),
        "runs": point.runs,
        "address": under(root, links.run(point.run_id)),
    }


def _filters(
    series: TrendSeries, content: SiteContent, links: SiteLinks, root: Words, branch: str
) -> list[Mapping[str, object]]:
    """The ways to the neighbours of a series: for each property the other values of it, the rest as it is if possible."""
    everything = content.branches.get(branch, []) if branch else content.trend.series
    properties: dict[Words, Callable[[TrendSeries], str]] = {
        say("workload"): lambda entry: entry.workload,
        say("shape"): lambda entry: place_of(entry.shape or "–", "", entry.labels),
        say("metric"): lambda entry: metric_name(entry.metric),
        say("testbed"): lambda entry: entry.fingerprint[:10],
    }
    rows = [
        {"name": name, "choices": _choices(series, everything, number, list(properties.values()), links, root, branch)}
        for number, name in enumerate(properties)
    ]
    if content.branches:
        rows.append({"name": say("branch"), "choices": _branch_choices(series, content, links, root, branch)})
    return [row for row in rows if len(row["choices"]) > 1]


def _choices(
    series: TrendSeries,
    everything: Sequence[TrendSeries],
    number: int,
    properties: Sequence[Callable[[TrendSeries], str]],
    links: SiteLinks,
    root: Words,
    branch: str,
) -> list[Mapping[str, object]]:
    """The values of one property: each leads to the series with most of the other properties in common."""
    own = [of(series) for of in properties]
    best: dict[str, tuple[int, TrendSeries]] = {}
    for entry in everything:
        theirs = [of(entry) for of in properties]
        # A metric is chosen for the same place, a place for the same metric; a workload may have other shapes.
        same = sum(a == b for index, (a, b) in enumerate(zip(own, theirs)) if index != number)
        is_near = same == len(own) - 1 or (number == 0 and own[2] == theirs[2])
        value = theirs[number]
        if is_near and (value not in best or same > best[value][0]):
            best[value] = (same, entry)
    listed = list(best.items())
    return [
        {
            "name": value,
            "address": under(root, links.series(entry, branch)),
            "is_current": value == own[number],
        }
        for value, (_, entry) in listed[:_MAX_CHOICES]
        if links.series(entry, branch)
    ]


def _branch_choices(
    series: TrendSeries, content: SiteContent, links: SiteLinks, root: Words, branch: str
) -> list[Mapping[str, object]]:
    choices = [{"name": say("all"), "address": under(root, links.series(series)), "is_current": not branch}]
    for name, entries in content.branches.items():
        if any(entry.key == series.key for entry in entries):
            address = under(root, links.series(series, name))
            choices.append({"name": name, "address": address, "is_current": name == branch})
    return [choice for choice in choices if choice["address"]]
