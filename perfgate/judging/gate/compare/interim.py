"""The interim results of a workload's pairs while it is measured, for display only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.catalogue.names import LATENCY
from perfgate.document.samples import Replicate
from perfgate.judging.gate.compare.rule import single_interval
from perfgate.judging.gate.evidence.clocks import deciding_clocks
from perfgate.judging.gate.evidence.pairs import paired_effects, pairs_of

Ends = tuple[float, float]


def interim_interval(
    base: Sequence[Replicate], head: Sequence[Replicate], workload: str
) -> Ends | None:
    """The interval of head's slowdown relative to base on the shape that looks worst; None of fewer than six pairs."""
    pairs = pairs_of(base, head)[workload]
    clocks = deciding_clocks(base, head)
    intervals = []
    for place, preprocess in clocks:
        if place.workload == workload and not preprocess:
            effect = paired_effects(pairs, place, clocks).get(LATENCY)
            interval = effect and single_interval(effect.differences)
            if interval is not None:
                intervals.append((math.expm1(interval.low), math.expm1(interval.high)))
    return max(intervals, key=lambda ends: ends[1], default=None)
