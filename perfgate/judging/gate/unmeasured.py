"""The decision on a change that no workload runs, so it was not measured."""

from __future__ import annotations

from perfgate.document.coverage import Coverage
from perfgate.document.decision import Policy, Verdict
from perfgate.document.message import Message
from perfgate.judging.gate.evidence.index import RunIndex

_VERDICTS: dict[str, Verdict] = {"skip": "SKIPPED", "warn": "WARN", "fail": "FAIL"}


def settles(coverage: Coverage | None, policy: Policy) -> bool:
    """Whether trials end a check, because no workload runs the changed code.

    Where that must be measured, a changed Python file without a changed function is measured: if the functions were taken out
    of a document, it would look like a change of text.
    """
    if coverage is None or not coverage.runs_nothing:
        return False
    is_told = bool(coverage.functions) or not any(
        file.endswith(".py") for file in coverage.files
    )
    return is_told or policy.unmeasured == "skip"


def measured_nothing(head: RunIndex) -> bool:
    """Whether the change was not measured because no workload runs its code."""
    return head.coverage is not None and head.coverage.runs_nothing and head.is_empty


def unmeasured(
    head: RunIndex, changed: frozenset[str] | None, policy: Policy
) -> tuple[Verdict, Message] | None:
    """The verdict on a change of which no workload runs anything, and its reason; None if it has to be measured.

    ``changed`` are the files of the change as the trusted side knows them: each must have been looked at. A change of text
    alone needs no workload, whatever the policy requires for code.
    """
    coverage = head.coverage
    if (
        coverage is None
        or not coverage.files
        or not settles(coverage, policy)
        or not measured_nothing(head)
    ):
        return None
    if changed is not None and not changed <= set(coverage.files):
        return None
    if not coverage.functions:
        return "SKIPPED", Message("gate.unread", {"count": len(coverage.files)})
    return _VERDICTS[policy.unmeasured], Message("gate.unmeasured")
