"""The checklist of both sides, number by number: it informs, without a verdict.

A difference is shown only for numbers measured side by side, in pairs or in turns, and
for exact counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS, LIMITS, METRICS, judged_by
from perfgate.catalogue.names import BATCH_BEST, BATCH_KNEE, OPERATOR_SHARE
from perfgate.catalogue.records import JudgedValue
from perfgate.document.comparison import Bound, Comparison, Paired
from perfgate.document.decision import (
    CountDifference,
    Policy,
    StepComparison,
    TurnDifference,
)
from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import (
    Errors,
    interval,
    pairs_to_decide,
    single_interval,
)
from perfgate.judging.gate.evidence.checklist import ChecklistNumber, PairedNumbers
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.values import (
    change_of,
    relative_change,
    rounded,
    rounded_if_known,
    zero_of,
)
from perfgate.stats.knee import Knee
from perfgate.stats.summary import CONFIDENCE

KNEE_GAIN = "batch.knee.gain"
# The number of operators that stand for the step that lists them.
_NAMED_OPERATORS = 3


def compare_checklist(
    measured: PairedNumbers,
    comparisons: Iterable[Comparison],
    policy: Policy,
    *,
    spoiled: Collection[ShapePlace],
) -> list[StepComparison]:
    """Compare every number that a side has, in the order of steps, reusing the
    comparisons that the decision already has.

    Times of ``spoiled`` places are not evidence, so they have no difference here
    either.
    """
    checklist = _Checklist(measured, comparisons, policy, spoiled)
    numbers = {**measured.leading_of_base, **measured.leading_of_head}
    rows = []
    for number in sorted(numbers, key=lambda number: number.step):
        row = checklist.row(number)
        if row.base is not None or row.head is not None:
            rows.append(checklist.with_bound(row))
    return _with_leading(_operators_by_share(rows))


class _Bounded(NamedTuple):
    """A limit of the checklist, and the value that it bounds."""

    bound: float
    value: JudgedValue


class _Checklist:
    """The rows of a checklist, from comparisons and evidence of the decision."""

    def __init__(
        self,
        measured: PairedNumbers,
        comparisons: Iterable[Comparison],
        policy: Policy,
        spoiled: Collection[ShapePlace],
    ) -> None:
        self._measured = measured
        self._policy = policy
        # The places with invalid times, and the workloads as a whole.
        self._set_aside = {
            *spoiled,
            *(ShapePlace(place.workload, "") for place in spoiled),
        }
        self._limits = _limits(policy)
        self._paired: dict[tuple[str, str, str], Paired] = {}
        self._budgets: dict[tuple[str, str, str], Bound] = {}
        for comparison in comparisons:
            key = (*comparison.place, comparison.metric)
            if isinstance(comparison, Paired) and not comparison.is_of_job:
                self._paired[key] = comparison
            elif isinstance(comparison, Bound) and comparison.is_budget:
                self._budgets[key] = comparison

    def row(self, number: ChecklistNumber) -> StepComparison:
        before = self._measured.leading_of_base.get(number)
        after = self._measured.leading_of_head.get(number)
        row = _as_measured(number, before, after)
        paired = self._paired.get((*number.place, number.metric))
        if (
            paired is not None
            and not number.labels
            and paired.outcome != "not_comparable"
        ):
            return _from_comparison(row, paired)
        if METRICS[number.metric].is_exact:
            if row.base is None or row.head is None:
                return row
            return replace(
                row,
                difference=CountDifference(delta=relative_change(row.base, row.head)),
            )
        if number.place in self._set_aside:
            return row
        if number.metric in (BATCH_KNEE, BATCH_BEST):
            return _from_sizes(row, self._sizes(number))
        return self._from_turns(row, number)

    def _from_turns(
        self, row: StepComparison, number: ChecklistNumber
    ) -> StepComparison:
        constant = self._measured.constant(number)
        if constant is not None:
            return replace(
                row,
                base=rounded(constant),
                head=rounded(constant),
                difference=CountDifference(delta=0.0),
            )
        effect = self._measured.get(number)
        if isinstance(effect, Message) or effect.differences.size < 2:
            return row
        return _from_effect(row, effect, self._policy)

    def _sizes(self, number: ChecklistNumber) -> tuple[Knee, Knee] | None:
        """The batch knee or the best size of both sides, which the rates of all turns
        show more exactly than each turn does.

        What a side did not reach is not compared.
        """
        if number.metric == BATCH_KNEE:
            gain = self._policy.limits.get(KNEE_GAIN, float(LIMITS[KNEE_GAIN].default))
            return self._measured.knees(number, gain)
        return self._measured.best_sizes(number)

    def with_bound(self, row: StepComparison) -> StepComparison:
        """The row with the budget of its number, or else with a limit on it."""
        budget = self._budgets.get((*row.place, row.metric))
        if budget is not None:
            return replace(row, bound=budget.bound, at_most=budget.better == "lower")
        limit = self._limits.get(row.metric)
        if limit is None or not limit.value.labels.items() <= row.labels.items():
            return row
        return replace(row, bound=limit.bound, at_most=limit.value.at_most)


def _limits(policy: Policy) -> Mapping[str, _Bounded]:
    """The limit of the checklist on each metric.

    If several limits bound a number, the table shows the gating limit, else the
    warning.
    """
    # "warning" comes last in the alphabet.
    names = sorted(LIMITS, key=lambda name: name.rpartition(".")[2])
    limits = {}
    for name in (*names, *policy.limits):
        judged = judged_by(name)
        if judged is not None:
            bound = policy.limits.get(name, float(LIMITS[name].default))
            limits[judged.metric] = _Bounded(bound, judged)
    return limits


# --- one row


def _as_measured(
    number: ChecklistNumber, before: Value | None, after: Value | None
) -> StepComparison:
    """The value that each side measured by itself, without a difference."""
    row = StepComparison(
        step=number.step,
        workload=number.workload,
        shape=number.shape,
        metric=number.metric,
        labels=dict(number.labels),
        unit=METRICS[number.metric].unit,
    )
    if before is not None:
        row = replace(
            row, base=rounded_if_known(before.value), base_range=_range_of(before)
        )
    if after is not None:
        row = replace(
            row, head=rounded_if_known(after.value), head_range=_range_of(after)
        )
    return row


def _range_of(value: Value) -> tuple[float, float] | None:
    """The interval of a whole number that is not counted, such as a batch size."""
    if value.interval is None or not METRICS[value.metric].number.whole:
        return None
    low, high = value.interval
    if low is None or high is None:
        return None
    return rounded(low), rounded(high)


def _from_effect(
    row: StepComparison, effect: PairedEffect, policy: Policy
) -> StepComparison:
    bounds = single_interval(effect.differences)
    if effect.evidence == "pair":
        bounds = interval(
            effect.differences,
            Errors(policy.alpha, policy.alpha_ok, tuple(policy.looks)),
        )
    # The pairs that would show a difference, if it is not shown yet and a gate takes
    # that many.
    needed: int | None = pairs_to_decide(effect.differences, excluded=0.0)
    is_shown = bounds is not None and not bounds.low <= 0.0 <= bounds.high
    if is_shown or (needed or 0) > policy.looks[-1]:
        needed = None
    difference = TurnDifference(
        unit="pair" if effect.evidence == "pair" else "turn",
        count=effect.differences.size,
        needed=needed,
        clock=effect.clock,
    )
    if bounds is not None:
        zero = zero_of(row.metric)
        delta: float | None = 0.0
        if effect.base != effect.head:
            delta = relative_change(zero + effect.base, zero + effect.head)
        ends = (rounded(change_of(bounds.low)), rounded(change_of(bounds.high)))
        difference = replace(
            difference,
            delta=delta,
            interval=ends,
            confidence=rounded(bounds.confidence),
        )
    return replace(
        row, base=rounded(effect.base), head=rounded(effect.head), difference=difference
    )


def _from_sizes(row: StepComparison, sizes: tuple[Knee, Knee] | None) -> StepComparison:
    """The row of the batch knee or of the best size, if both sides have one.

    A size lies within its range at level ``CONFIDENCE``, so the ratio of two lies
    within the ratio of their ranges at level ``2 * CONFIDENCE - 1`` or higher
    (Bonferroni).
    """
    if sizes is None:
        return row
    before, after = sizes
    difference = TurnDifference(
        unit="turn",
        count=before.visits,
        delta=relative_change(before.size, after.size),
        interval=(
            rounded(after.earliest / before.shown - 1),
            rounded(after.shown / before.earliest - 1),
        ),
        confidence=rounded(2 * CONFIDENCE - 1),
    )
    return replace(
        row,
        base=float(before.size),
        head=float(after.size),
        base_range=(float(before.earliest), float(before.shown)),
        head_range=(float(after.earliest), float(after.shown)),
        difference=difference,
    )


def _from_comparison(row: StepComparison, paired: Paired) -> StepComparison:
    difference = TurnDifference(
        unit="pair" if paired.is_of_call else "turn",
        count=paired.pairs or 0,
        clock=paired.clock,
        delta=paired.delta if paired.interval else None,
        interval=paired.interval,
        confidence=paired.confidence,
    )
    tolerance = paired.tolerance if paired.gating else None
    return replace(
        row,
        base=paired.base,
        head=paired.head,
        difference=difference,
        tolerance=tolerance,
    )


# --- the order of rows, and those that lead


def _operators_by_share(rows: Sequence[StepComparison]) -> list[StepComparison]:
    """The rows in the order of steps, with the operators of each shape by their share
    on head, largest first.
    """
    places = list(dict.fromkeys(row.place for row in rows))

    def order(row: StepComparison) -> tuple[int, int, float]:
        if row.metric != OPERATOR_SHARE:
            return row.step, -1, 0.0
        return row.step, places.index(row.place), -(row.head or 0.0)

    return sorted(rows, key=order)


def _with_leading(rows: list[StepComparison]) -> list[StepComparison]:
    """The rows, with those marked that stand for their step and workload.

    Which they are does not depend on differences.
    """
    of_steps: dict[tuple[int, str], list[StepComparison]] = {}
    for row in rows:
        of_steps.setdefault((row.step, row.workload), []).append(row)
    leading: set[int] = set()
    for (step, _), of_step in of_steps.items():
        leading.update(map(id, _leading_rows(step, of_step)))
    return [replace(row, leads=id(row) in leading) for row in rows]


def _leading_rows(
    step: int, rows: Sequence[StepComparison]
) -> Sequence[StepComparison]:
    """The rows of the first measured metric that the step's card names; a step of
    another package may name none.
    """
    names = CARDS[step].leading if step in CARDS else ()
    if not names:
        return rows[:1]
    for name in names:
        of_metric = [row for row in rows if row.metric == name]
        if not of_metric:
            continue
        # The row of head's first shape with the fewest labels; of operators, which are
        # sorted, the first few.
        first = next((row for row in of_metric if row.head is not None), of_metric[0])
        of_shape = [row for row in of_metric if row.shape == first.shape]
        fewest = min(len(row.labels) for row in of_shape)
        count = _NAMED_OPERATORS if name == OPERATOR_SHARE else 1
        return [row for row in of_shape if len(row.labels) == fewest][:count]
    return []
