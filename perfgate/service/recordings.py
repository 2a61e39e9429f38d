"""The recordings below a folder: their pages, and their requests as JSON.

Only recordings listed by the library can be requested, so no request leads out of its
folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from perfgate.document.served import (
    ProfileList,
    RecordingList,
    ServedRecording,
    ServedTrace,
)
from perfgate.document.trace import RequestDocument
from perfgate.judging.report.render.served import render_index
from perfgate.locale import Language
from perfgate.service.answers import as_json, as_page, json_answer, page_answer
from perfgate.service.callers import reader_of_all
from perfgate.service.drawing import Drawers, flame_page, ranks_page, timeline_page
from perfgate.service.library import Library, folder_of, is_below, jobs_of, within
from perfgate.service.part import ServicePart

_MOST_ROWS = 1_000
_Item = TypeVar("_Item")

Recording = Annotated[
    str,
    Query(
        min_length=1,
        description="The name of a recording, as /api/recordings lists it.",
    ),
]
Head = Annotated[
    str,
    Query(
        description="Another recording: the graph then shows its differences from the first."
    ),
]
Folder = Annotated[
    str,
    Query(description="The name of a folder with recordings; by default all of them."),
]
Contains = Annotated[
    str, Query(description="Only recordings whose names contain this text.")
]
RowLimit = Annotated[
    int, Query(ge=1, le=_MOST_ROWS, description="The most rows of each timeline.")
]
RequestId = Annotated[
    str, Query(description="The id of a request; without one, all requests.")
]
ProfileFormat = Annotated[
    Literal["rows", "chrome"],
    Query(
        alias="format",
        description="Names with their times, or every span as a Chrome trace event; the limit is of rows alone.",
    ),
]


class RecordingPages(ServicePart):
    """The routes of one library, which is read on its own thread because it is not
    thread-safe.

    Pages take seconds, so processes draw them.
    """

    records = (RecordingList, ProfileList, RequestDocument, ServedTrace)

    def __init__(self, library: Library, language: Language, *, home: str) -> None:
        self._library = library
        self._language = language
        self._home = home
        self._readers = ThreadPoolExecutor(1)
        self._drawers = Drawers()

    def router(self) -> APIRouter:
        """The routes, the index at ``home``."""
        router = APIRouter(dependencies=[Depends(reader_of_all)])
        page, recordings = page_answer(), json_answer(RecordingList)
        router.get(
            self._home, responses=page, summary="A page that links all of this."
        )(self.index)
        router.get(
            "/flame",
            responses=page,
            summary="The flame graph of a recording, or of two.",
        )(self.flame)
        router.get("/timeline", responses=page, summary="The timeline of a recording.")(
            self.timeline
        )
        router.get(
            "/ranks", responses=page, summary="The ranks of a job beside each other."
        )(self.ranks)
        router.get(
            "/api/recordings",
            responses=recordings,
            summary="All recordings, the latest first.",
        )(self.recordings)
        router.get(
            "/api/runs",
            responses=recordings,
            summary="The recordings that perfgate measured.",
        )(self.runs)
        router.get(
            "/api/requests",
            responses=json_answer(RequestDocument),
            summary="The requests of a recording.",
        )(self.requests)
        router.get(
            "/api/profile",
            responses=json_answer(ProfileList, ServedTrace),
            summary="What ran for a request, in all recordings.",
        )(self.profile)
        return router

    def public(self, text: str) -> str:
        return self._library.without_folder(text)

    def close(self) -> None:
        self._readers.shutdown()
        self._drawers.close()

    async def index(self, folder: Folder = "", contains: Contains = "") -> Response:
        if folder:
            await self._read(partial(self._library.job, folder))
        listed: list[ServedRecording] = []
        for recording in await self._read(self._library.recordings):
            if (
                is_below(recording.name, folder)
                and contains.lower() in recording.name.lower()
            ):
                listed.append(recording)
        jobs = {job.name: job for job in jobs_of(listed)}
        jobs.pop(folder, None)
        single = [
            recording for recording in listed if folder_of(recording.name) not in jobs
        ]
        return as_page(
            render_index(
                single,
                list(jobs.values()),
                self._language,
                folder=folder,
                contains=contains,
                home=self._home,
            )
        )

    async def recordings(self) -> Response:
        return await self._listed(self._library.recordings)

    async def runs(self) -> Response:
        return await self._listed(self._library.runs)

    async def requests(
        self, recording: Recording, limit: RowLimit = _MOST_ROWS
    ) -> Response:
        return as_json(
            await self._read(
                partial(self._library.requests, recording, request=None, limit=limit)
            )
        )

    async def profile(
        self,
        request_id: RequestId = "",
        form: ProfileFormat = "rows",
        limit: RowLimit = _MOST_ROWS,
    ) -> Response:
        request = request_id or None
        if form == "chrome":
            return as_json(
                await self._read(partial(self._library.trace_events, request))
            )
        return as_json(
            await self._read(partial(self._library.profiles, request, limit=limit))
        )

    async def flame(self, recording: Recording, head: Head = "") -> Response:
        path, head_path = await self._path(recording), None
        if head:
            head_path = await self._path(head)
        return await self._drawn(
            recording, partial(flame_page, path, recording, self._language, head_path)
        )

    async def timeline(self, recording: Recording) -> Response:
        path = await self._path(recording)
        return await self._drawn(
            recording, partial(timeline_page, path, recording, self._language)
        )

    async def ranks(self, folder: Folder = "") -> Response:
        path = await self._read(partial(self._library.job, folder))
        return await self._drawn(folder, partial(ranks_page, path, self._language))

    async def _listed(self, entries: Callable[[], list[ServedRecording]]) -> Response:
        listed = await self._read(entries)
        return as_json(RecordingList(recordings=listed, jobs=jobs_of(listed)))

    async def _path(self, name: str) -> Path:
        return await self._read(partial(self._library.path, name))

    async def _drawn(self, name: str, page: Callable[[], str]) -> Response:
        return as_page(await self._drawers.draw(name, page))

    async def _read(self, action: Callable[[], _Item]) -> _Item:
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, within, action
        )
