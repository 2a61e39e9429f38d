"""Judge a number of a step against its limits: data on the step's card, overridden by the project's ``[limits]``."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.catalogue.lookup import LIMITS, RULES
from perfgate.document.run import Evidence, Finding, Severity


def limit(name: str, given: Mapping[str, float]) -> float:
    """Return a limit by name, as the project gives it or else the card's own. Raises KeyError for an unknown name."""
    return given.get(name, LIMITS[name].default)


def noticed(rule: str, severity: Severity, evidence: Mapping[str, Evidence]) -> Finding:
    """Return a finding in the words that the card has for its rule. Raises KeyError for evidence that the words lack."""
    message = RULES[rule].message.format_map(evidence)
    return Finding(rule=rule, severity=severity, message=message, evidence=dict(evidence))


def above(rule: str, value: float, *, given: Mapping[str, float], evidence: Mapping[str, Evidence]) -> list[Finding]:
    """Return one finding where ``value`` is above a limit of the rule, of the most severe such limit; else nothing.

    The evidence gets the value, under the rule's name, and the limit it crossed.
    """
    for severity, bound in _bounds(rule, given):
        if value > bound:
            return [noticed(rule, severity, {rule: value, "limit": bound, **evidence})]
    return []


def below(rule: str, value: float, *, given: Mapping[str, float], evidence: Mapping[str, Evidence]) -> list[Finding]:
    """Return one finding where ``value`` is below a limit of the rule, of the most severe such limit; else nothing."""
    for severity, bound in _bounds(rule, given):
        if value < bound:
            return [noticed(rule, severity, {rule: value, "limit": bound, **evidence})]
    return []


def _bounds(rule: str, given: Mapping[str, float]) -> list[tuple[Severity, float]]:
    """Return the limits that a rule has, the most severe first."""
    severities: tuple[Severity, ...] = ("severe", "warning", "info")
    return [(severity, limit(f"{rule}.{severity}", given)) for severity in severities if f"{rule}.{severity}" in LIMITS]
