"""The runs of main with artifacts that are needed longer than others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from perfgate.config import Config
from perfgate.document.history import StoredRun
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.trend.read import Wanted, read_histories
from perfgate.judging.store.index import read_log
from perfgate.judging.store.store import Store
from perfgate.judging.trend.find import with_changes

# A comparison with main needs no more than the newest runs of its level; as many give a prediction interval.
LEVEL_RUNS = 3
# The states of triage in which a regression is still open.
_OPEN_STATES = ("new", "acknowledged")


def retained_runs(config: Config, store: Store, progress: Progress, *, seconds_since_1970: float) -> frozenset[str]:
    """The ids of the runs on both sides of each regression of main, found or in triage, and of the newest on main's level.

    Raises StoreError if main's runs cannot be read: without them nothing may be removed.
    """
    log = read_log(store, config.project)
    if not log.index.runs and not log.damaged:
        return frozenset()
    stored = read_histories(log, Wanted(), progress, seconds_since_1970=seconds_since_1970)
    # Of a testbed that is no longer measured no change is searched for elsewhere.
    judged = [entry if entry.current else with_changes(entry) for entry in stored.series if not entry.informing]
    open_commits = {entry.commit for entry in log.triages if entry.state in _OPEN_STATES}
    retained = set(_first_and_before(stored.runs, open_commits))
    for entry in judged:
        regressions = [change.at for change in entry.changes if change.direction == "worse"]
        retained.update(entry.points[at].run_id for index in regressions for at in (index - 1, index))
        level_begins = max((change.at for change in entry.changes), default=0)
        retained.update(point.run_id for point in entry.points[level_begins:][-LEVEL_RUNS:])
    return frozenset(retained)


def _first_and_before(newest_first: Iterable[StoredRun], commits: Collection[str]) -> Iterator[str]:
    """The runs of some commits, and on each testbed the run before them."""
    before: dict[str, StoredRun] = {}
    for run in reversed(list(newest_first)):
        if run.commit in commits:
            yield run.id
            if run.fingerprint in before:
                yield before[run.fingerprint].id
        else:
            before[run.fingerprint] = run
