"""fleet.html: each testbed with its last run, queue, clock, temperature, noise floor,
disturbed runs; the steps over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from perfgate.document.clocks import CLOCK_SLACK
from perfgate.document.conditions import BUSY
from perfgate.document.history import moment
from perfgate.document.message import Message
from perfgate.document.site import MachineRuns, SiteContent
from perfgate.document.trend import RunHealth, TestbedSpan
from perfgate.judging.report.render import trend_svg
from perfgate.judging.report.render.site.page import SitePage
from perfgate.judging.report.render.trend_page import step_titles
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.judging.report.view.trend_rows import biased_machine_lines, uplift_row

_MAX_TESTBEDS, _MAX_RUNS, _MAX_COLUMNS = 200, 60, 40
_RECENT = timedelta(days=28)
# A run on a free machine waits less.
_QUEUED_SECONDS = 1.0
_CLOCK_CODES = ("notes.clock-behind", "notes.clock-set-back")


class MachineHealth(NamedTuple):
    """How the newest ``runs`` of a testbed went.

    The numbers of disturbed, throttled and failed runs are None if no run reports them.
    """

    runs: int
    queue: Words
    disturbed: int | None
    throttled: int | None
    failed: int | None
    temperature: Words
    clock: Words
    floor: Words


class FleetMachine(NamedTuple):
    """A testbed: its runs, how they went, and how far its clock is wrong.

    ``days`` have passed since its last run, and ``recent`` runs are of the last weeks.
    ``clock_ahead`` is how far its clock is ahead: its runs were stored before they
    began. ``clock_notes`` are the warnings about the clock of the newest run with any.
    """

    span: TestbedSpan
    days: int
    is_silent: bool
    recent: int
    health: MachineHealth
    clock_ahead: Words
    clock_notes: Sequence[Message]


def render_fleet(page: SitePage) -> str:
    """All testbeds, and the newest runs."""
    trend = page.content.trend
    health = trend.runs.health
    spans = sorted(trend.testbeds, key=lambda span: span.last_seen, reverse=True)
    uplifts = trend.uplifts[:_MAX_TESTBEDS]
    newest = health[-_MAX_COLUMNS:]
    runs = []
    for run in reversed(health[-_MAX_RUNS:]):
        is_busy = (run.conditions.waited or 0.0) >= BUSY
        runs.append((run, is_busy))
    return page.render(
        "fleet",
        say("Machines"),
        count=len(spans),
        testbeds=[_machine(span, page.content) for span in spans[:_MAX_TESTBEDS]],
        more=numbers.beyond(spans, _MAX_TESTBEDS),
        biased_machines=biased_machine_lines(trend),
        uplifts=[uplift_row(uplift, trend, most=_MAX_COLUMNS) for uplift in uplifts],
        matrix=trend_svg.steps_matrix(newest, step_titles(newest)),
        statuses=trend_svg.steps_legend(),
        runs=runs,
        notes=trend.notes[:_MAX_RUNS],
    )


def _machine(span: TestbedSpan, content: SiteContent) -> FleetMachine:
    read = moment(content.trend.made_at)
    runs = content.machines.get(span.fingerprint, MachineRuns())
    clock_ahead = EMPTY
    if runs.seconds_ahead > CLOCK_SLACK.total_seconds():
        clock_ahead = numbers.duration(runs.seconds_ahead)
    health = [
        run for run in content.trend.runs.health if run.fingerprint == span.fingerprint
    ]
    away = read - moment(span.last_seen)
    return FleetMachine(
        span=span,
        days=max(0, away.days),
        is_silent=away > _RECENT,
        recent=runs.recent,
        health=_health(health),
        clock_ahead=clock_ahead,
        clock_notes=_clock_notes(health),
    )


def _clock_notes(health: Sequence[RunHealth]) -> list[Message]:
    for run in reversed(health):
        notes = [note for note in run.warnings if note.code in _CLOCK_CODES]
        if notes:
            return notes
    return []


def _health(runs: Sequence[RunHealth]) -> MachineHealth:
    conditions = [run.conditions for run in runs]
    waits = _reported(each.waited for each in conditions)
    throttled = _reported(each.throttled for each in conditions)
    temperatures = _reported(each.temperature for each in conditions)
    clocks = _reported(each.clock for each in conditions)
    floors = _reported(each.noise_floor for each in conditions)
    return MachineHealth(
        runs=len(runs),
        queue=_queue(_reported(each.queued for each in conditions)),
        disturbed=_count([wait >= BUSY for wait in waits]),
        throttled=_count(list(map(bool, throttled))),
        failed=_count([bool(run.failed) for run in runs]),
        temperature=_range(temperatures, formats.Measure("Cel")),
        clock=_range(clocks, formats.measure_of("thermal.clock")),
        floor=numbers.plus_minus(max(floors, default=None)),
    )


def _reported(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _count(flags: Sequence[bool]) -> int | None:
    if flags:
        return sum(flags)
    return None


def _range(values: Sequence[float], measure: formats.Measure) -> Words:
    if not values:
        return numbers.DASH
    low, high = formats.quantities([min(values), max(values)], measure)
    return numbers.reach(low, high)


def _queue(queued: Sequence[float]) -> Words:
    """How many runs waited in line for the machine, and how long at most."""
    if not queued:
        return say("not recorded")
    waited = [seconds for seconds in queued if seconds >= _QUEUED_SECONDS]
    runs = numbers.counted(len(queued), "run")
    if not waited:
        return say("none of the newest {opened}", opened=runs)
    return say(
        "{count} of the newest {opened}, {longest} at most",
        count=len(waited),
        opened=runs,
        longest=numbers.duration(max(waited)),
    )
