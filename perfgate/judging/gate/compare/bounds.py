"""Budgets, SLAs and gating limits: the head's numbers against absolute bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import judged_by, measuring_step, metric
from perfgate.catalogue.names import P99, SLA
from perfgate.document.budget import Budget
from perfgate.document.comparison import Bound, Outcome
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.document.run import REPEAT, RunDocument, Value, WorkloadRecord
from perfgate.judging.gate.evidence.index import Evidence, RunIndex, of_workload
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import repeated_metrics
from perfgate.judging.gate.evidence.values import rounded

# The steps that a gate rests on, regardless of perfgate.toml.
DECIDING_STEPS = frozenset({1, 2, 3, 4})

_Labels = frozenset[tuple[str, str]]


class _Limit(NamedTuple):
    """A bound and its source; ``name`` is the metric's in the decision, ``labels`` select the values that it bounds."""

    budget: Budget
    name: str
    limit: str | None = None
    labels: Mapping[str, str] = {}

    def step_values(self, run: RunIndex, place: ShapePlace) -> Iterator[Value]:
        for step in run.steps.get(place.workload, ()):
            for value in step.values:
                if value.metric == self.budget.metric and self._bounds(value, place.shape):
                    yield value

    def _bounds(self, value: Value, shape: str) -> bool:
        """Whether a value of the metric is of the shape, the rate and the labels."""
        rate = None if self.budget.rate is None else f"{self.budget.rate:g}"
        is_at_place = value.labels.get("shape", shape) == shape and value.labels.get("rate") == rate
        return is_at_place and self.labels.items() <= value.labels.items()

    def values(self, run: RunIndex, place: ShapePlace) -> Iterator[Value]:
        yield from self.step_values(run, place)
        counters = run.counters.get(place)
        if counters and self.budget.metric in counters.values:
            yield Value(metric=self.budget.metric, value=float(counters.values[self.budget.metric]))

    def best_end(self, value: Value) -> float | None:
        """The end of the interval that is best for the bound, or the value itself if it has no interval."""
        low, high = value.interval or (None, None)
        end = low if self.budget.at_most else high
        return value.value if end is None else end

    def is_beyond(self, number: float | None) -> bool:
        if number is None:
            return False
        return number > self.budget.bound if self.budget.at_most else number < self.budget.bound

    def badness(self, value: Value) -> float:
        end = self.best_end(value)
        if end is None:
            return -math.inf
        return end if self.budget.at_most else -end

    def is_broken_by(self, run: RunIndex, place: ShapePlace) -> bool:
        """Whether any turn of a run breaks it."""
        return any(self.is_beyond(self.best_end(value)) for value in self.values(run, place))


def compare_bounds(base: RunIndex | None, head: RunIndex, policy: Policy) -> list[Bound]:
    """Compare the head with every bound of each workload and shape.

    A bound is broken if the whole interval lies beyond it; then the gate fails, unless there is a base that breaks it too. A
    value with the bound inside its interval shows neither and warns; without a measurement, the verdict is left open. With
    several turns, the head breaks a bound if each turn does, and the base if one does: a machine that stalls breaks a bound now
    and then, and code that is too slow does each time.
    """
    comparisons = []
    for workload in head.run.workloads:
        for limit in _limits(workload, policy):
            for shape in workload.shapes:
                if limit.budget.place.covers(workload.name, shape):
                    comparisons.append(_compare(base, head, limit, ShapePlace(workload.name, shape)))
    return comparisons


def _limits(workload: WorkloadRecord, policy: Policy) -> Iterator[_Limit]:
    # An SLA is a budget set by the workload itself.
    if workload.sla_p99 is not None:
        yield _Limit(Budget(metric=P99, bound=workload.sla_p99, at_most=True, rate=workload.sla_rate), SLA)
    for budget in policy.budgets:
        yield _Limit(budget, budget.metric)
    for name, bound in policy.limits.items():
        judged = judged_by(name)
        if judged is not None:
            budget = Budget(metric=judged.metric, bound=bound, at_most=judged.at_most)
            yield _Limit(budget, judged.metric, name, judged.labels)


class _Judgement(NamedTuple):
    outcome: Outcome
    gating: bool = True
    head: float | None = None
    reason: Message | None = None


