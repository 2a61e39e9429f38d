"""The arguments of each question, and its answer from the sources.

The JSON schema of the arguments describes them to every kind of asker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from perfgate.document.answers import (
    ChangeExplanation,
    GateVerdicts,
    ProjectList,
    RunComparison,
    RunSuggestions,
    StoredProject,
)
from perfgate.document.history import Acceptance, GateRecord, StoredRun, Triage
from perfgate.document.trace import TopDocument, TopKey
from perfgate.document.trend import (
    TrendCause,
    TrendChange,
    TrendDocument,
    TrendPlace,
    TrendSeries,
)
from perfgate.errors import UnknownRunError, UsageError
from perfgate.flows.ask.sources import Sources
from perfgate.flows.shared.site.read import beside_each_other
from perfgate.flows.trace.trace import Choice, trace_top
from perfgate.judging.advice.advise import suggestions
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.view.trend_rows import cause_row, check_command
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import Page
from perfgate.judging.trend.gates import gate_history

# Listed numbers of each regression; the explanation has all.
_CHANGES_LISTED = 5


# PostgreSQL stores no NUL in a text.
_NO_NUL = r"^[^\x00]*$"
_Run = Annotated[str, Meta(min_length=4, max_length=64, pattern="^[0-9a-fA-F]*$")]


class ProjectArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A question about a project of the store."""

    project: Annotated[
        str,
        Meta(
            max_length=300,
            pattern=_NO_NUL,
            description="The project; not needed if there is only one.",
        ),
    ] = ""


class NoArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A question without details."""


class ListArguments(ProjectArguments, frozen=True, kw_only=True):
    """How many of its open regressions or of its newest verdicts to list."""

    limit: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of entries.")
    ] = 20


class ChangeArguments(ProjectArguments, frozen=True, kw_only=True):
    """A change of main."""

    commit: Annotated[
        str,
        Meta(
            min_length=4,
            max_length=64,
            pattern=r"^[0-9a-zA-Z]*$",
            description="The first bad commit, or its beginning.",
        ),
    ]


class CompareArguments(ProjectArguments, frozen=True, kw_only=True):
    """Two stored runs."""

    earlier: Annotated[
        _Run, Meta(description="The id of the earlier run, or its beginning.")
    ]
    later: Annotated[
        _Run, Meta(description="The id of the later run, or its beginning.")
    ]
    limit: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of numbers shown.")
    ] = 50


class SuggestionArguments(ProjectArguments, frozen=True, kw_only=True):
    """A stored run."""

    run: Annotated[
        str,
        Meta(
            max_length=64,
            pattern="^[0-9a-fA-F]*$",
            description="The id of a run, or its beginning; the newest if not given.",
        ),
    ] = ""


class TopArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A recording, and the rows to show."""

    recording: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4000,
            pattern=_NO_NUL,
            description="The recording: its path, or behind a service its name in /api/recordings.",
        ),
    ]
    by: Annotated[
        TopKey,
        Meta(
            description="What a row is: an operator type, a name, a type with its shapes, or a line."
        ),
    ] = "type"
    host: Annotated[
        bool,
        Meta(description="Operators of the host, even if the recording has a device."),
    ] = False
    limit: Annotated[
        int,
        Meta(ge=1, le=1000, description="Maximum number of rows for each timeline."),
    ] = 20


def projects(arguments: NoArguments, sources: Sources) -> ProjectList:  # noqa: ARG001 - as all answers
    listed: list[StoredProject] = []
    for project in sources.projects():
        workloads: set[str] = set()
        branches: set[str] = set()
        fingerprints: dict[str, None] = {}
        runs = sources.newest_runs(project)
        for run in runs:
            workloads.update(run.workloads)
            fingerprints[run.fingerprint] = None
            if run.branch:
                branches.add(run.branch)
        if runs:
            listed.append(
                StoredProject(
                    project=project,
                    newest=runs[0],
                    workloads=sorted(workloads),
                    fingerprints=list(fingerprints),
                    branches=sorted(branches),
                    looked_at=len(runs),
                )
            )
    return ProjectList(projects=listed)


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
    earlier = _one(main.runs, arguments.earlier)
    later = _one(main.runs, arguments.later)
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
            raise _nothing_stored(project)
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
    if not records and not stored_runs(store, project, Page(limit=1)):
        raise _nothing_stored(project)
    history = gate_history(
        records, store.entries(project, Acceptance), store.entries(project, Triage)
    )
    return GateVerdicts(history=history, newest=records[: arguments.limit])


def _nothing_stored(project: str) -> UsageError:
    return UsageError("no run of project {project!a} is stored", project=project)


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


def narrowed(
    trend: TrendDocument, causes: Sequence[TrendCause], *, most: int | None = None
) -> TrendDocument:
    """The trend with these causes alone, of each the first ``most`` changes, or all.

    It keeps the series of the changes, with the points around them and the newest; and the conditions of the runs that
    one of the points names.
    """
    points: dict[int, set[int]] = defaultdict(set)
    for cause in causes:
        for place in cause.changes[:most]:
            points[place.series].add(place.change)
    series: list[TrendSeries] = []
    places: dict[TrendPlace, TrendPlace] = {}
    shown_runs: set[str] = set()
    for index, changes in sorted(points.items()):
        for new, old in enumerate(sorted(changes)):
            places[TrendPlace(series=index, change=old)] = TrendPlace(
                series=len(series), change=new
            )
        short = _short(trend.series[index], sorted(changes))
        shown_runs.update(point.run_id for point in short.points)
        series.append(short)
    short_causes: list[TrendCause] = []
    for cause in causes:
        own = [places[place] for place in cause.changes[:most]]
        short_causes.append(replace(cause, changes=own))
    return replace(
        trend,
        series=series,
        causes=short_causes,
        runs=replace(
            trend.runs,
            health=[run for run in trend.runs.health if run.run_id in shown_runs],
            weeks={},
        ),
    )


def _short(series: TrendSeries, changes: Sequence[int]) -> TrendSeries:
    """The series with these changes, the points around them, and the newest point."""
    indexes = {len(series.points) - 1}
    for number in changes:
        at = series.changes[number].at
        indexes |= {at - 1, at}
    positions = sorted(indexes)
    short_changes: list[TrendChange] = []
    for number in changes:
        change = series.changes[number]
        short_changes.append(replace(change, at=positions.index(change.at)))
    return replace(
        series,
        points=[series.points[position] for position in positions],
        changes=short_changes,
    )
