"""The numbers of the head that rules judge: bounds of budgets, SLAs and gating limits,
checks, and expected kernels.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.lookup import judged_by, measuring_step
from perfgate.catalogue.names import P99, SLA
from perfgate.document.budget import Budget
from perfgate.document.decision import Policy
from perfgate.document.job import JobKind
from perfgate.document.run import (
    REPEAT,
    CorrectnessResult,
    ShapeKernels,
    Value,
    WorkloadRecord,
)
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.evidence.tolerance import repeated_metrics
from perfgate.stats.summary import CONFIDENCE, quantile

# The steps that a gate rests on, regardless of perfgate.toml.
DECIDING_STEPS = frozenset({1, 2, 3, 4})

_Labels = frozenset[tuple[str, str]]


class HeadBound(NamedTuple):
    """A bound and its source; ``name`` is the metric's in the decision, ``labels``
    select the values that it bounds.
    """

    budget: Budget
    name: str
    limit: str | None = None
    labels: Mapping[str, str] = {}

    def values(self, run: RunIndex, place: ShapePlace) -> Iterator[Value]:
        """Yield the values of the metric at a place, of the rate and the labels."""
        name = self.budget.metric
        rate: str | None = None
        if self.budget.rate is not None:
            rate = f"{self.budget.rate:g}"
        for step in run.steps.get(place.workload, ()):
            for value in step.values:
                labels = value.labels
                is_at_place = labels.get("shape", place.shape) == place.shape
                is_at_rate = labels.get("rate") == rate
                has_labels = self.labels.items() <= labels.items()
                is_of_metric = value.metric == name
                if is_of_metric and is_at_place and is_at_rate and has_labels:
                    yield value
        counters = run.counters.get(place)
        if counters and name in counters.values:
            yield Value(metric=name, value=float(counters.values[name]))

    def best_end(self, value: Value) -> float | None:
        """The end of the interval that is best for the bound, or the value itself if it
        has no interval.
        """
        low, high = value.interval or (None, None)
        end = low if self.budget.at_most else high
        if end is None:
            return value.value
        return end

    def is_beyond(self, number: float | None) -> bool:
        return (
            number is not None and self._sign * number > self._sign * self.budget.bound
        )

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


class BoundedNumber(NamedTuple):
    """A number with a bound at a place: the values of all turns of the head, and of the
    base if there is one.

    Of a bound on the longest kernel, ``kernel`` is its name.
    """

    place: ShapePlace
    bound: HeadBound
    head: Sequence[Value]
    base: Sequence[Value] = ()
    kernel: str | None = None

    @property
    def is_broken_by_base(self) -> bool:
        """Whether any turn of the base breaks it."""
        return any(
            self.bound.is_beyond(self.bound.best_end(value)) for value in self.base
        )

    @property
    def lacks_values(self) -> bool:
        """Whether a turn of the head lacks a value that another turn of either side
        has, as of one batch size of several.

        The worst number of a turn is compared with the bound, so each must be there. If
        the head has none at all, its comparison reports that.
        """
        after = self._labels_by_turn(self.head)
        required: Counter[_Labels] = Counter()
        for labels in (*self._labels_by_turn(self.base), *after):
            required |= labels
        return any(required - labels for labels in after)

    def _labels_by_turn(self, values: Iterable[Value]) -> Sequence[Counter[_Labels]]:
        """The labels of the values of each turn."""
        turns: dict[str, Counter[_Labels]] = defaultdict(Counter)
        for value in values:
            if self.bound.best_end(value) is not None:
                turn = value.labels.get(REPEAT, "")
                turns[turn][frozenset(value.labels.items() - {(REPEAT, turn)})] += 1
        return list(turns.values())


class OutputCheck(NamedTuple):
    """The check of an output on the head, and on the base if there is one."""

    head: CorrectnessResult
    base: CorrectnessResult | None


class HeadNumbers(NamedTuple):
    """The rows that rules judge, of a head with a base or without."""

    checks: list[OutputCheck]
    bounded: list[BoundedNumber]
    # The kernels that ran in the shapes of each workload.
    kernels: dict[str, list[ShapeKernels]]

    @classmethod
    def of(cls, base: RunIndex | None, head: RunIndex, policy: Policy) -> HeadNumbers:
        checks = []
        for check in head.correctness:
            checks.append(
                OutputCheck(check, base.checks.get(check.place) if base else None)
            )
        kernels = {}
        for workload in head.workloads:
            shapes: list[ShapeKernels] = []
            for step in head.steps.get(workload.name, ()):
                shapes += step.kernels
            kernels[workload.name] = shapes
        bounded = [
            *_bounded_numbers(base, head, policy),
            *_bounded_numbers_of_jobs(base, head, policy),
        ]
        return cls(checks, bounded, kernels)


def _bounded_numbers(
    base: RunIndex | None, head: RunIndex, policy: Policy
) -> Iterator[BoundedNumber]:
    for workload in head.workloads:
        for bound in bounds_of(workload, policy):
            for shape in workload.shapes:
                place = ShapePlace(workload.name, shape)
                if bound.budget.place.covers(*place):
                    values = list(bound.values(head, place))
                    of_base = list(bound.values(base, place)) if base else ()
                    yield BoundedNumber(
                        place,
                        bound,
                        values,
                        of_base,
                        _longest_kernel(head, bound, place),
                    )


# The metrics of the catalogue that jobs of a kind measure begin with this.
_OF_KIND: Mapping[JobKind, str] = {
    "server": "serving.",
    "ranks": "ranks.",
    "command": "command.",
}


def _bounded_numbers_of_jobs(
    base: RunIndex | None, head: RunIndex, policy: Policy
) -> Iterator[BoundedNumber]:
    """Yield the numbers of jobs with a budget: those that a side reports, and those
    that it should, by its kind or by name.
    """
    for name, record in head.jobs.items():
        place = ShapePlace(name, "")
        for budget in policy.budgets:
            if not budget.place.covers(*place) or budget.rate is not None:
                continue
            values = _typical_turn(head, name, budget.metric)
            of_base = _typical_turn(base, name, budget.metric) if base else []
            is_due = budget.workload == name or budget.metric.startswith(
                _OF_KIND[record.kind]
            )
            if values or of_base or is_due:
                bound = HeadBound(budget, budget.metric)
                yield BoundedNumber(place, bound, values, of_base)


def _typical_turn(run: RunIndex, job: str, metric: str) -> list[Value]:
    """The median of a number over the turns of a job, with its interval; empty if no
    turn has it.
    """
    numbers = [
        turn.values[metric] for turn in run.turns.get(job, ()) if metric in turn.values
    ]
    if not numbers:
        return []
    median = quantile(np.array(numbers), 0.5)
    return [
        Value(
            metric=metric,
            value=median.value,
            interval=median.interval,
            confidence=CONFIDENCE,
            count=median.size,
        )
    ]


def _longest_kernel(head: RunIndex, bound: HeadBound, place: ShapePlace) -> str | None:
    if bound.budget.metric == "ops.kernel_time":
        for step in head.steps.get(place.workload, ()):
            for kernels in step.kernels:
                if kernels.shape == place.shape and kernels.longest:
                    return kernels.longest
    return None


def bounds_of(workload: WorkloadRecord, policy: Policy) -> Iterator[HeadBound]:
    # An SLA is a budget set by the workload itself.
    if workload.sla_p99 is not None:
        yield HeadBound(
            Budget(
                metric=P99, bound=workload.sla_p99, at_most=True, rate=workload.sla_rate
            ),
            SLA,
        )
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
    """The steps that fail the whole job: the first steps, and steps with a rule. The
    others inform.
    """
    return DECIDING_STEPS | steps_with_rules(policy)


def steps_with_rules(policy: Policy) -> frozenset[int]:
    """The steps that measure a metric with a bound, or with a tolerance that turns
    decide.
    """
    return frozenset(
        map(measuring_step, (*bounded_metrics(policy), *repeated_metrics(policy)))
    )
