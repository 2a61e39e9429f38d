"""The pages of main's history, a site for each project of the store, and the list of
projects at `/`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, HTTPException, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from perfgate.document.history import StoredRun
from perfgate.document.kept import KeptOfRun
from perfgate.document.run import RunDocument
from perfgate.document.site import SiteContent
from perfgate.document.trend import TrendDocument
from perfgate.errors import PerfgateError, StoreError, StoreRefusedError
from perfgate.flows.shared.artifacts import kept_reader
from perfgate.flows.shared.site.pages import SitePages
from perfgate.judging.report.render.served import ProjectRow, render_projects
from perfgate.judging.report.render.site.page import (
    OVERVIEW,
    SiteLinks,
    is_address,
)
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import Page
from perfgate.locale import Activity, Language
from perfgate.service.answers import as_page, page_answer
from perfgate.service.audit_page import AUDIT
from perfgate.service.callers import NO_NUL, ReadProject, caller_of, readable_projects
from perfgate.service.kept_site import KeptPages, KeptSite
from perfgate.service.part import ServicePart
from perfgate.service.run_recordings import RunRecordings
from perfgate.service.served_store import ServedStore
from perfgate.service.site_reader import MOST_PROJECTS, ReadContent, SiteReader

_SECONDS_PER_DAY = 86_400
# Of all projects whose content is in memory; a run takes 0.9 kB with its points.
_MOST_RUNS = 150_000
RunDigits = Annotated[
    str, Query(pattern=NO_NUL, description="The first digits of the id of a run.")
]


class ProjectState(NamedTuple):
    """The numbers of open regressions, and of parts of the newest run that failed, in
    the pages of a revision.
    """

    revision: str
    open_regressions: int
    failed: int


class ProjectSites(ServicePart):
    """The sites of one store."""

    def __init__(
        self,
        served: ServedStore,
        language: Language,
        *,
        recordings: str,
        webhooks: str,
        artifacts: ArtifactStore | None,
        run_recordings: RunRecordings | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._served = served
        self._language = language
        self._artifacts = artifacts
        self._clock = clock
        self._recordings = recordings
        self._run_recordings = run_recordings
        self._webhooks = webhooks
        self._lock = threading.Lock()
        self._sites: dict[str, KeptSite] = {}
        # Of every project whose pages were made, and the revisions that the list of
        # projects waits for.
        self._states: dict[str, ProjectState] = {}
        self._awaited: dict[str, str] = {}
        self._reader = SiteReader(served.address)
        # None ends the thread.
        self._recorded: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._due: set[str] = set()
        self._renewals: threading.Thread | None = None

    def router(self) -> APIRouter:
        router = APIRouter()
        page = page_answer()
        project = "/projects/{project:path}"
        home = {
            **page,
            int(HTTPStatus.SEE_OTHER): {
                "description": "To the overview of the only project."
            },
        }
        router.get("/", responses=home, summary="The projects.")(self.projects)
        router.get(
            f"{project}/series/{{name}}",
            responses=page,
            summary="A series, or all of them.",
        )(self.series)
        router.get(
            f"{project}/runs/{{name}}",
            responses=page,
            summary="A run, or a page of the list.",
        )(self.run)
        router.get(
            f"{project}/compare/{{name}}",
            responses=page,
            summary="Two runs beside main's level.",
        )(self.compare)
        router.get(
            f"{project}/{{name}}",
            responses=page,
            summary="Overview, open regressions, machines.",
        )(self.overview)
        return router

    def close(self) -> None:
        self._recorded.put(None)
        self._reader.close()

    def recorded(self, run: RunDocument, run_id: str) -> None:  # noqa: ARG002 - as all listeners
        self._renew_later(run.project)

    def wait(self, project: str) -> None:
        """Make the pages of a project now, for a reader who has changed it."""
        with suppress(PerfgateError):
            self._present(project, must_be_new=True)

    def _renew_later(self, project: str) -> None:
        """Make the pages of a project in the background."""
        with self._lock:
            if self._renewals is None:
                self._renewals = threading.Thread(target=self._renew, daemon=True)
                self._renewals.start()
            if project in self._due:
                return
            self._due.add(project)
        self._recorded.put(project)

    def _renew(self) -> None:
        while (project := self._recorded.get()) is not None:
            # A run that is recorded from now on is not in these pages.
            with self._lock:
                self._due.discard(project)
            self.wait(project)

    def projects(self, request: Request) -> Response:
        store = self._served.store()
        names = readable_projects(request, store)
        if len(names) == 1 and not self._recordings and not self._webhooks:
            return RedirectResponse(_overview(names[0]), HTTPStatus.SEE_OTHER)
        rows: list[ProjectRow] = []
        for name in names:
            for newest in stored_runs(store, name, Page(limit=1)):
                commit, subject = (newest.commit or "")[:12], newest.subject or ""
                row = ProjectRow(
                    name, _overview(name), newest.started_at, commit, subject
                )
                state = self._states.get(name)
                if state is not None:
                    row = replace(
                        row,
                        open_regressions=state.open_regressions,
                        failed=state.failed,
                    )
                # Another process may have written, too.
                revision = self._revision_today(name)
                is_old = state is None or state.revision != revision
                if is_old and self._awaited.get(name) != revision:
                    self._awaited[name] = revision
                    self._renew_later(name)
                rows.append(row)
        recordings = ""
        webhooks = ""
        audit = ""
        if caller_of(request).project is None:
            recordings, webhooks = self._recordings, self._webhooks
        if store.ledger() is not None:
            audit = AUDIT
        return as_page(
            render_projects(
                rows,
                self._language,
                recordings=recordings,
                audit=audit,
                webhooks=webhooks,
            )
        )

    def overview(self, request: Request, project: ReadProject, name: str) -> Response:
        return self.page(project, name, form_key=caller_of(request).form_key)

    def series(self, project: ReadProject, name: str) -> Response:
        return self.page(project, f"series/{name}")

    def run(self, request: Request, project: ReadProject, name: str) -> Response:
        recording_of = None
        # The token of a project reads no recordings.
        if self._run_recordings is not None and caller_of(request).project is None:
            recording_of = self._run_recordings.name_of
        return self.page(project, f"runs/{name}", recording_of=recording_of)

    def compare(
        self,
        project: ReadProject,
        name: str,
        earlier: RunDigits = "",
        later: RunDigits = "",
    ) -> Response:
        return self.page(
            project, f"compare/{name}", {"earlier": earlier, "later": later}
        )

    def page(
        self,
        project: str,
        address: str,
        query: Mapping[str, str] | None = None,
        *,
        form_key: str = "",
        recording_of: Callable[[StoredRun], str] | None = None,
    ) -> Response:
        if not is_address(address):
            raise HTTPException(HTTPStatus.NOT_FOUND, Activity("there is no such page"))
        pages = self._present(project).pages
        try:
            page = pages.page(
                address, query, form_key=form_key, recording_of=recording_of
            )
        except StoreRefusedError:
            raise
        except StoreError as error:
            page = pages.unreadable(address, self._served.public(str(error)))
        if page is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, Activity("there is no such page, or no longer")
            )
        return as_page(page)

    def content(self, project: str) -> SiteContent:
        """The content of a project's pages, as they show it.

        Raises UsageError if it has no run of main.
        """
        return self._present(project).content

    def _present(self, project: str, *, must_be_new: bool = False) -> KeptPages:
        """The pages of a project as it is now, or was a moment ago.

        Raises UsageError if it has no run of main.
        """
        revision = self._revision_today(project)
        if not revision:  # names without a stored run are not kept
            return self._read(project, revision)
        with self._lock:
            site = self._sites.pop(project, None)
            if site is None:
                pages = None
                if (stored := self._reader.stored(project)) is not None:
                    pages = self._kept(project, stored)
                site = KeptSite(partial(self._read, project), pages)
            self._sites[project] = site
            self._forget_oldest()
        return site.pages(revision, must_be_new=must_be_new)

    def _revision_today(self, project: str) -> str:
        """The revision of a project and the day, as acceptances expire by the day;
        empty for a project without a log.
        """
        revision = self._served.store().revision(project)
        if not revision:
            return ""
        return f"{revision} {int(self._clock() // _SECONDS_PER_DAY)}"

    def _forget_oldest(self) -> None:
        """Forget the pages that nobody opened for longest; what is stored of them is
        read again in 0.03 s.
        """
        runs = 0
        for place, (project, site) in enumerate(reversed(list(self._sites.items()))):
            if site.present is not None:
                runs += len(site.present.content.runs)
            if place > 0 and (place >= MOST_PROJECTS or runs > _MOST_RUNS):
                del self._sites[project]

    def _read(self, project: str, revision: str) -> KeptPages:
        return self._kept(project, self._reader.read(project, revision, self._clock()))

    def _kept(self, project: str, read: ReadContent) -> KeptPages:
        read_kept = kept_reader(self._artifacts, project)

        def kept(run_id: str) -> KeptOfRun:
            artifacts = read_kept(run_id)
            if artifacts.why:
                return msgspec.structs.replace(
                    artifacts, why="the artifact store cannot be read now"
                )
            return artifacts

        links = SiteLinks(forms=True)
        # A store without tokens cannot be written to through the service.
        if self._served.store().ledger() is not None:
            links = SiteLinks(forms=True, triage=True, audit=AUDIT)
        content = _with_public_notes(read.columns.content(), self._served.public)
        pages = SitePages(
            content,
            lambda run_id: stored_run(self._served.store(), project, run_id),
            self._language,
            links,
            kept,
        )
        self._states[project] = _state_of(content.trend, read.revision)
        return KeptPages(read.revision, content, pages)


def _state_of(trend: TrendDocument, revision: str) -> ProjectState:
    failed = len(trend.runs.health[-1].failed) if trend.runs.health else 0
    return ProjectState(revision, len(trend.open_regressions), failed)


def _with_public_notes(
    content: SiteContent, public: Callable[[str], str]
) -> SiteContent:
    """The content of pages for the network: a note names the place of a damaged run."""
    notes = list(map(public, content.trend.notes))
    trend = msgspec.structs.replace(content.trend, notes=notes)
    return msgspec.structs.replace(content, trend=trend)


def _overview(project: str) -> str:
    return f"/projects/{quote(project, safe='')}/{OVERVIEW}"
