"""The interim results of a workload's pairs while it is measured, for display only. It judges nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.catalogue.names import LATENCY
from perfgate.document.samples import Replicate
from perfgate.judging.gate.comparison import ShapePlace
from perfgate.judging.gate.pairs import TimedLane, deciding_clock, paired_effects
from perfgate.judging.gate.rule import single_interval

Ends = tuple[float, float]


def interval_so_far(base: Sequence[Replicate], head: Sequence[Replicate], workload: str) -> Ends | None:
    """The interval of head's slowdown relative to base on the shape that looks worst; None of fewer than six pairs."""
    pairs = [[one for one in side if one.workload == workload and one.arm == "ab"] for side in (base, head)]
    shapes = sorted({shape for one in pairs[0] for shape in one.shapes} & {s for one in pairs[1] for s in one.shapes})
    intervals = [found for shape in shapes if (found := _interval(pairs[0], pairs[1], workload, shape)) is not None]
    return max(intervals, key=lambda interval: interval[1], default=None)


def _interval(base: Sequence[Replicate], head: Sequence[Replicate], workload: str, shape: str) -> Ends | None:
    blocks = [[one.shapes[shape] for one in side if shape in one.shapes] for side in (base, head)]
    clocks = {TimedLane(ShapePlace(workload, shape), False): deciding_clock(*blocks)}
    effects = paired_effects(base, head, workload=workload, shape=shape, arm="ab", clocks=clocks)
    found = single_interval(effects[LATENCY].differences) if LATENCY in effects else None
    return found and (math.expm1(found.low), math.expm1(found.high))
