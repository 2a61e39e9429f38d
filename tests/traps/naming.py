"""The names under which a decision, a step or a failed worker says what it found."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.document.comparison import Comparison, Exact
from perfgate.document.decision import DecisionDocument
from perfgate.document.run import FailedPair, Finding
from tests.wording import worded


def names(decision: DecisionDocument) -> set[str]:
    """Return verdict, ``metric: outcome`` of every gating comparison, and what is invalid, failed or changed."""
    found = {f"verdict {decision.verdict}"}
    found |= {f"{c.metric}: {c.outcome}" for c in decision.comparisons if c.gating or _is_costless(c)}
    found |= {f"invalid {entry.kind}" for entry in decision.gaps.invalid}
    found |= {f"error {failure.error.kind}" for failure in decision.gaps.failures}
    found |= {f"harness {change.__struct_config__.tag}" for change in decision.sides.harness_changes}
    found |= {
        reason.partition(":")[0] + " "
        for reason in worded(decision.reasons)
        if reason.startswith(("doubtful", "undecided"))
    }
    return found | {f"finding {finding.rule}" for step in decision.checklist.steps for finding in step.findings}


def _is_costless(comparison: Comparison) -> bool:
    return isinstance(comparison, Exact) and comparison.costless


def finding_names(findings: Iterable[Finding]) -> set[str]:
    """Return the rules of a step's findings."""
    return {f"finding {finding.rule}" for finding in findings}


def error_names(failed: Iterable[FailedPair]) -> set[str]:
    """Return how pairs failed."""
    return {f"error {pair.error.kind}" for pair in failed}
