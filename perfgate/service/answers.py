"""The responses of the service: its records as JSON, pages, refusals, and their description in OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, Response

from perfgate.document.served import ServedError
from perfgate.version import __version__

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: "A parameter is wrong.",
    HTTPStatus.UNAUTHORIZED: "No token, or not a valid one.",
    HTTPStatus.FORBIDDEN: "Not a name of this machine, or the token may not do this.",
    HTTPStatus.NOT_FOUND: "It does not exist.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "It cannot be read, or must not be stored.",
}


def as_json(value: object, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def as_page(text: str) -> Response:
    return HTMLResponse(text)


def refused(error: str, status: int) -> Response:
    return as_json(ServedError(error=error), status)


def json_answer(*records: type) -> dict[int | str, dict[str, Any]]:
    """The responses of an operation that returns one of the records."""
    schemas = [_reference(record) for record in records]
    return _responses({"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"oneOf": schemas}}})


def page_answer() -> dict[int | str, dict[str, Any]]:
    """The responses of an operation that returns a page."""
    return _responses({"text/html": {"schema": {"type": "string"}}})


class DescribedApp(FastAPI):
    """A FastAPI application whose responses are records of ours, with schemas made by msgspec as for all our documents."""

    def __init__(self, *, records: Iterable[type], description: str, **options: Any) -> None:
        # The usual pages of documentation load their scripts from another server.
        super().__init__(docs_url=None, redoc_url=None, default_response_class=Response, **options)
        self._records = [*records, ServedError]
        self._about = description

    def openapi(self) -> dict[str, Any]:
        """Every path with its parameters, and the schema of each response."""
        document = get_openapi(title="perfgate serve", version=__version__, description=self._about, routes=self.routes)
        _, schemas = msgspec.json.schema_components(self._records, ref_template="#/components/schemas/{name}")
        document["components"] = {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        }
        document["security"] = [{}, {"token": []}]
        return document


def _responses(content: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    error = {"application/json": {"schema": _reference(ServedError)}}
    return {
        int(HTTPStatus.OK): {"description": "Found.", "content": content},
        **{int(status): {"description": words, "content": error} for status, words in _REFUSALS.items()},
    }


def _reference(record: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{record.__name__}"}
