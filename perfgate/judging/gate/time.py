"""Time, second: each metric of each shape tested over process pairs, all of them corrected for together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.catalogue.names import GAP, INSTRUCTIONS, LATENCY, PREPROCESSING
from perfgate.catalogue.records import Family
from perfgate.document.decision import Comparison, NoiseFloor, Outcome, Part, Policy
from perfgate.document.run import Replicate, RunDocument
from perfgate.judging.gate.clock import Clocks
from perfgate.judging.gate.pairs import Effects, paired_effects, stage_times
from perfgate.judging.gate.policy import margins_for_unchanged, tolerance
from perfgate.judging.gate.rounding import percent, rounded
from perfgate.judging.gate.rule import (
    MOST_PAIRS,
    Errors,
    Limits,
    alarm_looks,
    answer,
    detectable,
    differs,
    interval,
    p_slower,
    pairs_to_decide,
    spread,
)
from perfgate.stats.multiple import holm
from perfgate.stats.signed_rank import p_above

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile
# By how much the robust sd of n normal values around a known centre exceeds the true one in 5 of 100 cases: 1 + this / sqrt(n)
# (simulated: 1.95 of 5, 1.79 of 7, 1.54 of 14).
FLOOR_DOUBT = 2.1


class _Cell(NamedTuple):
    workload: str
    shape: str
    metric: str
    effects: Effects
    moved: bool
    parts: Sequence[Part]


def compare_time(
    base: RunDocument, head: RunDocument, policy: Policy, clocks: Clocks, floors: list[NoiseFloor], *, to_come: int = 0
) -> list[Comparison]:
    """Compare every time metric that the pairs give, by ``clocks``; ``floors`` are what base against base showed.

    Metrics are corrected for as they will be when ``to_come`` further workloads, of a shape each, have been measured.
    """
    kept = unmoved(base, head)
    cells = [
        _Cell(workload, shape, name, effects, workload not in kept, _stages(base, head, workload, shape, name))
        for workload, shape in _shapes(head)
        for name, effects in paired_effects(
            base.replicates, head.replicates, workload=workload, shape=shape, arm="ab", clocks=clocks
        ).items()
    ]
    comparisons = [
        comparison
        for family in FAMILIES.values()
        for comparison in _compare_family(cells, family, policy, floors, to_come)
    ]
    return [_held_to_instructions(comparison, comparisons, head) for comparison in comparisons]


def _held_to_instructions(comparison: Comparison, gating: Sequence[Comparison], head: RunDocument) -> Comparison:
    """Return a comparison that gates; that of instructions only informs where more of them need be no loss."""
    if comparison.metric != INSTRUCTIONS:
        return comparison
    workload, shape, reason = comparison.workload, comparison.shape, None
    if any((c.workload, c.shape, c.metric, c.outcome) == (workload, shape, LATENCY, "improved") for c in gating):
        reason = "calls take less time"
    # The slower the device, the longer the host asks whether it is done, and every time it asks is an instruction.
    if any(one.workload == workload and _on_device(one, shape) for one in head.replicates):
        reason = "the host waits for the device, and waiting executes instructions too"
    if reason is None:
        return comparison
    said = reason if comparison.outcome == "regressed" else comparison.reason
    return msgspec.structs.replace(comparison, gating=False, reason=said)


def _on_device(one: Replicate, shape: str) -> bool:
    return shape in one.shapes and one.shapes[shape].cpu_source == "device"


def _stages(base: RunDocument, head: RunDocument, workload: str, shape: str, name: str) -> list[Part]:
    if name != PREPROCESSING:
        return []
    changed = head.source.changed_functions
    return [
        Part(
            name=stage.name,
            base=rounded(stage.first),
            head=rounded(stage.second),
            line=changed.get(stage.line, stage.line) if stage.line else None,
        )
        for stage in stage_times(base.replicates, head.replicates, workload=workload, shape=shape)
    ]


def noise_floors(base: RunDocument, policy: Policy, clocks: Clocks, *, pairs: int) -> list[NoiseFloor]:
    """Return what base against base shows, as the half width that ``pairs`` pairs of it would have.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value, as its centre
    is known to be 0. ``differs`` needs all evidence on one side and more than what the job would call unchanged: the second
    is a twin in other code, which luck of layout alone may make 1 % faster or slower.
    """
    floors, kept = [], unmoved(base)
    for workload, shape in _shapes(base):
        effects = paired_effects(
            base.replicates, base.replicates, workload=workload, shape=shape, arm="aa", clocks=clocks
        )
        for name, effect in effects.items():
            differences = effect.differences
            floors.append(
                NoiseFloor(
                    workload=workload,
                    shape=shape,
                    metric=name,
                    floor=rounded(FLOOR_QUANTILE * spread(differences, around=0.0) / math.sqrt(max(pairs, 1))),
                    pairs=differences.size,
                    clock=effect.clock,
                    differs=FAMILIES[metric(name).family].gating
                    and differs(
                        differences,
                        math.log1p(
                            margins_for_unchanged(policy, name, workload, shape, moved=workload not in kept).enough
                        ),
                        alpha=AA_ALPHA,
                    ),
                )
            )
    return floors


def unmoved(*runs: RunDocument) -> list[str]:
    """Return the workloads of which a pair kept its memory layout."""
    return sorted({one.workload for run in runs for one in run.replicates if one.moved is False})


def _shapes(run: RunDocument) -> list[tuple[str, str]]:
    return [(workload.name, shape) for workload in run.workloads for shape in workload.shapes]


def _compare_family(
    cells: list[_Cell], family: Family, policy: Policy, floors: list[NoiseFloor], to_come: int
) -> list[Comparison]:
    members = [cell for cell in cells if cell.metric in family.metrics]
    unknown = [1.0] * (to_come * len({cell.metric for cell in members}))
    p_values = [p_slower(cell.effects.differences, 0.0, alarm_looks(policy.looks)) for cell in members]
    alpha = policy.alpha * family.share
    return [
        _compare_cell(
            cell,
            policy,
            alpha=alpha,
            p_adjusted=adjusted,
            tests=len(members),
            floor=_floor_of(cell, floors),
            gating=family.gating,
        )
        for cell, adjusted in zip(members, holm([*p_values, *unknown]))
    ]


def _floor_of(cell: _Cell, floors: list[NoiseFloor]) -> NoiseFloor | None:
    key = (cell.workload, cell.shape, cell.metric)
    return next((floor for floor in floors if (floor.workload, floor.shape, floor.metric) == key), None)


class _Answer(NamedTuple):
    outcome: Outcome
    reason: str | None = None
    pairs_needed: int | None = None
    excluded: float | None = None


def _compare_cell(
    cell: _Cell, policy: Policy, *, alpha: float, p_adjusted: float, tests: int, floor: NoiseFloor | None, gating: bool
) -> Comparison:
    differences = cell.effects.differences
    allowed = tolerance(policy, cell.metric, cell.workload, cell.shape, moved=cell.moved)
    effect = differences.estimate
    said = _answer(cell, policy, alpha=alpha, p_adjusted=p_adjusted, floor=floor)
    described = metric(cell.metric)
    errors = _errors(policy, alpha)
    bounds = interval(differences, errors)
    visible = detectable(differences, math.log1p(allowed), errors, tests=tests)
    return Comparison(
        workload=cell.workload,
        shape=cell.shape,
        metric=cell.metric,
        unit=described.unit,
        better=described.better,
        method="paired",
        outcome=said.outcome,
        gating=gating,
        base=rounded(cell.effects.level),
        head=rounded(_head_level(cell, effect)),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(bounds.low)), rounded(math.expm1(bounds.high))) if bounds else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        p=rounded(p_above(differences.values, 0.0, differences.weights)),
        p_adjusted=rounded(p_adjusted),
        tolerance=allowed,
        pairs=cell.effects.pairs,
        pairs_needed=said.pairs_needed,
        detectable=None if visible is None else rounded(visible),
        excluded=said.excluded,
        reason=said.reason,
        parts=list(cell.parts),
        clock=cell.effects.clock,
    )


def _head_level(cell: _Cell, effect: float) -> float:
    if cell.metric == GAP:
        # The gap's effect is a share of one call and gap, so the head's gap is the base's plus that share of both.
        return cell.effects.level + math.expm1(effect) * cell.effects.call_level
    return cell.effects.level * math.exp(effect)


def _errors(policy: Policy, alpha: float) -> Errors:
    return Errors(alarm=alpha, unchanged=policy.alpha_ok, looks=tuple(policy.looks))


def _answer(cell: _Cell, policy: Policy, *, alpha: float, p_adjusted: float, floor: NoiseFloor | None) -> _Answer:
    """Answer for the margin that is sought, and where that says nothing, for the one that is enough."""
    margins = margins_for_unchanged(policy, cell.metric, cell.workload, cell.shape, moved=cell.moved)
    for margin in margins:
        said = _answer_for(margin, cell, policy, alpha=alpha, p_adjusted=p_adjusted, floor=floor)
        if said.outcome != "inconclusive":
            break
    return said


def _answer_for(
    margin: float, cell: _Cell, policy: Policy, *, alpha: float, p_adjusted: float, floor: NoiseFloor | None
) -> _Answer:
    differences, errors = cell.effects.differences, _errors(policy, alpha)
    allowed = tolerance(policy, cell.metric, cell.workload, cell.shape, moved=cell.moved)
    limits = Limits(math.log1p(allowed), math.log1p(margin))
    outcome = answer(differences, limits, errors, p_adjusted=p_adjusted)
    if outcome == "unchanged" and floor and _lies_above(floor, margin):
        return _refused(margin, floor, pairs=cell.effects.pairs)
    if outcome == "inconclusive":
        return _undecided(cell, limits, errors)
    return _Answer(outcome, excluded=margin if outcome == "unchanged" else None)


def _lies_above(floor: NoiseFloor, limit: float) -> bool:
    """Return whether base against base spreads too much for a limit beyond doubt: its few pairs tell that roughly."""
    return floor.floor > limit * (1 + FLOOR_DOUBT / math.sqrt(max(1, floor.pairs)))


def _refused(to_exclude: float, floor: NoiseFloor, *, pairs: int) -> _Answer:
    """A limit below the noise floor is not a limit this job can hold anybody to."""
    needed = math.ceil(pairs * (floor.floor / to_exclude) ** 2) if to_exclude > 0 else MOST_PAIRS
    return _Answer(
        "inconclusive",
        f"the limit of {to_exclude:.2%} lies below this job's noise floor of {floor.floor:.2%}",
        min(needed, MOST_PAIRS),
    )


def _undecided(cell: _Cell, limits: Limits, errors: Errors) -> _Answer:
    differences = cell.effects.differences
    bounds = interval(differences, errors)
    seen = (
        f"at most {percent(math.expm1(bounds.high))} % with {100 * (1 + bounds.confidence) / 2:.1f} % confidence"
        if bounds
        else f"{cell.effects.pairs} pairs are too few for a bound"
    )
    return _Answer(
        "inconclusive",
        f"a slowdown of {percent(math.expm1(limits.excluded))} % is not excluded ({seen})",
        math.ceil(pairs_to_decide(differences, excluded=limits.excluded) * cell.effects.pairs / differences.size),
    )
