"""Time: each metric of each shape, tested over process pairs and corrected for together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.catalogue.names import INSTRUCTIONS, LATENCY, PREPROCESSING
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, NoiseFloor, Policy
from perfgate.document.doctor import Resolution
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.alpha import AlphaShares
from perfgate.judging.gate.compare.judge import Tested, judge_together, shown_effects
from perfgate.judging.gate.compare.rule import Errors, differs, spread
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.pairs import stage_times
from perfgate.judging.gate.evidence.place import ShapePlace, places
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged, tolerance
from perfgate.judging.gate.evidence.values import rounded

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile


def compare_time(
    evidence: Evidence,
    policy: Policy,
    floors: list[NoiseFloor],
    shares: AlphaShares,
    *,
    interim: bool = False,
) -> list[Paired]:
    """Compare every time metric that the pairs give; ``floors`` are the results of base against base.

    The metrics of a family are corrected for together, over all shapes of a workload. At an ``interim`` look an alarm is surer
    than at the end.
    """
    floor_of = {(floor.workload, floor.shape, floor.metric): floor for floor in floors}
    tested = [
        _tested(place, name, effects, policy, evidence, floor_of.get((*place, name)))
        for place in evidence.places
        for name, effects in evidence.effects(place).items()
    ]
    comparisons: list[Paired] = []
    for family in FAMILIES.values():
        errors = Errors(alarm=shares.of_family(family), unchanged=policy.alpha_ok, looks=tuple(policy.looks))
        for workload in dict.fromkeys(place.workload for place in evidence.places):
            members = [one for one in tested if one.metric in family.metrics and one.place.workload == workload]
            comparisons += judge_together(members, errors, interim=interim)
    return [_with_context(comparison, comparisons, evidence) for comparison in comparisons]


def _with_context(comparison: Paired, comparisons: Sequence[Paired], evidence: Evidence) -> Paired:
    workload, shape = comparison.place
    if comparison.metric == PREPROCESSING:
        changed = ChangedCode(evidence.head.run.source.changes)
        sides = (run.replicates for run in evidence.runs)
        parts = [
            msgspec.structs.replace(stage, line=changed.of_function(stage.line) if stage.line else None)
            for stage in stage_times(*sides, workload=workload, shape=shape)
        ]
        return msgspec.structs.replace(comparison, parts=parts)
    if comparison.metric == INSTRUCTIONS and (reason := _why_instructions_inform(comparison, comparisons, evidence)):
        shown = reason if comparison.outcome == "regressed" else comparison.reason
        return msgspec.structs.replace(comparison, gating=False, reason=shown)
    return comparison


def _why_instructions_inform(comparison: Paired, comparisons: Sequence[Paired], evidence: Evidence) -> Message | None:
    """The reason that more instructions need be no loss; None if they gate."""
    workload, shape = comparison.place
    # The slower the device, the longer the host polls it, and every poll takes instructions.
    replicates = evidence.head.run.replicates
    blocks = [replicate.shapes.get(shape) for replicate in replicates if replicate.workload == workload]
    if any(columns.cpu_source == "device" for columns in blocks if columns):
        return Message("gate.host-waits")
    faster = (workload, shape, LATENCY, "improved")
    if any((c.workload, c.shape, c.metric, c.outcome) == faster for c in comparisons):
        return Message("gate.calls-take-less")
    return None


# --- noise floors


def noise_floors(evidence: Evidence, policy: Policy) -> list[NoiseFloor]:
    """The noise of base against base, as the half width for as many of its pairs as the workload has pairs with head.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value, as their centre is 0.
    ``differs`` needs all evidence on one side and more than the job would call unchanged: the second is a twin in other code,
    which luck of layout alone may make 1 % faster or slower.
    """
    floors = []
    for place in places(evidence.base.run):
        moved = place.workload not in evidence.base.kept_layout
        pairs = len(evidence.pairs.get(place.workload, ()))
        for name, effect in evidence.effects(place, "aa").items():
            if not effect.fair:
                continue
            differences = effect.differences
            _, margin = margins_for_unchanged(policy, name, *place, moved=moved)
            floors.append(
                NoiseFloor(
                    workload=place.workload,
                    shape=place.shape,
                    metric=name,
                    floor=rounded(FLOOR_QUANTILE * spread(differences, around=0.0) / math.sqrt(max(pairs, 1))),
                    pairs=differences.size,
                    clock=effect.clock,
                    effects=shown_effects(name, differences),
                    differs=FAMILIES[metric(name).family].gating
                    and differs(differences, math.log1p(margin), alpha=AA_ALPHA),
                )
            )
    return floors


# --- one metric of a place


def _tested(
    place: ShapePlace, name: str, effect: PairedEffect, policy: Policy, evidence: Evidence, floor: NoiseFloor | None
) -> Tested:
    moved = place.workload not in evidence.kept_layout
    entry = metric(name)
    return Tested(
        place,
        name,
        effect,
        tolerance=tolerance(policy, name, *place, moved=moved),
        margins=margins_for_unchanged(policy, name, *place, moved=moved),
        gating=FAMILIES[entry.family].gating,
        floor=floor,
        luck=entry.luck if moved else entry.unmoved_luck,
    )


# --- power of the machine


def resolutions(base: RunDocument, head: RunDocument, decision: DecisionDocument) -> list[Resolution]:
    """The smallest slowdown that each paired comparison of unchanged code would have shown; the spread is around its effect."""
    rows, evidence = [], Evidence(base, head)
    for compared in decision.comparisons:
        place, name = ShapePlace(compared.workload, compared.shape), compared.metric
        if not (isinstance(compared, Paired) and compared.is_of_call):
            continue
        effects = evidence.effects(place).get(name)
        if effects is None:
            continue
        differences = effects.differences
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
