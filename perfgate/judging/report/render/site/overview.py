"""index.html: open regressions, every workload with its leading numbers, and when each
machine was last seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import (
    E2E,
    NUMBER,
    P50,
    P99,
    RANKS_STEP,
    SERVING_THROUGHPUT,
    THROUGHPUT,
    TPOT,
    TTFT,
)
from perfgate.document.trend import TrendDocument, TrendSeries
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.cells import cause_card, is_regressed
from perfgate.judging.report.render.site.page import ALL_SERIES, GATES, OPEN, SitePage
from perfgate.judging.report.render.site.series import workload_anchor
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import (
    ChangeView,
    MovedSeries,
    change_row,
    gates_line,
    mark_of,
    searched,
    sort_causes,
)

_MAX_CARDS, _MAX_BETTER, _MAX_WORKLOADS, _MAX_PLACES, _MAX_NUMBERS = 12, 6, 60, 12, 4
_MAX_TESTBEDS = 12
# The numbers that lead a workload, as far as it has them; then those that lead the
# steps of the checklist.
_FIRST = (
    P50,
    P99,
    TTFT,
    TPOT,
    E2E,
    RANKS_STEP,
    "command.seconds",
    THROUGHPUT,
    SERVING_THROUGHPUT,
    "memory.peak",
)
_RANKS = {name: rank for rank, name in enumerate(_FIRST)}
for _name, _metric in METRICS.items():
    if _metric.display.leading:
        _RANKS.setdefault(_name, len(_RANKS))


class NumberCells(NamedTuple):
    """A leading number of a place, with its last change."""

    series: TrendSeries
    plot: Markup
    change: ChangeView | None

    @property
    def is_open(self) -> bool:
        return self.change is not None and self.change.source.is_unsettled

    @property
    def is_worse(self) -> bool:
        return self.change is not None and self.change.source.is_open_regression


class PlaceCells(NamedTuple):
    """A shape of a workload on a testbed, which is named if there are several."""

    shape: str
    testbed: str
    numbers: Sequence[NumberCells]


class WorkloadCells(NamedTuple):
    """A workload with its first places, and how many series it has in all."""

    name: str
    places: Sequence[PlaceCells]
    more: int
    series: int
    address: Words


def render_overview(page: SitePage) -> str:
    """The first page."""
    trend = page.content.trend
    causes = trend.open_regressions
    better = sort_causes(trend).new_better
    workloads = _by_workload(trend.series)
    spans = sorted(trend.testbeds, key=lambda span: span.last_seen, reverse=True)[
        :_MAX_TESTBEDS
    ]
    cards = [cause_card(cause, page) for cause in causes[:_MAX_CARDS]]
    better_cards = [cause_card(cause, page) for cause in better[:_MAX_BETTER]]
    return page.render(
        "overview",
        say("Overview"),
        mark=mark_of(trend, is_bad=bool(causes)),
        headline=_headline(trend),
        searched=searched(trend),
        cards=cards,
        more_cards=numbers.beyond(causes, _MAX_CARDS),
        better=better_cards,
        more_better=numbers.beyond(better, _MAX_BETTER),
        gates=gates_line(trend),
        workloads=[_workload(series) for series in workloads[:_MAX_WORKLOADS]],
        more_workloads=numbers.beyond(workloads, _MAX_WORKLOADS),
        spans=spans,
        notes=trend.notes[:_MAX_CARDS],
        open_page=OPEN,
        gates_page=GATES,
    )


def _headline(trend: TrendDocument) -> Words:
    causes = trend.open_regressions
    if causes:
        return say(
            "{regressions} open", regressions=numbers.counted(len(causes), "regression")
        )
    if trend.searched.looked_at:
        return say("no regression is open")
    return say("too few runs to look at yet")


def _by_workload(series: Sequence[TrendSeries]) -> list[list[TrendSeries]]:
    """The current series of each workload, most regressions first: a wall screen shows
    only the top.
    """
    workloads: dict[str, list[TrendSeries]] = {}
    for entry in series:
        if entry.current and entry.points:
            workloads.setdefault(entry.workload, []).append(entry)
    return sorted(workloads.values(), key=lambda group: -sum(map(is_regressed, group)))


def _workload(series: Sequence[TrendSeries]) -> WorkloadCells:
    name = series[0].workload
    several = len({entry.fingerprint for entry in series}) > 1
    places = _places(series)
    cells = []
    for entries in places[:_MAX_PLACES]:
        testbed = ""
        if several:
            testbed = entries[0].fingerprint[:10]
        leading = list(map(_number, _leading(entries)))
        cells.append(PlaceCells(entries[0].shape, testbed, leading))
    address = Words(f"{ALL_SERIES}#{workload_anchor(name)}")
    return WorkloadCells(
        name, cells, numbers.beyond(places, _MAX_PLACES), len(series), address
    )


def _places(series: Sequence[TrendSeries]) -> list[list[TrendSeries]]:
    """The series of each shape on each testbed.

    Numbers of the workload as a whole only inform about it; they lead if it has no
    others.
    """
    places: dict[tuple[str, str], list[TrendSeries]] = {}
    for entry in series:
        if not entry.labels:
            places.setdefault((entry.shape, entry.fingerprint), []).append(entry)
    judged = []
    for entries in places.values():
        if not all(entry.informing for entry in entries):
            judged.append(entries)
    return judged or list(places.values())


def _leading(series: Sequence[TrendSeries]) -> list[TrendSeries]:
    """The few numbers that stand for a place: those that users feel first, then the
    command's own.
    """
    judged = []
    informing = []
    for entry in series:
        if entry.metric in _RANKS or entry.metric.startswith(NUMBER):
            if entry.informing:
                informing.append(entry)
            else:
                judged.append(entry)
    # Informing numbers represent only a place without judged numbers.
    leading = judged or informing
    leading.sort(key=lambda entry: _RANKS.get(entry.metric, len(_FIRST)))
    return leading[:_MAX_NUMBERS]


def _number(series: TrendSeries) -> NumberCells:
    last = None
    for change in series.changes:
        if change.standing != "refuted":
            last = change_row(MovedSeries(series, change))
    return NumberCells(series, trend_svg.small_plot(series), last)
