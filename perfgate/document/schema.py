"""The JSON Schemas (draft 2020-12) of the documents and of perfgate.toml, generated from the records."""

from __future__ import annotations

import inspect
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from perfgate.document.strict_json import MAX_BYTES, MAX_INTEGER, MIN_INTEGER
from perfgate.errors import PerfgateError

# Enough for any honest document; what a hostile one may cost its reader ends here.
MAX_TEXT = 64 * 1024
MAX_LONG_TEXT = 1024 * 1024
MAX_ITEMS = 1_000_000
MAX_KEYS = 10_000
MAX_KEY = 1024

_LENGTHS = {
    ("Packed", "data"): MAX_BYTES,
    ("ErrorDetail", "message"): MAX_LONG_TEXT,
    ("ErrorDetail", "traceback"): MAX_LONG_TEXT,
    ("ErrorDetail", "log_tail"): MAX_LONG_TEXT,
}
_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE.parent / "schemas", _HERE.parent.parent / "schemas")


def schema_of(record: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """Return the schema of a record: closed objects, bounded texts and arrays, docstrings as descriptions.

    ``schema`` and ``schema_version`` must stand in every file, although the records give them defaults.
    """
    (reference,), components = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    for title, component in components.items():
        _close(title, component)
    _pin(components[record.__name__])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:perfgate:schema:{name}",
        **reference,
        "$defs": dict(sorted(components.items())),
    }


def schema_text(record: type[msgspec.Struct], name: str) -> str:
    """Return the schema of a record as it stands in its file."""
    return json.dumps(schema_of(record, name), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema_path(name: str) -> Path:
    """Return where a schema stands: in the package as the wheel lays it, else beside it (an editable install)."""
    for folder in _PLACES:
        path = folder / f"{name}.schema.json"
        if path.is_file():
            return path
    raise PerfgateError(f"schema {name!r} is missing from {_PLACES[0]}; install perfgate again")


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return the schema ``run``, ``decision`` or ``config``; do not change it. Raises PerfgateError if missing."""
    schema: dict[str, Any] = json.loads(schema_path(name).read_text(encoding="utf-8"))
    return schema


def _close(title: str, component: dict[str, Any]) -> None:
    """Turn what msgspec says about one record into a closed and bounded description."""
    component["description"] = _one_line_a_paragraph(component.get("description", ""))
    component["additionalProperties"] = False
    for field, schema in component["properties"].items():
        _bound(schema, _LENGTHS.get((title, field), MAX_TEXT))


def _one_line_a_paragraph(docstring: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(docstring).split("\n\n"))


def _bound(schema: dict[str, Any], length: int) -> None:
    kind = schema.get("type")
    if kind == "string":
        schema["maxLength"] = length
    elif kind == "integer":
        schema.update(minimum=MIN_INTEGER, maximum=MAX_INTEGER)
    elif kind == "number":
        schema.update(minimum=-sys.float_info.max, maximum=sys.float_info.max)
    elif kind == "array":
        schema.setdefault("maxItems", MAX_ITEMS)
    elif kind == "object":
        schema.update(maxProperties=MAX_KEYS, propertyNames={"maxLength": MAX_KEY})
    for inner in _inner(schema):
        _bound(inner, length)
    _merge_null(schema)


def _merge_null(schema: dict[str, Any]) -> None:
    """Write "a text or null" as one schema: in an error, alternatives hide which of them was meant."""
    first, *rest = schema.get("anyOf", [{}])
    if rest != [{"type": "null"}] or not {"enum", "type"} & first.keys():
        return
    del schema["anyOf"]
    if "enum" in first:
        schema["enum"] = [*first["enum"], None]
    else:
        schema.update({**first, "type": [first["type"], "null"]})


def _inner(schema: dict[str, Any]) -> list[dict[str, Any]]:
    below = [*schema.get("anyOf", []), *schema.get("prefixItems", [])]
    below += [schema.get("items"), schema.get("additionalProperties")]
    return [inner for inner in below if isinstance(inner, dict)]


def _pin(component: dict[str, Any]) -> None:
    """Require the name and the version of a document, and allow only the current one."""
    properties = component["properties"]
    if "schema_version" not in properties:
        return
    version: int | None = properties["schema_version"]["default"]
    properties["schema_version"] = {"const": version}
    properties["schema"] = {"const": properties["schema"]["default"]}
    component["required"] = ["schema", "schema_version", *component["required"]]
