"""The pages of a project, kept between requests and read anew when the project has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from perfgate.errors import StoreError, UsageError
from perfgate.flows.shared.site.pages import SitePages

# Readers wait for pages that take less CPU time to read than this. Of a larger project they get those from before the last
# change at once, while new ones are read.
PATIENCE = 1.0

ReadPages = Callable[[], SitePages]


class KeptSite:
    """The pages of one project, which show the state of one revision of it."""

    def __init__(self, read: ReadPages, *, patience: float = PATIENCE) -> None:
        self._read, self._patience, self._lock = read, patience, threading.Lock()
        self._pages: SitePages | None = None
        self._revision, self._cpu_seconds = "", 0.0
        self._renewal: threading.Thread | None = None

    def pages(self, revision: str) -> SitePages:
        """The pages for a project at ``revision``. Raises the errors of reading if there are none to show in the meantime."""
        with self._lock:  # a second request waits until the first has read
            if self._pages is not None and self._revision != revision and self._cpu_seconds > self._patience:
                if self._renewal is None:
                    self._renewal = threading.Thread(target=self._renew, args=(revision,), daemon=True)
                    self._renewal.start()
            elif self._pages is None or self._revision != revision:
                began = time.thread_time()
                self._pages = self._read()
                self._revision, self._cpu_seconds = revision, time.thread_time() - began
            return self._pages

    def _renew(self, revision: str) -> None:
        began = time.thread_time()
        pages: SitePages | None = None
        with suppress(StoreError, UsageError):  # the next request reads by itself, and answers with the error
            pages = self._read()
        with self._lock:
            self._pages, self._revision = pages, revision
            self._cpu_seconds, self._renewal = time.thread_time() - began, None
