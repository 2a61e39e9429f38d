"""Judge a number of a step against its limits: data in the step, overridden by the project's ``[limits]``."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.run import Evidence, Finding


def limit(name: str, given: Mapping[str, float], defaults: Mapping[str, float]) -> float:
    """Return a limit by name, as the project gives it or else the step's own. Raises KeyError for an unknown name."""
    return given.get(name, defaults[name])


def above(
    rule: str,
    value: float,
    message: str,
    *,
    given: Mapping[str, float],
    defaults: Mapping[str, float],
    evidence: Mapping[str, Evidence],
) -> list[Finding]:
    """Return one finding where ``value`` is above ``RULE.severe`` or else above ``RULE.warning``; nothing below both.

    The evidence gets the value, under the rule's name, and the limit it crossed.
    """
    for severity in ("severe", "warning"):
        bound = limit(f"{rule}.{severity}", given, defaults)
        if value > bound:
            found = {rule: value, "limit": bound, **evidence}
            return [Finding(rule=rule, severity="severe" if severity == "severe" else "warning", message=message,
                            evidence=found)]  # fmt: skip
    return []
