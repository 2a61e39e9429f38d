"""What a service answers questions from: its store and its recordings, for the projects that the caller may read."""

from __future__ import annotations

from pathlib import Path

from perfgate.flows.ask.sources import Sources
from perfgate.service.callers import Caller
from perfgate.service.library import Library
from perfgate.service.served_store import ServedStore


class ServedSources:
    """The sources of one service; its store or recordings may be None."""

    def __init__(self, root: Path, served: ServedStore | None, library: Library | None) -> None:
        self._root, self._served, self._library = root, served, library

    def of(self, caller: Caller) -> Sources:
        return Sources(
            root=self._root,
            store=self._served.store if self._served is not None else None,
            # Only names that the library lists have a path.
            recording=self._library.path if self._library is not None else None,
            only=caller.project,
            public=self.public,
        )

    def public(self, text: str) -> str:
        """A text without places of this machine."""
        text = self._served.public(text) if self._served is not None else text
        return self._library.without_folder(text) if self._library is not None else text
