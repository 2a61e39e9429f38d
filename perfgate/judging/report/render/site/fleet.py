"""fleet.html: each testbed with its last run, queue, clock, temperature, noise floor, disturbed runs; the steps over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from perfgate.document.clocks import CLOCK_SLACK
from perfgate.document.conditions import BUSY
from perfgate.document.history import moment
from perfgate.document.site import SiteContent
from perfgate.document.trend import RunHealth, TestbedSpan
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.addresses import FLEET, SiteLinks
from perfgate.judging.report.render.site.cells import testbed_anchor, testbed_link, under
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.render.trend_page import health_cells, step_titles, testbed_cells
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import day, uplift_row
from perfgate.locale import Language, speaking

_MAX_TESTBEDS, _MAX_RUNS, _MAX_COLUMNS = 200, 60, 40
_RECENT = timedelta(days=28)
# Taking a free machine takes less.
_QUEUED_SECONDS = 1.0
_CLOCK_CODES = ("notes.clock-behind", "notes.clock-set-back")


def render_fleet(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        root = links.root(FLEET)
        trend = content.trend
        spans = sorted(trend.testbeds, key=lambda span: span.last_seen, reverse=True)
        newest = trend.health[-_MAX_COLUMNS:]
        values = {
            "title": say("Machines"),
            "count": len(spans),
            "testbeds": [_testbed(span, content, root) for span in spans[:_MAX_TESTBEDS]],
            "more": max(0, len(spans) - _MAX_TESTBEDS),
            "uplifts": [uplift_row(one, trend, most=_MAX_COLUMNS) for one in trend.uplifts[:_MAX_TESTBEDS]],
            "opened": len(trend.health),
            "matrix": trend_svg.steps_matrix(newest, step_titles(newest)) if newest else Words(""),
            "statuses": trend_svg.steps_legend(),
            "weeks": trend_svg.weeks_bars(trend.weeks),
            "runs": [_run(run, links, root) for run in reversed(trend.health[-_MAX_RUNS:])],
            "notes": trend.notes[:_MAX_RUNS],
        }
        return render_page("site/fleet.html.j2", FLEET, content, links, values)


def _testbed(span: TestbedSpan, content: SiteContent, root: Words) -> Mapping[str, object]:
    runs = [run for run in content.runs if run.fingerprint == span.fingerprint]
    health = [run for run in content.trend.health if run.fingerprint == span.fingerprint]
    read = moment(content.trend.made_at)
    away = read - moment(span.last_seen)
    floors = [run.noise_floor for run in health if run.noise_floor is not None]
    # What the newest run with a wrong clock shows of it, apart from a clock that is ahead.
    ahead = max((moment(run.started_at) - moment(run.recorded_at) for run in runs), default=timedelta())
    clock_notes = ([note for note in run.warnings if note.code in _CLOCK_CODES] for run in reversed(health))
    return {
        **testbed_cells(span),
        **testbed_link(span.fingerprint, content, root),
        "anchor": testbed_anchor(span.fingerprint),
        "kind": span.device_kind,
        "first": day(span.first_seen),
        "last": day(span.last_seen),
        "days": max(0, away.days),
        "is_silent": away > _RECENT,
        "recent": sum(read - moment(run.started_at) <= _RECENT for run in runs),
        "opened": len(health),
        "queue": _queue(health),
        "disturbed": sum(run.waited is not None and run.waited >= BUSY for run in health),
        "knows_waits": any(run.waited is not None for run in health),
        "failed": sum(bool(run.failed) for run in health),
        "throttled": sum(bool(run.throttled) for run in health),
        "knows_throttling": any(run.throttled is not None for run in health),
        "temperature": _range([run.temperature for run in health], "Cel"),
        "clock": _range([run.clock for run in health], "1", metric="thermal.clock"),
        "floor": numbers.plus_minus(max(floors)) if floors else numbers.DASH,
        # How far the clock of the machine is ahead: its runs were stored before they began.
        "clock_ahead": numbers.duration(ahead.total_seconds()) if ahead > CLOCK_SLACK else Words(""),
        "clock_notes": next((notes for notes in clock_notes if notes), []),
    }


def _range(values: Sequence[float | None], unit: str, metric: str = "") -> Words:
    known = [value for value in values if value is not None]
    if not known:
        return numbers.DASH
    return numbers.reach(*formats.quantities([min(known), max(known)], unit, metric=metric))


def _queue(health: Sequence[RunHealth]) -> Words:
    """How many runs waited in line for the machine, and how long at most."""
    known = [run.queued for run in health if run.queued is not None]
    if not known:
        return say("not recorded")
    waited = [seconds for seconds in known if seconds >= _QUEUED_SECONDS]
    opened = numbers.counted(len(known), "run")
    if not waited:
        return say("none of the newest {opened}", opened=opened)
    longest = numbers.duration(max(waited))
    return say("{count} of the newest {opened}, {longest} at most", count=len(waited), opened=opened, longest=longest)


def _run(run: RunHealth, links: SiteLinks, root: Words) -> Mapping[str, object]:
    return {
        **health_cells(run),
        "address": under(root, links.run(run.run_id)),
        "clock": formats.quantity(run.clock, "1", metric="thermal.clock"),
        "queued": numbers.DASH if run.queued is None else numbers.duration(run.queued),
        "waited": numbers.DASH if run.waited is None else numbers.percent(run.waited),
        "is_disturbed": run.waited is not None and run.waited >= BUSY,
    }
