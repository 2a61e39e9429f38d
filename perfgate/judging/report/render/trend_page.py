"""trend.html: every series, the checklist and the runner over time; one self-contained page, no network, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.catalogue.lookup import CARDS
from perfgate.document.kept import KeptLink
from perfgate.document.trend import RunHealth, TestbedSpan, TrendCause, TrendDocument, TrendSeries, place_of
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.templates import environment, inlined, is_linkable
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import (
    MovedSeries,
    cause_row,
    change_row,
    day,
    expired_row,
    gates_line,
    headline,
    moved_by,
    searched,
    short,
    sort_causes,
    uplift_row,
)
from perfgate.locale import Language, speaking

MAX_PICTURES = 60
_MAX_ROWS = 1000
_MAX_NAMES = 60
_STEPS = range(1, 20)

Group = Sequence[TrendSeries]


def render_trend_page(
    document: TrendDocument, language: Language = "en", kept: Mapping[str, Sequence[KeptLink]] | None = None
) -> str:
    """The page; ``kept`` are the kept files of runs beside changes, by the id of the run."""
    with speaking(language):
        return _render(document, kept or {})


def _render(document: TrendDocument, kept: Mapping[str, Sequence[KeptLink]]) -> str:
    groups = _groups(document)
    causes = sort_causes(document)
    worse, still = causes.new_worse, causes.still_open
    values = {
        **inlined("page/style.css", "trend/style.css"),
        "project": document.project,
        "mark": Words("FAIL" if worse or still else "PASS" if document.looked_at else "SKIPPED"),
        "headline": headline(document),
        "newest": day(document.newest),
        "runs": document.runs,
        "searched": searched(document),
        "gates": gates_line(document),
        "pictures": [_picture(cause, document, groups, kept) for cause in document.causes[:MAX_PICTURES]],
        "more_pictures": max(0, len(document.causes) - MAX_PICTURES),
        "gone": document.gone[:_MAX_ROWS],
        "uplifts": [uplift_row(one, document, most=_MAX_NAMES) for one in document.uplifts][:_MAX_ROWS],
        "expired": [expired_row(entry) for entry in document.expired[:_MAX_ROWS]],
        "rows": [series_cells(group) for group in groups[:_MAX_ROWS]],
        "matrix": trend_svg.steps_matrix(document.health, step_titles(document.health))
        if document.health
        else Words(""),
        "statuses": trend_svg.steps_legend(),
        "weeks": trend_svg.weeks_bars(document.weeks),
        "testbeds": [testbed_cells(span) for span in reversed(document.testbeds)],
        "has_pairs": any(run.discarded is not None or run.noise_floor is not None for run in document.health),
        "health": [health_cells(run) for run in reversed(document.health)],
        "not_looked_at": [
            {
                "series": entry.series,
                "reason": Words(entry.reason),
                "names": entry.names[:_MAX_NAMES],
                "more": max(0, len(entry.names) - _MAX_NAMES),
            }
            for entry in document.not_looked_at
        ],
        "notes": document.notes[:_MAX_ROWS],
        "version": document.perfgate_version,
    }
    return environment("html").get_template("trend/page.html.j2").render(values)


def _groups(document: TrendDocument) -> list[Group]:
    order = {span.fingerprint: index for index, span in enumerate(document.testbeds)}
    found: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], list[TrendSeries]] = {}
    for series in document.series:
        key = (series.workload, series.shape, series.metric, tuple(sorted(series.labels.items())))
        found.setdefault(key, []).append(series)
    groups = [sorted(group, key=lambda series: order.get(series.fingerprint, 0)) for group in found.values()]
    return sorted(groups, key=lambda group: (-_weight(group), group[0].workload, group[0].shape, group[0].metric))


def _weight(group: Group) -> float:
    sizes = [
        (2.0 if change.direction == "worse" and change.standing in ("new", "open") else 1.0)
        + min(abs(change.delta or 1.0), 1.0)
        for series in group
        for change in series.changes
        if change.standing in ("new", "open") or change.news
    ]
    return max(sizes, default=0.0)


def _picture(
    cause: TrendCause, document: TrendDocument, groups: Sequence[Group], kept: Mapping[str, Sequence[KeptLink]]
) -> Mapping[str, object]:
    """One cause: the history of its leading change, and everything else that it moved."""
    lead, *others = moved_by(cause, document)
    group = next(group for group in groups if any(series is lead.series for series in group))
    return {
        "row": cause_row(cause, document, most=0),
        "plot": trend_svg.series_plot(group, cause.first_bad or ""),
        "noise": numbers.plus_minus(lead.series.noise) if lead.series.noise is not None else Words(""),
        "testbeds": len(group),
        "change": change_cells(lead),
        "others": [change_cells(moved) for moved in others[:_MAX_ROWS]],
        "kept": [
            {"side": side, "links": [(link.path, Words(link.address)) for link in links if is_linkable(link.address)]}
            for side, run_id in zip((say("before"), say("after")), runs_beside(lead) if kept else ())
            if (links := kept.get(run_id))
        ],
    }


def runs_beside(moved: MovedSeries) -> tuple[str, str]:
    """The ids of the runs before and after a change."""
    points, at = moved.series.points, moved.change.at
    return points[at - 1].run_id, points[at].run_id


def change_cells(moved: MovedSeries) -> Mapping[str, object]:
    return {
        **change_row(moved),
        "direction": Words(moved.change.direction),
        "address": Words(""),
        "compare": Words(""),
        "told": _told(moved),
        "plot": trend_svg.small_plot(moved.series, moved.change.at),
    }


def _told(moved: MovedSeries) -> Words:
    words = {
        "new": say("new"),
        "open": say("open"),
        "resolved": say("the level is back"),
        "accepted": say("accepted"),
        "refuted": say("refuted"),
    }
    change = moved.change
    return (
        say("before the last report")
        if change.standing == "open" and change.direction != "worse"
        else words[change.standing]
    )


def series_cells(group: Group) -> Mapping[str, object]:
    last = group[-1]
    value = formats.quantity(last.points[-1].value, last.unit, metric=last.metric) if last.points else numbers.DASH
    open_changes = [c for c in last.changes if c.standing in ("new", "open") and last.current]
    newest = MovedSeries(last, open_changes[-1]) if open_changes else None
    return {
        "metric": metric_name(last.metric),
        "place": place_of(last.workload, last.shape, last.labels),
        "value": value,
        "plot": trend_svg.small_plot(last),
        "versions": len(last.points),
        "noise": numbers.DASH if last.noise is None else numbers.plus_minus(last.noise),
        "change": change_row(newest)["change"] if newest else Words(""),
        "direction": Words(newest.change.direction if newest else ""),
        "current": last.current,
    }


def step_titles(health: Sequence[RunHealth]) -> dict[int, str]:
    present = {int(number) for run in health for number in run.steps}
    return {number: say(CARDS[number].title) for number in _STEPS if number in present}


def testbed_cells(span: TestbedSpan) -> Mapping[str, object]:
    return {
        "fingerprint": span.fingerprint[:10],
        "kind": span.device_kind,
        "first": day(span.first_seen),
        "last": day(span.last_seen),
        "runs": span.runs,
        "differences": span.differences,
    }


def health_cells(run: RunHealth) -> Mapping[str, object]:
    return {
        "when": day(run.started_at),
        "commit": short(run.commit),
        "subject": run.subject or "",
        "testbed": run.fingerprint[:10],
        "attention": sum(status == "attention" for status in run.steps.values()),
        "failed": run.failed[:8],
        "warnings": run.warnings[:8],
        "floor": numbers.DASH if run.noise_floor is None else numbers.plus_minus(run.noise_floor),
        "discarded": numbers.DASH if run.discarded is None else numbers.percent(run.discarded),
        "temperature": formats.quantity(run.temperature, "Cel"),
        "throttled": numbers.DASH if run.throttled is None else numbers.percent(run.throttled),
    }
