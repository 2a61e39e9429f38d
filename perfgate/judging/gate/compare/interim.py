"""The interim results of a workload's pairs while it is measured, for display only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfgate.catalogue.names import LATENCY
from perfgate.document.samples import Replicate
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import single_interval
from perfgate.judging.gate.evidence.clocks import TimedLane, deciding_clock
from perfgate.judging.gate.evidence.pairs import paired_effects

Ends = tuple[float, float]


def interim_interval(base: Sequence[Replicate], head: Sequence[Replicate], workload: str) -> Ends | None:
    """The interval of head's slowdown relative to base on the shape that looks worst; None of fewer than six pairs."""
    of_base, of_head = _of_pairs(base, workload), _of_pairs(head, workload)
    worst: Ends | None = None
    for shape in sorted(_shapes(of_base) & _shapes(of_head)):
        interval = _interval(of_base, of_head, ShapePlace(workload, shape))
        if interval is not None and (worst is None or interval[1] > worst[1]):
            worst = interval
    return worst


def _of_pairs(replicates: Iterable[Replicate], workload: str) -> list[Replicate]:
    return [replicate for replicate in replicates if replicate.workload == workload and replicate.arm == "ab"]


def _shapes(replicates: Iterable[Replicate]) -> set[str]:
    shapes: set[str] = set()
    for replicate in replicates:
        shapes |= replicate.shapes.keys()
    return shapes


def _interval(base: Sequence[Replicate], head: Sequence[Replicate], place: ShapePlace) -> Ends | None:
    shape = place.shape
    before = [replicate.shapes[shape] for replicate in base if shape in replicate.shapes]
    after = [replicate.shapes[shape] for replicate in head if shape in replicate.shapes]
    clocks = {TimedLane(place, preprocess=False): deciding_clock(before, after)}
    effects = paired_effects(base, head, place, clocks=clocks)
    if LATENCY not in effects:
        return None
    interval = single_interval(effects[LATENCY].differences)
    return None if interval is None else (math.expm1(interval.low), math.expm1(interval.high))
