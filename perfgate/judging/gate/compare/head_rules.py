"""Rules for the head alone: its own check of the output, budgets, SLAs, gating limits, and expected kernels.

A faster wrong model never passes. Only the signature of the output is compared with the base's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import judged_by, measuring_step, metric
from perfgate.catalogue.names import EXPECTED_KERNELS, P99, SIGNATURE, SLA
from perfgate.document.budget import Budget, missing_kernels
from perfgate.document.comparison import Bound, Checked, Comparison, Outcome
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.message import Message, quote
from perfgate.document.run import CORRECTNESS, REPEAT, RunDocument, ShapeKernels, Value, WorkloadRecord
from perfgate.judging.gate.compare.comparison import differing_output
from perfgate.judging.gate.compare.repeated import repeated_metrics
from perfgate.judging.gate.evidence.index import Evidence, RunIndex, of_workload
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import rounded

# The steps that a gate rests on, regardless of perfgate.toml.
DECIDING_STEPS = frozenset({1, 2, 3, 4})


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
    """Compare every correctness check of the head that has a result; the base's is shown beside it."""
    for check in head.run.correctness:
        if check.status in _CORRECT:
            before = base.checks.get(ShapePlace(check.workload, check.shape)) if base else None
            yield Checked(
                workload=check.workload,
                shape=check.shape,
                metric=CORRECTNESS,
                unit="1",
                better="neutral",
                outcome="regressed" if check.status == "failed" else "unchanged",
                gating=True,
                base=_CORRECT.get(before.status) if before else None,
                head=_CORRECT[check.status],
                reason=quote(check.message) if isinstance(check.message, str) else check.message,
            )


def compare_signatures(base: RunIndex | None, head: RunIndex) -> Iterator[Checked]:
    """Compare the output signatures that changed: an equal one is no evidence that would make a gate pass."""
    for check in head.run.correctness:
        place = ShapePlace(check.workload, check.shape)
        before = base.checks.get(place) if base else None
        if before and before.signature and check.signature and check.signature != before.signature:
            reason = Message("gate.output-changed", {"old": before.signature, "new": check.signature})
            yield differing_output(place, SIGNATURE, reason)


# --- budgets, SLAs and gating limits


_Labels = frozenset[tuple[str, str]]


class _Bound(NamedTuple):
    """A bound and its source; ``name`` is the metric's in the decision, ``labels`` select the values that it bounds."""

    budget: Budget
    name: str
    limit: str | None = None
    labels: Mapping[str, str] = {}

    def step_values(self, run: RunIndex, place: ShapePlace) -> Iterator[Value]:
        rate = None if self.budget.rate is None else f"{self.budget.rate:g}"
        for step in run.steps.get(place.workload, ()):
            for value in step.values:
                at_place = value.labels.get("shape", place.shape) == place.shape and value.labels.get("rate") == rate
                if value.metric == self.budget.metric and at_place and self.labels.items() <= value.labels.items():
                    yield value

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
        return number is not None and (
            number > self.budget.bound if self.budget.at_most else number < self.budget.bound
        )

    def badness(self, value: Value) -> float:
        end = self.best_end(value)
        return -math.inf if end is None else end if self.budget.at_most else -end


def compare_bounds(base: RunIndex | None, head: RunIndex, policy: Policy) -> list[Bound]:
    """Compare the head with every bound of each workload and shape.

    A bound is broken if the whole interval lies beyond it; then the gate fails, unless there is a base that breaks it too. A
    value with the bound inside its interval shows neither and warns; without a measurement, nothing can pass. With several
    turns, the head breaks a bound if each turn does, and the base if one does: a machine that stalls breaks a bound now and
    then, and code that is too slow does each time.
    """
    return [
        _compare_bound(base, head, bound, ShapePlace(workload.name, shape))
        for workload in head.run.workloads
        for bound in _bounds(workload, policy)
        for shape in workload.shapes
        if bound.budget.place.covers(workload.name, shape)
    ]


def _bounds(workload: WorkloadRecord, policy: Policy) -> Iterator[_Bound]:
    # An SLA is a budget set by the workload itself.
    if workload.sla_p99 is not None:
        yield _Bound(Budget(metric=P99, bound=workload.sla_p99, at_most=True, rate=workload.sla_rate), SLA)
    for budget in policy.budgets:
        yield _Bound(budget, budget.metric)
    for name, bound in policy.limits.items():
        if (judged := judged_by(name)) is not None:
            budget = Budget(metric=judged.metric, bound=bound, at_most=judged.at_most)
            yield _Bound(budget, judged.metric, name, judged.labels)


