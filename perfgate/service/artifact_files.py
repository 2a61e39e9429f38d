"""The kept artifacts over HTTP, at the paths that they have in the artifact store:
streamed, whole or in one range of bytes.

Only files that the record of a set lists can be requested, by a caller who may read the
set's project.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from itertools import chain
from mimetypes import guess_type
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perfgate.document.kept import ArtifactSet
from perfgate.document.run import Artifact
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.service.answers import Responses, as_json, described, json_answer
from perfgate.service.callers import caller_of
from perfgate.service.part import ServicePart

ProjectKey = Annotated[
    str,
    Path(
        pattern=r"^[a-z0-9-]{1,60}$", description="The project, as its folder is named."
    ),
]
SetId = Annotated[
    str,
    Path(pattern=r"^[0-9a-f]{64}$", description="The id of the run, or of the check."),
]
FilePath = Annotated[
    str, Path(description="The path of a file, as the record of the set lists it.")
]

# A page comes from a runner, and its reader's cookie opens everything that the reader
# may see. A report needs no script; the script of a flame graph runs in an opaque
# origin, which may not send data.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_POLICIES = {
    "report": _REPORT_POLICY,
    "flamegraph": f"{_REPORT_POLICY}; script-src 'unsafe-inline'; sandbox allow-scripts",
}
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_BINARY = {"type": "string", "format": "binary"}


class ArtifactFiles(ServicePart):
    """The routes of one artifact store."""

    records = (ArtifactSet,)

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/artifacts/{key}")
        router.get(
            "/sets/{set_id}.json",
            responses=json_answer(ArtifactSet),
            summary="What is kept of a run or check.",
        )(self.listed)
        part = described(
            _BINARY,
            media_type="application/octet-stream",
            status=HTTPStatus.PARTIAL_CONTENT,
        )
        whole = described(_BINARY, media_type="application/octet-stream")
        outside: Responses = {416: {"description": "The range lies behind the end."}}
        router.get(
            "/files/{set_id}/{path:path}",
            responses={**part, **whole, **outside},
            summary="A kept trace, flame graph or report; one range of bytes is possible.",
        )(self.file)
        return router

    def public(self, text: str) -> str:
        return text.replace(self._store.name, "the artifact store")

    def listed(self, request: Request, key: ProjectKey, set_id: SetId) -> Response:
        return as_json(self._set(request, key, set_id))

    def file(
        self, request: Request, key: ProjectKey, set_id: SetId, path: FilePath
    ) -> Response:
        artifact_set = self._set(request, key, set_id)
        file = artifact_set.file(path)
        if file is None:
            raise _not_kept()
        start, end, status = _byte_range(request.headers.get("Range", ""), file.bytes)
        headers = _content_headers(file)
        headers["Accept-Ranges"] = "bytes"
        headers["Content-Length"] = str(end - start)
        headers["ETag"] = f'"{file.sha256}"'
        if status == HTTPStatus.PARTIAL_CONTENT:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.bytes}"
        chunks = self._store.content(artifact_set, path, start, end)
        # The first chunk is read here: a store that refuses is reported instead of sent
        # as an empty file.
        return StreamingResponse(chain([next(chunks, b"")], chunks), status, headers)

    def _set(self, request: Request, key: str, set_id: str) -> ArtifactSet:
        """The set, if there is one and the caller may read its project; the answer does
        not reveal which of the two failed.
        """
        artifact_set = self._store.at(key, set_id)
        if artifact_set is None or caller_of(request).project not in (
            None,
            artifact_set.project,
        ):
            raise _not_kept()
        return artifact_set


def _byte_range(header: str, size: int) -> tuple[int, int, HTTPStatus]:
    """The bytes of one range (RFC 9110, 14.1.2), or all of them without such a header.

    Raises HTTPException behind the end.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or header.strip() == "bytes=-":
        return 0, size, HTTPStatus.OK
    first, last = match.groups()
    end = size
    if not first:
        start = max(0, size - int(last))
    else:
        start = int(first)
        if last:
            end = min(int(last) + 1, size)
            if int(last) < start:
                return 0, size, HTTPStatus.OK  # not a range, which is ignored
    if start >= size:
        raise HTTPException(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "the range lies behind the end of the file",
            {"Content-Range": f"bytes */{size}"},
        )
    return start, end, HTTPStatus.PARTIAL_CONTENT


def _content_headers(file: Artifact) -> dict[str, str]:
    """The headers by which a browser shows a page and saves everything else."""
    if policy := _POLICIES.get(file.kind):
        return {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
        }
    kind, encoding = guess_type(file.path)
    if encoding == "gzip":
        kind = "application/gzip"
    name = file.path.rpartition("/")[2]
    return {
        "Content-Type": kind or "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{name}"',
    }


def _not_kept() -> HTTPException:
    return HTTPException(
        HTTPStatus.NOT_FOUND,
        "no such artifact is kept, or no longer, or not for this token",
    )
