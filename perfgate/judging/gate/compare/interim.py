"""The interim results of a workload's pairs while it is measured, for display only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import Clock
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import single_interval
from perfgate.judging.gate.evidence.clocks import TimedLane, deciding_clock
from perfgate.judging.gate.evidence.pairs import paired_effects

Ends = tuple[float, float]


def interim_interval(base: Sequence[Replicate], head: Sequence[Replicate], workload: str) -> Ends | None:
    """The interval of head's slowdown relative to base on the shape that looks worst; None of fewer than six pairs."""
    of_base = _blocks_by_shape(base, workload)
    of_head = _blocks_by_shape(head, workload)
    worst: Ends | None = None
    for shape in sorted(of_base.keys() & of_head.keys()):
        clock = deciding_clock(of_base[shape], of_head[shape])
        interval = _interval(base, head, ShapePlace(workload, shape), clock)
        if interval is not None and (worst is None or interval[1] > worst[1]):
            worst = interval
    return worst


def _blocks_by_shape(replicates: Iterable[Replicate], workload: str) -> dict[str, list[BlockColumns]]:
    """The blocks of a workload's pairs."""
    blocks: dict[str, list[BlockColumns]] = {}
    for replicate in replicates:
        if replicate.workload == workload and replicate.arm == "ab":
            for shape, columns in replicate.shapes.items():
                blocks.setdefault(shape, []).append(columns)
    return blocks


def _interval(
    base: Sequence[Replicate], head: Sequence[Replicate], place: ShapePlace, clock: Clock | None
) -> Ends | None:
    clocks = {TimedLane(place, preprocess=False): clock}
    effects = paired_effects(base, head, place, clocks=clocks)
    if LATENCY not in effects:
        return None
    interval = single_interval(effects[LATENCY].differences)
    if interval is None:
        return None
    return (math.expm1(interval.low), math.expm1(interval.high))
