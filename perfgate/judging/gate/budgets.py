"""Budgets, SLAs and gating limits: the head held against an absolute bound, whatever the base was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import judged_by, measuring_step, metric
from perfgate.catalogue.names import P99, SLA
from perfgate.document.budget import Budget
from perfgate.document.decision import Comparison, Method, Outcome, Policy
from perfgate.document.run import RunDocument, Value, WorkloadRecord
from perfgate.judging.gate.rounding import rounded


class _Bound(NamedTuple):
    """A bound and where it comes from; ``name`` is the metric's in the decision, ``labels`` tell the values it is about."""

    budget: Budget
    name: str
    method: Method = "budget"
    limit: str | None = None
    labels: Mapping[str, str] = {}


def compare_budgets(base: RunDocument | None, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Return one comparison per bound of each workload and shape; ``base`` in it is the bound.

    A bound is broken where the whole interval lies beyond it; then the gate fails, unless there is a base that breaks it too.
    A value whose interval holds the bound shows neither and warns; where nothing was measured, nothing can pass. What was
    measured several times (label ``attempt``) counts as broken by the head where each attempt breaks it, and by the base where
    one does: a machine that stalls breaks a bound now and then, and code that is too slow does each time.
    """
    return [
        comparison
        for workload in head.workloads
        for bound in _of_workload(workload, policy)
        for shape in workload.shapes
        if bound.budget.place.covers(workload.name, shape)
        for comparison in _compare(base, head, bound, workload.name, shape)
    ]


def broken_metrics(base: RunDocument, head: RunDocument, policy: Policy, *, workload: str) -> set[str]:
    """Return the metrics of a workload that seem to break a bound, and that measuring again could tell about."""
    found = compare_budgets(base, head, policy)
    names = {one.metric for one in found if one.workload == workload and one.outcome == "regressed"}
    return {P99 if name == SLA else name for name in names if not metric(name).counted}


def bounds_with_lost_values(
    base: RunDocument, head: RunDocument, policy: Policy, workload: str, shape: str
) -> list[str]:
    """Return the bounds that the head is held to without all of their numbers, as of one batch size of several.

    The worst number of an attempt is held to the bound, so each that the base or another attempt has must be there.
    Where the head has none at all, its comparison says so.
    """
    lost = []
    for bound in _bounds(head, policy, workload, shape):
        before, after = (_labels_by_attempt(run, bound, workload, shape) for run in (base, head))
        wanted: Counter[_Labels] = Counter()
        for labels in (*before.values(), *after.values()):
            wanted |= labels
        if any(wanted - labels for labels in after.values()):
            lost.append(bound.name)
    return list(dict.fromkeys(lost))


_Labels = frozenset[tuple[str, str]]


def _labels_by_attempt(run: RunDocument, bound: _Bound, workload: str, shape: str) -> dict[str, Counter[_Labels]]:
    attempts: dict[str, Counter[_Labels]] = {}
    for value in _of_steps(run, bound, workload, shape):
        if _best_end(value, bound.budget) is not None:
            attempt = value.labels.get("attempt", "")
            labels = frozenset(label for label in value.labels.items() if label[0] != "attempt")
            attempts.setdefault(attempt, Counter())[labels] += 1
    return attempts


def _bounds(run: RunDocument, policy: Policy, workload: str, shape: str) -> Iterator[_Bound]:
    records = (record for record in run.workloads if record.name == workload and shape in record.shapes)
    bounds = (bound for record in records for bound in _of_workload(record, policy))
    return (bound for bound in bounds if bound.budget.place.covers(workload, shape))


def bounded_metrics(policy: Policy) -> set[str]:
    """Return the metrics that a budget or a gating limit is set on."""
    judged = (judged_by(name) for name in policy.limits)
    return {budget.metric for budget in policy.budgets} | {found.metric for found in judged if found is not None}


def _of_workload(workload: WorkloadRecord, policy: Policy) -> Iterator[_Bound]:
    """Yield each bound: an SLA is the budget that a workload sets itself."""
    if workload.sla_p99 is not None:
        budget = Budget(metric=P99, bound=workload.sla_p99, at_most=True, rate=workload.sla_rate)
        yield _Bound(budget, SLA)
    for budget in policy.budgets:
        yield _Bound(budget, budget.metric)
    for name, bound in policy.limits.items():
        if (judged := judged_by(name)) is not None:
            budget = Budget(metric=judged.metric, bound=bound, at_most=judged.at_most)
            yield _Bound(budget, judged.metric, "limit", name, judged.labels)


def _compare(
    base: RunDocument | None, head: RunDocument, bound: _Bound, workload: str, shape: str
) -> Iterator[Comparison]:
    budget = bound.budget
    after = _best_attempt(_measured(head, bound, workload, shape), budget)
    if after is None or (after.value is None and not _breaks(after, budget)):
        reason = _not_measured(budget) if after is None else after.reason
        yield _comparison(bound, workload, shape, "inconclusive", gating=True, reason=reason)
        return
    broken_before = base is not None and any(
        _breaks(value, budget) for value in _measured(base, bound, workload, shape)
    )
    outcome, reason = _outcome(after, budget, broken_before=broken_before)
    if outcome == "regressed" and budget.metric == "ops.kernel_time":
        reason = _longest(head, workload, shape)
    yield _comparison(bound, workload, shape, outcome, gating=outcome != "inconclusive", reason=reason, value=after)


def _outcome(after: Value, budget: Budget, *, broken_before: bool) -> tuple[Outcome, str | None]:
    if _breaks(after, budget):
        return ("inconclusive", "the base breaks this bound too") if broken_before else ("regressed", None)
    if after.value is not None and _beyond(after.value, budget):
        return "inconclusive", "the value is beyond the bound, and its interval still holds it"
    return "unchanged", None


def _comparison(
    bound: _Bound,
    workload: str,
    shape: str,
    outcome: Outcome,
    *,
    gating: bool,
    reason: str | None,
    value: Value | None = None,
) -> Comparison:
    budget = bound.budget
    described = metric(bound.name)
    head = None if value is None else _best_end(value, budget) if value.value is None else value.value
    return Comparison(
        workload=workload,
        shape=shape,
        metric=bound.name,
        unit=described.unit,
        better="lower" if budget.at_most else "higher",
        method=bound.method,
        outcome=outcome,
        gating=gating,
        base=budget.bound,
        head=None if head is None else rounded(head),
        reason=reason if budget.rate is None else f"at {budget.rate:g} calls a second{f': {reason}' if reason else ''}",
        limit=bound.limit,
    )


def _longest(head: RunDocument, workload: str, shape: str) -> str | None:
    """Say which operator's run is the longest."""
    kernels = [kept for step in head.steps if step.workload == workload for kept in step.kernels if kept.shape == shape]
    return next((f"one run of {kept.longest}" for kept in kernels if kept.longest), None)


def _not_measured(budget: Budget) -> str:
    return f"step {measuring_step(budget.metric)} measured no such value; name the step with --steps"


def _measured(run: RunDocument, bound: _Bound, workload: str, shape: str) -> Iterator[Value]:
    """Return the values a bound is about: of the steps, and of the exact counters."""
    budget = bound.budget
    yield from _of_steps(run, bound, workload, shape)
    for counters in run.counters:
        if (counters.workload, counters.shape) == (workload, shape) and budget.metric in counters.values:
            yield Value(metric=budget.metric, value=float(counters.values[budget.metric]))


def _of_steps(run: RunDocument, bound: _Bound, workload: str, shape: str) -> Iterator[Value]:
    budget = bound.budget
    wanted = None if budget.rate is None else f"{budget.rate:g}"
    for step in run.steps:
        for value in step.values if step.workload == workload else ():
            of_shape = value.labels.get("shape", shape) == shape and value.labels.get("rate") == wanted
            if value.metric == budget.metric and of_shape and bound.labels.items() <= value.labels.items():
                yield value


def _best_attempt(values: Iterable[Value], budget: Budget) -> Value | None:
    """Return the value of the attempt that lies best: of each the one furthest beyond, as of several batch sizes."""
    attempts: dict[str, list[Value]] = {}
    for value in values:
        attempts.setdefault(value.labels.get("attempt", ""), []).append(value)
    worst = [max(attempt, key=lambda value: _badness(value, budget)) for attempt in attempts.values()]
    return min(worst, key=lambda value: _badness(value, budget), default=None)


def _badness(value: Value, budget: Budget) -> float:
    end = _best_end(value, budget)
    return -math.inf if end is None else end if budget.at_most else -end


def _best_end(value: Value, budget: Budget) -> float | None:
    """Return the end of the interval that lies best for the bound, or the value itself where it has none."""
    low, high = value.interval or (None, None)
    end = low if budget.at_most else high
    return value.value if end is None else end


def _breaks(value: Value, budget: Budget) -> bool:
    end = _best_end(value, budget)
    return end is not None and _beyond(end, budget)


def _beyond(number: float, budget: Budget) -> bool:
    return number > budget.bound if budget.at_most else number < budget.bound
