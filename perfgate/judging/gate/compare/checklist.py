"""The checklist of both sides, number by number: information beside the verdict.

A difference is shown only for numbers measured side by side, in pairs or in turns, and for exact counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perfgate.catalogue.lookup import CARDS, LIMITS, METRICS, judged_by
from perfgate.catalogue.names import BATCH_BEST, BATCH_KNEE, OPERATOR_SHARE
from perfgate.catalogue.records import JudgedValue
from perfgate.document.comparison import Bound, Comparison, EvidenceUnit, Paired
from perfgate.document.decision import Invalid, Policy, StepComparison, StepEvidence
from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.judging.gate.compare.rule import Errors, interval, pairs_to_decide, single_interval
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import ChecklistNumber
from perfgate.judging.gate.evidence.values import change_of, relative_change, rounded, zero_of
from perfgate.stats.summary import CONFIDENCE

KNEE_GAIN = "batch.knee.gain"
# So many operators stand for the step that lists them.
_NAMED_OPERATORS = 3
_SEVERITIES = ("info", "severe", "warning")


def compare_checklist(
    evidence: Evidence,
    comparisons: Iterable[Comparison],
    policy: Policy,
    *,
    invalid: Iterable[Invalid],
) -> list[StepComparison]:
    """Compare every number that a side has, in the order of steps, reusing the comparisons that the decision already has.

    Times of ``invalid`` places prove nothing, so they have no difference here either.
    """
    set_aside = _places_of(invalid)
    decided = list(comparisons)
    measured = [c for c in decided if isinstance(c, Paired) and not c.is_of_job]
    paired = {(c.workload, c.shape, c.metric): c for c in measured}
    before, after = evidence.base.leading, evidence.head.leading
    bounds = [c for c in decided if isinstance(c, Bound) and c.is_budget]
    budgets = {(c.metric, c.workload, c.shape): c for c in bounds}
    limits = _limits(policy)
    rows = []
    for number in sorted({**before, **after}, key=lambda number: number.step):
        row = _as_measured(number, before.get(number), after.get(number))
        pairs = None if number.labels else paired.get((number.workload, number.shape, number.metric))
        if pairs is not None and pairs.outcome != "not_comparable":
            row = _from_comparison(row, pairs)
        elif METRICS[number.metric].kind == "exact":
            if row.base is not None and row.head is not None:
                row = msgspec.structs.replace(row, evidence="count", delta=relative_change(row.base, row.head))
        elif (number.workload, number.shape) in set_aside:
            pass
        elif number.metric in (BATCH_KNEE, BATCH_BEST):
            row = _from_sizes(row, number, evidence, policy)
        elif (constant := evidence.numbers.constant(number)) is not None:
            row = msgspec.structs.replace(
                row, evidence="count", base=rounded(constant), head=rounded(constant), delta=0.0
            )
        elif not isinstance(found := evidence.numbers.get(number), Message) and found.differences.size > 1:
            row = _from_turns(row, found, policy)
        if row.base is not None or row.head is not None:
            rows.append(_with_bound(row, budgets.get((row.metric, row.workload, row.shape)), limits.get(row.metric)))
    return _with_leading(_operators_by_share(rows))


def _places_of(invalid: Iterable[Invalid]) -> set[tuple[str, str]]:
    """The places with invalid times, and the workloads as a whole."""
    places: set[tuple[str, str]] = set()
    for entry in invalid:
        places |= {entry.place, (entry.workload, "")}
    return places


def _operators_by_share(rows: Sequence[StepComparison]) -> list[StepComparison]:
    """The rows in the order of steps, with the operators of each shape by their share on head, largest first."""
    shapes = list(dict.fromkeys((row.workload, row.shape) for row in rows))

    def place(row: StepComparison) -> tuple[int, int, float]:
        if row.metric != OPERATOR_SHARE:
            return row.step, -1, 0.0
        return row.step, shapes.index((row.workload, row.shape)), -(row.head or 0.0)

    return sorted(rows, key=place)


def _with_leading(rows: list[StepComparison]) -> list[StepComparison]:
    """The rows, with those marked that stand for their step and workload. Which they are does not depend on differences."""
    of_steps: dict[tuple[int, str], list[StepComparison]] = {}
    for row in rows:
        of_steps.setdefault((row.step, row.workload), []).append(row)
    marked: set[int] = set()
    for (step, _), of_step in of_steps.items():
        marked.update(map(id, _leading_rows(step, of_step)))
    return [msgspec.structs.replace(row, leads=True) if id(row) in marked else row for row in rows]


def _leading_rows(step: int, rows: Sequence[StepComparison]) -> Sequence[StepComparison]:
    """The rows of the first measured metric that the step's card names; a step of another package may name none."""
    names = CARDS[step].leading if step in CARDS else ()
    for name in names:
        of_metric = [row for row in rows if row.metric == name]
        if of_metric:
            return _of_first_shape(of_metric)
    return [] if names else rows[:1]


def _of_first_shape(rows: Sequence[StepComparison]) -> Sequence[StepComparison]:
    """The row of head's first shape with the fewest labels; of operators, which are sorted, the first few."""
    first = next((row for row in rows if row.head is not None), rows[0])
    of_shape = [row for row in rows if row.shape == first.shape]
    fewest = min(len(row.labels) for row in of_shape)
    least_labelled = [row for row in of_shape if len(row.labels) == fewest]
    if first.metric != OPERATOR_SHARE:
        return least_labelled[:1]
    return least_labelled[:_NAMED_OPERATORS]


