"""Two recordings that were made separately, side by side.

Times of different minutes, let alone days, differ with the machine's other load, and a
profiler adds its own: times of whole steps and of single operators are shown, and
decide no verdict. Only repeatable values are compared: exact counts (counters.py), and
the total time of kernels. Between separately recorded profiles of one program on a 910B
the sum of all kernels repeated to 0.3 %, the counts of the matrix units to 0.05 % and
of the vector units to 0.003 %, over all operators (sample msinsight-910B-alexnet-2501).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfgate.document.comparison import Comparison, Outcome, Recorded
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.compare.parts import most_grown
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.values import rounded_if_known
from perfgate.judging.gate.evidence.work import (
    KERNELS_TIME,
    MATRIX_TIME,
    VECTOR_TIME,
    KernelSums,
)
from perfgate.judging.gate.evidence.work_table import (
    ListedOperators,
    RecordedKernels,
    WorkTable,
)

FEWEST_STEPS = 3
NOT_COMPARED = Message("gate.recorded-only")
# Of each shape, the operators with the most self time on either side.
MAX_OPERATORS = 10
# A difference below this share of all operators is the counter's own: one operator
# alone repeats to 0.4 % of the matrix units' time, and a row of the vector units' may
# last a few nanoseconds, with a rounding error of one.
_UNIT_NOISE: Mapping[str, float] = {MATRIX_TIME: 0.001, VECTOR_TIME: 0.0001}
_MAX_PARTS = 12
_ROUNDING = 1e-9


# --- times of kernels, which are compared


def compare_kernel_times(
    rows: Iterable[RecordedKernels], policy: Policy
) -> list[Recorded]:
    """Compare the times of kernels of every place; a place that one side lacks is
    undecided.
    """
    comparisons = []
    for place, base, head in rows:
        if base is None or head is None:
            reason = Message(
                "gate.no-kernel-times", {"side": "head" if head is None else "base"}
            )
            comparisons.append(_undecided(place, base, head, reason))
            continue
        comparisons.append(_compare_sum(place, base, head, policy))
        for unit in _UNIT_NOISE:
            if base.counts(unit) or head.counts(unit):
                comparisons.append(_compare_unit(place, base, head, unit, policy))
    return comparisons


def untimed_places(
    places: Iterable[ShapePlace], comparisons: Iterable[Comparison]
) -> list[str]:
    """The places of two recordings without a comparable time, if none of them has one."""
    for row in comparisons:
        if isinstance(row, Recorded) and row.outcome != "informs":
            return []
    return [f"{workload}/{shape} {KERNELS_TIME}" for workload, shape in places]


def _compare_sum(
    place: ShapePlace, base: KernelSums, head: KernelSums, policy: Policy
) -> Recorded:
    """Compare the sums of all kernels: the median steps give the change, and the middle
    halves whether it is beyond doubt.
    """
    old = base.times
    new = head.times
    if old.steps != len(old.seconds) or new.steps != len(new.seconds):
        return _undecided(place, base, head, Message("gate.steps-missing"))
    if min(old.steps, new.steps) < FEWEST_STEPS:
        few = Message(
            "gate.too-few-steps",
            {"few": FEWEST_STEPS, "base": old.steps, "head": new.steps},
        )
        return _undecided(place, base, head, few)
    allowed = tolerance(policy, KERNELS_TIME, place)
    base_low, base_median, base_high = statistics.quantiles(
        old.seconds, n=4, method="inclusive"
    )
    head_low, head_median, head_high = statistics.quantiles(
        new.seconds, n=4, method="inclusive"
    )
    outcome: Outcome = "inconclusive"
    reason: Message | None = None
    parts: list[Part] = []
    if head_low > base_high * (1 + allowed):
        outcome = "regressed"
        parts = _slower_operators(base, head)
    elif head_high < base_low * (1 - allowed):
        outcome = "improved"
    elif head_high <= base_low * (1 + allowed):
        outcome = "unchanged"
    else:
        reason = Message("gate.steps-differ-more")
    return _judged(
        place, KERNELS_TIME, outcome, base_median, head_median, allowed, parts, reason
    )


def _slower_operators(base: KernelSums, head: KernelSums) -> list[Part]:
    before = base.of(KERNELS_TIME)
    slower = []
    for name, seconds in head.of(KERNELS_TIME).items():
        part = Part(name=name, base=before.get(name, 0.0), head=seconds)
        if part.head > part.base:
            slower.append(part)
    return sorted(slower, key=lambda part: (part.base - part.head, part.name))[
        :_MAX_PARTS
    ]


def _compare_unit(
    place: ShapePlace, base: KernelSums, head: KernelSums, unit: str, policy: Policy
) -> Recorded:
    """Compare the counts of the cores' units, operator by operator and shape by shape.

    Operators that run on one side alone are compared as a sum: one may have been
    replaced, or got other inputs.
    """
    before = base.of(unit)
    after = head.of(unit)
    for side, sums, rows in (("base", base, before), ("head", head, after)):
        total = sums.totals[unit]
        if total is None or abs(sum(rows.values()) - total) > _ROUNDING:
            reason = Message("gate.times-incomplete", {"side": side})
            return _judged(place, unit, "inconclusive", reason=reason)
    allowed = tolerance(policy, unit, place)
    noise = _UNIT_NOISE[unit] * sum(before.values())
    worse = []
    better = []
    added = []
    removed = 0.0
    for name in {**before, **after}:
        part = Part(name=name, base=before.get(name, 0.0), head=after.get(name, 0.0))
        tolerated = max(allowed * part.base, noise)
        if name not in after:
            removed += part.base
        elif name not in before:
            added.append(part)
        elif part.head - part.base > tolerated:
            worse.append(part)
        elif part.base - part.head > tolerated:
            better.append(part)
    if sum(part.head for part in added) - removed > max(allowed * removed, noise):
        worse += added
    if worse:
        worst = most_grown(worse)[:_MAX_PARTS]
        return _judged(
            place, unit, "regressed", worst[0].base, worst[0].head, allowed, worst
        )
    best = sorted(better, key=lambda part: part.head - part.base)[:_MAX_PARTS]
    outcome: Outcome = "improved" if best else "unchanged"
    return _judged(
        place, unit, outcome, sum(before.values()), sum(after.values()), allowed, best
    )


def _undecided(
    place: ShapePlace, base: KernelSums | None, head: KernelSums | None, reason: Message
) -> Recorded:
    before = _typical_step(base)
    after = _typical_step(head)
    return _judged(place, KERNELS_TIME, "inconclusive", before, after, reason=reason)


def _typical_step(sums: KernelSums | None) -> float | None:
    if sums and sums.times.seconds:
        return statistics.median(sums.times.seconds)
    return None


def _judged(
    place: ShapePlace,
    name: str,
    outcome: Outcome,
    base: float | None = None,
    head: float | None = None,
    allowed: float | None = None,
    parts: Sequence[Part] = (),
    reason: Message | None = None,
) -> Recorded:
    return replace(
        compared(Recorded, place, name, outcome, base=base, head=head, reason=reason),
        tolerance=allowed,
        base=rounded_if_known(base),
        head=rounded_if_known(head),
        parts=list(parts),
    )


# --- times of steps and operators, which are only shown


def recorded_times(work: WorkTable) -> list[Recorded]:
    """Times of two recordings for display only: of the whole step, then of its heaviest
    operators.
    """
    rows = []
    for value in work.recorded_values:
        rows.append(_shown(*value))
    if work.recorded_places:
        for operators in work.listed:
            rows += _heaviest_operators(operators)
    return rows


def _heaviest_operators(listed: ListedOperators) -> list[Recorded]:
    """The self times of the operators that take most on either side."""
    before = {operator: row.self_time for operator, row in listed.base.items()}
    after = {operator: row.self_time for operator, row in listed.head.items()}

    def order(operator: str) -> tuple[float, str]:
        return -max(before.get(operator, 0.0), after.get(operator, 0.0)), operator

    rows = []
    for operator in sorted(before.keys() | after.keys(), key=order)[:MAX_OPERATORS]:
        rows.append(
            _shown(
                listed.place,
                f"ops.time:{operator}",
                before.get(operator),
                after.get(operator),
            )
        )
    return rows


def _shown(
    place: ShapePlace, name: str, base: float | None, head: float | None
) -> Recorded:
    row = _judged(place, name, "informs", base, head, reason=NOT_COMPARED)
    return replace(row, gating=False, delta=None)
