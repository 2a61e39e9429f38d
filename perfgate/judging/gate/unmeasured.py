"""The decision on a change that no workload runs, so it was not measured."""

from __future__ import annotations

from perfgate.document.coverage import Coverage
from perfgate.document.decision import Policy, Verdict
from perfgate.document.message import Message
from perfgate.document.run import RunDocument

_VERDICTS: dict[str, Verdict] = {"skip": "SKIPPED", "warn": "WARN", "fail": "FAIL"}


def settles(coverage: Coverage | None, policy: Policy) -> bool:
    """Whether trials end a check, because no workload runs the changed code.

    Where that must be measured, a changed Python file without a changed function is measured: if the functions were taken out
    of a document, it would look like a change of text.
    """
    if coverage is None or not coverage.runs_nothing:
        return False
    is_told = bool(coverage.functions) or not any(file.endswith(".py") for file in coverage.files)
    return is_told or policy.unmeasured == "skip"


def measured_nothing(head: RunDocument) -> bool:
    """Whether the change was not measured because no workload runs its code."""
    measured = head.workloads or head.jobs.records or head.pairs.replicates or head.jobs.turns
    return head.source.coverage is not None and head.source.coverage.runs_nothing and not measured


def unmeasured(head: RunDocument, changed: frozenset[str] | None, policy: Policy) -> tuple[Verdict, Message] | None:
    """The verdict on a change of which no workload runs anything, and its reason; None if it has to be measured.

    ``changed`` are the files of the change as the trusted side knows them: each must have been looked at. A change of text
    alone needs no workload, whatever the policy requires for code.
    """
    coverage = head.source.coverage
    if coverage is None or not coverage.files or not settles(coverage, policy) or not measured_nothing(head):
        return None
    if changed is not None and not changed <= set(coverage.files):
        return None
    if not coverage.functions:
        return "SKIPPED", Message("gate.unread", {"count": len(coverage.files)})
    return _VERDICTS[policy.unmeasured], Message("gate.unmeasured")
