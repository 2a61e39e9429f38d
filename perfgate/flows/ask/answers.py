"""The answers, each a function of a question's arguments and the sources."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perfgate.document.answers import (
    ChangeExplanation,
    GateVerdicts,
    ProjectList,
    RunComparison,
    RunSuggestions,
    StoredProject,
)
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, StoredRun, Triage
from perfgate.document.trace import TopDocument
from perfgate.document.trend import TrendCause, TrendDocument
from perfgate.errors import UnknownRunError, UsageError
from perfgate.flows.ask.arguments import (
    ChangeArguments,
    CompareArguments,
    ListArguments,
    NoArguments,
    SuggestionArguments,
    TopArguments,
)
from perfgate.flows.ask.narrow import narrowed
from perfgate.flows.ask.sources import Sources
from perfgate.flows.shared.site.beside import beside_each_other
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.job import trace_top
from perfgate.judging.advice.advise import suggestions
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.view.trend_rows import cause_row, check_command
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import Page
from perfgate.judging.trend.gates import gate_history

# Listed numbers of each regression; the explanation has all.
_CHANGES_LISTED = 5


def projects(arguments: NoArguments, sources: Sources) -> ProjectList:  # noqa: ARG001 - as all answers
    listed: list[StoredProject] = []
    for name in sources.projects():
        project = _project(name, sources)
        if project is not None:
            listed.append(project)
    return ProjectList(projects=listed)


def _project(project: str, sources: Sources) -> StoredProject | None:
    runs = sources.newest_runs(project)
    if not runs:
        return None
    workloads: set[str] = set()
    branches: set[str] = set()
    fingerprints: dict[str, None] = {}
    for run in runs:
        workloads.update(run.workloads)
        fingerprints[run.fingerprint] = None
        if run.branch:
            branches.add(run.branch)
    return StoredProject(
        project=project,
        newest=runs[0],
        workloads=sorted(workloads),
        fingerprints=list(fingerprints),
        branches=sorted(branches),
        looked_at=len(runs),
    )


def regressions(arguments: ListArguments, sources: Sources) -> TrendDocument:
    trend = sources.history(sources.project(arguments.project)).trend
    return narrowed(
        trend, trend.open_regressions[: arguments.limit], most=_CHANGES_LISTED
    )


def explain(arguments: ChangeArguments, sources: Sources) -> ChangeExplanation:
    trend = sources.history(sources.project(arguments.project)).trend
    causes: list[TrendCause] = []
    for cause in trend.causes:
        # A bisection may have found an earlier commit than that of the first bad run.
        commits = [cause.first_bad or "", *(label.commit for label in cause.commits)]
        if any(commit.startswith(arguments.commit) for commit in commits):
            causes.append(cause)
    if not causes:
        raise UsageError(
            "no change of main begins at commit {commit!a}; ask for the open regressions",
            commit=arguments.commit,
        )
    commands: list[str] = []
    for cause in causes:
        commands += cause_row(cause, trend, most=0).next
    return ChangeExplanation(
        trend=narrowed(trend, causes), next=list(dict.fromkeys(commands))
    )


def compare(arguments: CompareArguments, sources: Sources) -> RunComparison:
    project, store = sources.project(arguments.project), sources.opened()
    main = sources.history(project)
    earlier, later = (
        _one(main.runs, arguments.earlier),
        _one(main.runs, arguments.later),
    )
    documents = (
        stored_run(store, project, earlier.id),
        stored_run(store, project, later.id),
    )
    numbers = beside_each_other(earlier, later, documents, main.trend.series)
    listed = sorted(numbers, key=lambda number: not number.is_apart)[: arguments.limit]
    without_points = [
        replace(number, series=replace(number.series, points=[], changes=[]))
        for number in listed
    ]
    return RunComparison(
        earlier=earlier,
        later=later,
        same_testbed=earlier.fingerprint == later.fingerprint,
        numbers=without_points,
        left_out=len(numbers) - len(listed),
        decide=check_command(earlier.commit, later.commit),
    )


def suggest(arguments: SuggestionArguments, sources: Sources) -> RunSuggestions:
    project, store = sources.project(arguments.project), sources.opened()
    if arguments.run:
        run = _one(stored_runs(store, project), arguments.run)
    else:
        newest = stored_runs(store, project, Page(limit=1))
        if not newest:
            raise UsageError("no run of project {project!a} is stored", project=project)
        run = newest[0]
    suggested = suggestions(stored_run(store, project, run.id))
    sentences = [word(suggestion.message) for suggestion in suggested]
    return RunSuggestions(run=run, suggestions=suggested, sentences=sentences)


def top(arguments: TopArguments, sources: Sources) -> TopDocument:
    path = sources.recording_at(arguments.recording)
    document = trace_top(
        path,
        Choice(limit=arguments.limit),
        by=arguments.by,
        host=arguments.host,
        longer=None,
    )
    timelines = [
        replace(timeline, path=sources.public(timeline.path))
        for timeline in document.timelines
    ]
    return replace(document, timelines=timelines)


def gates(arguments: ListArguments, sources: Sources) -> GateVerdicts:
    project, store = sources.project(arguments.project), sources.opened()
    records = store.entries(project, GateRecord)
    history = gate_history(
        records, store.entries(project, Acceptance), store.entries(project, Triage)
    )
    return GateVerdicts(history=history, newest=records[: arguments.limit])


def _one(runs: Sequence[StoredRun], digits: str) -> StoredRun:
    """The run with an id that begins with these digits. Raises UnknownRunError for none, and for several."""
    matches = [run for run in runs if run.id.startswith(digits.lower())]
    if len(matches) != 1:
        raise UnknownRunError(
            "{count} stored runs of this project begin with {digits!a}; give more digits of one that is stored",
            count=len(matches),
            digits=digits,
        )
    return matches[0]
