"""What a machine can see: the smallest slowdown that so many pairs of so much spread show."""

from __future__ import annotations

import math

from perfgate.document.doctor import Resolution
from perfgate.document.run import Replicate, RunDocument
from perfgate.judging.gate.pairs import paired_effects
from perfgate.judging.gate.rounding import rounded
from perfgate.judging.gate.rule import Z_DETECTABLE, spread


def smallest_visible(spread_of_pair: float, pairs: int) -> float:
    """Return the effect beyond the tolerance that ``pairs`` pairs show in 95 of 100 gates at 1 % false alarms.

    3.97 x spread / sqrt(pairs), the Gaussian limit; effect and spread are logarithms.
    """
    return Z_DETECTABLE * spread_of_pair / math.sqrt(pairs)


def resolutions(
    base: RunDocument, head: RunDocument, *, tolerances: dict[str, float], seconds: float
) -> list[Resolution]:
    """Return what the base-against-head pairs of one gate show, per workload, shape and metric.

    ``seconds`` is what the gate took. The spread is taken around the effect, so a change of speed is no spread.
    """
    found = []
    for workload in head.workloads:
        timed = _timed([*base.replicates, *head.replicates], workload.name)
        for shape in workload.shapes:
            effects = paired_effects(base.replicates, head.replicates, workload=workload.name, shape=shape, arm="ab")
            for name, effect in effects.items():
                differences = effect.differences
                of_pair, pairs = spread(differences), differences.size
                found.append(
                    Resolution(
                        workload=workload.name,
                        shape=shape,
                        metric=name,
                        pairs=pairs,
                        spread=rounded(math.expm1(of_pair)),
                        smallest=rounded(math.expm1(smallest_visible(of_pair, pairs))),
                        tolerance=tolerances.get(name, 0.0),
                        seconds=seconds,
                        timed=rounded(timed),
                    )
                )
    return found


def _timed(replicates: list[Replicate], workload: str) -> float:
    return sum(
        (sum(blocks.end_ns) - sum(blocks.start_ns)) / 1e9
        for replicate in replicates
        if replicate.workload == workload and replicate.arm == "ab"
        for _, blocks in replicate.lanes
    )
