"""runs/: the list of runs, and the page of one: its numbers beside main's level, checklist, machine and counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from perfgate.catalogue.lookup import CARDS, metric
from perfgate.document.clocks import clock_notes
from perfgate.document.history import StoredRun, moment
from perfgate.document.kept import KeptOfRun
from perfgate.document.message import Message
from perfgate.document.run import OperatorRow, RunDocument, StepResult
from perfgate.document.site import BesideLevel, SiteContent
from perfgate.judging.report.render.site.addresses import SiteLinks, run_address, runs_address
from perfgate.judging.report.render.site.cells import (
    KeptCells,
    LevelCells,
    RunCells,
    kept_cells,
    run_cells,
    under,
)
from perfgate.judging.report.render.site.compare import split_levels
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.dates import minute
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.page_tables import CounterRow, counter_rows
from perfgate.judging.report.view.run_steps import ChecklistRow, step_row
from perfgate.locale import Language, speaking

RUNS_A_PAGE = 200
_MAX_ROWS, _MAX_OPERATORS, _MAX_WARNINGS = 400, 15, 60
# The state of the device, of step 19.
_DEVICE_METRICS = ("thermal.temperature", "thermal.clock", "thermal.throttled", "thermal.power", "thermal.derating")


@dataclass(frozen=True)
class RunList(TemplateView):
    """One page of the list of runs; ``newer`` and ``older`` lead to the pages around it."""

    count: int
    rows: Sequence[RunCells]
    newer: Words
    older: Words
    page: int
    pages: int
    compare_form: Words


@dataclass(frozen=True)
class Neighbour:
    """The run of a testbed before or after another one, and the page of both."""

    run: RunCells
    compare: Words


@dataclass(frozen=True)
class RunError:
    """A failed workload, step or check of the output; ``text`` is its traceback."""

    workload: str
    what: Words
    message: str
    text: str


@dataclass(frozen=True)
class RunStep:
    """A step with its title, and what its measurement took."""

    row: ChecklistRow
    result: StepResult
    title: str
    took: Words


@dataclass(frozen=True)
class OperatorList:
    """The operators of a workload and shape with the most time of their own."""

    place: str
    rows: list[OperatorRow]


@dataclass(frozen=True)
class DeviceValue:
    """What the device reported while a workload was measured."""

    name: str
    workload: str
    value: Words


@dataclass(frozen=True)
class RunPage(TemplateView):
    """The head of the page of a run; ``recording`` is the name under which a service shows its traces."""

    run: RunCells
    document: RunDocument
    facts: Sequence[tuple[Words, str]]
    recording: Words
    before: Neighbour | None
    after: Neighbour | None
    errors: Sequence[RunError]
    warnings: Sequence[Message]
    kept: Sequence[KeptCells]
    kept_why: str


@dataclass(frozen=True)
class RunTables(TemplateView):
    """The numbers of a run: apart from main's level, and the rest."""

    apart: Sequence[LevelCells]
    rest: Sequence[LevelCells]
    steps: Sequence[RunStep]
    device: Sequence[DeviceValue]
    comparable: Sequence[tuple[str, str]]
    observed: Sequence[tuple[str, str]]
    counters: Sequence[CounterRow]
    operators: Sequence[OperatorList]


@dataclass(frozen=True)
class Unreadable(TemplateView):
    """Why a run cannot be shown."""

    reason: str


