"""The runs of main over HTTP: the methods of the Store as REST, for runners that upload
and for programs that read.
"""

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
from perfgate.document.records import convert_record
from perfgate.document.run import RunDocument
from perfgate.document.strict_json import has_few_values, parse_json
from perfgate.errors import DocumentError
from perfgate.judging.store.ledger import AuditEntry
from perfgate.judging.store.plausible import refuse_implausible, refuse_implausible_run
from perfgate.judging.store.runs import refuse_unfit, run_entry, stored_document
from perfgate.judging.store.store import (
    ENTRIES,
    STATEMENTS,
    LogState,
    Page,
    RunEntry,
    Statement,
    utc_now,
)
from perfgate.service.answers import (
    as_json,
    described,
    json_answer,
    written,
)
from perfgate.service.bodies import Uploads, bounded_body
from perfgate.service.callers import (
    NO_NUL,
    ReadProject,
    WrittenProject,
    caller_of,
    readable_projects,
)
from perfgate.service.part import ServicePart
from perfgate.service.served_store import ServedStore

_MOST_LISTED = 1_000
# A statement is a few short texts.
_MOST_SMALL_BYTES = 64 * 1024
# A run of two workloads has 90 kB and 5,500 values. A value takes up to 300 bytes of
# memory.
_MOST_VALUES = 1_000_000
# Up to this size a refusal names the place of the error; finding it takes far more
# memory than reading a correct document.
_MOST_EXPLAINED = 2 * 1024 * 1024

Limit = Annotated[
    int, Query(ge=1, le=_MOST_LISTED, description="The most entries to return.")
]
Sha256 = Annotated[
    str,
    Path(
        pattern=r"^[0-9a-f]{64}$",
        description="The SHA-256 of the document, which is its id.",
    ),
]
RunId = Annotated[
    str,
    Path(
        pattern=r"^[0-9A-Fa-f]{1,64}$", description="The id of a run, or its beginning."
    ),
]
AllowDirty = Annotated[
    bool,
    Query(description="Also store a run that was measured with uncommitted changes."),
]
Testbed = Annotated[
    str,
    Query(
        pattern=NO_NUL,
        description="Only the runs with this fingerprint of their testbed.",
    ),
]
Following = Annotated[
    str,
    Query(
        pattern=NO_NUL, description="Only the runs that follow the run with this id."
    ),
]
StatementsName = Literal["acceptances", "triages", "confirmations", "gates"]
EntriesName = Literal["runs", StatementsName]
Before = Annotated[
    int, Query(ge=1, le=2**63 - 1, description="Only entries with a lower number.")
]
OnRecorded = Callable[[RunDocument, str], None]


