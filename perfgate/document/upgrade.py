"""Older documents made current: one function a version, applied one after another before the schema check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfgate.document.decision import DECISION_SCHEMA, DECISION_SCHEMA_VERSION
from perfgate.document.run import RUN_SCHEMA, RUN_SCHEMA_VERSION
from perfgate.document.strict_json import DAMAGED, refuse

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

CURRENT: dict[str, int] = {RUN_SCHEMA: RUN_SCHEMA_VERSION, DECISION_SCHEMA: DECISION_SCHEMA_VERSION}

# UPGRADES[schema][version] turns a document of that version into one of version + 1. It gets a dictionary of unchecked
# values: the schema of the current version judges the result. Version 1 is the first that perfgate wrote, so none yet.
UPGRADES: dict[str, dict[int, Upgrade]] = {RUN_SCHEMA: {}, DECISION_SCHEMA: {}}


def upgrade(value: Any, schema: str, *, name: str, current: int, upgrades: Mapping[int, Upgrade]) -> dict[str, Any]:
    """Return a parsed document in the ``current`` version. Raises DocumentError for a newer or a forgotten version."""
    if not isinstance(value, dict):
        refuse(name, "$", f"an object was expected, not {type(value).__name__}", DAMAGED)
    if value.get("schema") != schema:
        found = ascii(value.get("schema"))[:80]
        refuse(name, "$.schema", f"{found} where {schema!r} was expected", "give the file that this command reads")
    version = _version(value, name)
    if version > current:
        refuse(
            name,
            "$.schema_version",
            f"version {version} was written by a newer perfgate; this one reads up to version {current}",
            "upgrade perfgate",
        )
    return _upgraded(value, version, name, current, upgrades)


def _version(value: dict[str, Any], name: str) -> int:
    version = value.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        refuse(name, "$.schema_version", f"a version number was expected, found {ascii(version)[:80]}", DAMAGED)
    return version


def _upgraded(
    value: dict[str, Any], version: int, name: str, current: int, upgrades: Mapping[int, Upgrade]
) -> dict[str, Any]:
    for old in range(version, current):
        step = upgrades.get(old)
        if step is None:
            refuse(name, "$.schema_version", f"version {old} can no longer be read", "measure again with this perfgate")
        try:
            value = {**step(value), "schema_version": old + 1}
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            refuse(name, "$", f"not a document of version {old} ({type(error).__name__}: {error})", DAMAGED)
    return value
