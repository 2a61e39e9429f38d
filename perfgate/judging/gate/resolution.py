"""What a machine can see: the smallest slowdown that the pairs of a gate of unchanged code would have shown."""

from __future__ import annotations

import math

from perfgate.document.decision import DecisionDocument
from perfgate.document.doctor import Resolution
from perfgate.document.run import Replicate, RunDocument
from perfgate.judging.gate.clock import deciding_clocks
from perfgate.judging.gate.pairs import paired_effects
from perfgate.judging.gate.rounding import rounded
from perfgate.judging.gate.rule import spread


def resolutions(base: RunDocument, head: RunDocument, decision: DecisionDocument) -> list[Resolution]:
    """Return what every paired comparison of a decision shows; the spread is that around its effect."""
    rows, clocks = [], deciding_clocks(base, head)
    for comparison in decision.comparisons:
        if comparison.method != "paired":
            continue
        workload, shape, metric = comparison.workload, comparison.shape, comparison.metric
        effects = paired_effects(
            base.replicates, head.replicates, workload=workload, shape=shape, arm="ab", clocks=clocks
        )
        differences = effects[metric].differences
        rows.append(
            Resolution(
                workload=workload,
                shape=shape,
                metric=metric,
                pairs=differences.size,
                spread=rounded(math.expm1(spread(differences))),
                smallest=comparison.detectable,
                seconds=decision.duration,
                timed=rounded(_timed([*base.replicates, *head.replicates], workload)),
            )
        )
    return rows


def _timed(replicates: list[Replicate], workload: str) -> float:
    return sum(
        (sum(blocks.end_ns) - sum(blocks.start_ns)) / 1e9
        for replicate in replicates
        if replicate.workload == workload and replicate.arm == "ab"
        for _, blocks in replicate.lanes
    )