class StoreApi(ServicePart):
    """The routes of one store. ``recorded`` are called for each run that was not there
    before.
    """

    records = (*ENTRIES.values(), LogState, AuditEntry)

    def __init__(self, served: ServedStore, recorded: Sequence[OnRecorded]) -> None:
        self._served = served
        self._recorded = recorded
        self._uploads = Uploads()

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1")
        get, project = router.get, "/projects/{project:path}"
        # Routes are tried in order, and nearly all requests of a busy service are
        # uploads.
        router.put(
            f"{project}/runs/{{sha256}}",
            responses=written(
                json_answer(str), json_answer(str, status=HTTPStatus.CREATED)
            ),
            openapi_extra=_body({"type": "object"}),
            summary="Store a run document in its canonical bytes; repeating it changes nothing.",
        )(self.upload)
        kinds = [
            {"$ref": f"#/components/schemas/{kind.__name__}"}
            for kind in STATEMENTS.values()
        ]
        router.post(
            f"{project}/{{statements}}",
            responses=written(json_answer(*STATEMENTS.values())),
            openapi_extra=_body({"anyOf": kinds}),
            summary="Store a statement about a commit; it replaces an earlier one about the same.",
        )(self.append)
        document = described(
            {
                "type": "object",
                "description": "A run document, as schemas/run.schema.json describes it.",
            }
        )
        get(
            "/projects",
            responses=json_answer(list[str]),
            summary="The projects that this token may read.",
        )(self.projects)
        get(
            "/audit",
            responses=json_answer(list[AuditEntry]),
            summary="Who changed what, newest first.",
        )(self.audit)
        get(
            f"{project}/runs/{{run_id}}",
            responses=document,
            summary="The document of a run.",
        )(self.document)
        get(
            f"{project}/state",
            responses=json_answer(LogState),
            summary="A text that changes with every write, and a line for each unreadable run.",
        )(self.state)
        get(
            f"{project}/{{kind}}",
            responses=json_answer(*(list[kind] for kind in ENTRIES.values())),  # type: ignore[valid-type]
            summary="Runs with their values, a page at a time, or all statements about commits of a kind, newest first.",
        )(self.entries)
        return router

    def check(self) -> None:
        """Raise StoreError if the store cannot be read."""
        self._served.store().entries("", RunEntry, Page(limit=1))

    def public(self, text: str) -> str:
        return self._served.public(text)

    def projects(self, request: Request) -> Response:
        return as_json(readable_projects(request, self._served.store()))

    def document(self, project: ReadProject, run_id: RunId) -> Response:
        data = stored_document(self._served.store(), project, run_id)
        return Response(data, media_type="application/json")

    def audit(
        self, request: Request, limit: Limit = 100, before: Before | None = None
    ) -> Response:
        ledger = self._served.store().ledger()
        if ledger is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, "this store keeps no audit log; a database does"
            )
        return as_json(
            ledger.entries(
                project=caller_of(request).project, limit=limit, before=before
            )
        )

    def entries(
        self,
        project: ReadProject,
        kind: EntriesName,
        limit: Limit = 100,
        before: Following | None = None,
        testbed: Testbed | None = None,
    ) -> Response:
        page = Page(testbed=testbed, limit=limit, before=before)
        return as_json(self._served.store().entries(project, ENTRIES[kind], page))

    def state(self, project: ReadProject) -> Response:
        store = self._served.store()
        damaged = list(map(self.public, store.damaged(project)))
        return as_json(LogState(revision=store.revision(project), damaged=damaged))

    async def upload(
        self,
        request: Request,
        project: WrittenProject,
        sha256: Sha256,
        allow_dirty: AllowDirty = False,
    ) -> Response:
        def record(body: bytes) -> Response:
            arrived = hashlib.sha256(body).hexdigest()
            if arrived != sha256:
                raise DocumentError(
                    "the SHA-256 of the document that arrived is {found}, not {sha256}; send it again",
                    found=arrived,
                    sha256=sha256,
                )
            run, now = _parsed(body, project), utc_now()
            refuse_unfit(run, allow_dirty=allow_dirty, now=now)
            entry = run_entry(run, sha256, now.isoformat())
            refuse_implausible_run(run, entry)
            writer = caller_of(request).name
            if not self._served.store().append(
                project, [entry], {sha256: body}, actor=writer
            ):
                return as_json(sha256)
            for listener in self._recorded:
                listener(run, sha256)
            return as_json(sha256, HTTPStatus.CREATED)

        async with self._uploads.body(request) as body:
            return await run_in_threadpool(record, body)

    async def append(
        self, request: Request, project: WrittenProject, statements: StatementsName
    ) -> Response:
        body = await bounded_body(request, _MOST_SMALL_BYTES)
        statement = _statement(body, STATEMENTS[statements])
        refuse_implausible(statement)

        def append() -> None:
            self._served.store().append(
                project, [statement], actor=caller_of(request).name
            )

        await run_in_threadpool(append)
        return as_json(statement)


def _parsed(data: bytes, project: str) -> RunDocument:
    """The run in an upload.

    Raises DocumentError for another project's, and for bytes with another hash than the
    run's id.
    """
    canonical = parse_canonical_run(data, name="the document", most_values=_MOST_VALUES)
    if canonical is None and not has_few_values(data, _MOST_VALUES):
        raise DocumentError(
            "the document has more than {most} values; measure fewer workloads in one run",
            most=_MOST_VALUES,
        )
    run = canonical
    if run is None and len(data) <= _MOST_EXPLAINED:
        run = parse_run(data, name="the document")
    if run is not None and run.project != project:
        raise DocumentError(
            "this is a run of project {project!a}; upload it to that project",
            project=run.project[:200],
        )
    if canonical is None:
        raise DocumentError(
            "these are not the bytes that perfgate writes; upload run.json unmodified, and upgrade the service if a newer "
            "perfgate wrote it"
        )
    return canonical


def _statement(body: bytes, record: type[Statement]) -> Statement:
    try:
        return convert_record(
            parse_json(body, name="the body", max_bytes=_MOST_SMALL_BYTES), record
        )
    except msgspec.ValidationError as error:
        raise DocumentError("the body: {error}", error=error) from None


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }
