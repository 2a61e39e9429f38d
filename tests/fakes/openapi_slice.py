"""A forge's official API description as judge of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse
from openapi_schema_validator import OAS30ReadValidator


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

    def schema_errors(self, name: str, value: Any) -> list[str]:
        """Return what is wrong with a value of the named schema."""
        schema = {"$ref": f"#/components/schemas/{name}", "components": self._spec["components"]}
        errors = OAS30ReadValidator(schema).iter_errors(value)
        return [f"{error.json_path}: {error.message}" for error in errors]

    def describes(self, name: str) -> bool:
        """Return whether the description has a schema of a name."""
        return name in self._spec["components"]["schemas"]

    def _request(self, method: str, path: str, query: Mapping[str, Any], body: bytes) -> MockRequest:
        return MockRequest(self._host, method.lower(), path, args=dict(query), data=body)


def _errors(check: Any) -> list[str]:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - openapi-core has dozens of classes; each is a finding here
        return [f"{type(error).__name__}: {error} {getattr(error.__cause__, 'schema_errors', error.__cause__)}"]
    return []


def _without_empty_required(value: Any) -> Any:
    """OpenAPI 3.0 forbids an empty ``required``, which one hand-written slice has."""
    if isinstance(value, dict):
        return {k: _without_empty_required(v) for k, v in value.items() if not (k == "required" and v == [])}
    return [_without_empty_required(item) for item in value] if isinstance(value, list) else value
