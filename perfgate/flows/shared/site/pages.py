"""Answer an address with a page of main's history, and list the addresses of a site in
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise

from perfgate.document.columns import ids_of
from perfgate.document.history import StoredRun
from perfgate.document.kept import KeptOfRun
from perfgate.document.run import RunDocument
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendSeries
from perfgate.flows.shared.site.read import beside_each_other, beside_main
from perfgate.judging.report.render.site.fleet import render_fleet
from perfgate.judging.report.render.site.gates import render_gates
from perfgate.judging.report.render.site.open_page import render_open
from perfgate.judging.report.render.site.overview import render_overview
from perfgate.judging.report.render.site.page import (
    ALL_SERIES,
    COMPARE,
    FLEET,
    GATES,
    OPEN,
    OVERVIEW,
    SiteLinks,
    SitePage,
    compare_address,
    compared_of,
    run_address,
    run_of,
    runs_address,
    runs_page_of,
    series_address,
)
from perfgate.judging.report.render.site.runs import (
    page_count,
    render_compare,
    render_compare_form,
    render_run,
    render_runs,
    render_unreadable,
)
from perfgate.judging.report.render.site.series import render_series, render_series_list
from perfgate.locale import Language, speaking

# The limits of a site in files, besides the number of newest runs: the store may have
# thousands of each.
MOST_SERIES_PAGES = 1000
MOST_LIST_PAGES = 25
MOST_CHANGES = 40
# Documents are large; two neighbours are needed at once.
_DOCUMENTS_KEPT = 4

OpenRun = Callable[[str], RunDocument]
ReadKept = Callable[[str], KeptOfRun]
RecordingOf = Callable[[StoredRun], str]


# The pages that are made from the content alone.
_WITHOUT_DETAILS = {
    OVERVIEW: render_overview,
    OPEN: render_open,
    GATES: render_gates,
    FLEET: render_fleet,
    ALL_SERIES: render_series_list,
}


class SitePages:
    """The pages of one content.

    ``open_run`` reads a run's document and raises StoreError if it cannot.

    ``read_kept`` returns the kept files of a run.
    """

    def __init__(
        self,
        content: SiteContent,
        open_run: OpenRun,
        language: Language,
        links: SiteLinks,
        read_kept: ReadKept = lambda _: KeptOfRun(),
    ) -> None:
        self._content = content
        self._language = language
        self._links = links
        self._read_kept = read_kept
        self._open_run = lru_cache(_DOCUMENTS_KEPT)(open_run)

    def page(
        self,
        address: str,
        query: Mapping[str, str] | None = None,
        *,
        form_key: str = "",
        recording_of: RecordingOf | None = None,
    ) -> str | None:
        """The page of an address, None if there is none. Raises StoreError if a run
        cannot be read.

        ``form_key`` is the reader's key for the forms that change something.
        ``recording_of`` names the served recording of a run, "" if it has none.
        """
        links = replace(self._links, form_key=form_key)
        with speaking(self._language):
            return self._page(
                SitePage(address, self._content, links), query or {}, recording_of
            )

    def _page(
        self,
        page: SitePage,
        query: Mapping[str, str],
        recording_of: RecordingOf | None,
    ) -> str | None:
        if page.address in _WITHOUT_DETAILS:
            return _WITHOUT_DETAILS[page.address](page)
        if page.address in self._series:
            series, branch = self._series[page.address]
            return render_series(series, branch, page)
        if (number := runs_page_of(page.address)) is not None:
            if number <= page_count(self._content):
                return render_runs(page, number)
            return None
        if page.address == COMPARE:
            return self._asked(query, page)
        if (pair := compared_of(page.address)) is not None:
            earlier, later = map(self._find, pair)
            if earlier and later:
                return self._compare(earlier, later, page)
            return None
        run = self._find(run_of(page.address))
        if run:
            return self._run(run, recording_of, page)
        return None

    @cached_property
    def _series(self) -> dict[str, tuple[TrendSeries, str]]:
        """The pages of all series, each with its branch; first the series over all
        branches.
        """
        return {
            series_address(entry, branch): (entry, branch)
            for entry, branch in _series_pages(self._content)
        }

    def unreadable(self, address: str, reason: str) -> str:
        """The page for a run that cannot be read."""
        with speaking(self._language):
            return render_unreadable(
                SitePage(address, self._content, self._links), reason
            )

    def _find(self, digits: str | None) -> StoredRun | None:
        """The run with an id that begins with these digits, None if there is none or
        more than one.
        """
        matches: list[int] = []
        for place, run_id in enumerate(ids_of(self._content.runs)):
            if digits and run_id.startswith(digits):
                matches.append(place)
        if len(matches) == 1:
            return self._content.runs[matches[0]]
        return None

    def _asked(self, query: Mapping[str, str], page: SitePage) -> str:
        unknown = ""
        if query.get("earlier") and query.get("later"):
            earlier = self._find(query["earlier"].strip().lower())
            later = self._find(query["later"].strip().lower())
            if earlier and later:
                return self._compare(earlier, later, page)
            unknown = query["later"] if earlier else query["earlier"]
        return render_compare_form(page, unknown)

    def _run(
        self, run: StoredRun, recording_of: RecordingOf | None, page: SitePage
    ) -> str:
        document = self._open_run(run.id)
        has_trace = bool(document.traces)
        recording = ""
        if recording_of is not None and has_trace:
            recording = recording_of(run)
        # Newest first.
        at = ids_of(self._content.runs).index(run.id)
        earlier = self._first_of_testbed(
            run.fingerprint, range(at + 1, len(self._content.runs))
        )
        later = self._first_of_testbed(run.fingerprint, reversed(range(at)))
        return render_run(
            run,
            document,
            beside_main(run, document, self._content.trend.series),
            (earlier, later),
            self._read_kept(run.id),
            page,
            recording=recording,
        )

    def _first_of_testbed(
        self, fingerprint: str, places: Iterable[int]
    ) -> StoredRun | None:
        for place in places:
            run = self._content.runs[place]
            if run.fingerprint == fingerprint:
                return run
        return None

    def _compare(self, earlier: StoredRun, later: StoredRun, page: SitePage) -> str:
        documents = self._open_run(earlier.id), self._open_run(later.id)
        placed = beside_each_other(
            earlier, later, documents, self._content.trend.series
        )
        return render_compare(earlier, later, documents, placed, page)


def file_addresses(content: SiteContent, *, newest: int) -> list[str]:
    """The addresses of a site in files: all lists, the series, the newest runs, and
    both runs around each newest change.

    In the order in which they are written: pages about the same runs follow each other.
    """
    addresses: list[str] = list(_WITHOUT_DETAILS)
    for page in range(1, min(page_count(content), MOST_LIST_PAGES) + 1):
        addresses.append(runs_address(page))
    for entry, branch in _series_pages(content)[:MOST_SERIES_PAGES]:
        addresses.append(series_address(entry, branch))
    # The runs around each of the newest changes, however old they are.
    changes: set[tuple[str, str, str]] = set()
    for series in content.trend.series:
        for change in series.changes:
            before, after = series.points[change.at - 1 : change.at + 1]
            changes.add((change.first_seen, before.run_id, after.run_id))
    newest_changes = sorted(changes, reverse=True)[:MOST_CHANGES]
    pairs = [(before, after) for _, before, after in newest_changes]
    # The newest runs, each after the previous run on its testbed.
    by_testbed: dict[str, list[str]] = {}
    for run in content.runs[:newest]:
        by_testbed.setdefault(run.fingerprint, []).append(run.id)
    for of_testbed in by_testbed.values():
        pairs += [(earlier, later) for later, earlier in pairwise(of_testbed)]
    run_ids = {run.id for run in content.runs[:newest]}
    compared: dict[str, list[str]] = {}
    for earlier, later in pairs:
        run_ids.update((earlier, later))
        compared.setdefault(later, []).append(compare_address(earlier, later))
    for run in content.runs:
        if run.id in run_ids:
            addresses += [run_address(run.id), *compared.get(run.id, [])]
    return list(dict.fromkeys(addresses))


def _series_pages(content: SiteContent) -> list[tuple[TrendSeries, str]]:
    """The series with a page, each with its branch; first the series over all branches."""
    pages: list[tuple[TrendSeries, str]] = []
    for branch, entries in {"": content.trend.series, **content.branches}.items():
        pages += [(entry, branch) for entry in entries if entry.points]
    return pages
