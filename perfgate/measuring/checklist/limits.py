"""Judge a number of a step against its limits: data on the step's card, overridden by the project's ``[limits]``."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.catalogue.lookup import LIMITS, MESSAGES, RULES
from perfgate.document.message import Message
from perfgate.document.run import Evidence, Finding, Severity
from perfgate.measuring.checklist.step import Limits

# None is evidence that is not there, such as the line of an operator that no line of the project called.
MaybeEvidence = Mapping[str, Evidence | None]

_MOST_SEVERE_FIRST: tuple[Severity, ...] = ("severe", "warning", "info")


def limit(name: str, limits: Limits) -> float:
    """The project's own limit, or else the card's. Raises KeyError for an unknown name."""
    return limits.get(name, LIMITS[name].default)


def finding(rule: str, severity: Severity, evidence: MaybeEvidence) -> Finding:
    """Raises KeyError for evidence that the words of the rule lack."""
    present = {name: value for name, value in evidence.items() if value is not None}
    message = RULES[rule].message.format_map({name: _english(value) for name, value in present.items()})
    return Finding(rule=rule, severity=severity, message=message, evidence=present)


def _english(value: Evidence) -> Evidence:
    return MESSAGES[value.code].other.format_map(value.values) if isinstance(value, Message) else value


def above(rule: str, value: float, limits: Limits, evidence: MaybeEvidence) -> list[Finding]:
    """One finding where ``value`` is above a limit of the rule, of the most severe such limit; else none.

    The evidence gets the value, under the rule's name, and the limit it crossed.
    """
    return _beyond(rule, value, limits, evidence, sign=1)


def below(rule: str, value: float, limits: Limits, evidence: MaybeEvidence) -> list[Finding]:
    """The same where ``value`` is below a limit."""
    return _beyond(rule, value, limits, evidence, sign=-1)


def _beyond(rule: str, value: float, limits: Limits, evidence: MaybeEvidence, *, sign: int) -> list[Finding]:
    for severity in _MOST_SEVERE_FIRST:
        name = f"{rule}.{severity}"
        if name in LIMITS and sign * value > sign * (bound := limit(name, limits)):
            return [finding(rule, severity, {rule: value, "limit": bound, **evidence})]
    return []
