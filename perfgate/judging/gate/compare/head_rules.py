"""Rules for the head alone: its own check of the output, budgets, SLAs, gating limits, and expected kernels.

A faster wrong model never passes. Only the signature of the output is compared with the base's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import EXPECTED_KERNELS, SIGNATURE
from perfgate.document.budget import missing_kernels
from perfgate.document.comparison import Bound, Checked, Comparison, Outcome
from perfgate.document.explanation import Part
from perfgate.document.message import Message, quote
from perfgate.document.run import CORRECTNESS
from perfgate.judging.gate.compare.bounds import compare_bound
from perfgate.judging.gate.compare.comparison import checked, differing_output
from perfgate.judging.gate.evidence.bounds import HeadNumbers, OutputCheck, RanKernels


def compare_rules(numbers: HeadNumbers, kernels: Sequence[str]) -> list[Comparison]:
    """Judge the head's numbers by all rules; ``kernels`` are the patterns of those that are expected."""
    comparisons: list[Comparison] = [*compare_correctness(numbers.checks), *compare_signatures(numbers.checks)]
    comparisons += map(compare_bound, numbers.bounded)
    if kernels:
        comparisons += [compare_expected_kernels(ran, kernels) for ran in numbers.kernels]
    return comparisons


# --- the workload's own check


_CORRECT = {"passed": 1.0, "failed": 0.0}


def compare_correctness(checks: Iterable[OutputCheck]) -> Iterator[Checked]:
    """Compare every correctness check of the head that has a result; the base's is shown too."""
    for check, before in checks:
        if check.status not in _CORRECT:
            continue
        yield checked(
            check.place,
            CORRECTNESS,
            "regressed" if check.status == "failed" else "unchanged",
            base=_CORRECT.get(before.status) if before else None,
            head=_CORRECT[check.status],
            reason=quote(check.message) if isinstance(check.message, str) else check.message,
        )


def compare_signatures(checks: Iterable[OutputCheck]) -> Iterator[Checked]:
    """Compare the output signatures that changed: an equal signature is not evidence that would make a gate pass."""
    for check, before in checks:
        if before and before.signature and check.signature and check.signature != before.signature:
            reason = Message("gate.output-changed", {"old": before.signature, "new": check.signature})
            yield differing_output(check.place, SIGNATURE, reason)


# --- [expect] kernels


def compare_expected_kernels(ran: RanKernels, patterns: Sequence[str]) -> Bound:
    """Compare the names of kernels that ran in any shape of a workload with the patterns that are expected.

    Only the head is judged: a base that runs none of them does not excuse it. Without recorded names, the verdict is left open.
    """
    names = set()
    for entry in ran.shapes:
        names.update(entry.names)
    missing = missing_kernels(patterns, names)
    outcome: Outcome = "inconclusive"
    reason: Message | None = None
    parts: list[Part] = []
    if not ran.shapes:
        reason = Message("gate.kernels-not-kept")
    elif not missing:
        outcome = "unchanged"
    elif any(entry.left_out for entry in ran.shapes):
        reason = Message("gate.kernels-left-out")
    else:
        outcome = "regressed"
        reason = _kernels_missing(missing)
        parts = [Part(name=pattern, base=1, head=0) for pattern in missing]
    found = [pattern for pattern in patterns if pattern not in missing]
    return Bound(
        workload=ran.workload,
        shape="",
        metric=EXPECTED_KERNELS,
        unit=metric(EXPECTED_KERNELS).unit,
        better=metric(EXPECTED_KERNELS).better,
        outcome=outcome,
        gating=True,
        bound=len(patterns),
        head=None if outcome == "inconclusive" else len(found),
        reason=reason,
        parts=parts,
    )


def _kernels_missing(missing: dict[str, str]) -> Message:
    kernels = []
    for pattern, nearest in missing.items():
        kernels.append(Message("gate.kernel-missing", {"kernel": pattern, "nearest": nearest}))
    return Message("gate.kernels-missing", {"kernels": kernels})
