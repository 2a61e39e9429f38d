"""The responses of the service: its records as JSON, pages, refusals, and their
description in OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from perfgate.document.served import ServedError
from perfgate.judging.report.render.served import render_trouble
from perfgate.locale import Language
from perfgate.version import __version__

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: "A parameter is wrong.",
    HTTPStatus.UNAUTHORIZED: "No token, or not a valid one.",
    HTTPStatus.FORBIDDEN: "Not a name of this machine, or the token may not do this.",
    HTTPStatus.NOT_FOUND: "It does not exist.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "It cannot be read, or must not be stored.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store cannot be used now.",
}
_WRITE_REFUSALS = {
    HTTPStatus.CONFLICT: "Another document of this session is stored.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
}
# Clients repeat a request that was answered with 503 after this time (RFC 9110,
# 10.2.3).
_SECONDS_TO_RETRY = 2
# What lies below is no page.
_FOR_PROGRAMS = ("/api/", "/mcp", "/metrics", "/openapi.json", "/artifacts/")
# As msgspec and OpenAPI write it.
_REFERENCE = "#/components/schemas/{name}"
Responses = dict[int | str, dict[str, Any]]


def as_json(value: object, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def as_page(text: str) -> Response:
    return HTMLResponse(text)


def refused(error: str, status: int) -> Response:
    response = as_json(ServedError(error=str(error)), status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(_SECONDS_TO_RETRY)
    return response


def refused_request(
    request: Request,
    error: str,
    status: int,
    language: Language,
    *,
    on_page: str | None = None,
) -> Response:
    """The refusal of a request: a page for a browser that opens one, a record for all
    other clients.

    Records are in English; ``on_page`` is the error in the language of the pages, if it
    is not an activity, which is in both.
    """
    response = refused(error, status)
    if not _opens_page(request):
        return response
    page = HTMLResponse(render_trouble(on_page or error, language), status)
    if "Retry-After" in response.headers:
        page.headers["Retry-After"] = response.headers["Retry-After"]
    return page


def _opens_page(request: Request) -> bool:
    """Whether a browser shows the answer to its user; other clients accept anything."""
    accepts_page = "text/html" in request.headers.get("Accept", "")
    return accepts_page and not request.scope["path"].startswith(_FOR_PROGRAMS)


def json_answer(*kinds: Any, status: HTTPStatus = HTTPStatus.OK) -> Responses:
    """The responses of an operation that returns a value of one of the types."""
    return described(_schema_of(kinds), status=status)


@cache
def _schema_of(kinds: tuple[Any, ...]) -> dict[str, Any]:
    schemas, _ = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema: dict[str, Any] = (
        schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    )
    return schema


def described(
    schema: dict[str, Any],
    *,
    media_type: str = "application/json",
    status: HTTPStatus = HTTPStatus.OK,
) -> Responses:
    """The responses of an operation with this schema of success."""
    return {
        int(status): {
            "description": status.phrase,
            "content": {media_type: {"schema": schema}},
        },
        **_refusals(_REFUSALS),
    }


def page_answer() -> Responses:
    """The responses of an operation that returns a page: refusals are pages, too, for
    clients that accept them.
    """
    page = {"schema": {"type": "string"}}
    answers = described(page["schema"], media_type="text/html")
    for status in map(int, _REFUSALS):
        content = {**answers[status]["content"], "text/html": page}
        answers[status] = {**answers[status], "content": content}
    return answers


def written(*answers: Responses) -> Responses:
    """The responses of an operation that writes: like reading, plus the refusals of a
    body.
    """
    together: Responses = {}
    for described_answers in (*answers, _refusals(_WRITE_REFUSALS)):
        together.update(described_answers)
    return together


class DescribedApp(FastAPI):
    """A FastAPI application; its responses are records of ours, with schemas made by
    msgspec as for all our documents.
    """

    def __init__(
        self, *, records: Iterable[type], description: str, **options: Any
    ) -> None:
        # The usual pages of documentation load their scripts from another server.
        super().__init__(
            docs_url=None, redoc_url=None, default_response_class=Response, **options
        )
        self._records = [*records, ServedError]
        self._about = description

    def openapi(self) -> dict[str, Any]:
        """Every path with its parameters, and the schema of each response."""
        document = get_openapi(
            title="perfgate serve",
            version=__version__,
            description=self._about,
            routes=self.routes,
        )
        _, schemas = msgspec.json.schema_components(
            self._records, ref_template=_REFERENCE
        )
        document["components"] = {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        }
        document["security"] = [{}, {"token": []}]
        return document


def _refusals(statuses: Mapping[HTTPStatus, str]) -> Responses:
    content = {
        "application/json": {
            "schema": {"$ref": _REFERENCE.format(name=ServedError.__name__)}
        }
    }
    return {
        int(status): {"description": words, "content": content}
        for status, words in statuses.items()
    }
