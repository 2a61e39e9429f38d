"""A forge's official API description as judge: checks requests and answers, and completes answers of the fake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse

# Kept beside the repository, not in it; its SOURCES.md says where each file comes from.
SLICES = Path(__file__).parents[3] / "shared" / "forge-samples"
# Documented calls that the slices leave out, by forge.
MORE = Path(__file__).parents[1] / "data" / "forge"


@cache
def load_slice(relative: str) -> Slice | None:
    """Return the judge for one forge, or None where the samples are not there."""
    spec = spec_of(relative)
    return Slice(spec) if spec is not None else None


def spec_of(relative: str) -> dict[str, Any] | None:
    """Return the API description of one forge with the paths it leaves out; None where the samples are not there."""
    path = SLICES / relative
    if not path.exists():
        return None
    spec: dict[str, Any] = json.loads(path.read_bytes())
    more = MORE / f"{Path(relative).parent}.openapi.more.json"
    if more.exists():
        for described, operations in json.loads(more.read_bytes())["paths"].items():
            spec["paths"].setdefault(described, {}).update(operations)
    return spec


class Slice:
    """One API description."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec = _without_empty_required(spec)
        self._api = OpenAPI.from_dict(spec)
        server = spec["servers"][0]["url"]
        self._host = server if server.startswith("http") else "https://forge.example"
        # By everything that a judgement depends on: most tests ask and answer what others did before.
        self._judged: dict[tuple[object, ...], list[str]] = {}

    def request_errors(self, method: str, path: str, query: Mapping[str, Any], body: bytes) -> list[str]:
        """Return what is wrong with a request; ``path`` as the client sent it, still encoded."""
        key = (method, path, repr(query), body)
        if key not in self._judged:
            self._judged[key] = _errors(lambda: self._api.validate_request(self._request(method, path, query, body)))
        return self._judged[key]

    def answer_errors(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes, status: int, answer: bytes
    ) -> list[str]:
        """Return what is wrong with an answer."""
        key = (method, path, repr(query), body, status, answer)
        if key not in self._judged:
            request = self._request(method, path, query, body)
            response = MockResponse(answer, status_code=status)
            self._judged[key] = _errors(lambda: self._api.validate_response(request, response))
        return self._judged[key]

    def complete(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return a value with every property that the named schema requires."""
        completed: dict[str, Any] = self._fill({"$ref": f"#/components/schemas/{name}"}, value)
        return completed

    def _request(self, method: str, path: str, query: Mapping[str, Any], body: bytes) -> MockRequest:
        return MockRequest(self._host, method.lower(), path, args=dict(query), data=body)

    def _fill(self, schema: dict[str, Any], value: Any) -> Any:
        while "$ref" in schema:
            schema = self._spec["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if value is None and schema.get("nullable"):
            return None
        if "properties" not in schema:
            return _plain(schema) if value is None else value
        known = dict(value or {})
        wanted = [*schema.get("required", []), *(key for key in known if key in schema["properties"])]
        return {**known, **{key: self._fill(schema["properties"].get(key, {}), known.get(key)) for key in wanted}}


def _errors(check: Any) -> list[str]:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - openapi-core has dozens of classes; each is a finding here
        return [f"{type(error).__name__}: {error} {getattr(error.__cause__, 'schema_errors', error.__cause__)}"]
    return []


def _plain(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    texts = {"uri": "https://forge.example/x", "date-time": "2026-01-01T00:00:00Z", "email": "a@forge.example"}
    values = {"string": texts.get(schema.get("format", ""), "x"), "integer": 1, "boolean": False, "array": []}
    return values.get(schema.get("type", ""), {})


def _without_empty_required(value: Any) -> Any:
    """OpenAPI 3.0 forbids an empty ``required``, which one hand-written slice has."""
    if isinstance(value, dict):
        return {k: _without_empty_required(v) for k, v in value.items() if not (k == "required" and v == [])}
    return [_without_empty_required(item) for item in value] if isinstance(value, list) else value
