"""Read a project's stored runs for its pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfgate.document.history import StoredRun, moment
from perfgate.document.run import RunDocument
from perfgate.document.site import SiteContent
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
from perfgate.judging.store.index import ProjectLog
from perfgate.judging.trend.find import with_changes
from perfgate.judging.trend.gates import accepted_commits, gate_history
from perfgate.judging.trend.health import machine_runs, run_health

# How many branches have separate series: the branches with the most runs.
_MOST_BRANCHES = 4
# The fields of a testbed that name its device, the most telling first.
_DEVICE_FIELDS = ("device.name", "cpu.model")


class ChangesRemembered:
    """Searches series for changes, but not those that are as they were at the last reading: most of them are."""

    def __init__(self) -> None:
        self._last: dict[str, list[TrendSeries]] = {}
        self._now: dict[str, list[TrendSeries]] = {}

    def begin(self) -> None:
        """Begin a reading; series that the last one did not have are forgotten."""
        self._last, self._now = self._now, {}

    def __call__(self, series: TrendSeries) -> TrendSeries:
        searched = self._searched_before(series) or with_changes(series)
        self._now.setdefault(series.key, []).append(searched)
        return searched

    def _searched_before(self, series: TrendSeries) -> TrendSeries | None:
        for entry in self._last.get(
            series.key, []
        ):  # over all branches, and of single branches
            if msgspec.structs.replace(entry, changes=[], noise=None) == series:
                return entry
        return None


def read_site(
    log: ProjectLog,
    root: Path,
    progress: Progress,
    *,
    seconds_since_1970: float,
    search: SearchChanges = with_changes,
) -> SiteContent:
    """Main's history; ``root`` may lie in a clone, which names commits. Raises UsageError if there is no run of main."""
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
        name_commits=commit_names(root),
    )
    documents = opened.documents
    # The newest run of every testbed, however long ago, and not only the newest of all.
    health: list[RunHealth] = []
    for run in reversed(stored.runs):
        if run.id in documents:
            health.append(run_health(run.id, documents[run.id], run.recorded_at))
    gates = gate_history(log.gates, log.acceptances, log.triages)
    trend = msgspec.structs.replace(
        trend,
        runs=msgspec.structs.replace(trend.runs, health=health),
        notes=remembered.notes,
        gates=gates,
    )
    branches: dict[str, list[TrendSeries]] = {}
    for branch in _branches(stored.runs):
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
        devices[document.testbed.fingerprint] = _device(document)
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


def _branches(runs: Sequence[StoredRun]) -> list[str]:
    """The branches with separate series, if there are several; a run of a detached commit belongs to none."""
    counted = Counter(run.branch for run in runs if run.branch)
    if len(counted) < 2:
        return []
    return [branch for branch, _ in counted.most_common(_MOST_BRANCHES)]


def _device(document: RunDocument) -> str:
    testbed = document.testbed
    for name in _DEVICE_FIELDS:
        if testbed.comparable.get(name):
            return testbed.comparable[name]
    return testbed.device_kind
