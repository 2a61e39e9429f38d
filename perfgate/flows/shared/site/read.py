"""Read a project's stored runs for its pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from perfgate.config import Config
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage
from perfgate.document.run import RunDocument
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendDocument, TrendSeries
from perfgate.flows.shared.doors import Progress, Quiet, Remembering
from perfgate.flows.shared.trend.commits import commit_names
from perfgate.flows.shared.trend.read import SearchChanges, Wanted, find_trend, open_documents, read_histories
from perfgate.judging.store.store import Store
from perfgate.judging.trend.find import with_changes
from perfgate.judging.trend.gates import accepted_commits, gate_history
from perfgate.judging.trend.health import run_health

# The most branches with series of their own, those with the most runs.
_MOST_BRANCHES = 4
# The fields of a testbed that name its device, the most telling first.
_DEVICE_FIELDS = ("device.name", "cpu.model")


@dataclass(frozen=True)
class MainHistory:
    """The trend of a project with the gates' record, its runs, newest first, and the documents that were opened by id."""

    trend: TrendDocument
    runs: list[StoredRun]
    documents: dict[str, RunDocument]


class ChangesRemembered:
    """Searches series for changes, but not those that are as they were at the last reading: most of them are."""

    def __init__(self) -> None:
        self._last: dict[str, list[TrendSeries]] = {}
        self._now: dict[str, list[TrendSeries]] = {}

    def begin(self) -> None:
        """Begin a reading; series that the last one did not have are forgotten."""
        self._last, self._now = self._now, {}

    def __call__(self, series: TrendSeries) -> TrendSeries:
        known = self._last.get(series.key, [])  # of all branches together, and of single ones
        found = next((one for one in known if msgspec.structs.replace(one, changes=[], noise=None) == series), None)
        searched = found or with_changes(series)
        self._now.setdefault(series.key, []).append(searched)
        return searched


def read_main(
    config: Config,
    store: Store,
    progress: Progress,
    *,
    seconds_since_1970: float,
    search: SearchChanges = with_changes,
) -> MainHistory:
    """Raises UsageError if there is no run of main, StoreError if the store cannot be read."""
    remembered = Remembering(progress)
    stored = read_histories(config, store, Wanted(), remembered, seconds_since_1970=seconds_since_1970, search=search)
    documents = open_documents(store, config.project, stored, note=remembered.note)
    trend = find_trend(
        config,
        store,
        stored,
        before=None,
        confirmations=store.entries(config.project, Confirmation),
        name_commits=commit_names(config.root),
        documents=documents,
    )
    # The newest run of every testbed, however long ago, and not only the newest of all.
    health = [
        run_health(run.id, documents[run.id], run.recorded_at) for run in reversed(stored.runs) if run.id in documents
    ]
    accepted, triages = store.entries(config.project, Acceptance), store.entries(config.project, Triage)
    gates = gate_history(store.entries(config.project, GateRecord), accepted, triages)
    trend = msgspec.structs.replace(trend, health=health, notes=remembered.notes, gates=gates)
    return MainHistory(trend, stored.runs, documents)


def read_site(
    config: Config,
    store: Store,
    progress: Progress,
    *,
    seconds_since_1970: float,
    search: SearchChanges = with_changes,
) -> SiteContent:
    """The content of all pages. Raises as ``read_main``."""
    main = read_main(config, store, progress, seconds_since_1970=seconds_since_1970, search=search)
    accepted = store.entries(config.project, Acceptance)
    return SiteContent(
        trend=main.trend,
        runs=main.runs,
        branches=_branches(config, store, main.runs, seconds_since_1970=seconds_since_1970, search=search),
        devices={document.testbed.fingerprint: _device(document) for document in main.documents.values()},
        acceptances=accepted,
        confirmations=store.entries(config.project, Confirmation),
        gates=store.entries(config.project, GateRecord),
        accepted_commits=accepted_commits(accepted, store.entries(config.project, Triage)),
    )


def _branches(
    config: Config, store: Store, runs: Sequence[StoredRun], *, seconds_since_1970: float, search: SearchChanges
) -> dict[str, list[TrendSeries]]:
    """The series of each branch, if there are several; a run of a detached commit belongs to none."""
    counted = Counter(run.branch for run in runs if run.branch)
    if len(counted) < 2:
        return {}
    return {
        branch: read_histories(
            config, store, Wanted(), Quiet(), seconds_since_1970=seconds_since_1970, branch=branch, search=search
        ).series
        for branch, _ in counted.most_common(_MOST_BRANCHES)
    }


def _device(document: RunDocument) -> str:
    fields = document.testbed.comparable
    return next((fields[name] for name in _DEVICE_FIELDS if fields.get(name)), document.testbed.device_kind)