def page_count(content: SiteContent) -> int:
    return max(1, -(-len(content.runs) // RUNS_A_PAGE))


def render_runs(content: SiteContent, links: SiteLinks, language: Language, *, page: int = 1) -> str:
    """One page of the list of runs, newest first; ``page`` is counted from 1."""
    with speaking(language):
        address = runs_address(page)
        root = links.root(address)
        first = (page - 1) * RUNS_A_PAGE
        pages = page_count(content)
        listed = content.runs[first : first + RUNS_A_PAGE]
        view = RunList(
            count=len(content.runs),
            rows=[run_cells(run, content, links, root) for run in listed],
            newer=under(root, links.to(runs_address(page - 1))) if page > 1 else Words(""),
            older=under(root, links.to(runs_address(page + 1))) if page < pages else Words(""),
            page=page,
            pages=pages,
            compare_form=Words(f"{root}compare/index.html" if links.forms else ""),
        )
        return render_page("site/runs.html.j2", say("Runs"), address, content, links, view)


def render_run(
    listed: StoredRun,
    run: RunDocument,
    numbers_of_run: Sequence[BesideLevel],
    neighbours: tuple[StoredRun | None, StoredRun | None],
    kept: KeptOfRun,
    content: SiteContent,
    links: SiteLinks,
    language: Language,
    *,
    recording: str = "",
) -> str:
    """The page of a run, with links to its ``neighbours``: the runs of its testbed before and after it."""
    before, after = neighbours
    with speaking(language):
        address = run_address(listed.id)
        root = links.root(address)
        apart, rest = split_levels(numbers_of_run[:_MAX_ROWS], links, root)
        warnings = [*clock_notes(run, listed.recorded_at), *run.warnings]
        view = RunPage(
            run=run_cells(listed, content, links, root),
            document=run,
            facts=_facts(listed, run),
            recording=Words(quote(recording, safe="")),
            before=_neighbour(before, (before, listed), content, links) if before else None,
            after=_neighbour(after, (listed, after), content, links) if after else None,
            errors=_errors(run),
            warnings=warnings[:_MAX_WARNINGS],
            kept=[kept_cells(link) for link in kept.links[:_MAX_ROWS]],
            kept_why=kept.why,
        )
        tables = RunTables(
            apart=apart,
            rest=rest,
            steps=_steps(run),
            device=_device(run),
            comparable=sorted(run.testbed.comparable.items())[:_MAX_ROWS],
            observed=sorted(run.testbed.observed.items())[:_MAX_ROWS],
            counters=counter_rows(None, run)[:_MAX_ROWS],
            operators=_operators(run),
        )
        title = say("Run {id}", id=Words(listed.id[:12]))
        return render_page("site/run.html.j2", title, address, content, links, view, tables)


def render_unreadable(address: str, reason: str, content: SiteContent, links: SiteLinks, language: Language) -> str:
    """The page of a run that cannot be read, with the reason."""
    with speaking(language):
        page = Unreadable(reason)
        return render_page("site/unreadable.html.j2", say("Not readable"), address, content, links, page)


def _facts(listed: StoredRun, run: RunDocument) -> list[tuple[Words, str]]:
    """What was measured when; measured by which perfgate."""
    began, ended, queued = run.session.started_at, run.session.finished_at, run.session.queued
    facts: list[tuple[Words, str]] = [
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


def _neighbour(
    other: StoredRun, pair: tuple[StoredRun, StoredRun], content: SiteContent, links: SiteLinks
) -> Neighbour:
    root = links.root(run_address(other.id))
    earlier, later = pair
    return Neighbour(run_cells(other, content, links, root), under(root, links.compare(earlier.id, later.id)))


def _errors(run: RunDocument) -> list[RunError]:
    errors = []
    for workload in run.workloads:
        if workload.error:
            message, text = word(workload.error.message), workload.error.traceback
            errors.append(RunError(workload.name, say("workload"), str(message), text or ""))
    for step in run.steps:
        if step.error:
            message, text = word(step.error.message), step.error.traceback
            errors.append(RunError(step.workload, say("step {number}", number=step.number), str(message), text or ""))
    errors = errors[:_MAX_WARNINGS]
    for check in run.correctness:
        if check.status in ("failed", "error"):
            at = place(check.workload, check.shape)
            errors.append(RunError(at, say("output"), str(word(check.message or "")), ""))
    return errors


def _steps(run: RunDocument) -> list[RunStep]:
    steps = []
    for step in sorted(run.steps, key=lambda step: (step.number, step.workload))[:_MAX_ROWS]:
        row = step_row(step)
        title = say(CARDS[row.number].title) if row.number in CARDS else row.name
        steps.append(RunStep(row, step, title, numbers.duration(step.duration or None)))
    return steps


def _device(run: RunDocument) -> list[DeviceValue]:
    values = []
    for step in run.steps:
        for value in step.values:
            if value.metric in _DEVICE_METRICS and value.value is not None:
                quantity = formats.quantity(value.value, metric(value.metric).unit, metric=value.metric)
                values.append(DeviceValue(metric_name(value.metric), step.workload, quantity))
    return values[:_MAX_ROWS]


def _operators(run: RunDocument) -> list[OperatorList]:
    places: dict[tuple[str, str], OperatorList] = {}
    for row in sorted(run.operators, key=lambda row: -row.self_time):
        listed = places.setdefault(row.place, OperatorList(place(*row.place), []))
        if len(listed.rows) < _MAX_OPERATORS:
            listed.rows.append(row)
    return [places[key] for key in sorted(places)]
