"""What to do when the regression is meant."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfgate.document.decision import RULE_METHODS, Comparison
from perfgate.judging.report.format import to_two_digits
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary

_SHOWN = 3


class Intended:
    """How to accept it, and the tolerances and budgets that would let it pass, to be written where a reviewer sees them."""

    order = 90
    drop = KEEP
    title = "if intended"
    template = "intended.md.j2"
    numbered = True

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The settings; a wrong output cannot be tolerated."""
        failing = [c for c in summary.regressed if c.gating]
        if summary.verdict != "FAIL" or not failing or summary.decision.comparing == "rules":
            return None
        largest: dict[str, float] = {}
        for comparison in failing:
            share = _needed(comparison)
            if share is not None:
                largest[comparison.metric] = max(share, largest.get(comparison.metric, 0.0))
        return {
            "settings": [f'"{name}" = {_written(share)}' for name, share in largest.items()][:_SHOWN],
            "budgets": [_raised(c) for c in failing if c.method == "budget" and not c.metric.startswith("sla.")][
                :_SHOWN
            ],
            "limits": [_raised_limit(c) for c in failing if c.method == "limit"][:_SHOWN],
            "acceptable": any(c.method != "check" for c in failing),
            "more": max(0, len(largest) - _SHOWN),
            "wrong_output": any(c.method == "check" for c in failing),
            "from_zero": any(c.method == "exact" and c.delta is None for c in failing),
        }


def _needed(comparison: Comparison) -> float | None:
    """The tolerance that lets a worsening pass, rounded up to whole percents; None where none would."""
    if comparison.delta is None or comparison.method in {"check", *RULE_METHODS}:
        return None
    worst = max((abs(end) for end in comparison.interval or ()), default=abs(comparison.delta))
    return math.ceil(max(worst, abs(comparison.delta)) * 100 - 1e-9) / 100 if math.isfinite(worst) else None


def _raised(comparison: Comparison) -> str:
    """The line of ``[budget]`` that holds the value as it is, with two digits of room."""
    bound = to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")
    return f'"{comparison.metric}@{comparison.workload}/{comparison.shape}" = {bound:g}'


def _raised_limit(comparison: Comparison) -> str:
    """The line of ``[limits]`` that holds the value as it is."""
    bound = to_two_digits(comparison.head or 0.0, up=comparison.better == "lower")
    return f'"{comparison.limit}" = {{ value = {bound:g}, gating = true }}'


def _written(share: float) -> str:
    # TOML, not prose: the number as perfgate.toml takes it.
    return f"{share:.2f}"


SECTION = Intended()
