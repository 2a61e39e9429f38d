"""The runs of main over HTTP: the methods of the Store as REST, for runners that upload and for programs that read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, HTTPException, Path, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from perfgate.document.files import parse_canonical_run, parse_run
from perfgate.document.history import StoredRun
from perfgate.document.records import convert_record
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import MAX_BYTES, parse_json
from perfgate.errors import DocumentError, UnknownRunError
from perfgate.judging.store.ledger import AuditEntry
from perfgate.judging.store.store import STATEMENTS, HistoryValue, RecentValues, Series, SeriesPlace, Statement
from perfgate.service.answers import as_document, as_json, described, json_answer, written
from perfgate.service.callers import NO_NUL, ReadProject, WrittenProject, caller_of
from perfgate.service.served_store import ServedStore

_MOST_LISTED = 1_000
# An acceptance, a triage, a confirmation or a verdict is a few short texts.
_MOST_SMALL_BYTES = 64 * 1024

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
StatementsName = Literal["acceptances", "triages", "confirmations", "gates"]
Before = Annotated[int, Query(ge=1, le=2**63 - 1, description="Only entries with a lower number.")]
Recorded = Callable[[RunDocument, str], None]


class StoreApi:
    """The routes of one store. ``recorded`` are called for each run that was not there before."""

    records = (
        StoredRun,
        Series,
        HistoryValue,
        RecentValues,
        *STATEMENTS.values(),
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
        listed = f"{project}/runs/{{sha256}}/listed"
        get(listed, responses=json_answer(StoredRun), summary="A run as it is listed.")(self.listed)
        get(f"{project}/runs/{{sha256}}", responses=document, summary="The document of a run.")(self.document)
        get(
            f"{project}/{{statements}}",
            responses=json_answer(*(list[kind] for kind in STATEMENTS.values())),  # type: ignore[valid-type]
            summary="What people and gates stated about commits, newest first.",
        )(self.statements)
        return router

    def _add_writers(self, router: APIRouter, project: str) -> None:
        router.put(
            f"{project}/runs/{{sha256}}",
            responses=written(json_answer(str), json_answer(str, status=HTTPStatus.CREATED)),
            openapi_extra=_body({"type": "object"}),
            summary="Store a run document in its canonical bytes; repeating it changes nothing.",
        )(self.upload)
        kinds = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in STATEMENTS.values()]
        router.post(
            f"{project}/{{statements}}",
            responses=written(json_answer(*STATEMENTS.values())),
            openapi_extra=_body({"anyOf": kinds}),
            summary="Store a statement about a commit; it replaces an earlier one about the same.",
        )(self.append)

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

    def statements(self, project: ReadProject, statements: StatementsName) -> Response:
        return as_json(self._served.store().statements(project, STATEMENTS[statements]))

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
            run = _parsed(body, project)
            store = self._served.store().acting_as(caller_of(request).name)
            if not store.record_all([run], allow_dirty=allow_dirty, data=[body]):
                return as_json(sha256)
            for listener in self._recorded:
                listener(run, sha256)
            return as_json(sha256, HTTPStatus.CREATED)

        return await run_in_threadpool(record)

    async def append(self, request: Request, project: WrittenProject, statements: StatementsName) -> Response:
        body = await bounded_body(request, _MOST_SMALL_BYTES)
        statement = _small(body, STATEMENTS[statements])
        store = self._served.store().acting_as(caller_of(request).name)
        await run_in_threadpool(store.append, project, [statement])
        return as_json(statement)

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


def _small(body: bytes, record: type[Statement]) -> Statement:
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


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
