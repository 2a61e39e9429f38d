"""The store that a service serves."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError
from perfgate.flows.shared.store import open_store_at
from perfgate.judging.store.backends.gitbranch import GitBranchStore
from perfgate.judging.store.remote import PREFIX
from perfgate.judging.store.runs import stored_runs
from perfgate.judging.store.store import FILE_URL, Page, Store, shown_location

# An instance of a store in a branch reads it once.
_BRANCH_SECONDS = 30.0
# Of each project, for what is said about all projects: testbeds that are in use,
# workloads, branches.
_NEWEST_RUNS = 500


@dataclass(frozen=True)
class StoreAddress:
    """The location of a store, the folder of the project's clone, and the environment."""

    location: str
    root: Path
    environ: Mapping[str, str]

    @property
    def place(self) -> str:
        """The location, with the folder that a relative path or a branch depends on."""
        path = self.location.removeprefix(FILE_URL)
        if "://" not in path:
            return str(Path(path).expanduser().absolute())
        if path.startswith(PREFIX):
            return f"{path} of {self.root.absolute()}"
        return path

    def open(self, *, is_served: bool = False) -> Store:
        return open_store_at(
            self.location, self.root, self.environ, is_served=is_served
        )


class NewestRuns(NamedTuple):
    """The newest runs of a project at a revision of its log."""

    revision: str
    runs: list[StoredRun]


class ServedStore:
    """The store at a location, opened again from time to time if it is a branch."""

    def __init__(
        self,
        location: str,
        root: Path,
        environ: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = StoreAddress(location, root, dict(environ))
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds = _BRANCH_SECONDS if location.startswith(PREFIX) else float("inf")
        self._store = self.address.open(is_served=True)
        self._opened = clock()
        self._newest: dict[str, NewestRuns] = {}

    def store(self) -> Store:
        with self._lock:
            if self._clock() - self._opened > self._seconds:
                self._store = self.address.open(is_served=True)
                self._opened = self._clock()
            return self._store

    def newest_runs(self, project: str) -> list[StoredRun]:
        """The newest runs of a project, newest first.

        They are read again only if the project has changed.
        """
        store = self.store()
        revision = store.revision(project)
        known = self._newest.get(project)
        if known is not None and known.revision == revision:
            return known.runs
        runs = stored_runs(store, project, Page(limit=_NEWEST_RUNS))
        self._newest[project] = NewestRuns(revision, runs)
        return runs

    def public(self, text: str) -> str:
        """A message without the place of the store: on this machine, or of the
        repository with its branch.
        """
        location = self.address.location
        path = location.removeprefix(FILE_URL)
        places = [str(Path(path).expanduser()), path, shown_location(location)]
        store = self.store()
        if isinstance(store, GitBranchStore):
            with suppress(StoreError):
                places.append(store.name)
        # Most messages name it as "the store PLACE".
        place = "|".join(map(re.escape, places))
        return re.sub(rf"(?<!\w)(?:the store )?(?:{place})(?!\w)", "the store", text)