def _as_measured(number: ChecklistNumber, before: Value | None, after: Value | None) -> StepComparison:
    """The value that each side measured by itself, without a difference."""
    base, head = (None if value is None else value.value for value in (before, after))
    return StepComparison(
        step=number.step,
        workload=number.workload,
        shape=number.shape,
        metric=number.metric,
        labels=dict(number.labels),
        unit=METRICS[number.metric].unit,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
        base_range=_range_of(before),
        head_range=_range_of(after),
    )


def _range_of(value: Value | None) -> tuple[float, float] | None:
    """The interval of a whole number that is not counted, such as a batch size."""
    if value is None or value.interval is None or not METRICS[value.metric].whole:
        return None
    low, high = value.interval
    return None if low is None or high is None else (rounded(low), rounded(high))


def _from_turns(row: StepComparison, number: PairedEffect, policy: Policy) -> StepComparison:
    zero, head = zero_of(row.metric), number.head
    delta = 0.0 if number.base == head else relative_change(zero + number.base, zero + head)
    if number.evidence == "pair":
        bounds = interval(number.differences, Errors(policy.alpha, policy.alpha_ok, tuple(policy.looks)))
    else:
        bounds = single_interval(number.differences)
    is_resolved = bounds is not None and not bounds.low <= 0.0 <= bounds.high
    needed = None if is_resolved else pairs_to_decide(number.differences, excluded=0.0)
    return msgspec.structs.replace(
        row,
        evidence=_of_step(number.evidence),
        base=rounded(number.base),
        head=rounded(head),
        delta=delta if bounds else None,
        interval=(rounded(change_of(bounds.low)), rounded(change_of(bounds.high))) if bounds else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        pairs=number.differences.size,
        pairs_needed=needed if needed is not None and needed <= policy.looks[-1] else None,
        clock=number.clock,
    )


def _from_sizes(row: StepComparison, number: ChecklistNumber, evidence: Evidence, policy: Policy) -> StepComparison:
    """The row of the batch knee or of the best size, which the rates of all turns show more exactly than each turn does.

    A size lies within its range at level ``CONFIDENCE``, so the ratio of two lies within that of their ranges at level
    ``2 * CONFIDENCE - 1`` or higher (Bonferroni). What a side did not reach, or an SLA bounds, is not compared.
    """
    if number.metric == BATCH_KNEE:
        gain = policy.limits.get(KNEE_GAIN, float(LIMITS[KNEE_GAIN].default))
        sizes = evidence.numbers.knees(number, gain)
    else:
        sizes = None if _has_promise(evidence, number) else evidence.numbers.best_sizes(number)
    if sizes is None:
        return row
    before, after = sizes
    return msgspec.structs.replace(
        row,
        evidence="turn",
        base=float(before.size),
        head=float(after.size),
        base_range=(float(before.earliest), float(before.shown)),
        head_range=(float(after.earliest), float(after.shown)),
        delta=relative_change(before.size, after.size),
        interval=(relative_change(before.shown, after.earliest), relative_change(before.earliest, after.shown)),
        confidence=rounded(2 * CONFIDENCE - 1),
        pairs=before.visits,
    )


def _has_promise(evidence: Evidence, number: ChecklistNumber) -> bool:
    """Whether an SLA chooses the best size: by latencies, which the turns do not have."""
    promises = {record.name: record.sla_p99 for record in evidence.head.run.workloads}
    return promises.get(number.workload) is not None


def _of_step(unit: EvidenceUnit) -> StepEvidence:
    return "pair" if unit == "pair" else "turn"


def _from_comparison(row: StepComparison, pairs: Paired) -> StepComparison:
    return msgspec.structs.replace(
        row,
        evidence=_of_step(pairs.evidence),
        base=pairs.base,
        head=pairs.head,
        delta=pairs.delta if pairs.interval else None,
        interval=pairs.interval,
        confidence=pairs.confidence,
        pairs=pairs.pairs,
        clock=pairs.clock,
        tolerance=pairs.tolerance if pairs.gating else None,
    )


def _limits(policy: Policy) -> dict[str, tuple[float, JudgedValue]]:
    """The limit of the checklist on each metric, and the value that it bounds."""
    limits: dict[str, tuple[float, JudgedValue]] = {}
    # If several limits bound a number, the table shows the one that gates, else the one that warns.
    of_findings = [name for name in LIMITS if name.rpartition(".")[2] in _SEVERITIES]
    by_severity = sorted(of_findings, key=lambda name: _SEVERITIES.index(name.rpartition(".")[2]))
    for name in (*by_severity, *policy.limits):
        judged = judged_by(name)
        if judged is not None:
            limits[judged.metric] = policy.limits.get(name, float(LIMITS[name].default)), judged
    return limits


def _with_bound(row: StepComparison, budget: Bound | None, limit: tuple[float, JudgedValue] | None) -> StepComparison:
    if budget is not None:
        return msgspec.structs.replace(row, bound=budget.bound, at_most=budget.better == "lower")
    if limit is None or not limit[1].labels.items() <= row.labels.items():
        return row
    return msgspec.structs.replace(row, bound=limit[0], at_most=limit[1].at_most)
