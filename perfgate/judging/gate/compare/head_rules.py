"""Rules for the head alone: its own check of the output, budgets, SLAs, gating limits,
and expected kernels.

A faster wrong model never passes. Only the signature of the output is compared with the
base's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perfgate.catalogue.lookup import measuring_step, metric
from perfgate.catalogue.names import EXPECTED_KERNELS, P99, SIGNATURE, SLA
from perfgate.document.budget import missing_kernels
from perfgate.document.comparison import Bound, Checked, Comparison, Outcome
from perfgate.document.explanation import Part
from perfgate.document.message import Message, quote
from perfgate.document.run import CORRECTNESS, ShapeKernels
from perfgate.judging.gate.compare.comparison import compared, differing_output
from perfgate.judging.gate.evidence.bounds import (
    BoundedNumber,
    HeadNumbers,
    OutputCheck,
    by_turn,
)
from perfgate.judging.gate.evidence.values import rounded_if_known


def compare_rules(numbers: HeadNumbers, kernels: Sequence[str]) -> list[Comparison]:
    """Judge the head's numbers by all rules; ``kernels`` are the patterns of those that
    are expected.
    """
    comparisons: list[Comparison] = [
        *compare_correctness(numbers.checks),
        *compare_signatures(numbers.checks),
    ]
    comparisons += map(compare_bound, numbers.bounded)
    if kernels:
        for workload, shapes in numbers.kernels.items():
            comparisons.append(compare_expected_kernels(workload, shapes, kernels))
    return comparisons


# --- the workload's own check


_CORRECT = {"passed": 1.0, "failed": 0.0}


def compare_correctness(checks: Iterable[OutputCheck]) -> Iterator[Checked]:
    """Compare every correctness check of the head that has a result; the base's is
    shown too.
    """
    for check, before in checks:
        if check.status not in _CORRECT:
            continue
        yield compared(
            Checked,
            check.place,
            CORRECTNESS,
            "regressed" if check.status == "failed" else "unchanged",
            base=_CORRECT.get(before.status) if before else None,
            head=_CORRECT[check.status],
            reason=quote(check.message)
            if isinstance(check.message, str)
            else check.message,
        )


def compare_signatures(checks: Iterable[OutputCheck]) -> Iterator[Checked]:
    """Compare the output signatures that changed: an equal signature is not evidence
    that would make a gate pass.
    """
    for check, before in checks:
        if (
            before
            and before.signature
            and check.signature
            and check.signature != before.signature
        ):
            reason = Message(
                "gate.output-changed", {"old": before.signature, "new": check.signature}
            )
            yield differing_output(check.place, SIGNATURE, reason)


# --- [expect] kernels


def compare_expected_kernels(
    workload: str, shapes: Sequence[ShapeKernels], patterns: Sequence[str]
) -> Bound:
    """Compare the names of kernels that ran in any shape of a workload with the
    patterns that are expected.

    Only the head is judged: a base that runs none of them does not excuse it. Without
    recorded names, the verdict is left open.
    """
    names = set()
    for entry in shapes:
        names.update(entry.names)
    missing = missing_kernels(patterns, names)
    outcome: Outcome = "inconclusive"
    reason: Message | None = None
    parts: list[Part] = []
    if not shapes:
        reason = Message("gate.kernels-not-kept")
    elif not missing:
        outcome = "unchanged"
    elif any(entry.left_out for entry in shapes):
        reason = Message("gate.kernels-left-out")
    else:
        outcome = "regressed"
        kernels = []
        for pattern, nearest in missing.items():
            values = {"kernel": pattern, "nearest": nearest}
            kernels.append(Message("gate.kernel-missing", values))
            parts.append(Part(name=pattern, base=1, head=0))
        reason = Message("gate.kernels-missing", {"kernels": kernels})
    found = [pattern for pattern in patterns if pattern not in missing]
    return Bound(
        workload=workload,
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


# --- budgets, SLAs and gating limits


def compare_bound(number: BoundedNumber) -> Bound:
    """Compare a number of the head with its bound.

    A bound is broken if the whole interval lies beyond it; then the gate fails, unless
    there is a base that breaks it too. A value with the bound inside its interval shows
    neither and warns; without a measurement, the verdict is left open. With several
    turns, the head breaks a bound if each turn does, and the base if one does: a
    machine that stalls breaks a bound now and then, and code that is too slow does each
    time.
    """
    limit = number.bound
    budget = limit.budget
    bound = Bound(
        workload=number.place.workload,
        shape=number.place.shape,
        metric=limit.name,
        unit=metric(limit.name).unit,
        better="lower" if budget.at_most else "higher",
        outcome="inconclusive",
        gating=True,
        bound=budget.bound,
        limit=limit.limit,
    )
    judged = _judge(bound, number)
    if budget.rate is None:
        return judged
    if judged.reason is None:
        return replace(judged, reason=Message("gate.at-rate", {"rate": budget.rate}))
    reason = Message(
        "gate.at-rate-because", {"rate": budget.rate, "reason": judged.reason}
    )
    return replace(judged, reason=reason)


def _judge(bound: Bound, number: BoundedNumber) -> Bound:
    limit = number.bound
    # The value of the best turn. A turn may have several, for example of several batch
    # sizes: the worst counts.
    turns = by_turn(number.head)
    worst_of_turns = [max(values, key=limit.badness) for values in turns.values()]
    best = min(worst_of_turns, key=limit.badness, default=None)
    if best is None:
        return replace(
            bound,
            reason=Message(
                "gate.bound-not-measured", {"step": measuring_step(limit.budget.metric)}
            ),
        )
    end = limit.best_end(best)
    value = rounded_if_known(best.value)
    if limit.is_beyond(end):
        if value is None:
            value = rounded_if_known(end)
        if number.is_broken_by_base:
            return replace(
                bound,
                gating=False,
                head=value,
                reason=Message("gate.base-breaks-bound"),
            )
        reason: Message | None = None
        if number.kernel is not None:
            reason = Message("gate.longest-kernel", {"op": number.kernel})
        return replace(bound, outcome="regressed", head=value, reason=reason)
    if value is None:
        return replace(bound, reason=best.reason)
    if limit.is_beyond(best.value):
        return replace(
            bound, gating=False, head=value, reason=Message("gate.interval-holds-bound")
        )
    return replace(bound, outcome="unchanged", head=value)


def broken_metrics(numbers: Iterable[BoundedNumber], workload: str) -> set[str]:
    """The metrics of a workload that seem to break a bound, and that a repeated
    measurement could settle.
    """
    broken = set()
    for comparison in map(compare_bound, numbers):
        is_broken = (
            comparison.workload == workload and comparison.outcome == "regressed"
        )
        if is_broken and not metric(comparison.metric).origin.counted:
            broken.add(P99 if comparison.metric == SLA else comparison.metric)
    return broken
