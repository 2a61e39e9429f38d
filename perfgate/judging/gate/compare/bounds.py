"""Budgets, SLAs and gating limits: the head's numbers against absolute bounds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from perfgate.catalogue.lookup import measuring_step, metric
from perfgate.catalogue.names import P99, SLA
from perfgate.document.comparison import Bound
from perfgate.document.message import Message
from perfgate.judging.gate.evidence.bounds import BoundedNumber, by_turn
from perfgate.judging.gate.evidence.values import rounded_if_known


def compare_bound(number: BoundedNumber) -> Bound:
    """Compare a number of the head with its bound.

    A bound is broken if the whole interval lies beyond it; then the gate fails, unless there is a base that breaks it too. A
    value with the bound inside its interval shows neither and warns; without a measurement, the verdict is left open. With
    several turns, the head breaks a bound if each turn does, and the base if one does: a machine that stalls breaks a bound now
    and then, and code that is too slow does each time.
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
    reason = Message("gate.at-rate-because", {"rate": budget.rate, "reason": judged.reason})
    return replace(judged, reason=reason)


def _judge(bound: Bound, number: BoundedNumber) -> Bound:
    limit = number.bound
    # The value of the best turn. A turn may have several, for example of several batch sizes: the worst counts.
    turns = by_turn(number.head)
    worst_of_turns = [max(values, key=limit.badness) for values in turns.values()]
    best = min(worst_of_turns, key=limit.badness, default=None)
    if best is None:
        return replace(bound, reason=Message("gate.bound-not-measured", {"step": measuring_step(limit.budget.metric)}))
    end = limit.best_end(best)
    value = rounded_if_known(best.value)
    if limit.is_beyond(end):
        if value is None:
            value = rounded_if_known(end)
        if number.is_broken_by_base:
            return replace(bound, gating=False, head=value, reason=Message("gate.base-breaks-bound"))
        reason: Message | None = None
        if number.kernel is not None:
            reason = Message("gate.longest-kernel", {"op": number.kernel})
        return replace(bound, outcome="regressed", head=value, reason=reason)
    if value is None:
        return replace(bound, reason=best.reason)
    if limit.is_beyond(best.value):
        return replace(bound, gating=False, head=value, reason=Message("gate.interval-holds-bound"))
    return replace(bound, outcome="unchanged", head=value)


def broken_metrics(numbers: Iterable[BoundedNumber], workload: str) -> set[str]:
    """The metrics of a workload that seem to break a bound, and that a repeated measurement could settle."""
    broken = set()
    for comparison in map(compare_bound, numbers):
        is_broken = comparison.workload == workload and comparison.outcome == "regressed"
        if is_broken and not metric(comparison.metric).origin.counted:
            broken.add(P99 if comparison.metric == SLA else comparison.metric)
    return broken
