"""Times of two recordings that repeat, and so are compared although the recordings were made apart.

Between separately recorded profiles of one program on a 910B the sum of all kernels repeated to 0.3 %, what the matrix units
counted to 0.05 % and the vector units to 0.003 %, over all operators (sample msinsight-910B-alexnet-2501).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Comparison, Outcome, Part, Policy
from perfgate.document.run import KernelTimes, KernelWork, RunDocument
from perfgate.judging.gate.policy import tolerance
from perfgate.judging.gate.rounding import rounded

FEWEST_STEPS = 3
TIME = "kernels.time"
_UNITS: Mapping[Literal["mac", "vec"], str] = {"mac": "kernels.mac_time", "vec": "kernels.vec_time"}
# A difference below this share of all operators is the counter's own: one operator alone repeats to 0.4 % of the matrix units'
# time, and a row of the vector units' may be a few nanoseconds long, of which one is rounding.
_OWN_NOISE: Mapping[Literal["mac", "vec"], float] = {"mac": 0.001, "vec": 0.0001}
_MAX_PARTS = 12
_ROUNDING = 1e-9
_Place = tuple[str, str]
_Unit = Literal["mac", "vec"]


def compare_kernel_times(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare the times of kernels of every place that either side has; what one side lacks is undecided."""
    before, after = _by_place(base), _by_place(head)
    comparisons: list[Comparison] = []
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place), after.get(place)
        if old is None or new is None:
            side = "head" if new is None else "base"
            comparisons.append(_undecided(place, TIME, old, new, f"the {side} has no times of kernels"))
            continue
        comparisons.append(_compare_sum(old, new, policy))
        comparisons += [_compare_unit(old, new, unit, policy) for unit in _UNITS if _counted(old, new, unit)]
    return comparisons


def untimed_places(base: RunDocument, head: RunDocument, comparisons: Sequence[Comparison]) -> list[str]:
    """Return where two recordings have no time that could be compared, where none of their places has one."""
    if any(comparison.method == "profiled" for comparison in comparisons):
        return []
    places = dict.fromkeys((one.name, shape) for run in (base, head) for one in run.workloads for shape in one.shapes)
    return [f"{workload}/{shape} {TIME}: {_NONE}" for workload, shape in places]


_NONE = "the recordings tell no time of kernels in a step"


def _by_place(run: RunDocument) -> dict[_Place, KernelTimes]:
    return {(times.workload, times.shape): times for times in run.kernel_times}


def _compare_sum(base: KernelTimes, head: KernelTimes, policy: Policy) -> Comparison:
    """Compare the sums of all kernels: the median steps say by how much, and the middle halves whether it is beyond doubt."""
    place = (base.workload, base.shape)
    if any(times.steps != len(times.seconds) for times in (base, head)):
        return _undecided(place, TIME, base, head, "steps are missing from its times")
    if min(base.steps, head.steps) < FEWEST_STEPS:
        few = f"needs {FEWEST_STEPS} steps a side, there are {base.steps} and {head.steps}"
        return _undecided(place, TIME, base, head, few)
    allowed = tolerance(policy, TIME, *place)
    old, new = _Steps.of(base.seconds), _Steps.of(head.seconds)
    outcome: Outcome = "inconclusive"
    if new.low > old.high * (1 + allowed):
        outcome = "regressed"
    elif new.high <= old.low * (1 + allowed):
        outcome = "improved" if new.high < old.low * (1 - allowed) else "unchanged"
    parts = _slower(base, head) if outcome == "regressed" else []
    reason = "the steps of a side differ by more than the two sides" if outcome == "inconclusive" else None
    return _comparison(
        place, TIME, outcome, base=old.middle, head=new.middle, allowed=allowed, parts=parts, reason=reason
    )