def _compare_bound(base: RunIndex | None, head: RunIndex, bound: _Bound, place: ShapePlace) -> Bound:
    budget = bound.budget
    # A turn may have several values, for example of several batch sizes: the worst counts.
    worst = [max(values, key=bound.badness) for values in _by_turn(bound.values(head, place)).values()]
    value = min(worst, key=bound.badness, default=None)
    end = bound.best_end(value) if value else None
    number: float | None = None
    outcome: Outcome = "inconclusive"
    gating = True
    reason: Message | None = None
    if value is None:
        reason = Message("gate.bound-not-measured", {"step": measuring_step(budget.metric)})
    elif bound.is_beyond(end):
        number = end if value.value is None else value.value
        if base is not None and any(bound.is_beyond(bound.best_end(before)) for before in bound.values(base, place)):
            gating, reason = False, Message("gate.base-breaks-bound")
        else:
            outcome = "regressed"
            reason = _longest_kernel(head, place) if budget.metric == "ops.kernel_time" else None
    elif value.value is None:
        reason = value.reason
    else:
        number = value.value
        if bound.is_beyond(number):
            gating, reason = False, Message("gate.interval-holds-bound")
        else:
            outcome = "unchanged"
    if budget.rate is not None:
        rate = budget.rate
        because = Message("gate.at-rate-because", {"rate": rate, "reason": reason}) if reason else None
        reason = because or Message("gate.at-rate", {"rate": rate})
    return Bound(
        workload=place.workload,
        shape=place.shape,
        metric=bound.name,
        unit=metric(bound.name).unit,
        better="lower" if budget.at_most else "higher",
        outcome=outcome,
        gating=gating,
        bound=budget.bound,
        head=None if number is None else rounded(number),
        reason=reason,
        limit=bound.limit,
    )


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


def broken_metrics(base: RunDocument, head: RunDocument, policy: Policy, *, workload: str) -> set[str]:
    """The metrics of a workload that seem to break a bound, and that a repeated measurement could settle."""
    before, after = (RunIndex(of_workload(run, workload)) for run in (base, head))
    names = {c.metric for c in compare_bounds(before, after, policy) if c.outcome == "regressed"}
    return {P99 if name == SLA else name for name in names if not metric(name).counted}


def bounded_metrics(policy: Policy) -> set[str]:
    limits = (judged_by(name) for name in policy.limits)
    return {budget.metric for budget in policy.budgets} | {limit.metric for limit in limits if limit is not None}


def deciding_steps(policy: Policy) -> frozenset[int]:
    """The steps that fail the whole job: the first ones, and those with a rule about them. The others inform."""
    return DECIDING_STEPS | steps_with_rules(policy)


def steps_with_rules(policy: Policy) -> frozenset[int]:
    """The steps that measure a metric with a bound, or with a tolerance that turns decide."""
    return frozenset(measuring_step(name) for name in (*bounded_metrics(policy), *repeated_metrics(policy)))


def bounds_with_lost_values(evidence: Evidence, policy: Policy, place: ShapePlace) -> list[str]:
    """The bounds that the head is compared with without all of their numbers, as of one batch size of several.

    The worst number of a turn is compared with the bound, so each that the base or another turn has must be there. If the head
    has none at all, its comparison reports that.
    """
    names = []
    for workload in evidence.head.run.workloads:
        lists_place = workload.name == place.workload and place.shape in workload.shapes
        for bound in _bounds(workload, policy) if lists_place else ():
            before, after = (_labels_by_turn(side, bound, place) for side in (evidence.base, evidence.head))
            required: Counter[_Labels] = Counter()
            for labels in (*before.values(), *after.values()):
                required |= labels
            if bound.budget.place.covers(*place) and any(required - labels for labels in after.values()):
                names.append(bound.name)
    return list(dict.fromkeys(names))


def _labels_by_turn(run: RunIndex, bound: _Bound, place: ShapePlace) -> dict[str, Counter[_Labels]]:
    values = [value for value in bound.step_values(run, place) if bound.best_end(value) is not None]
    labels: dict[str, Counter[_Labels]] = {}
    for turn, of_turn in _by_turn(values).items():
        labels[turn] = Counter(frozenset(value.labels.items() - {(REPEAT, turn)}) for value in of_turn)
    return labels


# --- [expect] kernels


def compare_expected_kernels(head: RunIndex, policy: Policy) -> Iterator[Bound]:
    """Compare, workload by workload, the names of kernels that ran in any shape with the patterns that are expected.

    The head alone is judged, for a base that runs none of them is no excuse. Without recorded names, nothing is shown.
    """
    for workload in head.run.workloads if policy.kernels else ():
        kernels: list[ShapeKernels] = []
        for step in head.steps.get(workload.name, ()):
            kernels += step.kernels
        names: set[str] = set()
        for entry in kernels:
            names.update(entry.names)
        missing = missing_kernels(policy.kernels, names)
        outcome: Outcome = "inconclusive"
        reason: Message | None = None
        if not kernels:
            reason = Message("gate.kernels-not-kept")
        elif not missing:
            outcome = "unchanged"
        elif any(entry.left_out for entry in kernels):
            reason = Message("gate.kernels-left-out")
        else:
            outcome = "regressed"
            named = [
                Message("gate.kernel-missing", {"kernel": pattern, "nearest": nearest})
                for pattern, nearest in missing.items()
            ]
            reason = Message("gate.kernels-missing", {"kernels": named})
        yield Bound(
            workload=workload.name,
            shape="",
            metric=EXPECTED_KERNELS,
            unit=metric(EXPECTED_KERNELS).unit,
            better=metric(EXPECTED_KERNELS).better,
            outcome=outcome,
            gating=True,
            bound=len(policy.kernels),
            head=None if outcome == "inconclusive" else sum(pattern not in missing for pattern in policy.kernels),
            reason=reason,
            parts=[Part(name=pattern, base=1, head=0) for pattern in missing] if outcome == "regressed" else [],
        )
