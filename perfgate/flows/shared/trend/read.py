"""Read main's histories from the store and find the changes in them: the trend
document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase

from msgspec.structs import replace

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.catalogue.names import NUMBER
from perfgate.document.history import Confirmation, StoredRun, moment
from perfgate.document.job import JobNumber, JobRecord
from perfgate.document.run import RunDocument
from perfgate.document.trend import (
    NoSearchReason,
    NotLookedAt,
    RunHealth,
    RunsOfMain,
    TestbedSpan,
    TrendCause,
    TrendChange,
    TrendDocument,
    TrendPoint,
    TrendSearch,
    TrendSeries,
    TrendState,
    Uplift,
)
from perfgate.errors import StoreError, StoreRefusedError, UsageError
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.session import now
from perfgate.flows.shared.trend.operators import with_operators
from perfgate.judging.store.index import Index, ProjectLog, Series
from perfgate.judging.store.store import SeriesPlace
from perfgate.judging.trend.along import with_outcomes_along
from perfgate.judging.trend.carried import continuations, replaced_testbeds
from perfgate.judging.trend.causes import (
    align,
    causes,
    with_culprits,
    with_repairs,
    with_superseded,
)
from perfgate.judging.trend.find import (
    VERSIONS_NEEDED,
    is_long_enough,
    one_a_version,
    with_changes,
)
from perfgate.judging.trend.health import run_health, spans_of_testbeds, weeks
from perfgate.judging.trend.origin import with_origin
from perfgate.judging.trend.standing import RECENT_DAYS, gone, is_recent, judged
from perfgate.judging.trend.triage import TriagedChanges, expired, with_triage
from perfgate.judging.trend.uplifts import uplifts, with_differences
from perfgate.locale import Activity, sentence
from perfgate.version import __version__

# The metrics that the gate judges, with their throughput; NUMBER* are the numbers that
# a command defines.
GATED = [
    name
    for name, card in METRICS.items()
    if card.origin.counted or card.trend.judged or card.gate.tolerance is not None
]
GATED.append(f"{NUMBER}*")
# The numbers in the comment's table of the checklist, and others that are followed;
# they are informative only.
INFORMING = {
    name
    for name, card in METRICS.items()
    if card.display.leading or card.trend.followed
}.difference(GATED)
# Documents are large; only the newest are opened, for their steps, warnings and
# intervals.
RUNS_OPENED = 26
# For this many changes, the runs on both sides are opened too, for their counters.
_CHANGES_OPENED = 40
# The most versions of a series to search: older changes were already reported.
MOST_POINTS = 1000
_SMALLEST, _LARGEST = 1e-30, 1e30

NameCommits = Callable[[TrendChange], TrendChange]
SearchChanges = Callable[[TrendSeries], TrendSeries]


@dataclass(frozen=True)
class Wanted:
    """The series to search: metrics and workloads by name or pattern.

    By default, the metrics that the gate judges and the leading numbers of the
    checklist, for all workloads.
    """

    metrics: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()

    def takes(self, series: Series) -> bool:
        if not _is_known(series.metric):
            return False
        if self.workloads and series.workload not in self.workloads:
            return False
        patterns = self.metrics or (*GATED, *INFORMING)
        return any(fnmatchcase(series.metric, pattern) for pattern in patterns)

    def informs(self, series: Series) -> bool:
        """Whether a series only informs: it was not requested by name, and the gate
        does not judge it.
        """
        return not self.metrics and series.metric in INFORMING


@dataclass(frozen=True)
class StoredHistories:
    """A project's stored data: its runs, newest first, the series with their changes,
    and the series left out.
    """

    runs: list[StoredRun]
    series: list[TrendSeries]
    unselected: list[Series]


@dataclass(frozen=True)
class OpenedHistories(StoredHistories):
    """Histories with the documents that explain them, by id, the testbeds with their
    fields, and their replacements.
    """

    documents: dict[str, RunDocument]
    comparable: Mapping[str, Mapping[str, str]]
    spans: list[TestbedSpan]
    replacements: Mapping[str, Uplift]


def read_histories(
    log: ProjectLog,
    selection: Wanted,
    progress: Progress,
    *,
    seconds_since_1970: float,
    branch: str | None = None,
    search: SearchChanges = with_changes,
) -> StoredHistories:
    """The series of a project, one value per version, searched for changes; with
    ``branch`` only of the branch's runs.

    ``search`` is `with_changes`, or what remembers its answers. Raises UsageError if
    there is no run, or no such series. Unreadable or implausible data is left out with
    a note: one run must not hide or move all others.
    """
    runs = _readable_runs(
        log, progress.note, datetime.fromtimestamp(seconds_since_1970, timezone.utc)
    )
    if branch is not None:
        runs = [run for run in runs if run.branch == branch]
    selected: dict[SeriesPlace, Series] = {}
    unselected: list[Series] = []
    for place, series in log.index.series().items():
        if selection.takes(series):
            selected[place] = series
        else:
            unselected.append(series)
    _refuse_unknown(selection, [*selected.values(), *unselected])
    if not selected and (selection.metrics or selection.workloads):
        raise UsageError(
            "no stored series is of these metrics and workloads; stored metrics are {metrics}",
            metrics=_known_metrics(unselected),
        )
    progress.status(
        sentence(
            "reading {series} series of {runs} runs",
            series=len(selected),
            runs=len(runs),
        )
    )
    numbers = _JobNumbers(log)
    run_ids = {run.id for run in runs}
    searched: list[TrendSeries] = []
    for place, series in selected.items():
        history = _newest_versions(log.index, place, run_ids)
        entry = _read_series(
            series, history, runs[0].started_at, numbers, progress.note
        )
        entry = replace(entry, informing=selection.informs(series))
        if entry.current:
            searched.append(search(entry))
        elif entry.points:
            searched.append(entry)
    return StoredHistories(runs, align(searched), unselected)


def _refuse_unknown(selection: Wanted, stored: Sequence[Series]) -> None:
    """Raise UsageError for a workload or metric of the selection that no stored series
    is of: most likely it is misspelled.
    """
    workloads = {series.workload for series in stored}
    for name in selection.workloads:
        if name not in workloads:
            raise UsageError(
                "no stored series is of workload {name!a}; stored workloads are {workloads}",
                name=name,
                workloads=", ".join(sorted(workloads)[:20]),
            )
    metrics = {series.metric for series in stored if _is_known(series.metric)}
    for pattern in selection.metrics:
        if not any(fnmatchcase(name, pattern) for name in metrics):
            raise UsageError(
                "no stored series is of metric {name!a}; stored metrics are {metrics}",
                name=pattern,
                metrics=_known_metrics(stored),
            )


def _known_metrics(stored: Sequence[Series]) -> str:
    names = {series.metric for series in stored if _is_known(series.metric)}
    return ", ".join(sorted(names)[:20])


def find_trend(
    log: ProjectLog,
    opened: OpenedHistories,
    *,
    before: TrendState | None,
    confirmations: Sequence[Confirmation],
    name_commits: NameCommits,
) -> TrendDocument:
    """The trend document; ``name_commits`` looks up the commits in git."""
    documents = opened.documents
    newest = opened.runs[0].started_at
    made_at = now()
    today = moment(made_at).date()
    since = None
    if before is not None:
        since = before.newest
    named_series: list[TrendSeries] = []
    for entry in opened.series:
        changes = [name_commits(change) for change in entry.changes]
        named_series.append(replace(_with_intervals(entry, documents), changes=changes))
    triaged = TriagedChanges(log.triages, named_series)
    accepted = [
        acceptance for acceptance in log.acceptances if acceptance.counts_on(today)
    ]
    followed = continuations(named_series, opened.replacements)
    series: list[TrendSeries] = []
    for number, entry in enumerate(named_series):
        series.append(
            judged(
                entry,
                confirmations=confirmations,
                accepted=accepted,
                triaged=triaged,
                before=before,
                newest=newest,
                continuation=followed.get(number),
            )
        )
    series = with_repairs(with_outcomes_along(with_culprits(series)))
    series = with_superseded(series, _explained(series, triaged, documents))
    explained = _explained(series, triaged, documents)
    searched = [entry for entry in series if entry.current and is_long_enough(entry)]
    points: list[TrendPoint] = []
    for entry in searched:
        points += entry.points
    # Since the last report, or of the last weeks if there was none. The points of all
    # series on a testbed are of the same runs.
    new_values = 0
    for started_at, count in Counter(point.started_at for point in points).items():
        if since is None:
            is_new = is_recent(started_at, newest)
        else:
            is_new = moment(started_at) > moment(since)
        if is_new:
            new_values += count
    health: list[RunHealth] = []
    for run in reversed(opened.runs[:RUNS_OPENED]):
        if run.id in documents:
            health.append(run_health(run.id, documents[run.id], run.recorded_at))
    return TrendDocument(
        perfgate_version=__version__,
        project=log.project,
        made_at=made_at,
        runs=RunsOfMain(
            newest=newest,
            count=len(opened.runs),
            health=health,
            weeks=weeks([run.started_at for run in opened.runs]),
        ),
        searched=TrendSearch(
            versions_needed=VERSIONS_NEEDED,
            looked_at=len(searched),
            values=len(points),
            new_values=new_values,
            since=since,
            gone=gone(before, series),
            not_looked_at=_not_looked_at(series, opened),
        ),
        series=series,
        causes=explained,
        testbeds=opened.spans,
        uplifts=uplifts(opened.spans, opened.comparable, series),
        expired=expired(log.acceptances, explained, today),
    )


def _with_replaced(
    series: Sequence[TrendSeries],
    replacements: Mapping[str, Uplift],
    search: SearchChanges,
) -> list[TrendSeries]:
    """The series, with the changes of testbeds that were replaced, too."""
    ended: list[TrendSeries] = []
    numbers: list[int] = []
    for number, entry in enumerate(series):
        if (
            not entry.current
            and entry.fingerprint in replacements
            and is_long_enough(entry)
        ):
            ended.append(search(entry))
            numbers.append(number)
    completed = list(series)
    for number, entry in zip(numbers, align(ended)):
        completed[number] = entry
    return completed


def _explained(
    series: Sequence[TrendSeries],
    triaged: TriagedChanges,
    documents: Mapping[str, RunDocument],
) -> list[TrendCause]:
    """The causes with their triage, operators, packages and origin."""
    explained: list[TrendCause] = []
    for cause in causes(series):
        triaged_cause = with_triage(cause, series, triaged)
        with_work = with_operators(triaged_cause, series, documents)
        with_packages = with_differences(with_work, series, documents)
        explained.append(with_origin(with_packages, series, documents))
    return explained


def open_documents(
    log: ProjectLog,
    stored: StoredHistories,
    *,
    note: Callable[[str], None],
    search: SearchChanges = with_changes,
) -> OpenedHistories:
    """Open the newest runs, the first and last of every testbed, which describe it, and
    the runs around the newest changes.

    Damaged runs are noted. The series of testbeds that were replaced are searched for
    changes, too.
    """
    documents = _Documents(log, note)
    documents.open([run.id for run in stored.runs[:RUNS_OPENED]])
    # Runs are newest first, so that this keeps the oldest of each testbed.
    firsts = {run.fingerprint: run.id for run in stored.runs}
    lasts = {run.fingerprint: run.id for run in reversed(stored.runs)}
    documents.open([*firsts.values(), *lasts.values()])
    comparable: dict[str, Mapping[str, str]] = {}
    for run in documents.by_id.values():
        comparable[run.testbed.fingerprint] = run.testbed.comparable
    spans = spans_of_testbeds(reversed(stored.runs), comparable)
    replacements = replaced_testbeds(uplifts(spans, comparable, stored.series))
    series = _with_replaced(stored.series, replacements, search)
    # The runs on both sides of the newest changes, the newest change first.
    changes: set[tuple[str, str, str]] = set()
    for entry in series:
        for change in entry.changes:
            before, after = entry.points[change.at - 1 : change.at + 1]
            changes.add((change.first_seen, after.run_id, before.run_id))
    for _, after_id, before_id in sorted(changes, reverse=True)[:_CHANGES_OPENED]:
        documents.open([after_id, before_id])
    return OpenedHistories(
        runs=stored.runs,
        series=series,
        unselected=stored.unselected,
        documents=documents.by_id,
        comparable=comparable,
        spans=spans,
        replacements=replacements,
    )


class _Documents:
    """The documents of runs by id.

    Once the server of the store is gone, no more are opened: each would wait for it.
    """

    def __init__(self, log: ProjectLog, note: Callable[[str], None]) -> None:
        self._log = log
        self._note = note
        self._tried: set[str] = set()
        self._is_refused = False
        self.by_id: dict[str, RunDocument] = {}

    def open(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            if run_id in self._tried or self._is_refused:
                continue
            self._tried.add(run_id)
            try:
                self.by_id[run_id] = self._log.run(run_id)
            except StoreRefusedError as error:
                self._is_refused = True
                self._note(
                    Activity(
                        "the checklist over time has {count} runs alone: {error}",
                        count=len(self.by_id),
                        error=error,
                    )
                )
            except StoreError as error:
                self._note(
                    Activity(
                        "a run is left out of the checklist over time: {error}",
                        error=error,
                    )
                )


def _readable_runs(
    log: ProjectLog, note: Callable[[str], None], today: datetime
) -> list[StoredRun]:
    """The stored runs, newest first, without runs dated weeks ahead."""
    stored = log.index.runs[::-1]
    if log.damaged and not stored:
        raise StoreError(log.damaged[0])
    for why in log.damaged:
        note(Activity("a run is left out: {why}", why=why))
    # One run dated next year would make all others look outdated; an error of some days
    # only moves a run.
    latest = today + timedelta(days=RECENT_DAYS)
    runs = [run for run in stored if moment(run.started_at) <= latest]
    if len(runs) < len(stored):
        last = stored[0]
        problem = Activity(
            "{count} of {all} runs are dated weeks after today, {today}; the last is {last}, of {date}: correct the "
            "clock of the machine that measured, or of this machine",
            count=len(stored) - len(runs),
            all=len(stored),
            today=today.date(),
            last=last.id[:12],
            date=last.started_at[:10],
        )
        if not runs:
            raise UsageError("{problem}", problem=problem)
        note(Activity("{problem}; they are left out", problem=problem))
    if not runs:
        raise UsageError(
            "no run of project {project!a} is stored, and a trend needs {needed} versions of main; `perfgate "
            "baseline record` keeps one, and CI does it on every push to main",
            project=log.project,
            needed=VERSIONS_NEEDED,
        )
    return runs


class _JobNumbers:
    """The numbers that commands define, as described by stored runs: the store itself
    keeps no units.
    """

    def __init__(self, log: ProjectLog) -> None:
        self._log = log
        self._jobs: dict[str, list[JobRecord]] = {}

    def find(self, series: Series, run_id: str) -> JobNumber | None:
        if not series.metric.startswith(NUMBER):
            return None
        if run_id not in self._jobs:
            try:
                self._jobs[run_id] = self._log.run(run_id).jobs.records
            except StoreError:
                self._jobs[run_id] = []
        for job in self._jobs[run_id]:
            for number in job.numbers:
                if (job.name, number.metric) == (series.workload, series.metric):
                    return number
        return None


def _read_series(
    series: Series,
    history: Sequence[tuple[StoredRun, float]],
    newest: str,
    numbers: _JobNumbers,
    note: Callable[[str], None],
) -> TrendSeries:
    """A series with a point for each of the newest versions; ``history`` are its runs
    and values, oldest first.
    """
    measured: list[TrendPoint] = []
    implausible: list[tuple[StoredRun, float]] = []
    for run, value in history:
        if _is_measurable(value):
            measured.append(
                TrendPoint(
                    run_id=run.id,
                    commit=run.commit,
                    started_at=run.started_at,
                    value=value,
                )
            )
        else:
            implausible.append((run, value))
    if implausible:
        last, value = implausible[-1]
        note(
            Activity(
                "{count} of {all} values of {metric} are left out because they are impossible: the last is {value:g}, in run "
                "{run_id}",
                count=len(implausible),
                all=len(history),
                metric=series.metric,
                value=value,
                run_id=last.id[:12],
            )
        )
    points = one_a_version(measured)[-MOST_POINTS:]
    number = None
    if history:
        number = numbers.find(series, history[-1][0].id)
    described = number or metric(series.metric)
    return TrendSeries(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        labels=series.labels,
        unit=described.unit,
        better=described.better,
        kind=metric(series.metric).kind,
        fingerprint=series.fingerprint,
        device_kind=series.device_kind,
        points=points,
        current=bool(points) and is_recent(points[-1].started_at, newest),
    )


def _newest_versions(
    index: Index, place: SeriesPlace, run_ids: Collection[str]
) -> list[tuple[StoredRun, float]]:
    """The runs and values of the newest versions of a series, oldest first."""
    history: list[tuple[StoredRun, float]] = []
    versions = 0
    commit = None
    for position, value in index.newest_first(place):
        run = index.runs[position]
        if run.id not in run_ids:
            continue
        if _is_measurable(value) and (run.commit is None or run.commit != commit):
            versions += 1
            commit = run.commit
        if versions > MOST_POINTS:
            break
        history.append((run, value))
    return history[::-1]


def _is_measurable(value: float) -> bool:
    return value == 0 or _SMALLEST <= abs(value) <= _LARGEST


def _with_intervals(
    series: TrendSeries, documents: Mapping[str, RunDocument]
) -> TrendSeries:
    points = list(series.points)
    for index, point in enumerate(points):
        if point.run_id in documents and point.runs == 1:
            interval = _interval(documents[point.run_id], series)
            points[index] = replace(point, interval=interval)
    return replace(series, points=points)


def _interval(
    run: RunDocument, series: TrendSeries
) -> tuple[float | None, float | None] | None:
    labels = dict(series.labels)
    if series.shape:
        labels["shape"] = series.shape
    for step in run.checklist.steps:
        if step.workload == series.workload:
            for value in step.values:
                if value.metric == series.metric and value.labels == labels:
                    return value.interval
    return None


def _not_looked_at(
    series: Sequence[TrendSeries], stored: StoredHistories
) -> list[NotLookedAt]:
    newest = stored.runs[0].started_at
    alive = {
        run.fingerprint for run in stored.runs if is_recent(run.started_at, newest)
    }
    names: dict[NoSearchReason, list[str]] = {
        "too_short": [],
        "not_measured": [],
        "old_testbed": [],
        "metric": [],
    }
    for entry in series:
        name = f"{entry.metric} · {entry.place_words}"
        if entry.current and not is_long_enough(entry):
            names["too_short"].append(name)
        elif not entry.current and entry.fingerprint in alive:
            names["not_measured"].append(name)
        elif not entry.current:
            names["old_testbed"].append(name)
    names["metric"] = [entry.metric for entry in stored.unselected]
    not_looked_at: list[NotLookedAt] = []
    for reason, of_reason in names.items():
        if of_reason:
            not_looked_at.append(
                NotLookedAt(
                    reason=reason, series=len(of_reason), names=sorted(set(of_reason))
                )
            )
    return not_looked_at


def _is_known(name: str) -> bool:
    return name in METRICS or name.startswith(("ops.time:", "ops.count:", NUMBER))
