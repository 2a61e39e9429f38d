"""Read a project's stored runs for its pages, and compare runs with main's level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfgate.document.history import StoredRun, moment
from perfgate.document.run import RunDocument
from perfgate.document.site import BesideLevel, SiteContent
from perfgate.document.trend import RunHealth, TrendSeries
from perfgate.flows.shared.doors import Progress, Quiet, Remembering
from perfgate.flows.shared.trend.commits import commit_names
from perfgate.flows.shared.trend.read import (
    SearchChanges,
    Wanted,
    find_trend,
    open_documents,
    read_histories,
)
from perfgate.judging.gate.compare.stored import beside_level, run_to_run
from perfgate.judging.store.index import ProjectLog
from perfgate.judging.store.runs import stored_values
from perfgate.judging.store.store import labels_text
from perfgate.judging.trend.find import with_changes
from perfgate.judging.trend.gates import accepted_commits, gate_history
from perfgate.judging.trend.health import machine_runs, run_health
from perfgate.judging.trend.level import level_around

# How many branches have separate series: the branches with the most runs.
_MOST_BRANCHES = 4
# The fields of a testbed that name its device, the most telling first.
_DEVICE_FIELDS = ("device.name", "cpu.model")


class ChangesRemembered:
    """Searches series for changes, but not those that are as they were at the last
    reading: most of them are.
    """

    def __init__(self) -> None:
        self._last: dict[str, list[TrendSeries]] = {}
        self._now: dict[str, list[TrendSeries]] = {}

    def begin(self) -> None:
        """Begin a reading; series that the last one did not have are forgotten."""
        self._last = self._now
        self._now = {}

    def __call__(self, series: TrendSeries) -> TrendSeries:
        # Over all branches, and of single branches.
        for entry in self._last.get(series.key, []):
            if replace(entry, changes=[], noise=None) == series:
                searched = entry
                break
        else:
            searched = with_changes(series)
        self._now.setdefault(series.key, []).append(searched)
        return searched


def read_site(
    log: ProjectLog,
    root: Path,
    progress: Progress,
    *,
    seconds_since_1970: float,
    search: SearchChanges = with_changes,
) -> SiteContent:
    """Main's history; ``root`` may lie in a clone, which names commits.

    Raises UsageError if there is no run of main.
    """
    remembered = Remembering(progress)
    stored = read_histories(
        log, Wanted(), remembered, seconds_since_1970=seconds_since_1970, search=search
    )
    opened = open_documents(log, stored, note=remembered.note, search=search)
    trend = find_trend(
        log,
        opened,
        before=None,
        confirmations=log.confirmations,
        name_commits=commit_names(root, log),
    )
    documents = opened.documents
    # The newest run of every testbed, however long ago, and not only the newest of all.
    health: list[RunHealth] = []
    for run in reversed(stored.runs):
        if run.id in documents:
            health.append(run_health(run.id, documents[run.id], run.recorded_at))
    gates = gate_history(log.gates, log.acceptances, log.triages)
    trend = replace(
        trend,
        runs=replace(trend.runs, health=health),
        notes=remembered.notes,
        gates=gates,
    )
    # Separate series, if there are several; a run of a detached commit has no branch.
    branches: dict[str, list[TrendSeries]] = {}
    counted = Counter(run.branch for run in stored.runs if run.branch)
    if len(counted) < 2:
        counted.clear()
    for branch, _ in counted.most_common(_MOST_BRANCHES):
        of_branch = read_histories(
            log,
            Wanted(),
            Quiet(),
            seconds_since_1970=seconds_since_1970,
            branch=branch,
            search=search,
        )
        branches[branch] = of_branch.series
    devices: dict[str, str] = {}
    for document in documents.values():
        testbed = document.testbed
        names = map(testbed.comparable.get, _DEVICE_FIELDS)
        device = next(filter(None, names), testbed.device_kind)
        devices[testbed.fingerprint] = device
    return SiteContent(
        trend=trend,
        runs=stored.runs,
        branches=branches,
        machines=machine_runs(stored.runs, moment(trend.made_at)),
        devices=devices,
        acceptances=log.acceptances,
        confirmations=log.confirmations,
        gates=log.gates,
        accepted_commits=accepted_commits(log.acceptances, log.triages),
    )


# A value of a run by its place: workload, shape, metric, labels.
_Place = tuple[str, str, str, str]


def beside_main(
    run: StoredRun, document: RunDocument, series: Sequence[TrendSeries]
) -> list[BesideLevel]:
    """The numbers of a run compared with its level; ``series`` are main's, of all
    testbeds.
    """
    values = _values(document)
    numbers: list[BesideLevel] = []
    for entry in series:
        if entry.fingerprint == run.fingerprint and _place(entry) in values:
            level = level_around(entry, run, without=[run])
            numbers.append(beside_level(entry, values[_place(entry)], level))
    return numbers


def beside_each_other(
    earlier: StoredRun,
    later: StoredRun,
    documents: tuple[RunDocument, RunDocument],
    series: Sequence[TrendSeries],
) -> list[BesideLevel]:
    """The numbers of two runs, compared with the level of the earlier run if both are
    of one testbed.
    """
    before, after = map(_values, documents)
    numbers: list[BesideLevel] = []
    for entry in series:
        value_before = before.get(_place(entry))
        value_after = after.get(_place(entry))
        is_measured = value_before is not None or value_after is not None
        if entry.fingerprint == later.fingerprint and is_measured:
            # Empty for a run of another testbed.
            level = level_around(entry, earlier, without=[later])
            numbers.append(run_to_run(entry, value_before, value_after, level))
    return numbers


def _place(series: TrendSeries) -> _Place:
    return series.workload, series.shape, series.metric, labels_text(series.labels)


def _values(document: RunDocument) -> Mapping[_Place, float]:
    return {
        (value.workload, value.shape, value.metric, value.labels): value.value
        for value in stored_values(document)
    }
