"""The runs of main over HTTP: the methods of the Store as REST, for runners that upload and for programs that read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, HTTPException, Path, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from perfgate.document.files import parse_canonical_run, parse_run
from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage
from perfgate.document.records import convert_record
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import MAX_BYTES, parse_json
from perfgate.errors import DocumentError, UnknownRunError
from perfgate.judging.store.ledger import AuditEntry
from perfgate.judging.store.store import HistoryValue, RecentValues, Series, SeriesPlace, Store
from perfgate.service.answers import as_document, as_json, described, json_answer, written
from perfgate.service.callers import NO_NUL, Caller, ReadProject, WrittenProject, caller_of
from perfgate.service.served_store import ServedStore

_MOST_LISTED = 1_000
# Millions of lines in a body would take gigabytes before the first of them is found wrong.
_MOST_UPLOADED = 1_000
# An acceptance, a triage, a confirmation or a verdict is a few short texts.
_MOST_SMALL_BYTES = 64 * 1024
_Record = TypeVar("_Record", Acceptance, Triage, Confirmation, GateRecord)

Limit = Annotated[int, Query(ge=1, le=_MOST_LISTED, description="So many at most.")]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The SHA-256 of the document, which is its id.")]
RunId = Annotated[str, Query(pattern=NO_NUL, description="The id of a run, or its beginning.")]
AllowDirty = Annotated[bool, Query(description="Also store a run that was measured with uncommitted changes.")]
Text = Annotated[str, Query(pattern=NO_NUL)]
Labels = Annotated[str, Query(description="Labels beside the shape, as a JSON object of texts.")]
Following = Annotated[str, Query(pattern=NO_NUL, description="Only the runs that follow the one with this id.")]
Newest = Annotated[int, Query(ge=1, le=2**31 - 1, description="Only the values of so many sessions, the newest.")]
SeriesNames = Annotated[
    str,
    Query(description="Workload, shape, metric and labels of each series, as a JSON array of arrays of four texts."),
]
Before = Annotated[int, Query(ge=1, le=2**63 - 1, description="Only entries with a lower number.")]
Recorded = Callable[[RunDocument, str], None]


class StoreApi:
    """The routes of one store. ``recorded`` are called for each run that was not there before."""

    records = (
        StoredRun,
        Series,
        HistoryValue,
        RecentValues,
        Acceptance,
        Triage,
        Confirmation,
        GateRecord,
        AuditEntry,
    )

    def __init__(self, served: ServedStore, recorded: Sequence[Recorded] = ()) -> None:
        self._served, self._recorded = served, recorded
        self.public = served.public

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1")
        get, project = router.get, "/projects/{project:path}"
        # Routes are tried in order, and nearly all requests of a busy service are uploads.
        self._add_writers(router, project)
        document = described(
            {"type": "object", "description": "A run document, as schemas/run.schema.json describes it."}
        )
        get("/projects", responses=json_answer(list[str]), summary="The projects that this token may read.")(
            self.projects
        )
        get("/runs", responses=document, summary="The document of a run, by the beginning of its id.")(self.show)
        get("/audit", responses=json_answer(list[AuditEntry]), summary="Who changed what, newest first.")(self.audit)
        get(f"{project}/runs", responses=json_answer(list[StoredRun]), summary="The runs, newest first.")(self.runs)
        get(
            f"{project}/revision", responses=json_answer(str), summary="Another text after every change of the project."
        )(self.revision)
        get(f"{project}/damaged", responses=json_answer(list[str]), summary="A line for each unreadable run.")(
            self.damaged
        )
        get(f"{project}/series", responses=json_answer(list[Series]), summary="Every series.")(self.series)
        get(f"{project}/history", responses=json_answer(list[HistoryValue]), summary="A series, oldest first.")(
            self.history
        )
        get(
            f"{project}/recent",
            responses=json_answer(RecentValues),
            summary="The newest values of several series of a testbed, with how the steps of their runs were measured.",
        )(self.recent)
        get(f"{project}/confirmations", responses=json_answer(list[Confirmation]), summary="Newest first.")(
            self.confirmations
        )
        get(f"{project}/acceptances", responses=json_answer(list[Acceptance]), summary="Newest first.")(
            self.acceptances
        )
        get(f"{project}/triages", responses=json_answer(list[Triage]), summary="Newest first.")(self.triages)
        get(f"{project}/gates", responses=json_answer(list[GateRecord]), summary="Verdicts on changes, newest first.")(
            self.gates
        )
        listed = f"{project}/runs/{{sha256}}/listed"
        get(listed, responses=json_answer(StoredRun), summary="A run as it is listed.")(self.listed)
        get(f"{project}/runs/{{sha256}}", responses=document, summary="The document of a run.")(self.document)
        return router

    def _add_writers(self, router: APIRouter, project: str) -> None:
        router.put(
            f"{project}/runs/{{sha256}}",
            responses=written(json_answer(str), json_answer(str, status=HTTPStatus.CREATED)),
            openapi_extra=_body({"type": "object"}),
            summary="Store a run document in its canonical bytes; repeating it changes nothing.",
        )(self.upload)
        router.post(
            f"{project}/runs",
            responses=written(json_answer(list[str])),
            openapi_extra=_body({"type": "string"}, "application/x-ndjson"),
            summary="Store several documents, one a line: all of them, or none. The answer has those that were not there.",
        )(self.upload_all)
        router.post(
            f"{project}/confirmations",
            responses=written(json_answer(Confirmation)),
            openapi_extra=_body({"$ref": "#/components/schemas/Confirmation"}),
            summary="Store the result of measuring two commits side by side.",
        )(self.confirm)
        router.post(
            f"{project}/acceptances",
            responses=written(json_answer(Acceptance)),
            openapi_extra=_body({"$ref": "#/components/schemas/Acceptance"}),
            summary="Accept a regression of a commit.",
        )(self.accept)
        router.post(
            f"{project}/triages",
            responses=written(json_answer(Triage)),
            openapi_extra=_body({"$ref": "#/components/schemas/Triage"}),
            summary="Give the regressions of main that began with a commit a state.",
        )(self.triage)
        router.post(
            f"{project}/gates",
            responses=written(json_answer(GateRecord)),
            openapi_extra=_body({"$ref": "#/components/schemas/GateRecord"}),
            summary="Keep the verdict of a gate on a commit.",
        )(self.keep_gate)

    def check(self) -> None:
        """Raise StoreError if the store cannot be read."""
        self._served.store().runs("", limit=1)

    def close(self) -> None:
        """The store holds nothing open."""

    def projects(self, request: Request) -> Response:
        own = caller_of(request).project
        return as_json([project for project in self._served.store().projects() if own in (None, project)])

    def show(self, request: Request, id: RunId) -> Response:  # noqa: A002 - the parameter's name in the address
        own = caller_of(request).project
        return as_document(self._served.store().show(id if own is None else self._own_id(own, id)))

    def document(self, project: ReadProject, sha256: Sha256) -> Response:
        run = self._served.store().show(sha256)
        if run.project != project:
            raise _unknown(sha256)
        return as_document(run)

    def audit(self, request: Request, limit: Limit = 100, before: Before | None = None) -> Response:
        ledger = self._served.store().ledger()
        if ledger is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "this store keeps no audit log; a database does")
        return as_json(ledger.entries(project=caller_of(request).project, limit=limit, before=before))

    def revision(self, project: ReadProject) -> Response:
        return as_json(self._served.store().revision(project))

    def runs(self, project: ReadProject, limit: Limit = 100, before: Following | None = None) -> Response:
        store = self._served.store()
        return as_json(store.runs(project, limit=limit, before=None if before is None else self._find(project, before)))

    def listed(self, project: ReadProject, sha256: Sha256) -> Response:
        return as_json(self._find(project, sha256))

    def damaged(self, project: ReadProject) -> Response:
        return as_json(self._served.store().damaged(project))

    def series(self, project: ReadProject) -> Response:
        return as_json(self._served.store().series(project))

    def history(
        self,
        project: ReadProject,
        workload: Text,
        fingerprint: Text,
        metric: Text,
        shape: Text = "",
        labels: Labels = "{}",
        newest: Newest | None = None,
    ) -> Response:
        try:
            beside = msgspec.json.decode(labels, type=dict[str, str])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"labels: {error}") from None
        store = self._served.store()
        return as_json(store.history(project, workload, fingerprint, metric, shape, labels=beside, newest=newest))

    def recent(self, project: ReadProject, fingerprint: Text, series: SeriesNames, newest: Newest) -> Response:
        try:
            names = msgspec.json.decode(series, type=list[tuple[str, str, str, str]])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"series: {error}") from None
        if any("\0" in text for name in names for text in name):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "series: no text of a store holds a NUL")
        places = [SeriesPlace(*name, fingerprint) for name in names]
        return as_json(self._served.store().recent(project, places, newest=newest))

    def confirmations(self, project: ReadProject) -> Response:
        return as_json(self._served.store().confirmations(project))

    def acceptances(self, project: ReadProject, commit: Text | None = None) -> Response:
        return as_json(self._served.store().accepted(project, commit=commit))

    def triages(self, project: ReadProject) -> Response:
        return as_json(self._served.store().triages(project))

    def gates(self, project: ReadProject) -> Response:
        return as_json(self._served.store().gates(project))

    async def upload(
        self, request: Request, project: WrittenProject, sha256: Sha256, allow_dirty: AllowDirty = False
    ) -> Response:
        body = await bounded_body(request, MAX_BYTES)

        def record() -> Response:
            found = hashlib.sha256(body).hexdigest()
            if found != sha256:
                raise DocumentError(
                    "the SHA-256 of the document that arrived is {found}, not {sha256}; send it again",
                    found=found,
                    sha256=sha256,
                )
            new = self._record(caller_of(request), project, {sha256: body}, allow_dirty)
            return as_json(sha256, HTTPStatus.CREATED if new else HTTPStatus.OK)

        return await run_in_threadpool(record)

    async def upload_all(self, request: Request, project: WrittenProject, allow_dirty: AllowDirty = False) -> Response:
        body = await bounded_body(request, MAX_BYTES)

        if body.count(b"\n") > _MOST_UPLOADED:
            told = f"more than {_MOST_UPLOADED} documents at once are not accepted; send them in several requests"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told)

        def record() -> Response:
            documents = {hashlib.sha256(line).hexdigest(): line for line in body.split(b"\n") if line}
            return as_json(self._record(caller_of(request), project, documents, allow_dirty))

        return await run_in_threadpool(record)

    async def confirm(self, request: Request, project: WrittenProject) -> Response:
        confirmation = _small(await bounded_body(request, _MOST_SMALL_BYTES), Confirmation)
        await run_in_threadpool(self._acting(request).confirm, project, confirmation)
        return as_json(confirmation)

    async def accept(self, request: Request, project: WrittenProject) -> Response:
        acceptance = _small(await bounded_body(request, _MOST_SMALL_BYTES), Acceptance)
        await run_in_threadpool(self._acting(request).accept, project, acceptance)
        return as_json(acceptance)

    async def triage(self, request: Request, project: WrittenProject) -> Response:
        triage = _small(await bounded_body(request, _MOST_SMALL_BYTES), Triage)
        await run_in_threadpool(self._acting(request).triage, project, triage)
        return as_json(triage)

    async def keep_gate(self, request: Request, project: WrittenProject) -> Response:
        record = _small(await bounded_body(request, _MOST_SMALL_BYTES), GateRecord)
        await run_in_threadpool(self._acting(request).keep_gates, project, [record])
        return as_json(record)

    def _acting(self, request: Request) -> Store:
        return self._served.store().acting_as(caller_of(request).name)

    def _own_id(self, project: str, beginning: str) -> str:
        """The id of the run of a project that begins so. Runs of other projects are as if they were not there."""
        ids = [run.id for run in self._served.store().runs(project) if run.id.startswith(beginning.lower())]
        if not ids or not beginning:
            raise _unknown(beginning)
        if len(ids) > 1:
            raise UnknownRunError(
                "the store holds several runs that begin with {run_id!a}; give more of the id", run_id=beginning
            )
        return ids[0]

    def _find(self, project: str, run_id: str) -> StoredRun:
        run = self._served.store().find(project, run_id)
        if run is None:
            raise _unknown(run_id)
        return run

    def _record(self, caller: Caller, project: str, documents: Mapping[str, bytes], allow_dirty: bool) -> list[str]:
        """Record documents by their ids; return those that were not there before."""
        runs = {run_id: _parsed(data, project) for run_id, data in documents.items()}
        store = self._served.store().acting_as(caller.name)
        new = store.record_all(runs.values(), allow_dirty=allow_dirty, data=list(documents.values()))
        for run_id in new:
            for listener in self._recorded:
                listener(runs[run_id], run_id)
        return new


def _parsed(data: bytes, project: str) -> RunDocument:
    """The run in an upload. Raises DocumentError for another project's, and for bytes with another hash than the run's id."""
    canonical = parse_canonical_run(data, name="the document")
    run = canonical or parse_run(data, name="the document")
    if run.project != project:
        raise DocumentError(
            "this is a run of project {project!a}; upload it to that project", project=run.project[:200]
        )
    if canonical is None:
        raise DocumentError("these are not the bytes that perfgate writes; upload run.json unmodified")
    return run


def _small(body: bytes, record: type[_Record]) -> _Record:
    try:
        return convert_record(parse_json(body, name="the body", max_bytes=_MOST_SMALL_BYTES), record)
    except msgspec.ValidationError as error:
        raise DocumentError("the body: {error}", error=error) from None


async def bounded_body(request: Request, most: int) -> bytes:
    """The body of a request. Raises HTTPException above ``most`` bytes, before they are read if they are announced."""
    announced = request.headers.get("Content-Length", "")
    body = bytearray()
    if not (announced.isascii() and announced.isdecimal() and int(announced[:20]) > most):
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} bytes are not accepted here")


def _unknown(run_id: str) -> UnknownRunError:
    return UnknownRunError(
        "the store holds no run {run_id!a}; `perfgate baseline list` shows what there is", run_id=run_id
    )


def _body(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
