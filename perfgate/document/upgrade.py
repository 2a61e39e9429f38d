"""Older documents made current: one function a version, applied one after another before the schema check."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

import msgspec

from perfgate.catalogue.lookup import MESSAGES, RULES
from perfgate.document.decision import DECISION_SCHEMA, DECISION_SCHEMA_VERSION
from perfgate.document.message import QUOTE, english, message_from
from perfgate.document.run import RUN_SCHEMA, RUN_SCHEMA_VERSION
from perfgate.document.strict_json import DAMAGED, refuse

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

CURRENT: dict[str, int] = {RUN_SCHEMA: RUN_SCHEMA_VERSION, DECISION_SCHEMA: DECISION_SCHEMA_VERSION}


def _quoted(text: Any) -> Any:
    """A sentence of version 1, which was English text, as a message that carries it."""
    return {"code": QUOTE, "values": {"text": text}} if isinstance(text, str) else text


def _with_quotes(record: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {**record, **{field: _quoted(record[field]) for field in fields if field in record}}


def _finding_2(finding: dict[str, Any]) -> dict[str, Any]:
    """Rule and evidence give the sentence; where they do not, what stood there is quoted."""
    rule, evidence = RULES.get(finding["rule"]), finding.get("evidence", {})
    places = {name for _, name, _, _ in Formatter().parse(rule.message) if name} if rule else None
    if places is not None and places <= evidence.keys():
        return {name: value for name, value in finding.items() if name != "message"}
    return _with_quotes(finding, "message")


def _step_2(step: dict[str, Any]) -> dict[str, Any]:
    step = _with_quotes(step, "reason")
    if "findings" in step:
        step["findings"] = [_finding_2(finding) for finding in step["findings"]]
    if "values" in step:
        step["values"] = [_with_quotes(value, "reason") for value in step["values"]]
    return step


def _reason_2(reason: str) -> dict[str, Any]:
    """A reason of version 1 was ``CODE: NAME``, or a sentence."""
    code, _, name = reason.partition(": ")
    code = f"verdict.{code.replace(' ', '-')}"
    return {"code": code, "values": {"name": name}} if name and code in MESSAGES else _quoted(reason)


def _suggestion_2(suggestion: dict[str, Any]) -> dict[str, Any]:
    """Advice in the words of its rule gets the rule's code; what another tool said, or older words, are quoted."""
    for code in (f"advice.{suggestion['rule']}", f"advice.{suggestion['rule']}.instead"):
        with contextlib.suppress(KeyError, ValueError, TypeError):
            message = message_from(code, suggestion.get("evidence", {}))
            if english(message) == suggestion["message"]:
                return {**suggestion, "message": msgspec.to_builtins(message)}
    return _with_quotes(suggestion, "message")


def _part_2(part: dict[str, Any]) -> dict[str, Any]:
    """What a counter tells of an operator stood behind its name."""
    name, _, end = part["name"].rpartition(" (")
    return {**part, "name": name, "aspect": end[:-1]} if end in ("kept)", "saved)", "full precision)") else part


def run_2(run: dict[str, Any]) -> dict[str, Any]:
    """Sentences become messages."""
    upgraded = {**run, "warnings": [_quoted(warning) for warning in run.get("warnings", [])]}
    # What changed was listed by function; it is now a list of places.
    source = run.get("source", {})
    upgraded |= {"source": {name: value for name, value in source.items() if name != "changed_functions"}}
    upgraded["steps"] = [_step_2(step) for step in run.get("steps", [])]
    if "accounts" in run:
        upgraded["accounts"] = [_with_quotes(account, "no_lines") for account in run["accounts"]]
    return upgraded


def decision_2(decision: dict[str, Any]) -> dict[str, Any]:
    """Sentences become messages; the three lists of operators are gone."""
    kept = {name: value for name, value in decision.items() if not name.startswith("operator_")}
    upgraded = {**kept, "reasons": [_reason_2(reason) for reason in decision["reasons"]]}
    upgraded["base"] = _with_quotes(decision["base"], "chosen_because")
    upgraded["head"] = _with_quotes(decision["head"], "chosen_because")
    upgraded["warnings"] = [_quoted(warning) for warning in decision.get("warnings", [])]
    upgraded["steps"] = [_step_2(step) for step in decision.get("steps", [])]
    if "suggestions" in decision:
        upgraded["suggestions"] = [_suggestion_2(suggestion) for suggestion in decision["suggestions"]]
    for records, field in (("comparisons", "reason"), ("invalid", "message"), ("harness_changes", "message")):
        if records in decision:
            upgraded[records] = [_with_quotes(record, field) for record in decision[records]]
    for comparison in upgraded.get("comparisons", []):
        comparison["parts"] = [_part_2(part) for part in comparison.get("parts", [])]
    return upgraded


# UPGRADES[schema][version] turns a document of that version into one of version + 1. It gets a dictionary of unchecked
# values: the schema of the current version judges the result.
UPGRADES: dict[str, dict[int, Upgrade]] = {RUN_SCHEMA: {1: run_2}, DECISION_SCHEMA: {1: decision_2}}


def upgrade(value: Any, schema: str, *, name: str, current: int, upgrades: Mapping[int, Upgrade]) -> dict[str, Any]:
    """Return a parsed document in the ``current`` version. Raises DocumentError for a newer or a forgotten version."""
    if not isinstance(value, dict):
        refuse(name, "$", f"an object was expected, not {type(value).__name__}", DAMAGED)
    if value.get("schema") != schema:
        found = ascii(value.get("schema"))[:80]
        refuse(name, "$.schema", f"{found} where {schema!r} was expected", "give the file that this command reads")
    version = value.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        refuse(name, "$.schema_version", f"a version number was expected, found {ascii(version)[:80]}", DAMAGED)
    if version > current:
        newer = f"version {version} was written by a newer perfgate; this one reads up to version {current}"
        refuse(name, "$.schema_version", newer, "upgrade perfgate")
    document: dict[str, Any] = value
    for old in range(version, current):
        step = upgrades.get(old)
        if step is None:
            refuse(name, "$.schema_version", f"version {old} can no longer be read", "measure again with this perfgate")
        try:
            document = {**step(document), "schema_version": old + 1}
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            refuse(name, "$", f"not a document of version {old} ({type(error).__name__}: {error})", DAMAGED)
    return document
