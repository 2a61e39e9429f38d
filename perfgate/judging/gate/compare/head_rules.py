"""Rules for the head alone: its own check of the output, budgets, SLAs, gating limits, and expected kernels.

A faster wrong model never passes. Only the signature of the output is compared with the base's.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import EXPECTED_KERNELS, SIGNATURE
from perfgate.document.budget import missing_kernels
from perfgate.document.comparison import Bound, Checked, Comparison, Outcome
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.message import Message, quote
from perfgate.document.run import CORRECTNESS, CorrectnessResult, ShapeKernels
from perfgate.judging.gate.compare.bounds import compare_bounds
from perfgate.judging.gate.compare.comparison import checked, differing_output
from perfgate.judging.gate.evidence.index import RunIndex


def compare_rules(base: RunIndex | None, head: RunIndex, policy: Policy) -> list[Comparison]:
    return [
        *compare_correctness(base, head),
        *compare_signatures(base, head),
        *compare_bounds(base, head, policy),
        *compare_expected_kernels(head, policy),
    ]


# --- the workload's own check


_CORRECT = {"passed": 1.0, "failed": 0.0}


def compare_correctness(base: RunIndex | None, head: RunIndex) -> Iterator[Checked]:
    """Compare every correctness check of the head that has a result; the base's is shown too."""
    for check in head.correctness:
        if check.status not in _CORRECT:
            continue
        before = _check_of_base(base, check)
        yield checked(
            check.place,
            CORRECTNESS,
            "regressed" if check.status == "failed" else "unchanged",
            base=_CORRECT.get(before.status) if before else None,
            head=_CORRECT[check.status],
            reason=quote(check.message) if isinstance(check.message, str) else check.message,
        )


def compare_signatures(base: RunIndex | None, head: RunIndex) -> Iterator[Checked]:
    """Compare the output signatures that changed: an equal signature is not evidence that would make a gate pass."""
    for check in head.correctness:
        before = _check_of_base(base, check)
        if before and before.signature and check.signature and check.signature != before.signature:
            reason = Message("gate.output-changed", {"old": before.signature, "new": check.signature})
            yield differing_output(check.place, SIGNATURE, reason)


def _check_of_base(base: RunIndex | None, check: CorrectnessResult) -> CorrectnessResult | None:
    if base is None:
        return None
    return base.checks.get(check.place)


# --- [expect] kernels


def compare_expected_kernels(head: RunIndex, policy: Policy) -> Iterator[Bound]:
    """Compare, workload by workload, the names of kernels that ran in any shape with the patterns that are expected.

    Only the head is judged: a base that runs none of them does not excuse it. Without recorded names, the verdict is left open.
    """
    if not policy.kernels:
        return
    for workload in head.workloads:
        kernels: list[ShapeKernels] = []
        for step in head.steps.get(workload.name, ()):
            kernels += step.kernels
        yield _expected(workload.name, kernels, policy)


def _expected(workload: str, kernels: list[ShapeKernels], policy: Policy) -> Bound:
    names = set()
    for entry in kernels:
        names.update(entry.names)
    missing = missing_kernels(policy.kernels, names)
    outcome: Outcome = "inconclusive"
    reason: Message | None = None
    parts: list[Part] = []
    if not kernels:
        reason = Message("gate.kernels-not-kept")
    elif not missing:
        outcome = "unchanged"
    elif any(entry.left_out for entry in kernels):
        reason = Message("gate.kernels-left-out")
    else:
        outcome = "regressed"
        reason = _kernels_missing(missing)
        parts = [Part(name=pattern, base=1, head=0) for pattern in missing]
    ran = len(policy.kernels) - sum(pattern in missing for pattern in policy.kernels)
    return Bound(
        workload=workload,
        shape="",
        metric=EXPECTED_KERNELS,
        unit=metric(EXPECTED_KERNELS).unit,
        better=metric(EXPECTED_KERNELS).better,
        outcome=outcome,
        gating=True,
        bound=len(policy.kernels),
        head=None if outcome == "inconclusive" else ran,
        reason=reason,
        parts=parts,
    )


def _kernels_missing(missing: dict[str, str]) -> Message:
    kernels = []
    for pattern, nearest in missing.items():
        kernels.append(Message("gate.kernel-missing", {"kernel": pattern, "nearest": nearest}))
    return Message("gate.kernels-missing", {"kernels": kernels})
