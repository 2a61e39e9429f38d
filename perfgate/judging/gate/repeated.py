"""Numbers of the checklist that ``[gate.tolerance]`` names: measured again and again in turns, and judged as pairs are.

Each repetition is a process a side. What a step measures there is one number, so a repetition is one pair of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.budget import parse_place
from perfgate.document.decision import Comparison, Outcome, Policy
from perfgate.document.message import Message
from perfgate.document.run import REPEAT, RunDocument
from perfgate.judging.gate.comparison import (
    Place,
    comparison,
    configured_tolerance,
    margins_for_unchanged,
    relative_change,
    rounded,
    zero_of,
)
from perfgate.judging.gate.rule import Differences, Errors, Limits, alarm_looks, answer, interval, p_slower
from perfgate.judging.gate.time import undecided_because
from perfgate.stats.error_control import holm

# Of the gate's alpha, beside the shares of the families: nobody who names no number pays for it.
SHARE = 0.05


def repeated_metrics(policy: Policy) -> tuple[str, ...]:
    """The metrics of the checklist that a tolerance names in full; a pattern names none, for it may cover a whole step."""
    return tuple(sorted({parse_place(key).metric for key in policy.tolerances} & _REPEATABLE))


_REPEATABLE = {name for name, entry in METRICS.items() if entry.repeatable}


class _Cell(NamedTuple):
    """A named number of a shape: its values of base and head, turn by turn, and the worsening that is allowed."""

    place: Place
    metric: str
    turns: list[tuple[float, float]]
    tolerance: float

    @property
    def differences(self) -> Differences:
        """The logarithms of head over base, of base over head where a higher number is the better one."""
        zero = zero_of(self.metric)
        ratios = [0.0 if base == head else math.log((zero + head) / (zero + base)) for base, head in self.turns]
        return Differences.of([-ratio for ratio in ratios] if metric(self.metric).better == "higher" else ratios)


def compare_repeated(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare every number that a tolerance names; one that a side lacks, or has less often, is undecided and says why."""
    rows = [row for name in repeated_metrics(policy) for row in _rows(base, head, policy, name)]
    cells = [row for row in rows if isinstance(row, _Cell)]
    p_values = iter(holm([p_slower(cell.differences, 0.0, alarm_looks(policy.looks)) for cell in cells]))
    return [_judge(row, policy, next(p_values)) if isinstance(row, _Cell) else row for row in rows]


def _rows(base: RunDocument, head: RunDocument, policy: Policy, name: str) -> Iterator[_Cell | Comparison]:
    """Yield what each workload has of a metric; some steps measure the first shape alone."""
    for workload in head.workloads:
        named = [
            (Place(workload.name, shape), allowed)
            for shape in workload.shapes
            if (allowed := _allowed(policy, name, workload.name, shape)) is not None
        ]
        sides = [(place, allowed, _numbers(base, place, name), _numbers(head, place, name)) for place, allowed in named]
        for place, allowed, before, after in [side for side in sides if side[2] or side[3]] or sides[:1]:
            turns = _turns(name, before, after)
            if isinstance(turns, Message):
                yield comparison(place, name, "repeated", "inconclusive", gating=True, tolerance=allowed, reason=turns)
            else:
                yield _Cell(place, name, turns, allowed)


def _allowed(policy: Policy, name: str, workload: str, shape: str) -> float | None:
    named = [place for key in policy.tolerances if (place := parse_place(key)).metric == name]
    is_meant = any(place.covers(workload, shape) for place in named)
    return configured_tolerance(policy, name, workload, shape) if is_meant else None


def _numbers(run: RunDocument, place: Place, name: str) -> dict[int, float | None]:
    """The step's number and its repetitions, by their turn."""
    return {
        int(value.labels.get(REPEAT, "1")): value.value
        for step in run.steps
        if step.workload == place.workload
        for value in step.values
        if value.metric == name
        and value.labels.get("shape", place.shape) == place.shape
        and value.labels.keys() <= {"shape", REPEAT}
    }


def _turns(
    name: str, before: dict[int, float | None], after: dict[int, float | None]
) -> list[tuple[float, float]] | Message:
    """The values turn by turn, or why they cannot be compared."""
    if not before or not after or None in (*before.values(), *after.values()):
        return Message("gate.bound-not-measured", {"step": metric(name).step})
    numbers = range(1, len(before) + 1)
    if not before.keys() == after.keys() == set(numbers):
        return Message("gate.repetitions-differ", {"base": len(before), "head": len(after)})
    turns = [(before[turn] or 0.0, after[turn] or 0.0) for turn in numbers]
    if any(first != second and zero_of(name) + min(first, second) <= 0 for first, second in turns):
        return Message("gate.no-ratio")
    return turns


def _judge(cell: _Cell, policy: Policy, p_adjusted: float) -> Comparison:
    errors = Errors(alarm=policy.alpha * SHARE, unchanged=policy.alpha_ok, looks=tuple(policy.looks))
    differences = cell.differences
    outcome: Outcome = "inconclusive"
    for margin in margins_for_unchanged(policy, cell.metric, *cell.place):
        limits = Limits(math.log1p(cell.tolerance), math.log1p(margin))
        outcome = answer(differences, limits, errors, p_adjusted=p_adjusted)
        if outcome != "inconclusive":
            break
    base, sign = (
        float(np.median([first for first, _ in cell.turns])),
        -1 if metric(cell.metric).better == "higher" else 1,
    )
    zero = zero_of(cell.metric)
    effect = sign * differences.estimate
    head = (zero + base) * math.exp(effect) - zero
    row = comparison(
        cell.place,
        cell.metric,
        "repeated",
        outcome,
        gating=True,
        base=rounded(base),
        head=rounded(head),
        delta=relative_change(zero + base, zero + head) if zero + base else 0.0,
        tolerance=cell.tolerance,
    )
    bounds = interval(differences, errors)
    reason = undecided_because(bounds, margin, pairs=differences.size) if outcome == "inconclusive" else None
    ends = sorted(math.expm1(sign * end) for end in (bounds.low, bounds.high)) if bounds else None
    return msgspec.structs.replace(
        row,
        interval=(rounded(ends[0]), rounded(ends[1])) if ends else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        p_adjusted=rounded(p_adjusted),
        pairs=differences.size,
        excluded=margin if outcome == "unchanged" else None,
        reason=reason,
    )
