"""The store that a service serves."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from perfgate.flows.shared.store import open_store_at
from perfgate.judging.store.remote import PREFIX
from perfgate.judging.store.store import Store, shown_location

# An instance of a store in a branch reads it once.
_BRANCH_SECONDS = 30.0


class ServedStore:
    """The store at a location, opened again from time to time if it is a branch."""

    def __init__(
        self, location: str, root: Path, environ: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open: Callable[[], Store] = lambda: open_store_at(location, root, environ, is_served=True)
        self._location, self._clock, self._lock = location, clock, threading.Lock()
        self._seconds = _BRANCH_SECONDS if location.startswith(PREFIX) else float("inf")
        self._store, self._opened = self._open(), clock()

    def store(self) -> Store:
        with self._lock:
            if self._clock() - self._opened > self._seconds:
                self._store, self._opened = self._open(), self._clock()
            return self._store

    def public(self, text: str) -> str:
        """A message without the place of the store on this machine."""
        path = self._location.removeprefix("sqlite:///")
        places = (str(Path(path).expanduser()), path, shown_location(self._location))
        return re.sub("|".join(rf"(?<!\w){re.escape(place)}(?!\w)" for place in places), "the store", text)
