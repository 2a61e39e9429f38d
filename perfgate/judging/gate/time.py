"""Time, second: each metric of each shape tested over process pairs, all of them corrected for together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.catalogue.names import GAP, INSTRUCTIONS, LATENCY, PREPROCESSING
from perfgate.catalogue.records import Family
from perfgate.document.decision import Comparison, DecisionDocument, NoiseFloor, Outcome, Part, Policy
from perfgate.document.doctor import Resolution
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.gate.changed_code import ChangedCode
from perfgate.judging.gate.comparison import (
    Place,
    change_of,
    comparison,
    margins_for_unchanged,
    places,
    rounded,
    tolerance,
)
from perfgate.judging.gate.evidence import NOTHING_ELSEWHERE, Elsewhere, Evidence
from perfgate.judging.gate.pairs import Effects, stage_times
from perfgate.judging.gate.rule import (
    MOST_PAIRS,
    Differences,
    Errors,
    Interval,
    Limits,
    alarm_looks,
    alarm_margin,
    answer,
    detectable,
    differs,
    interval,
    p_slower,
    pairs_to_decide,
    spread,
)
from perfgate.stats.error_control import holm
from perfgate.stats.signed_rank import p_above

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile
# By how much the robust sd of n normal values around a known centre exceeds the true one in 5 of 100 cases: 1 + this / sqrt(n)
# (simulated: 1.95 of 5, 1.79 of 7, 1.54 of 14).
FLOOR_DOUBT = 2.1


class _Cell(NamedTuple):
    """One metric of one shape: its paired effects, its tolerance, and what base against base showed of it.

    ``moved`` is whether its memory layout moved.
    """

    place: Place
    metric: str
    effects: Effects
    tolerance: float
    moved: bool
    floor: NoiseFloor | None


def compare_time(
    evidence: Evidence,
    policy: Policy,
    floors: list[NoiseFloor],
    *,
    elsewhere: Elsewhere = NOTHING_ELSEWHERE,
    interim: bool = False,
) -> list[Comparison]:
    """Compare every time metric that the pairs give; ``floors`` are what base against base showed.

    Metrics are corrected for together with those ``elsewhere``. At an ``interim`` look an alarm is surer than at the end.
    """
    floor_of = {(floor.workload, floor.shape, floor.metric): floor for floor in floors}
    cells = []
    for place in evidence.places:
        moved = place.workload not in evidence.kept_layout
        for name, effect in evidence.effects(place).items():
            allowed = tolerance(policy, name, *place, moved=moved)
            cells.append(_Cell(place, name, effect, allowed, moved, floor_of.get((*place, name))))
    comparisons = [
        comparison
        for family in FAMILIES.values()
        for comparison in _compare_family(cells, family, policy, elsewhere, interim=interim)
    ]
    return [_with_context(comparison, comparisons, evidence) for comparison in comparisons]


def _with_context(comparison: Comparison, comparisons: Sequence[Comparison], evidence: Evidence) -> Comparison:
    workload, shape = comparison.workload, comparison.shape
    if comparison.metric == PREPROCESSING:
        changed = ChangedCode(evidence.head.run.source.changes)
        sides = (run.replicates for run in evidence.runs)
        parts = [
            Part(
                name=stage.name,
                base=rounded(stage.first),
                head=rounded(stage.second),
                line=changed.of_function(stage.line) if stage.line else None,
            )
            for stage in stage_times(*sides, workload=workload, shape=shape)
        ]
        return msgspec.structs.replace(comparison, parts=parts)
    if comparison.metric == INSTRUCTIONS and (reason := _why_instructions_inform(comparison, comparisons, evidence)):
        shown = reason if comparison.outcome == "regressed" else comparison.reason
        return msgspec.structs.replace(comparison, gating=False, reason=shown)
    return comparison


def _why_instructions_inform(
    comparison: Comparison, comparisons: Sequence[Comparison], evidence: Evidence
) -> Message | None:
    """Say why more instructions need be no loss; None where they gate."""
    workload, shape = comparison.workload, comparison.shape
    # The slower the device, the longer the host asks whether it is done, and every time it asks is an instruction.
    replicates = evidence.head.run.replicates
    blocks = [replicate.shapes.get(shape) for replicate in replicates if replicate.workload == workload]
    if any(columns.cpu_source == "device" for columns in blocks if columns):
        return Message("gate.host-waits")
    faster = (workload, shape, LATENCY, "improved")
    if any((c.workload, c.shape, c.metric, c.outcome) == faster for c in comparisons):
        return Message("gate.calls-take-less")
    return None


# --- noise floors


def noise_floors(evidence: Evidence, policy: Policy, *, pairs: int) -> list[NoiseFloor]:
    """What base against base shows, as the half width that ``pairs`` pairs of it would have.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value, as their centre
    is 0. ``differs`` needs all evidence on one side and more than what the job would call unchanged: the second
    is a twin in other code, which luck of layout alone may make 1 % faster or slower.
    """
    floors = []
    for place in places(evidence.base.run):
        moved = place.workload not in evidence.base.kept_layout
        for name, effect in evidence.effects(place, "aa").items():
            if not effect.fair:
                continue
            differences = effect.differences
            margin = margins_for_unchanged(policy, name, *place, moved=moved).sufficient
            floors.append(
                NoiseFloor(
                    workload=place.workload,
                    shape=place.shape,
                    metric=name,
                    floor=rounded(FLOOR_QUANTILE * spread(differences, around=0.0) / math.sqrt(max(pairs, 1))),
                    pairs=differences.size,
                    clock=effect.clock,
                    differs=FAMILIES[metric(name).family].gating
                    and differs(differences, math.log1p(margin), alpha=AA_ALPHA),
                )
            )
    return floors


# --- one family of metrics


def _compare_family(
    cells: list[_Cell], family: Family, policy: Policy, elsewhere: Elsewhere, *, interim: bool
) -> list[Comparison]:
    members = [cell for cell in cells if cell.metric in family.metrics]
    tested = {cell.metric for cell in members}
    others = elsewhere.p_values(tested | ({PREPROCESSING} & {*family.metrics})) if tested else []
    p_values = [
        _p_of_alarm(cell.effects.differences, policy, interim=interim) if cell.effects.fair else 1.0 for cell in members
    ]
    errors = Errors(alarm=policy.alpha * family.share, unchanged=policy.alpha_ok, looks=tuple(policy.looks))
    return [
        _compare_cell(cell, policy, errors, p_adjusted=adjusted, tests=len(members), gating=family.gating)
        for cell, adjusted in zip(members, holm([*p_values, *others]))
    ]


def _p_of_alarm(differences: Differences, policy: Policy, *, interim: bool) -> float:
    alike_margin = alarm_margin(differences.size, policy.looks, interim=interim)
    return p_slower(differences, 0.0, alarm_looks(policy.looks), alike_margin=alike_margin)


def _compare_cell(
    cell: _Cell, policy: Policy, errors: Errors, *, p_adjusted: float, tests: int, gating: bool
) -> Comparison:
    differences, level = cell.effects.differences, cell.effects.level
    effect = differences.estimate
    # The gap's effect is a share of one call and gap, so the head's gap is the base's plus that share of both.
    head = level * math.exp(effect)
    if cell.metric == GAP:
        head = level + math.expm1(effect) * cell.effects.call_level
    entry = metric(cell.metric)
    if not cell.effects.fair:
        reason = Message("gate.no-fair-clock")
        shown = comparison(
            cell.place, cell.metric, "paired", "inconclusive", gating=gating, base=rounded(level), reason=reason
        )
        return msgspec.structs.replace(
            shown, head=rounded(head), tolerance=cell.tolerance, pairs=cell.effects.pairs, clock=cell.effects.clock
        )
    # Answered for the margin that is sought, and where that says nothing, for the one that is sufficient.
    for margin in margins_for_unchanged(policy, cell.metric, *cell.place, moved=cell.moved):
        result = _answer(cell, margin, errors, p_adjusted=p_adjusted)
        if result.outcome != "inconclusive":
            break
    bounds = interval(differences, errors)
    visible = detectable(differences, math.log1p(cell.tolerance), errors, tests=tests)
    return Comparison(
        workload=cell.place.workload,
        shape=cell.place.shape,
        metric=cell.metric,
        unit=entry.unit,
        better=entry.better,
        method="paired",
        outcome=result.outcome,
        gating=gating,
        base=rounded(level),
        head=rounded(head),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(bounds.low)), rounded(math.expm1(bounds.high))) if bounds else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        p=rounded(p_above(differences.values, 0.0, differences.weights)),
        p_adjusted=rounded(p_adjusted),
        tolerance=cell.tolerance,
        pairs=cell.effects.pairs,
        pairs_needed=result.pairs_needed,
        detectable=None if visible is None else rounded(visible),
        excluded=result.excluded,
        reason=result.reason,
        clock=cell.effects.clock,
    )


class _Answer(NamedTuple):
    outcome: Outcome
    reason: Message | None = None
    pairs_needed: int | None = None
    excluded: float | None = None


def _answer(cell: _Cell, margin: float, errors: Errors, *, p_adjusted: float) -> _Answer:
    differences, pairs, floor = cell.effects.differences, cell.effects.pairs, cell.floor
    limits = Limits(math.log1p(cell.tolerance), math.log1p(margin))
    outcome = answer(differences, limits, errors, p_adjusted=p_adjusted)
    if outcome == "unchanged" and floor and _is_above(floor, margin):
        # A limit below the noise floor is not a limit this job can judge by.
        needed = math.ceil(pairs * (floor.floor / margin) ** 2) if margin > 0 else MOST_PAIRS
        reason = Message("gate.limit-below-floor", {"limit": rounded(margin), "floor": floor.floor})
        return _Answer("inconclusive", reason, min(needed, MOST_PAIRS))
    if outcome == "inconclusive":
        needed = math.ceil(pairs_to_decide(differences, excluded=limits.excluded) * pairs / differences.size)
        reason = undecided_because(interval(differences, errors), margin, pairs=pairs)
        return _Answer("inconclusive", reason, needed)
    return _Answer(outcome, excluded=margin if outcome == "unchanged" else None)


def undecided_because(bounds: Interval | None, margin: float, *, pairs: int) -> Message:
    """Say which slowdown the pairs do not exclude, and what they show instead."""
    shown = Message("gate.too-few-pairs", {"pairs": pairs})
    if bounds:
        values = {"bound": rounded(change_of(bounds.high)), "confidence": rounded((1 + bounds.confidence) / 2)}
        shown = Message("gate.upper-bound", values)
    return Message("gate.slowdown-possible", {"size": rounded(margin), "shown": shown})


def _is_above(floor: NoiseFloor, limit: float) -> bool:
    """Whether base against base spreads too much for a limit beyond doubt: its few pairs tell that roughly."""
    return floor.floor > limit * (1 + FLOOR_DOUBT / math.sqrt(max(1, floor.pairs)))


# --- what a machine can show


def resolutions(base: RunDocument, head: RunDocument, decision: DecisionDocument) -> list[Resolution]:
    """The smallest slowdown that each paired comparison of unchanged code would have shown; the spread is around its effect."""
    rows, evidence = [], Evidence(base, head)
    for compared in decision.comparisons:
        if compared.method != "paired":
            continue
        place, name = Place(compared.workload, compared.shape), compared.metric
        differences = evidence.effects(place)[name].differences
        timed_ns = sum(
            sum(blocks.end_ns) - sum(blocks.start_ns)
            for replicate in (*base.replicates, *head.replicates)
            if replicate.workload == place.workload and replicate.arm == "ab"
            for _, blocks in replicate.lanes
        )
        rows.append(
            Resolution(
                workload=place.workload,
                shape=place.shape,
                metric=name,
                pairs=differences.size,
                spread=rounded(math.expm1(spread(differences))),
                smallest=compared.detectable,
                seconds=decision.duration,
                timed=rounded(timed_ns / 1e9),
            )
        )
    return rows