def _compare(base: RunIndex | None, head: RunIndex, limit: _Limit, place: ShapePlace) -> Bound:
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
        head=None if judgement.head is None else rounded(judgement.head),
        reason=reason,
        limit=limit.limit,
    )


def _judge(base: RunIndex | None, head: RunIndex, limit: _Limit, place: ShapePlace) -> _Judgement:
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


def _value_of(limit: _Limit, head: RunIndex, place: ShapePlace) -> Value | None:
    """The value of the best turn. A turn may have several, for example of several batch sizes: the worst counts."""
    worst = [max(values, key=limit.badness) for values in _by_turn(limit.values(head, place)).values()]
    return min(worst, key=limit.badness, default=None)


def _at_rate(rate: float, reason: Message | None) -> Message:
    if reason is None:
        return Message("gate.at-rate", {"rate": rate})
    return Message("gate.at-rate-because", {"rate": rate, "reason": reason})


def _by_turn(values: Iterable[Value]) -> dict[str, list[Value]]:
    turns: dict[str, list[Value]] = {}
    for value in values:
        turns.setdefault(value.labels.get(REPEAT, ""), []).append(value)
    return turns


def _longest_kernel(head: RunIndex, place: ShapePlace) -> Message | None:
    for step in head.steps.get(place.workload, ()):
        for kernels in step.kernels:
            if kernels.shape == place.shape and kernels.longest:
                return Message("gate.longest-kernel", {"op": kernels.longest})
    return None


# --- which steps and metrics have bounds


def broken_metrics(base: RunDocument, head: RunDocument, policy: Policy, *, workload: str) -> set[str]:
    """The metrics of a workload that seem to break a bound, and that a repeated measurement could settle."""
    before, after = RunIndex(of_workload(base, workload)), RunIndex(of_workload(head, workload))
    broken: set[str] = set()
    for comparison in compare_bounds(before, after, policy):
        if comparison.outcome == "regressed" and not metric(comparison.metric).counted:
            broken.add(P99 if comparison.metric == SLA else comparison.metric)
    return broken


def bounded_metrics(policy: Policy) -> set[str]:
    limits = [judged_by(name) for name in policy.limits]
    return {budget.metric for budget in policy.budgets} | {limit.metric for limit in limits if limit is not None}


def deciding_steps(policy: Policy) -> frozenset[int]:
    """The steps that fail the whole job: the first steps, and steps with a rule. The others inform."""
    return DECIDING_STEPS | steps_with_rules(policy)


def steps_with_rules(policy: Policy) -> frozenset[int]:
    """The steps that measure a metric with a bound, or with a tolerance that turns decide."""
    return frozenset(measuring_step(name) for name in (*bounded_metrics(policy), *repeated_metrics(policy)))


# --- lost values


def bounds_with_lost_values(evidence: Evidence, policy: Policy, place: ShapePlace) -> list[str]:
    """The bounds that the head is compared with without all of their numbers, as of one batch size of several.

    The worst number of a turn is compared with the bound, so each that the base or another turn has must be there. If the head
    has none at all, its comparison reports that.
    """
    names: list[str] = []
    for workload in evidence.head.run.workloads:
        if workload.name == place.workload and place.shape in workload.shapes:
            for limit in _limits(workload, policy):
                if limit.budget.place.covers(*place) and _lacks_values(evidence, limit, place):
                    names.append(limit.name)
    return list(dict.fromkeys(names))


def _lacks_values(evidence: Evidence, limit: _Limit, place: ShapePlace) -> bool:
    """Whether a turn of the head lacks a value that another turn of either side has."""
    before = _labels_by_turn(evidence.base, limit, place)
    after = _labels_by_turn(evidence.head, limit, place)
    required: Counter[_Labels] = Counter()
    for labels in (*before, *after):
        required |= labels
    return any(required - labels for labels in after)


def _labels_by_turn(run: RunIndex, limit: _Limit, place: ShapePlace) -> Sequence[Counter[_Labels]]:
    """The labels of the values of each turn."""
    values = [value for value in limit.step_values(run, place) if limit.best_end(value) is not None]
    turns = []
    for turn, of_turn in _by_turn(values).items():
        turns.append(Counter(frozenset(value.labels.items() - {(REPEAT, turn)}) for value in of_turn))
    return turns
