"""The interface of `perfgate serve` as OpenAPI 3.1, generated from the records of its responses."""

from __future__ import annotations

from typing import Any

import msgspec

from perfgate.document.served import ProfileList, RecordingList, ServedError, ServedTrace
from perfgate.document.trace import RequestDocument
from perfgate.version import __version__

_ANSWERS: dict[str, type] = {
    "RecordingList": RecordingList,
    "ProfileList": ProfileList,
    "RequestDocument": RequestDocument,
    "ServedError": ServedError,
    "ServedTrace": ServedTrace,
}
PROFILE_FORMATS = ("rows", "chrome")
_RECORDING = ("recording", "The name of a recording, as /api/recordings lists it.", True)
_HEAD = ("head", "Another recording: the graph then shows its differences from the first.", False)
_FOLDER = ("folder", "The name of a folder with recordings; by default all of them.", False)
_CONTAINS = ("contains", "Only recordings whose names contain this text.", False)
_LIMIT = ("limit", "So many rows of each timeline.", False)
_REQUEST = ("request_id", "The id of a request; without one, all requests.", False)
_FORMAT = (
    "format",
    "Names with their times, or every span as a Chrome trace event; the limit is of rows alone.",
    False,
)
_SCHEMAS: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    "format": {"type": "string", "enum": list(PROFILE_FORMATS), "default": PROFILE_FORMATS[0]},
}


def openapi_document() -> dict[str, Any]:
    """Every path, its parameters, and the schema of each answer."""
    _, components = msgspec.json.schema_components(_ANSWERS.values(), ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "perfgate serve", "version": __version__, "description": "Recordings of profilers."},
        "paths": {
            "/api/recordings": _get("All recordings, the latest first.", "RecordingList"),
            "/api/runs": _get("Those that perfgate measured.", "RecordingList"),
            "/api/requests": _get("The requests of a recording.", "RequestDocument", _RECORDING, _LIMIT),
            "/api/profile": _get(
                "What ran for a request, in all recordings.", "ProfileList ServedTrace", _REQUEST, _FORMAT, _LIMIT
            ),
            "/flame": _get("The flame graph of a recording, or of two.", None, _RECORDING, _HEAD),
            "/timeline": _get("The timeline of a recording.", None, _RECORDING),
            "/ranks": _get("The ranks of a job beside each other.", None, _FOLDER),
            "/": _get("A page that links all of this.", None, _FOLDER, _CONTAINS),
        },
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _get(summary: str, answer: str | None, *parameters: tuple[str, str, bool]) -> dict[str, Any]:
    """``answer`` is the name of the response schema, or several separated by spaces; None for a page."""
    references = [{"$ref": f"#/components/schemas/{name}"} for name in (answer or "").split()]
    content = (
        {"text/html": {"schema": {"type": "string"}}}
        if answer is None
        else {"application/json": {"schema": references[0] if len(references) == 1 else {"oneOf": references}}}
    )
    refusals = {"401": "No token.", "403": "Not a name of this machine."}
    if parameters:
        refusals |= {
            "400": "A parameter is wrong.",
            "404": "There is no such thing.",
            "422": "The recording is damaged.",
        }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ServedError"}}}
    return {
        "get": {
            "summary": summary,
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "description": description,
                    "required": required,
                    "schema": _SCHEMAS.get(name, {"type": "string", "minLength": 1}),
                }
                for name, description, required in parameters
            ],
            "responses": {
                "200": {"description": summary, "content": content},
                **{code: {"description": why, "content": error} for code, why in refusals.items()},
            },
        }
    }
