"""The pages of a project, kept between requests and renewed when the project has
changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from perfgate.document.site import SiteContent
from perfgate.errors import PerfgateError
from perfgate.flows.shared.site.pages import SitePages

# Readers wait for the new pages of a project with at most this many runs. Readers of a
# larger project get the earlier pages at once, while new pages are made.
FEW_RUNS = 25


@dataclass(frozen=True)
class KeptPages:
    """The content and the pages of a project at a revision of its log."""

    revision: str
    content: SiteContent
    pages: SitePages


ReadPages = Callable[[str], KeptPages]


class KeptSite:
    """The pages of one project; ``stored`` are the pages of an earlier process."""

    def __init__(self, read: ReadPages, stored: KeptPages | None) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._present = stored
        self._renewal: Future[KeptPages] | None = None

    @property
    def present(self) -> KeptPages | None:
        """The pages that were made last, perhaps of an earlier revision; None before
        the first.
        """
        return self._present

    def pages(self, revision: str, *, must_be_new: bool = False) -> KeptPages:
        """The pages for a project at ``revision``, or earlier pages.

        Raises the errors of reading if there are none.
        """
        # A renewal under way may have begun before this revision; the next renewal has
        # not.
        for _ in range(2):
            present, renewal = self._renewed(revision)
            if present is not None and (
                renewal is None
                or (len(present.content.runs) > FEW_RUNS and not must_be_new)
            ):
                break
            if renewal is not None:
                present = renewal.result()
        assert present is not None
        return present

    def _renewed(
        self, revision: str
    ) -> tuple[KeptPages | None, Future[KeptPages] | None]:
        """The present pages, and their renewal if they are of another revision."""
        with self._lock:
            if self._present is not None and self._present.revision == revision:
                return self._present, None
            if self._renewal is None:
                self._renewal = Future()
                threading.Thread(
                    target=self._renew, args=(self._renewal, revision), daemon=True
                ).start()
            return self._present, self._renewal

    def _renew(self, renewal: Future[KeptPages], revision: str) -> None:
        pages: KeptPages | None = None
        error = PerfgateError("the pages could not be made; open this page again")
        try:
            pages = self._read(revision)
        except PerfgateError as reason:
            error = reason
        finally:
            with self._lock:
                self._present = pages
                self._renewal = None
            if pages is not None:
                renewal.set_result(pages)
            else:
                renewal.set_exception(error)
