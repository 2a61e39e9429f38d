"""The bounds of budgets, SLAs and gating limits, and the values that they bound."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import judged_by, measuring_step
from perfgate.catalogue.names import P99, SLA
from perfgate.document.budget import Budget
from perfgate.document.decision import Policy
from perfgate.document.run import REPEAT, Value, WorkloadRecord
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.tolerance import repeated_metrics

# The steps that a gate rests on, regardless of perfgate.toml.
DECIDING_STEPS = frozenset({1, 2, 3, 4})

_Labels = frozenset[tuple[str, str]]


class HeadBound(NamedTuple):
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
        rate: str | None = None
        if self.budget.rate is not None:
            rate = f"{self.budget.rate:g}"
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
        if end is None:
            return value.value
        return end

    def is_beyond(self, number: float | None) -> bool:
        return number is not None and self._sign * number > self._sign * self.budget.bound

    def badness(self, value: Value) -> float:
        end = self.best_end(value)
        if end is None:
            return -math.inf
        return self._sign * end

    @property
    def _sign(self) -> float:
        """Makes a larger number worse."""
        if self.budget.at_most:
            return 1.0
        return -1.0

    def is_broken_by(self, run: RunIndex, place: ShapePlace) -> bool:
        """Whether any turn of a run breaks it."""
        return any(self.is_beyond(self.best_end(value)) for value in self.values(run, place))


def bounds_of(workload: WorkloadRecord, policy: Policy) -> Iterator[HeadBound]:
    # An SLA is a budget set by the workload itself.
    if workload.sla_p99 is not None:
        yield HeadBound(Budget(metric=P99, bound=workload.sla_p99, at_most=True, rate=workload.sla_rate), SLA)
    for budget in policy.budgets:
        yield HeadBound(budget, budget.metric)
    for name, bound in policy.limits.items():
        judged = judged_by(name)
        if judged is not None:
            budget = Budget(metric=judged.metric, bound=bound, at_most=judged.at_most)
            yield HeadBound(budget, judged.metric, name, judged.labels)


def by_turn(values: Iterable[Value]) -> dict[str, list[Value]]:
    turns: dict[str, list[Value]] = {}
    for value in values:
        turns.setdefault(value.labels.get(REPEAT, ""), []).append(value)
    return turns


def bounded_metrics(policy: Policy) -> set[str]:
    metrics = {budget.metric for budget in policy.budgets}
    for name in policy.limits:
        limit = judged_by(name)
        if limit is not None:
            metrics.add(limit.metric)
    return metrics


def deciding_steps(policy: Policy) -> frozenset[int]:
    """The steps that fail the whole job: the first steps, and steps with a rule. The others inform."""
    return DECIDING_STEPS | steps_with_rules(policy)


def steps_with_rules(policy: Policy) -> frozenset[int]:
    """The steps that measure a metric with a bound, or with a tolerance that turns decide."""
    return frozenset(map(measuring_step, (*bounded_metrics(policy), *repeated_metrics(policy))))


# --- lost values


def bounds_with_lost_values(evidence: Evidence, policy: Policy, place: ShapePlace) -> list[str]:
    """The bounds that the head is compared with without all of their numbers, as of one batch size of several.

    The worst number of a turn is compared with the bound, so each that the base or another turn has must be there. If the head
    has none at all, its comparison reports that.
    """
    names = []
    for workload in evidence.head.records_of(place.workload):
        if place.shape in workload.shapes:
            for limit in bounds_of(workload, policy):
                if limit.budget.place.covers(*place) and _lacks_values(evidence, limit, place):
                    names.append(limit.name)
    return list(dict.fromkeys(names))


def _lacks_values(evidence: Evidence, limit: HeadBound, place: ShapePlace) -> bool:
    """Whether a turn of the head lacks a value that another turn of either side has."""
    before = _labels_by_turn(evidence.base, limit, place)
    after = _labels_by_turn(evidence.head, limit, place)
    required: Counter[_Labels] = Counter()
    for labels in (*before, *after):
        required |= labels
    return any(required - labels for labels in after)


def _labels_by_turn(run: RunIndex, limit: HeadBound, place: ShapePlace) -> Sequence[Counter[_Labels]]:
    """The labels of the values of each turn."""
    turns: dict[str, Counter[_Labels]] = defaultdict(Counter)
    for value in limit.step_values(run, place):
        if limit.best_end(value) is not None:
            turn = value.labels.get(REPEAT, "")
            turns[turn][frozenset(value.labels.items() - {(REPEAT, turn)})] += 1
    return list(turns.values())
