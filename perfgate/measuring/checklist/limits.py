"""Judge a number of a step against its limits: data on the step's card, overridden by the project's ``[limits]``."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from perfgate.catalogue.lookup import LIMITS, RULES
from perfgate.document.run import Evidence, Finding, Severity

Limits = Mapping[str, float]
# None is evidence that is not there, such as the line of an operator that no line of the project called.
MaybeEvidence = Mapping[str, Evidence | None]

_MOST_SEVERE_FIRST: tuple[Severity, ...] = ("severe", "warning", "info")


def limit(name: str, limits: Limits) -> float:
    """The project's own limit, or else the card's. Raises KeyError for an unknown name."""
    return limits.get(name, LIMITS[name].default)


def finding(rule: str, severity: Severity, evidence: MaybeEvidence) -> Finding:
    """Raises KeyError for evidence that the words of the rule lack."""
    present = {name: value for name, value in evidence.items() if value is not None}
    for _, name, _, _ in Formatter().parse(RULES[rule].message):
        if name is not None and name not in present:
            raise KeyError(f"{rule} needs the evidence {name!r}")
    return Finding(rule=rule, severity=severity, evidence=present)


def above(rule: str, value: float, limits: Limits, evidence: MaybeEvidence) -> list[Finding]:
    """One finding if ``value`` is above a limit of the rule, for the most severe such limit; else none.

    The evidence gets the value, under the rule's name, and the limit it crossed.
    """
    return _beyond(rule, value, limits, evidence, sign=1)


def below(rule: str, value: float, limits: Limits, evidence: MaybeEvidence) -> list[Finding]:
    """The same for a ``value`` below a limit."""
    return _beyond(rule, value, limits, evidence, sign=-1)


def _beyond(rule: str, value: float, limits: Limits, evidence: MaybeEvidence, *, sign: int) -> list[Finding]:
    for severity in _MOST_SEVERE_FIRST:
        name = f"{rule}.{severity}"
        if name in LIMITS and sign * value > sign * (bound := limit(name, limits)):
            return [finding(rule, severity, {rule: value, "limit": bound, **evidence})]
    return []
