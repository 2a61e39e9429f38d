"""What a service answers questions from: its store and its recordings, for the projects
that the caller may read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfgate.flows.ask.sources import Sources
from perfgate.service.callers import Caller
from perfgate.service.library import Library
from perfgate.service.project_sites import ProjectSites
from perfgate.service.served_store import ServedStore


class ServedSources:
    """The sources of one service; its store with its sites, or its recordings, may be
    None.
    """

    def __init__(
        self,
        root: Path,
        served: ServedStore | None,
        library: Library | None,
        sites: ProjectSites | None,
    ) -> None:
        self._root = root
        self._served = served
        self._library = library
        self._sites = sites

    def of(self, caller: Caller) -> Sources:
        sources = Sources(root=self._root, only=caller.project, public=self.public)
        if self._served is not None:
            sources = replace(
                sources, store=self._served.store, newest=self._served.newest_runs
            )
        if self._sites is not None:
            sources = replace(sources, main=self._sites.content)
        if self._library is not None:
            # Only names that the library lists have a path.
            sources = replace(sources, recording=self._library.path)
        return sources

    def public(self, text: str) -> str:
        """A text without places of this machine."""
        if self._served is not None:
            text = self._served.public(text)
        if self._library is not None:
            text = self._library.without_folder(text)
        return text
