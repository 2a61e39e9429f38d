"""The sources of answers, limited to the asker's rights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfgate.config import CONFIG_NAME, load_config
from perfgate.document.history import StoredRun
from perfgate.document.site import SiteContent
from perfgate.errors import ArgumentError, ForbiddenError, UsageError
from perfgate.flows.shared.doors import Quiet
from perfgate.flows.shared.site.read import read_site
from perfgate.flows.shared.store import open_store_at, store_location_in
from perfgate.judging.store.index import read_log
from perfgate.judging.store.runs import stored_runs
from perfgate.judging.store.store import Page, Store

# Of a project, for its workloads, testbeds and branches.
_NEWEST_RUNS = 500


@dataclass(frozen=True)
class Sources:
    """``store`` opens the store and ``recording`` finds a recording by its name; None if there is none to ask about.

    ``main`` returns a project's history and ``newest`` its newest runs; without them, the store is read. ``only`` is the only
    project that the asker may read, ``usual`` the project that is meant if none is named. ``public`` takes the places of this
    machine out of a text. ``root`` is the project's folder; its clone names commits.
    """

    root: Path
    store: Callable[[], Store] | None = None
    main: Callable[[str], SiteContent] | None = None
    newest: Callable[[str], list[StoredRun]] | None = None
    recording: Callable[[str], Path] | None = None
    only: str | None = None
    usual: str = ""
    public: Callable[[str], str] = str
    clock: Callable[[], float] = time.time

    def opened(self) -> Store:
        """Raises UsageError if there is no store."""
        if self.store is None:
            raise UsageError("there is no store to ask about; name one by --store")
        return self.store()

    def history(self, project: str) -> SiteContent:
        """Main's history. Raises UsageError for a project without runs."""
        if self.main is not None:
            return self.main(project)
        log = read_log(self.opened(), project)
        return read_site(log, self.root, Quiet(), seconds_since_1970=self.clock())

    def newest_runs(self, project: str) -> list[StoredRun]:
        """The newest runs of a project, newest first; empty for a project without runs."""
        if self.newest is not None:
            return self.newest(project)
        return stored_runs(self.opened(), project, Page(limit=_NEWEST_RUNS))

    def projects(self) -> list[str]:
        """The projects with a stored run that the asker may read."""
        return [
            project
            for project in self.opened().projects()
            if self.only in (None, project)
        ]

    def project(self, text: str) -> str:
        """The project that is asked about.

        Raises ForbiddenError for one that the asker may not read, and ArgumentError if several are stored and none is named.
        """
        if text:
            if self.only not in (None, text):
                raise ForbiddenError("this token is for another project")
            return text
        usual = self.only or self.usual
        if usual:
            return usual
        there = self.projects()
        if len(there) == 1:
            return there[0]
        raise ArgumentError(
            "name the project that you ask about; stored are: {projects}",
            projects=", ".join(there[:50]) or "none",
        )

    def recording_at(self, name: str) -> Path:
        """Raises UsageError for an unknown recording, and ForbiddenError if the asker may read one project alone."""
        if self.only is not None:
            raise ForbiddenError("the token of a project reads its runs alone")
        if self.recording is None:
            raise UsageError(
                "no recordings are served here; start perfgate serve with --traces DIR"
            )
        return self.recording(name)


def local_sources(
    location: str | None, folder: Path, environ: Mapping[str, str]
) -> Sources:
    """What the user of this machine may read: the store at a location, else the project's, and recordings by path."""

    @cache
    def store() -> Store:
        return open_store_at(
            store_location_in(location, folder, environ), folder, environ
        )

    has_config = (folder / CONFIG_NAME).is_file()
    project = ""
    if has_config:
        project = load_config(folder, needs_workload=False, environ=environ).project
    return Sources(root=folder, store=store, recording=Path, usual=project)
