"""The index of a project: its runs and their values by series, made from the entries of its log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from perfgate.document.conditions import StepConditions
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage
from perfgate.document.run import RunDocument
from perfgate.judging.store.runs import stored_run
from perfgate.judging.store.store import ALL_RUNS, Page, RunEntry, SeriesPlace, Store


class Series(NamedTuple):
    """One metric of one workload and shape over time, on comparable testbeds; ``labels`` exclude the shape."""

    workload: str
    shape: str
    metric: str
    fingerprint: str
    device_kind: str
    labels: dict[str, str]


class SeriesValue(NamedTuple):
    """One value of a series: one run, which is one session. ``position`` is the run's in the index."""

    position: int
    value: float


class Index:
    """The runs of a project, oldest session first, how their steps were measured, and the values of each series."""

    def __init__(self, newest_first: Iterable[RunEntry]) -> None:
        self.runs: list[StoredRun] = []
        self.conditions: list[list[StepConditions]] = []
        self._values: dict[SeriesPlace, list[SeriesValue]] = {}
        for position, entry in enumerate(reversed(list(newest_first))):
            self.runs.append(entry.run)
            self.conditions.append(entry.conditions)
            for stored in entry.values:
                place = stored.place(entry.run.fingerprint)
                self._values.setdefault(place, []).append(SeriesValue(position, stored.value))

    def history(self, place: SeriesPlace) -> list[SeriesValue]:
        """The values of a series, oldest session first."""
        return self._values.get(place, [])

    def series(self) -> dict[SeriesPlace, Series]:
        """Every series, in the order of workload, shape, metric, labels and fingerprint."""
        return {place: self._series(place) for place in sorted(self._values)}

    def _series(self, place: SeriesPlace) -> Series:
        newest = self.runs[self._values[place][-1].position]
        labels = json.loads(place.labels) if place.labels else {}
        return Series(place.workload, place.shape, place.metric, place.fingerprint, newest.device_kind, labels)


def read_index(store: Store, project: str, page: Page = ALL_RUNS) -> Index:
    """The index of a project, or of some of its runs."""
    return Index(store.entries(project, RunEntry, page))


@dataclass(frozen=True)
class ProjectLog:
    """All entries of a project, read once, and the store that has its documents."""

    project: str
    store: Store
    index: Index
    damaged: list[str]
    acceptances: list[Acceptance]
    triages: list[Triage]
    confirmations: list[Confirmation]
    gates: list[GateRecord]

    def run(self, run_id: str) -> RunDocument:
        """The document of a run. Raises StoreError if it is damaged."""
        return stored_run(self.store, self.project, run_id)


def read_log(store: Store, project: str) -> ProjectLog:
    """Raises StoreError if the store cannot be read."""
    return ProjectLog(
        project=project,
        store=store,
        index=read_index(store, project),
        damaged=store.damaged(project),
        acceptances=store.entries(project, Acceptance),
        triages=store.entries(project, Triage),
        confirmations=store.entries(project, Confirmation),
        gates=store.entries(project, GateRecord),
    )
