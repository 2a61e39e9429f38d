"""Whole answers of GitHub's API for the fake forge; what a test does not set comes from a file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

# Its first lines say what it is.
_FILE = Path(__file__).parents[1] / "data" / "forge" / "github.answers.json"
# The key of a record that has all fields of another one, and the first letter of a value that is another record.
_EXTENDS = _REFERENCE = "@"


def filled(schema: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a schema with ``value`` set in it; records inside it keep what ``value`` does not name."""
    return _merged(_records()[schema], value)


def records() -> dict[str, dict[str, Any]]:
    """Return all records by their names, which are those of the official schemas; "branch" stands inside others."""
    return dict(_records())


@cache
def _records() -> dict[str, dict[str, Any]]:
    """Return all records, each with the records that it refers to; the file defines a record before its use."""
    written = json.loads(_FILE.read_bytes())
    del written["$comment"]
    records: dict[str, dict[str, Any]] = {}
    for name, record in written.items():
        extended = record.pop(_EXTENDS, None)
        inherited = records[extended] if extended else {}
        records[name] = {**inherited, **_resolved(record, records)}
    return records


def _resolved(record: dict[str, Any], records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    resolved = {}
    for key, value in record.items():
        refers = isinstance(value, str) and value.startswith(_REFERENCE)
        resolved[key] = records[value.removeprefix(_REFERENCE)] if refers else value
    return resolved


def _merged(record: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    merged = dict(record)
    for key, ours in value.items():
        usual = record.get(key)
        both = isinstance(usual, dict) and isinstance(ours, dict)
        merged[key] = _merged(usual, ours) if both else ours
    return merged
