"""Numbers of the checklist that ``[gate.tolerance]`` names: judged as pairs are, by their pairs or turns.

Where a step measures the number, both sides repeat it in turns, and a turn is one pair of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.budget import parse_place
from perfgate.document.decision import Comparison, Outcome, Policy
from perfgate.document.message import Message
from perfgate.judging.gate.comparison import (
    Place,
    change_of,
    comparison,
    configured_tolerance,
    margins_for_unchanged,
    relative_change,
    rounded,
    zero_of,
)
from perfgate.judging.gate.evidence import NOTHING_ELSEWHERE, Elsewhere, Evidence
from perfgate.judging.gate.numbers import Number, SideBySide
from perfgate.judging.gate.pairs import SAMPLED
from perfgate.judging.gate.rule import Differences, Errors, Limits, alarm_looks, answer, interval, p_slower
from perfgate.judging.gate.time import undecided_because
from perfgate.stats.error_control import holm

# Of the gate's alpha, beside the shares of the families: nobody who names no number pays for it.
SHARE = 0.05


def metrics_in_turns(policy: Policy) -> tuple[str, ...]:
    """Those that steps must repeat: the samples of the pairs give the others."""
    return tuple(name for name in repeated_metrics(policy) if name not in SAMPLED)


def repeated_metrics(policy: Policy) -> tuple[str, ...]:
    """The metrics of the checklist that a tolerance names in full; a pattern names none, for it may cover a whole step."""
    return tuple(sorted({parse_place(key).metric for key in policy.tolerances} & _REPEATABLE))


_REPEATABLE = {name for name, entry in METRICS.items() if entry.repeatable}


class _Cell(NamedTuple):
    """A named number of a shape, side by side, and the worsening that is allowed."""

    place: Place
    metric: str
    number: SideBySide
    tolerance: float

    @property
    def worse(self) -> Differences:
        """The differences of which more is worse."""
        differences = self.number.differences
        return -differences if metric(self.metric).better == "higher" else differences


def compare_repeated(
    evidence: Evidence, policy: Policy, *, elsewhere: Elsewhere = NOTHING_ELSEWHERE
) -> list[Comparison]:
    """Compare every number that a tolerance names; one that a side lacks, or has less often, is undecided and says why."""
    rows = [row for name in repeated_metrics(policy) for row in _rows(evidence, policy, name)]
    cells = [row for row in rows if isinstance(row, _Cell)]
    p_values = [p_slower(cell.worse, 0.0, alarm_looks(policy.looks)) for cell in cells]
    adjusted = iter(holm([*p_values, *elsewhere.p_values({cell.metric for cell in cells})]))
    return [_judge(row, policy, next(adjusted)) if isinstance(row, _Cell) else row for row in rows]


def _rows(evidence: Evidence, policy: Policy, name: str) -> Iterator[_Cell | Comparison]:
    """Yield what each workload has of a metric; some steps measure the first shape alone."""
    step, numbers = metric(name).step, evidence.numbers
    for workload in evidence.head.run.workloads:
        named = [
            (Number(step, workload.name, shape, name), allowed)
            for shape in workload.shapes
            if (allowed := _allowed(policy, name, workload.name, shape)) is not None
        ]
        for number, allowed in [one for one in named if numbers.has(one[0])] or named[:1]:
            place, found = Place(number.workload, number.shape), numbers.get(number)
            if isinstance(found, Message):
                yield comparison(place, name, "repeated", "inconclusive", gating=True, tolerance=allowed, reason=found)
            else:
                yield _Cell(place, name, found, allowed)


def _allowed(policy: Policy, name: str, workload: str, shape: str) -> float | None:
    named = [place for key in policy.tolerances if (place := parse_place(key)).metric == name]
    is_meant = any(place.covers(workload, shape) for place in named)
    return configured_tolerance(policy, name, workload, shape) if is_meant else None


def _judge(cell: _Cell, policy: Policy, p_adjusted: float) -> Comparison:
    errors = Errors(alarm=policy.alpha * SHARE, unchanged=policy.alpha_ok, looks=tuple(policy.looks))
    worse, number = cell.worse, cell.number
    outcome: Outcome = "inconclusive"
    for margin in margins_for_unchanged(policy, cell.metric, *cell.place):
        limits = Limits(math.log1p(cell.tolerance), math.log1p(margin))
        outcome = answer(worse, limits, errors, p_adjusted=p_adjusted)
        if outcome != "inconclusive":
            break
    zero, head = zero_of(cell.metric), number.head(cell.metric)
    row = comparison(
        cell.place,
        cell.metric,
        "repeated",
        outcome,
        gating=True,
        base=rounded(number.base),
        head=rounded(head),
        delta=relative_change(zero + number.base, zero + head) if zero + number.base else 0.0,
        tolerance=cell.tolerance,
    )
    bounds, of_worse = interval(number.differences, errors), interval(worse, errors)
    reason = undecided_because(of_worse, margin, pairs=worse.size) if outcome == "inconclusive" else None
    return msgspec.structs.replace(
        row,
        interval=(rounded(change_of(bounds.low)), rounded(change_of(bounds.high))) if bounds else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        p_adjusted=rounded(p_adjusted),
        pairs=worse.size,
        excluded=margin if outcome == "unchanged" else None,
        reason=reason,
        clock=number.clock,
    )