class _Steps(NamedTuple):
    """The middle half of the steps, in seconds, and the median."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> _Steps:
        low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(low, middle, high)


def _middle(times: KernelTimes) -> float | None:
    return statistics.median(times.seconds) if times.seconds else None


def _slower(base: KernelTimes, head: KernelTimes) -> list[Part]:
    """Return the operators that take longer, most first."""
    before, after = ({_name(row): row.seconds for row in times.rows} for times in (base, head))
    parts = [Part(name=name, base=before.get(name, 0.0), head=seconds) for name, seconds in after.items()]
    slower = [part for part in parts if part.head > part.base]
    return sorted(slower, key=lambda part: (part.base - part.head, part.name))[:_MAX_PARTS]


def _counted(base: KernelTimes, head: KernelTimes, unit: _Unit) -> bool:
    return any(_total(times, unit) is not None or _seconds(times, unit) for times in (base, head))


def _total(times: KernelTimes, unit: _Unit) -> float | None:
    return times.mac if unit == "mac" else times.vec


def _seconds(times: KernelTimes, unit: _Unit) -> dict[str, float]:
    """Return the seconds of each operator and shape."""
    found = ((row, row.mac if unit == "mac" else row.vec) for row in times.rows)
    return {_name(row): seconds for row, seconds in found if seconds is not None}


def _name(row: KernelWork) -> str:
    return f"{row.op} [{row.inputs}]" if row.inputs else row.op


def _compare_unit(base: KernelTimes, head: KernelTimes, unit: _Unit, policy: Policy) -> Comparison:
    """Compare what the units of the cores counted, operator by operator and shape by shape.

    What runs on one side alone is compared as a sum: an operator may have been replaced, or got other inputs.
    """
    place, name = (base.workload, base.shape), _UNITS[unit]
    before, after = _seconds(base, unit), _seconds(head, unit)
    for side, times, rows in (("base", base, before), ("head", head, after)):
        total = _total(times, unit)
        if total is None or abs(sum(rows.values()) - total) > _ROUNDING:
            return _undecided(place, name, base, head, f"the {side} does not tell it of every operator")
    allowed = tolerance(policy, name, *place)
    noise = _OWN_NOISE[unit] * sum(before.values())
    parts = [Part(name=key, base=before[key], head=after[key]) for key in before if key in after]
    alone = sum(seconds for key, seconds in after.items() if key not in before)
    gone = sum(seconds for key, seconds in before.items() if key not in after)
    worse = [part for part in parts if part.head - part.base > max(allowed * part.base, noise)]
    if alone - gone > max(allowed * gone, noise):
        new = [Part(name=key, base=0.0, head=seconds) for key, seconds in after.items() if key not in before]
        worse += sorted(new, key=lambda part: -part.head)
    worse = sorted(worse, key=lambda part: part.base - part.head)[:_MAX_PARTS]
    better = [part for part in parts if part.base - part.head > max(allowed * part.base, noise)]
    outcome: Outcome = "regressed" if worse else "improved" if better else "unchanged"
    most = worse[0] if worse else None
    return _comparison(
        place,
        name,
        outcome,
        base=sum(before.values()) if most is None else most.base,
        head=sum(after.values()) if most is None else most.head,
        allowed=allowed,
        parts=worse or sorted(better, key=lambda part: part.head - part.base)[:_MAX_PARTS],
    )


def _undecided(place: _Place, name: str, base: KernelTimes | None, head: KernelTimes | None, reason: str) -> Comparison:
    old, new = (None if times is None or name != TIME else _middle(times) for times in (base, head))
    return _comparison(place, name, "inconclusive", base=old, head=new, reason=reason)


def _comparison(
    place: _Place,
    name: str,
    outcome: Outcome,
    *,
    base: float | None,
    head: float | None,
    allowed: float | None = None,
    parts: Sequence[Part] = (),
    reason: str | None = None,
) -> Comparison:
    described = metric(name)
    return Comparison(
        workload=place[0],
        shape=place[1],
        metric=name,
        unit=described.unit,
        better=described.better,
        method="profiled",
        outcome=outcome,
        gating=True,
        base=None if base is None else rounded(base),
        head=None if head is None else rounded(head),
        delta=rounded(head / base - 1) if base and head is not None else None,
        tolerance=allowed,
        parts=list(parts),
        reason=reason,
    )
