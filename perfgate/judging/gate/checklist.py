"""The checklist of both sides, number by number: what informs beside the verdict, and how far it may be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import LIMITS, METRICS, judged_by
from perfgate.document.decision import Comparison, Policy, StepComparison
from perfgate.document.run import REPEAT, RunDocument, Value
from perfgate.judging.gate.comparison import relative_change, rounded, zero_of
from perfgate.stats.summary import ratio_interval

# The labels of a value that was measured again, of a call rate, or of a stretch of the calls: none is the step's own number.
_NOT_THE_NUMBER = {"attempt", "rate", "stretch", REPEAT}


class Number(NamedTuple):
    """Which number of the checklist: of a step, a workload, its shape, a metric and the labels beside the shape."""

    step: int
    workload: str
    shape: str
    metric: str
    labels: tuple[tuple[str, str], ...]


def leading_numbers(run: RunDocument) -> dict[Number, Value]:
    """The numbers that the steps of a run are read by, in the order in which they stand in the document."""
    return {
        Number(step.number, step.workload, value.labels.get("shape", ""), value.metric, _labels(value)): value
        for step in run.steps
        for value in step.values
        if value.metric in METRICS and METRICS[value.metric].leading and not _NOT_THE_NUMBER & value.labels.keys()
    }


def compare_checklist(
    base: RunDocument, head: RunDocument, comparisons: Iterable[Comparison], policy: Policy
) -> list[StepComparison]:
    """Compare every number that a side has, in the order of steps. What the decision compares already is taken from there."""
    decided = list(comparisons)
    paired = {(c.workload, c.shape, c.metric): c for c in decided if c.method in ("paired", "repeated")}
    before, after = leading_numbers(base), leading_numbers(head)
    bounds = _bounds(decided, policy)
    rows = []
    for number in sorted({**before, **after}, key=lambda number: number.step):
        row = _compare(number, before.get(number), after.get(number))
        pairs = None if number.labels else paired.get((number.workload, number.shape, number.metric))
        if pairs is not None and pairs.outcome != "not_comparable":
            row = _from_pairs(row, pairs)
        if row.base is not None or row.head is not None:
            rows.append(_with_bound(row, bounds))
    return rows


def _labels(value: Value) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, text) for name, text in value.labels.items() if name != "shape"))


def _compare(number: Number, before: Value | None, after: Value | None) -> StepComparison:
    base = None if before is None else before.value
    head = None if after is None else after.value
    row = StepComparison(
        step=number.step,
        workload=number.workload,
        shape=number.shape,
        metric=number.metric,
        labels=dict(number.labels),
        unit=METRICS[number.metric].unit,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
    )
    if before is None or after is None or base is None or head is None:
        return row
    zero = zero_of(number.metric)
    row = msgspec.structs.replace(row, delta=relative_change(zero + base, zero + head))
    ends = ratio_interval((zero + base, _ends(before, zero)), (zero + head, _ends(after, zero)))
    if ends is None:
        return row
    levels = [value.confidence for value in (before, after) if value.confidence is not None]
    return msgspec.structs.replace(
        row,
        interval=(rounded(math.expm1(ends[0])), rounded(math.expm1(ends[1]))),
        confidence=min(levels, default=None),
    )


def _ends(value: Value, zero: float) -> tuple[float | None, float | None] | None:
    if value.interval is None:
        return None
    low, high = value.interval
    return None if low is None else zero + low, None if high is None else zero + high


def _from_pairs(row: StepComparison, pairs: Comparison) -> StepComparison:
    return msgspec.structs.replace(
        row,
        base=pairs.base,
        head=pairs.head,
        delta=pairs.delta,
        interval=pairs.interval,
        confidence=pairs.confidence,
        clock=pairs.clock,
        tolerance=pairs.tolerance if pairs.gating else None,
        paired=True,
    )


class _Bound(NamedTuple):
    bound: float
    at_most: bool
    labels: Mapping[str, str] = {}


def _bounds(comparisons: Iterable[Comparison], policy: Policy) -> dict[tuple[str, ...], _Bound]:
    """What bounds a number: a budget by metric and place, or a limit of the checklist by metric alone."""
    bounds: dict[tuple[str, ...], _Bound] = {}
    # Of several limits on a number the table shows the one that gates, else the one that warns.
    by_severity = [name for end in (".info", ".severe", ".warning") for name in LIMITS if name.endswith(end)]
    for name in (*by_severity, *policy.limits):
        if (judged := judged_by(name)) is not None:
            number = policy.limits.get(name, float(LIMITS[name].default))
            bounds[(judged.metric,)] = _Bound(number, judged.at_most, judged.labels)
    for c in comparisons:
        if c.method == "budget" and c.base is not None:
            bounds[c.metric, c.workload, c.shape] = _Bound(c.base, c.better == "lower")
    return bounds


def _with_bound(row: StepComparison, bounds: Mapping[tuple[str, ...], _Bound]) -> StepComparison:
    bound = bounds.get((row.metric, row.workload, row.shape)) or bounds.get((row.metric,))
    if bound is None or not bound.labels.items() <= row.labels.items():
        return row
    return msgspec.structs.replace(row, bound=bound.bound, at_most=bound.at_most)
