"""Budgets, SLAs and gating limits: the head's numbers against absolute bounds."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.catalogue.lookup import measuring_step, metric
from perfgate.catalogue.names import P99, SLA
from perfgate.document.comparison import Bound, Outcome
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.document.run import RunDocument, Value
from perfgate.judging.gate.evidence.bounds import HeadBound, bounds_of, by_turn
from perfgate.judging.gate.evidence.index import RunIndex, of_workload
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import rounded_if_known


def compare_bounds(base: RunIndex | None, head: RunIndex, policy: Policy) -> list[Bound]:
    """Compare the head with every bound of each workload and shape.

    A bound is broken if the whole interval lies beyond it; then the gate fails, unless there is a base that breaks it too. A
    value with the bound inside its interval shows neither and warns; without a measurement, the verdict is left open. With
    several turns, the head breaks a bound if each turn does, and the base if one does: a machine that stalls breaks a bound now
    and then, and code that is too slow does each time.
    """
    comparisons = []
    for workload in head.run.workloads:
        for limit in bounds_of(workload, policy):
            for shape in workload.shapes:
                if limit.budget.place.covers(workload.name, shape):
                    comparisons.append(_compare(base, head, limit, ShapePlace(workload.name, shape)))
    return comparisons


class _Judgement(NamedTuple):
    outcome: Outcome
    gating: bool = True
    head: float | None = None
    reason: Message | None = None


def _compare(base: RunIndex | None, head: RunIndex, limit: HeadBound, place: ShapePlace) -> Bound:
    judgement = _judge(base, head, limit, place)
    budget = limit.budget
    reason = judgement.reason
    if budget.rate is not None:
        reason = _at_rate(budget.rate, reason)
    return Bound(
        workload=place.workload,
        shape=place.shape,
        metric=limit.name,
        unit=metric(limit.name).unit,
        better="lower" if budget.at_most else "higher",
        outcome=judgement.outcome,
        gating=judgement.gating,
        bound=budget.bound,
        head=rounded_if_known(judgement.head),
        reason=reason,
        limit=limit.limit,
    )


def _judge(base: RunIndex | None, head: RunIndex, limit: HeadBound, place: ShapePlace) -> _Judgement:
    value = _value_of(limit, head, place)
    if value is None:
        return _Judgement(
            "inconclusive", reason=Message("gate.bound-not-measured", {"step": measuring_step(limit.budget.metric)})
        )
    end = limit.best_end(value)
    if limit.is_beyond(end):
        number = end if value.value is None else value.value
        if base is not None and limit.is_broken_by(base, place):
            return _Judgement("inconclusive", False, number, Message("gate.base-breaks-bound"))
        reason = _longest_kernel(head, place) if limit.budget.metric == "ops.kernel_time" else None
        return _Judgement("regressed", True, number, reason)
    if value.value is None:
        return _Judgement("inconclusive", reason=value.reason)
    if limit.is_beyond(value.value):
        return _Judgement("inconclusive", False, value.value, Message("gate.interval-holds-bound"))
    return _Judgement("unchanged", True, value.value)


def _value_of(limit: HeadBound, head: RunIndex, place: ShapePlace) -> Value | None:
    """The value of the best turn. A turn may have several, for example of several batch sizes: the worst counts."""
    worst = [max(values, key=limit.badness) for values in by_turn(limit.values(head, place)).values()]
    return min(worst, key=limit.badness, default=None)


def _at_rate(rate: float, reason: Message | None) -> Message:
    if reason is None:
        return Message("gate.at-rate", {"rate": rate})
    return Message("gate.at-rate-because", {"rate": rate, "reason": reason})


def _longest_kernel(head: RunIndex, place: ShapePlace) -> Message | None:
    for step in head.steps.get(place.workload, ()):
        for kernels in step.kernels:
            if kernels.shape == place.shape and kernels.longest:
                return Message("gate.longest-kernel", {"op": kernels.longest})
    return None


def broken_metrics(base: RunDocument, head: RunDocument, policy: Policy, *, workload: str) -> set[str]:
    """The metrics of a workload that seem to break a bound, and that a repeated measurement could settle."""
    before, after = RunIndex(of_workload(base, workload)), RunIndex(of_workload(head, workload))
    broken: set[str] = set()
    for comparison in compare_bounds(before, after, policy):
        if comparison.outcome == "regressed" and not metric(comparison.metric).counted:
            broken.add(P99 if comparison.metric == SLA else comparison.metric)
    return broken
