"""Noise floors: the noise of base against base."""

from __future__ import annotations

import math

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.document.decision import Invalid, NoiseFloor, Policy
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.effects import shown_effects
from perfgate.judging.gate.compare.rule import differs, spread
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged
from perfgate.judging.gate.evidence.values import rounded

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile


def noise_floors(evidence: Evidence, policy: Policy) -> list[NoiseFloor]:
    """The noise of base against base, as the half width for as many of its pairs as the workload has pairs with head."""
    floors = []
    for place in evidence.base.places:
        pairs = len(evidence.pairs.get(place.workload, ()))
        moved = place.workload not in evidence.kept_layout
        for name, effect in evidence.effects(place, "aa").items():
            if effect.fair:
                _, margin = margins_for_unchanged(policy, name, place, moved=moved)
                floors.append(_floor(place, name, effect, pairs=pairs, margin=margin))
    return floors


def _floor(place: ShapePlace, name: str, effect: PairedEffect, *, pairs: int, margin: float) -> NoiseFloor:
    """floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value, as their centre is 0.

    ``differs`` needs all evidence on one side and more than the job would call unchanged: the second is a twin in other code,
    which luck of layout alone may make 1 % faster or slower.
    """
    differences = effect.differences
    is_gating = FAMILIES[metric(name).gate.family].gating
    return NoiseFloor(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        floor=rounded(FLOOR_QUANTILE * spread(differences, around=0.0) / math.sqrt(max(pairs, 1))),
        pairs=differences.size,
        clock=effect.clock,
        effects=shown_effects(name, differences),
        differs=is_gating and differs(differences, math.log1p(margin), alpha=AA_ALPHA),
    )


def base_differs(floors: list[NoiseFloor]) -> list[Invalid]:
    """If the base differs from itself, a difference of the head is not evidence."""
    entries = {}
    for floor in floors:
        if floor.differs and floor.place not in entries:
            message = Message("gate.aa-differs", {"metric": floor.metric})
            entry = Invalid(workload=floor.workload, shape=floor.shape, kind="aa_differs", message=message)
            entries[floor.place] = entry
    return list(entries.values())
