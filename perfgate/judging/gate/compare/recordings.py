"""Two recordings that were made separately, side by side.

Times of different minutes, let alone days, differ with the machine's other load, and a profiler adds its own: those of whole
steps and of single operators are shown, and decide nothing. Only repeatable values are compared: exact counts (counters.py),
and the total time of kernels. Between separately recorded profiles of one program on a 910B the sum of all kernels repeated to
0.3 %, the counts of the matrix units to 0.05 % and of the vector units to 0.003 %, over all operators (sample
msinsight-910B-alexnet-2501).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.comparison import Comparison, Outcome, Recorded
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.message import Message
from perfgate.document.run import KernelTimes, OperatorRow, RunDocument
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace, places
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.judging.gate.evidence.values import relative_change, rounded

FEWEST_STEPS = 3
KERNELS_TIME = "kernels.time"
NOT_COMPARED = Message("gate.recorded-only")
# Of each shape, the operators with the most self time on either side.
MAX_OPERATORS = 10
_Unit = Literal["mac", "vec"]
_UNIT_METRICS: Mapping[_Unit, str] = {"mac": "kernels.mac_time", "vec": "kernels.vec_time"}
# A difference below this share of all operators is the counter's own: one operator alone repeats to 0.4 % of the matrix units'
# time, and a row of the vector units' may last a few nanoseconds, with a rounding error of one.
_UNIT_NOISE: Mapping[_Unit, float] = {"mac": 0.001, "vec": 0.0001}
_MAX_PARTS = 12
_ROUNDING = 1e-9
_SHOWN = {name for name, entry in METRICS.items() if entry.recorded}


# --- times of kernels, which are compared


def compare_kernel_times(evidence: Evidence, policy: Policy) -> list[Recorded]:
    """Compare the times of kernels of every place that either side has; a place that one side lacks is undecided."""
    before, after = evidence.base.kernel_times, evidence.head.kernel_times
    comparisons: list[Recorded] = []
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place), after.get(place)
        if old is None or new is None:
            reason = Message("gate.no-kernel-times", {"side": "head" if new is None else "base"})
            comparisons.append(_undecided(place, KERNELS_TIME, old, new, reason))
            continue
        comparisons.append(_compare_sum(place, old, new, policy))
        units = [unit for unit in _UNIT_METRICS if _counts_unit(old, unit) or _counts_unit(new, unit)]
        comparisons += [_compare_unit(place, old, new, unit, policy) for unit in units]
    return comparisons


def _counts_unit(times: KernelTimes, unit: _Unit) -> bool:
    return getattr(times, unit) is not None or bool(_unit_seconds(times, unit))


def untimed_places(evidence: Evidence, comparisons: Sequence[Comparison]) -> list[str]:
    """The places of two recordings without a comparable time, if none of them has one."""
    kernel_times = [row for row in comparisons if isinstance(row, Recorded) and row.outcome != "informs"]
    if kernel_times:
        return []
    base, head = evidence.runs
    listed = dict.fromkeys([*places(base), *places(head)])
    return [f"{workload}/{shape} {KERNELS_TIME}" for workload, shape in listed]


def _compare_sum(place: ShapePlace, base: KernelTimes, head: KernelTimes, policy: Policy) -> Recorded:
    """Compare the sums of all kernels: the median steps give the change, and the middle halves whether it is beyond doubt."""
    if any(times.steps != len(times.seconds) for times in (base, head)):
        return _undecided(place, KERNELS_TIME, base, head, Message("gate.steps-missing"))
    if min(base.steps, head.steps) < FEWEST_STEPS:
        few = Message("gate.too-few-steps", {"few": FEWEST_STEPS, "base": base.steps, "head": head.steps})
        return _undecided(place, KERNELS_TIME, base, head, few)
    allowed = tolerance(policy, KERNELS_TIME, *place)
    base_low, base_median, base_high = statistics.quantiles(base.seconds, n=4, method="inclusive")
    head_low, head_median, head_high = statistics.quantiles(head.seconds, n=4, method="inclusive")
    outcome: Outcome = "inconclusive"
    if head_low > base_high * (1 + allowed):
        outcome = "regressed"
    elif head_high <= base_low * (1 + allowed):
        outcome = "improved" if head_high < base_low * (1 - allowed) else "unchanged"
    return _profiled(
        place,
        KERNELS_TIME,
        outcome,
        base=base_median,
        head=head_median,
        allowed=allowed,
        parts=_slower_operators(base, head) if outcome == "regressed" else [],
        reason=Message("gate.steps-differ-more") if outcome == "inconclusive" else None,
    )


def _slower_operators(base: KernelTimes, head: KernelTimes) -> list[Part]:
    before = {_row_name(row.op, row.inputs): row.seconds for row in base.rows}
    after = {_row_name(row.op, row.inputs): row.seconds for row in head.rows}
    parts = [Part(name=name, base=before.get(name, 0.0), head=seconds) for name, seconds in after.items()]
    slower = [part for part in parts if part.head > part.base]
    return sorted(slower, key=lambda part: (part.base - part.head, part.name))[:_MAX_PARTS]


def _unit_seconds(times: KernelTimes, unit: _Unit) -> dict[str, float]:
    counts = ((row, getattr(row, unit)) for row in times.rows)
    return {_row_name(row.op, row.inputs): seconds for row, seconds in counts if seconds is not None}


def _row_name(op: str, inputs: str | None) -> str:
    return f"{op} [{inputs}]" if inputs else op


def _compare_unit(place: ShapePlace, base: KernelTimes, head: KernelTimes, unit: _Unit, policy: Policy) -> Recorded:
    """Compare the counts of the cores' units, operator by operator and shape by shape.

    Operators that run on one side alone are compared as a sum: one may have been replaced, or got other inputs.
    """
    name = _UNIT_METRICS[unit]
    before, after = _unit_seconds(base, unit), _unit_seconds(head, unit)
    for side, times, rows in (("base", base, before), ("head", head, after)):
        total = getattr(times, unit)
        if total is None or abs(sum(rows.values()) - total) > _ROUNDING:
            return _undecided(place, name, None, None, Message("gate.times-incomplete", {"side": side}))
    allowed = tolerance(policy, name, *place)
    noise = _UNIT_NOISE[unit] * sum(before.values())
    parts = [Part(name=key, base=before[key], head=after[key]) for key in before if key in after]
    added = {key: seconds for key, seconds in after.items() if key not in before}
    removed = sum(seconds for key, seconds in before.items() if key not in after)
    worse = [part for part in parts if part.head - part.base > max(allowed * part.base, noise)]
    if sum(added.values()) - removed > max(allowed * removed, noise):
        worse += [Part(name=key, base=0.0, head=seconds) for key, seconds in added.items()]
    worse = sorted(worse, key=lambda part: part.base - part.head)[:_MAX_PARTS]
    better = [part for part in parts if part.base - part.head > max(allowed * part.base, noise)]
    return _profiled(
        place,
        name,
        "regressed" if worse else "improved" if better else "unchanged",
        base=worse[0].base if worse else sum(before.values()),
        head=worse[0].head if worse else sum(after.values()),
        allowed=allowed,
        parts=worse or sorted(better, key=lambda part: part.head - part.base)[:_MAX_PARTS],
    )


def _undecided(
    place: ShapePlace, name: str, base: KernelTimes | None, head: KernelTimes | None, reason: Message
) -> Recorded:
    before, after = (statistics.median(times.seconds) if times and times.seconds else None for times in (base, head))
    return _profiled(place, name, "inconclusive", base=before, head=after, reason=reason)


def _profiled(
    place: ShapePlace,
    name: str,
    outcome: Outcome,
    *,
    base: float | None,
    head: float | None,
    allowed: float | None = None,
    parts: Sequence[Part] = (),
    reason: Message | None = None,
) -> Recorded:
    entry = metric(name)
    return Recorded(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=True,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
        delta=relative_change(base, head),
        tolerance=allowed,
        parts=list(parts),
        reason=reason,
    )


# --- times of steps and operators, which are only shown


def recorded_times(evidence: Evidence) -> list[Recorded]:
    """Times of both sides for display only: of the whole step, then of its heaviest operators."""
    base, head = evidence.runs
    before, after = _step_values(base), _step_values(head)
    rows = [_shown(*step, before[step], seconds) for step, seconds in after.items() if step in before]
    for place, operators in evidence.head.operators.items():
        if place in evidence.base.operators and place not in evidence.unmarked:
            rows += _heaviest_operators(place, evidence.base.operators[place], operators)
    return rows


def _heaviest_operators(
    place: ShapePlace, base: Mapping[str, OperatorRow], head: Mapping[str, OperatorRow]
) -> list[Recorded]:
    """The self times of the operators that take most on either side."""
    before = {op: row.self_time for op, row in base.items()}
    after = {op: row.self_time for op, row in head.items()}

    def order(op: str) -> tuple[float, str]:
        return -max(before.get(op) or 0.0, after.get(op) or 0.0), op

    heaviest = sorted(before.keys() | after.keys(), key=order)
    return [_shown(place, f"ops.time:{op}", before.get(op), after.get(op)) for op in heaviest[:MAX_OPERATORS]]


def _step_values(run: RunDocument) -> dict[tuple[ShapePlace, str], float]:
    values: dict[tuple[ShapePlace, str], float] = {}
    for step in run.steps:
        for value in step.values:
            if value.metric in _SHOWN and value.value is not None:
                place = ShapePlace(step.workload, value.labels.get("shape", ""))
                values[place, value.metric] = value.value
    return values


def _shown(place: ShapePlace, name: str, base: float | None, head: float | None) -> Recorded:
    entry = metric(name)
    return Recorded(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome="informs",
        gating=False,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
        reason=NOT_COMPARED,
    )
