"""index.html: what is open, every workload with its leading numbers, and when each machine was last seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import E2E, NUMBER, P50, P99, RANKS_STEP, SERVING_THROUGHPUT, THROUGHPUT, TPOT, TTFT
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendSeries
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import ALL_SERIES, GATES, OPEN, OVERVIEW, SiteLinks
from perfgate.judging.report.render.site.cells import cause_card, is_regressed, testbed_link
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.render.site.series import workload_anchor
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import MovedSeries, change_row, day, gates_line, searched, sort_causes
from perfgate.locale import Language, speaking

_MAX_CARDS, _MAX_BETTER, _MAX_WORKLOADS, _MAX_PLACES, _MAX_NUMBERS = 12, 6, 60, 12, 4
_MAX_TESTBEDS = 12
# The numbers that lead a workload, as far as it has them; then those that lead the steps of the checklist.
_FIRST = (P50, P99, TTFT, TPOT, E2E, RANKS_STEP, "command.seconds", THROUGHPUT, SERVING_THROUGHPUT, "memory.peak")
_ORDER = dict.fromkeys([*_FIRST, *(name for name, card in METRICS.items() if card.leading)])
_RANKS = {name: rank for rank, name in enumerate(_ORDER)}


def render_overview(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root = links.root(OVERVIEW)
        causes, better = content.trend.open_regressions, sort_causes(content.trend).new_better
        workloads = _by_workload(content)
        headline = say("no regression is open") if content.trend.looked_at else say("too few runs to look at yet")
        if causes:
            headline = say("{regressions} open", regressions=numbers.counted(len(causes), "regression"))
        values = {
            "title": say("Overview"),
            "mark": Words("FAIL" if causes else "PASS" if content.trend.looked_at else "SKIPPED"),
            "headline": headline,
            "runs": content.trend.runs,
            "searched": searched(content.trend),
            "cards": [cause_card(cause, content, links, root) for cause in causes[:_MAX_CARDS]],
            "more_cards": max(0, len(causes) - _MAX_CARDS),
            "better": [cause_card(cause, content, links, root) for cause in better[:_MAX_BETTER]],
            "more_better": max(0, len(better) - _MAX_BETTER),
            "open_page": Words(OPEN),
            "gates": gates_line(content.trend),
            "gates_page": Words(GATES),
            "workloads": [_workload(name, series, links) for name, series in list(workloads.items())[:_MAX_WORKLOADS]],
            "more_workloads": max(0, len(workloads) - _MAX_WORKLOADS),
            "testbeds": [
                {
                    **testbed_link(span.fingerprint, content, root),
                    "kind": span.device_kind,
                    "last": day(span.last_seen),
                    "runs": span.runs,
                }
                for span in sorted(content.trend.testbeds, key=lambda span: span.last_seen, reverse=True)[
                    :_MAX_TESTBEDS
                ]
            ],
            "notes": content.trend.notes[:_MAX_CARDS],
        }
        return render_page("site/overview.html.j2", OVERVIEW, content, links, values)


def _by_workload(content: SiteContent) -> dict[str, list[TrendSeries]]:
    found: dict[str, list[TrendSeries]] = {}
    for series in content.trend.series:
        if series.current and series.points:
            found.setdefault(series.workload, []).append(series)
    # A wall screen shows the beginning of the page alone.
    return dict(sorted(found.items(), key=lambda entry: -sum(map(is_regressed, entry[1]))))


def _workload(name: str, series: Sequence[TrendSeries], links: SiteLinks) -> Mapping[str, object]:
    places: dict[tuple[str, str], list[TrendSeries]] = {}
    for entry in series:
        if not entry.labels:
            places.setdefault((entry.shape, entry.fingerprint), []).append(entry)
    # Numbers of the workload as a whole only inform about it; they lead if it has no others.
    felt = {key: entries for key, entries in places.items() if not all(entry.informing for entry in entries)}
    places = felt or places
    shown = list(places.items())[:_MAX_PLACES]
    several = len({entry.fingerprint for entry in series}) > 1
    return {
        "name": name,
        "places": [
            {
                "shape": shape,
                "testbed": fingerprint[:10] if several else "",
                "numbers": [_number(entry, links) for entry in _leading(entries)],
            }
            for (shape, fingerprint), entries in shown
        ],
        "more": max(0, len(places) - _MAX_PLACES),
        "series": len(series),
        "address": Words(f"{ALL_SERIES}#{workload_anchor(name)}"),
    }


def _leading(series: Sequence[TrendSeries]) -> Iterator[TrendSeries]:
    """The few numbers that stand for a place: those that users feel first, then the command's own."""
    known = [entry for entry in series if entry.metric in _RANKS or entry.metric.startswith(NUMBER)]
    # What only informs stands for a place that has nothing else.
    known = [entry for entry in known if not entry.informing] or known
    yield from sorted(known, key=lambda entry: _RANKS.get(entry.metric, len(_FIRST)))[:_MAX_NUMBERS]


def _number(series: TrendSeries, links: SiteLinks) -> Mapping[str, object]:
    changes = [change for change in series.changes if change.standing != "refuted"]
    last = MovedSeries(series, changes[-1]) if changes else None
    return {
        "metric": metric_name(series.metric),
        "value": formats.quantity(series.points[-1].value, series.unit, metric=series.metric),
        "plot": trend_svg.small_plot(series),
        "address": links.series(series),
        "change": change_row(last) if last else None,
        "direction": Words(last.change.direction if last else ""),
        "is_open": last is not None and last.change.standing in ("new", "open"),
    }
