"""The pages of a project, kept between requests and renewed when the project has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from perfgate.errors import PerfgateError
from perfgate.flows.shared.site.pages import SitePages

# Readers wait for the new pages of a project with so few runs. Of a larger project they get the earlier pages at once, while
# new pages are made.
FEW_RUNS = 25


@dataclass(frozen=True)
class KeptPages:
    """The pages of a project at a revision of its log, when it had so many ``runs``."""

    revision: str
    runs: int
    pages: SitePages


ReadPages = Callable[[str], KeptPages]


class KeptSite:
    """The pages of one project; ``stored`` are those of an earlier process."""

    def __init__(self, read: ReadPages, stored: KeptPages | None = None) -> None:
        self._read, self._lock = read, threading.Lock()
        self._kept = stored
        self._renewal: _Renewal | None = None

    def pages(self, revision: str, *, must_be_new: bool = False) -> SitePages:
        """The pages for a project at ``revision``, or earlier pages. Raises the errors of reading if there are none."""
        # A renewal under way may have begun before this revision; the one after it has not.
        for _ in range(2):
            kept, renewal = self._renewed(revision)
            if kept is not None and (renewal is None or (kept.runs > FEW_RUNS and not must_be_new)):
                break
            if renewal is not None:
                kept = renewal.result()
        assert kept is not None
        return kept.pages

    def _renewed(self, revision: str) -> tuple[KeptPages | None, _Renewal | None]:
        """The present pages, and their renewal if they are of another revision."""
        with self._lock:
            if self._kept is not None and self._kept.revision == revision:
                return self._kept, None
            if self._renewal is None:
                self._renewal = _Renewal(lambda: self._read(revision), self._replace)
                self._renewal.start()
            return self._kept, self._renewal

    def _replace(self, kept: KeptPages | None) -> None:
        with self._lock:
            self._kept, self._renewal = kept, None


class _Renewal(threading.Thread):
    """Makes new pages; ``done`` receives them, or None if they cannot be made."""

    def __init__(self, read: Callable[[], KeptPages], done: Callable[[KeptPages | None], None]) -> None:
        super().__init__(daemon=True)
        self._read, self._done = read, done
        self._result: KeptPages | PerfgateError = PerfgateError("the pages could not be made; open this page again")

    def run(self) -> None:
        try:
            self._result = self._read()
        except PerfgateError as error:
            self._result = error
        finally:
            self._done(self._result if isinstance(self._result, KeptPages) else None)

    def result(self) -> KeptPages:
        """Wait for the new pages. Raises the error of making them."""
        self.join()
        if isinstance(self._result, PerfgateError):
            raise self._result
        return self._result
