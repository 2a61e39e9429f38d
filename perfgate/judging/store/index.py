"""The index of a project: its runs and their values by series, made from the entries of
its log.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from perfgate.document.history import (
    Acceptance,
    Confirmation,
    GateRecord,
    StoredRun,
    Triage,
)
from perfgate.document.run import RunDocument
from perfgate.judging.store.runs import run_entries, stored_run
from perfgate.judging.store.store import (
    ALL_RUNS,
    Page,
    RunEntry,
    SeriesPlace,
    Store,
    run_count,
)

# The newest runs of a project, which are read again.
_NEWEST_RUNS = 50


class Series(NamedTuple):
    """One metric of one workload and shape over time, on comparable testbeds;
    ``labels`` exclude the shape.
    """

    workload: str
    shape: str
    metric: str
    fingerprint: str
    device_kind: str
    labels: dict[str, str]


class SeriesValue(NamedTuple):
    """One value of a series: one run, which is one session.

    ``position`` is the run's in the index.
    """

    position: int
    value: float


class Index:
    """The runs of a project, oldest session first, and the values of each series."""

    def __init__(self, newest_first: Iterable[RunEntry]) -> None:
        self.runs: list[StoredRun] = []
        self._values: dict[SeriesPlace, _Column] = {}
        self._add(newest_first)
        self.runs.reverse()
        for column in self._values.values():
            column.reverse(len(self.runs))

    def renew(self, newest_first: Sequence[RunEntry]) -> bool:
        """Put the newest page of the log in the place of the runs since the oldest one
        in it; return whether the index has that run.
        """
        oldest = newest_first[-1].run.id
        for start in reversed(range(len(self.runs))):
            if self.runs[start].id == oldest:
                break
        else:
            return False
        del self.runs[start:]
        for column in self._values.values():
            column.cut(start)
        self._add(reversed(newest_first))
        return True

    def history(self, place: SeriesPlace) -> list[SeriesValue]:
        """The values of a series, oldest session first."""
        return list(self.newest_first(place))[::-1]

    def newest_first(self, place: SeriesPlace) -> Iterator[SeriesValue]:
        """The values of a series, newest session first."""
        column = self._values.get(place)
        if column is not None:
            for position, value in zip(
                reversed(column.positions), reversed(column.values)
            ):
                yield SeriesValue(position, value)

    def series(self) -> dict[SeriesPlace, Series]:
        """Every series, in the order of workload, shape, metric, labels and
        fingerprint.
        """
        series: dict[SeriesPlace, Series] = {}
        for place, column in sorted(self._values.items(), key=itemgetter(0)):
            if column.positions:
                newest = self.runs[column.positions[-1]]
                labels = json.loads(place.labels or "{}")
                series[place] = Series(
                    place.workload,
                    place.shape,
                    place.metric,
                    place.fingerprint,
                    newest.device_kind,
                    labels,
                )
        return series

    def _add(self, entries: Iterable[RunEntry]) -> None:
        for entry in entries:
            position = len(self.runs)
            self.runs.append(entry.run)
            for stored in entry.values:
                place = stored.place(entry.run.fingerprint)
                column = self._values.get(place)
                if column is None:
                    column = self._values[place] = _Column()
                column.positions.append(position)
                column.values.append(stored.value)


class _Column:
    """The values of a series with the positions of their runs, as arrays: a service
    keeps all its projects in memory.
    """

    def __init__(self) -> None:
        self.positions = array("q")
        self.values = array("d")

    def reverse(self, runs: int) -> None:
        """Count the positions from the other end of so many runs."""
        self.positions = array("q", [runs - 1 - at for at in reversed(self.positions)])
        self.values.reverse()

    def cut(self, start: int) -> None:
        """Remove the values of the runs from a position on."""
        first = bisect_left(self.positions, start)
        del self.positions[first:], self.values[first:]


def read_index(store: Store, project: str, page: Page = ALL_RUNS) -> Index:
    """The index of a project, or of some of its runs."""
    return Index(run_entries(store, project, page))


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
    return _log(store, project, read_index(store, project))


class FollowedLog:
    """The log of a project for repeated reading: only the newest runs, unless runs were
    removed, which a ledger notes, or their number shows that others changed.
    """

    def __init__(self, project: str) -> None:
        self._project = project
        self._index = Index([])
        self._removals: frozenset[int] | None = None

    def read(self, store: Store) -> ProjectLog:
        """The log as it is now. Raises StoreError if the store cannot be read."""
        ledger = store.ledger()
        removals = None
        if ledger is not None:
            removals = ledger.removals(self._project)
        is_known = removals is not None and removals == self._removals
        if not is_known or not self._follow(store):
            self._index = read_index(store, self._project)
        self._removals = removals
        return _log(store, self._project, self._index)

    def _follow(self, store: Store) -> bool:
        """Read the newest runs; return whether the index has all runs then."""
        fewest = store.revision(self._project)
        newest = store.entries(self._project, RunEntry, Page(limit=_NEWEST_RUNS))
        most = store.revision(self._project)
        if not newest or not self._index.renew(newest):
            return False
        return run_count(fewest) <= len(self._index.runs) <= run_count(most)


def _log(store: Store, project: str, index: Index) -> ProjectLog:
    return ProjectLog(
        project=project,
        store=store,
        index=index,
        damaged=store.damaged(project),
        acceptances=store.entries(project, Acceptance),
        triages=store.entries(project, Triage),
        confirmations=store.entries(project, Confirmation),
        gates=store.entries(project, GateRecord),
    )
