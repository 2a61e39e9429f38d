"""runs/ and compare/: the list of runs, the page of one, and two runs side by side.

Two runs have no difference and no verdict: they were not measured in turns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from perfgate.document.clocks import clock_notes
from perfgate.document.history import StoredRun, moment
from perfgate.document.kept import KeptLink, KeptOfRun
from perfgate.document.run import OperatorRow, RunDocument, StepResult
from perfgate.document.site import BesideLevel, SiteContent
from perfgate.judging.report.render.site.cells import split_levels
from perfgate.judging.report.render.site.page import COMPARE, SitePage, runs_address
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.media import is_linkable
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import metric_name, minute, place, place_of
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.checklist import step_title
from perfgate.judging.report.view.page_tables import counter_rows, testbed_rows
from perfgate.judging.report.view.run_steps import ChecklistRow, step_row
from perfgate.judging.report.view.trend_rows import check_command

RUNS_A_PAGE = 200
_MAX_ROWS, _MAX_OPERATORS, _MAX_WARNINGS = 400, 15, 60
_KINDS = phrases({"trace": "trace", "flamegraph": "flame graph", "report": "report"})
_SERVED_PATH = re.compile(r"/[A-Za-z0-9._/-]+")
# The state of the device, of step 19.
_DEVICE_METRICS = (
    "thermal.temperature",
    "thermal.clock",
    "thermal.throttled",
    "thermal.power",
    "thermal.derating",
)


class KeptFile(NamedTuple):
    """A kept file: a link to it, or, without an address that may become one, its place."""

    link: KeptLink
    kind: Words
    address: Words


class RunError(NamedTuple):
    """A failed workload, step or check of the output; ``text`` is its traceback."""

    workload: str
    what: Words
    message: str
    text: str


class RunStep(NamedTuple):
    """A step with its title."""

    row: ChecklistRow
    result: StepResult
    title: str


def page_count(content: SiteContent) -> int:
    return max(1, -(-len(content.runs) // RUNS_A_PAGE))


def render_runs(page: SitePage, number: int) -> str:
    """One page of the list of runs, newest first, with links to the pages around it.

    ``number`` is counted from 1.
    """
    runs = page.content.runs
    pages = page_count(page.content)
    first = (number - 1) * RUNS_A_PAGE
    newer = EMPTY
    older = EMPTY
    compare_form = EMPTY
    if number > 1:
        newer = page.to(runs_address(number - 1))
    if number < pages:
        older = page.to(runs_address(number + 1))
    if page.links.forms:
        compare_form = Words(f"{page.root}{COMPARE}")
    return page.render(
        "runs",
        say("Runs"),
        count=len(runs),
        runs=runs[first : first + RUNS_A_PAGE],
        newer=newer,
        older=older,
        page=number,
        pages=pages,
        compare_form=compare_form,
    )


def render_run(
    listed: StoredRun,
    run: RunDocument,
    numbers_of_run: Sequence[BesideLevel],
    neighbours: tuple[StoredRun | None, StoredRun | None],
    kept: KeptOfRun,
    page: SitePage,
    *,
    recording: str = "",
) -> str:
    """The page of a run, with links to its ``neighbours``: the runs of its testbed
    before and after it.

    ``recording`` is the name under which a service shows its traces.
    """
    before, after = neighbours
    apart, rest = split_levels(numbers_of_run[:_MAX_ROWS])
    warnings = [*clock_notes(run, listed.recorded_at), *run.warnings]
    return page.render(
        "run",
        say("Run {id}", id=Words(listed.id[:12])),
        run=listed,
        facts=_facts(listed, run),
        recording=Words(quote(recording, safe="")),
        before=before,
        after=after,
        errors=_errors(run),
        warnings=warnings[:_MAX_WARNINGS],
        kept=list(map(_kept_file, kept.links[:_MAX_ROWS])),
        kept_why=kept.why,
        apart=apart,
        rest=rest,
        steps=_steps(run),
        device=_device(run),
        comparable=sorted(run.testbed.comparable.items())[:_MAX_ROWS],
        observed=sorted(run.testbed.observed.items())[:_MAX_ROWS],
        counters=counter_rows(None, run)[:_MAX_ROWS],
        operators=_operators(run),
    )


def render_unreadable(page: SitePage, reason: str) -> str:
    """The page of a run that cannot be read, with the reason."""
    return page.render("unreadable", say("Not readable"), reason=reason)


def _facts(listed: StoredRun, run: RunDocument) -> list[tuple[Words, str]]:
    """The commit, the time of the measurement, and the version of perfgate."""
    began = run.session.started_at
    ended = run.session.finished_at
    queued = run.session.queued
    facts = [
        (say("commit"), run.source.commit or say("none")),
        (say("branch"), run.source.branch or say("none")),
        (say("measured"), minute(began)),
        (say("took"), _took(began, ended)),
    ]
    if queued is not None:
        facts.append((say("waited in line"), numbers.duration(queued)))
    facts += [
        (say("recorded"), minute(listed.recorded_at)),
        (say("command"), f"perfgate {run.session.command}"),
        (say("measured by"), f"perfgate {run.perfgate_version}"),
    ]
    return facts


def _took(began: str, ended: str) -> Words:
    try:
        return numbers.duration((moment(ended) - moment(began)).total_seconds())
    except ValueError:
        return numbers.DASH


def _kept_file(link: KeptLink) -> KeptFile:
    address = EMPTY
    if is_linkable(link.address) or _SERVED_PATH.fullmatch(link.address):
        address = Words(link.address)
    return KeptFile(
        link=link, kind=say(_KINDS.get(link.kind, _KINDS["trace"])), address=address
    )


def _errors(run: RunDocument) -> list[RunError]:
    parts = []
    for workload in run.workloads:
        parts.append((workload.name, say("workload"), workload.error))
    for step in run.checklist.steps:
        what = say("step {number}", number=step.number)
        parts.append((step.workload, what, step.error))
    errors = []
    for name, what, error in parts:
        if error:
            message = str(word(error.message))
            text = error.traceback or ""
            errors.append(RunError(name, what, message, text))
    errors = errors[:_MAX_WARNINGS]
    for check in run.checklist.correctness:
        if check.status in ("failed", "error"):
            at = place_of(check)
            errors.append(
                RunError(at, say("output"), str(word(check.message or "")), "")
            )
    return errors


def _steps(run: RunDocument) -> list[RunStep]:
    ordered = sorted(run.checklist.steps, key=lambda step: (step.number, step.workload))
    steps = []
    for step in ordered[:_MAX_ROWS]:
        steps.append(RunStep(step_row(step), step, step_title(step)))
    return steps


def _device(run: RunDocument) -> list[tuple[str, Words, str]]:
    """The values that the device reported while a workload was measured: metric, value
    and workload.
    """
    values = []
    for step in run.checklist.steps:
        for value in step.values:
            if value.metric in _DEVICE_METRICS and value.value is not None:
                quantity = formats.quantity(
                    value.value, formats.measure_of(value.metric)
                )
                values.append((metric_name(value.metric), quantity, step.workload))
    return values[:_MAX_ROWS]


def _operators(run: RunDocument) -> list[tuple[str, list[OperatorRow]]]:
    """The operators with the most self time, by place."""
    places: dict[tuple[str, str], list[OperatorRow]] = {}
    for row in sorted(run.checklist.operators, key=lambda row: -row.self_time):
        listed = places.setdefault(row.place, [])
        if len(listed) < _MAX_OPERATORS:
            listed.append(row)
    return [(place(*at), rows) for at, rows in sorted(places.items())]


_MAX_ROWS = 600


class Condition(NamedTuple):
    """A property of how both runs were measured."""

    name: Words
    earlier: str
    later: str

    @property
    def differs(self) -> bool:
        return self.earlier != self.later


def render_compare(
    earlier: StoredRun,
    later: StoredRun,
    documents: tuple[RunDocument, RunDocument],
    rows: Sequence[BesideLevel],
    page: SitePage,
) -> str:
    """The page of two runs as the store lists them, with their documents.

    ``timed`` numbers have an interval at ``level``, of which about ``by_chance`` fall
    outside.
    """
    apart, rest = split_levels(rows[:_MAX_ROWS])
    timed = 0
    confidence = 0.0
    for row in rows:
        timed += row.interval is not None and not row.series.is_exact
        confidence = max(confidence, row.confidence or 0.0)
    differences = [row for row in testbed_rows(*documents) if row.base != row.head]
    level = EMPTY
    by_chance = EMPTY
    if confidence:
        level = numbers.confidence(confidence)
        by_chance = Words(f"{math.ceil(timed * (1 - confidence) * 10) / 10:.1f}")
    return page.render(
        "compare",
        say("Two runs"),
        earlier=earlier,
        later=later,
        same_testbed=earlier.fingerprint == later.fingerprint,
        differences=differences[:_MAX_ROWS],
        apart=apart,
        rest=rest,
        more=numbers.beyond(rows, _MAX_ROWS),
        timed=timed,
        level=level,
        by_chance=by_chance,
        conditions=_conditions(*documents),
        command=check_command(earlier.commit, later.commit),
    )


def render_compare_form(page: SitePage, unknown: str) -> str:
    """The page that asks for two runs.

    ``unknown`` are digits that no run, or more than one, begins with.
    """
    return page.render(
        "compare_form",
        say("Two runs"),
        unknown=unknown,
        runs=page.content.runs[:_MAX_ROWS],
    )


def _conditions(earlier: RunDocument, later: RunDocument) -> list[Condition]:
    waits = _longest_wait(earlier), _longest_wait(later)
    warnings = numbers.whole(len(earlier.warnings)), numbers.whole(len(later.warnings))
    versions = (
        f"perfgate {earlier.perfgate_version}",
        f"perfgate {later.perfgate_version}",
    )
    return [
        Condition(say("procedure"), _procedure(earlier), _procedure(later)),
        Condition(say("longest wait for a CPU"), *waits),
        Condition(say("warnings"), *warnings),
        Condition(say("measured by"), *versions),
    ]


def _longest_wait(run: RunDocument) -> Words:
    waits = [step.waited for step in run.checklist.steps if step.waited is not None]
    return numbers.percent(max(waits, default=None))


def _procedure(run: RunDocument) -> Words:
    kinds = {workload.quick for workload in run.workloads}
    if kinds == {True}:
        return say("quick")
    if kinds == {False}:
        return say("full")
    if kinds <= {None}:
        return say("not recorded")
    return say("quick and full")
