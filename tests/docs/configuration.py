"""The tables of docs/configuration.md, made from the schema of perfgate.toml: ``python -m tests.docs.configuration``."""

from __future__ import annotations

import json
from typing import Any

from perfgate.document.schema import load_schema
from tests.docs.blocks import DOCS

PAGE = DOCS / "configuration.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def page() -> str:
    """The text of docs/configuration.md with the tables as the schema has them."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    schema = load_schema("config")
    records = schema["$defs"]
    settings = records["ConfigFile"]["properties"]
    plain = {key: setting for key, setting in settings.items() if "$ref" not in setting}
    tables = {key: setting for key, setting in settings.items() if "$ref" in setting}
    parts = ["## At the top of the file\n", _table(plain, {})]
    parts += [
        f"A limit in `[limits]` is a number, or a table of:\n\n{_table(records['LimitSetting']['properties'], {})}"
    ]
    for key, setting in tables.items():
        record = records[setting["$ref"].rpartition("/")[2]]
        parts += [f"## [{key}]\n\n{record['description']}\n", _table(record["properties"], setting["default"])]
    return "\n".join([before + BEGIN, "", *parts, END + after])


def _table(settings: dict[str, Any], defaults: dict[str, Any]) -> str:
    rows = [
        f"| `{key}` | {_kind(setting)} | {_value(defaults.get(key, setting.get('default')))} | {setting['description']} |"
        for key, setting in settings.items()
    ]
    return "\n".join(["| setting | kind | default | meaning |", "|---|---|---|---|", *rows, ""])


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind == "array":
            return f"list: {_kind(schema['items'])}"
        if kind == "object":
            return f"table: {_kind(schema['additionalProperties'])}"
        if kind in KINDS:
            return KINDS[kind]
    return " or ".join("table" if "$ref" in member else _kind(member) for member in schema["anyOf"])


def _value(default: object) -> str:
    if default is None:
        return "unset"
    if default == {}:
        return "empty"
    return f"`{json.dumps(default, ensure_ascii=False)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
