"""Noise floors: the noise of base against base."""

from __future__ import annotations

import math
from collections.abc import Iterable

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.document.decision import Invalid, NoiseFloor
from perfgate.document.message import Message
from perfgate.judging.gate.compare.effects import shown_effects
from perfgate.judging.gate.compare.rule import differs, spread
from perfgate.judging.gate.evidence.numbers import Twins
from perfgate.judging.gate.evidence.values import rounded

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile


def noise_floor(twins: Twins) -> NoiseFloor:
    """The noise of base against base, as the half width for as many of its pairs as the workload has pairs with head.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value, as their centre is 0.
    ``differs`` needs all evidence on one side and more than the job would call unchanged: the second is a twin in other code,
    which luck of layout alone may make 1 % faster or slower.
    """
    differences = twins.effect.differences
    is_gating = FAMILIES[metric(twins.metric).gate.family].gating
    return NoiseFloor(
        workload=twins.place.workload,
        shape=twins.place.shape,
        metric=twins.metric,
        floor=rounded(
            FLOOR_QUANTILE
            * spread(differences, around=0.0)
            / math.sqrt(max(twins.pairs, 1))
        ),
        pairs=differences.size,
        clock=twins.effect.clock,
        effects=shown_effects(twins.metric, differences),
        differs=is_gating
        and differs(differences, math.log1p(twins.margin), alpha=AA_ALPHA),
    )


def base_differs(floors: Iterable[NoiseFloor]) -> list[Invalid]:
    """If the base differs from itself, a difference of the head is not evidence."""
    entries = {}
    for floor in floors:
        if floor.differs and floor.place not in entries:
            message = Message("gate.aa-differs", {"metric": floor.metric})
            entry = Invalid(
                workload=floor.workload,
                shape=floor.shape,
                kind="aa_differs",
                message=message,
            )
            entries[floor.place] = entry
    return list(entries.values())
