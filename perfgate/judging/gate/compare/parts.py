"""The parts of a number that explain its change: kernels, stages of the preprocessing, ranks, and exposed communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.names import BUSY, PREPROCESSING, RANKS_CPU, RANKS_MEMORY, RANKS_STEP
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.document.samples import PackedArray, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.rank_counts import exposed_parts
from perfgate.judging.gate.compare.ranks import rank_parts
from perfgate.judging.gate.evidence.fast_path import QUANTILE
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import kernel_seconds
from perfgate.judging.gate.evidence.pairs import preprocess_lanes
from perfgate.judging.gate.evidence.quads import quads_of, turns_of
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.signed_rank import estimate, lower_bound
from perfgate.stats.summary import median

# Of the loss in the time of kernels; the interval of a kernel's growth, one-sided; and the kernels that are named.
LEAST_OF_LOSS = 0.2
_TAIL = 0.025
MOST_KERNELS = 5


def with_parts(comparisons: Iterable[Comparison], evidence: Evidence) -> Iterator[Comparison]:
    for comparison in comparisons:
        parts: list[Part] = []
        if isinstance(comparison, Paired):
            parts = _parts(evidence, comparison)
        if parts:
            yield replace(comparison, parts=parts)
        else:
            yield comparison


def _parts(evidence: Evidence, comparison: Paired) -> list[Part]:
    if comparison.metric == BUSY:
        return _grown_kernels(evidence, comparison)
    if comparison.metric == PREPROCESSING:
        return _stages(evidence, comparison.place)
    if comparison.is_of_job and comparison.metric in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
        return _grown_ranks(evidence, comparison)
    return []


def _grown_kernels(evidence: Evidence, comparison: Paired) -> list[Part]:
    """The kernels that take longer without doubt and explain a good part of the loss, the largest first."""
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    workload, shape = comparison.place
    pairs = kernel_seconds(evidence.pairs.get(workload, ()), shape)
    if not comparison.looks_worse or len(pairs) < MIN_PAIRS:
        return []
    parts = []
    for name in pairs.names:
        base, head = pairs.of(name).T
        added = estimate(head - base)
        if added >= LEAST_OF_LOSS * loss and lower_bound(head - base, _TAIL) > 0:
            level = median(base)
            parts.append(Part(name=name, base=rounded(level), head=rounded(level + added)))
    return sorted(parts, key=lambda part: part.base - part.head)[:MOST_KERNELS]


def _stages(evidence: Evidence, place: ShapePlace) -> list[Part]:
    """The stages of the preprocessing that both sides have, each at the first changed line of its function.

    Their times are the median over pairs of the 10th percentile of the calls of a process.
    """
    of_base: dict[str, list[float]] = defaultdict(list)
    of_head: dict[str, list[float]] = defaultdict(list)
    lines = {}
    pairs = evidence.pairs.get(place.workload, ())
    for before, after in preprocess_lanes(pairs, place.shape):
        walls = {stage.name: stage.wall for stage in before.times.stages}
        for stage in after.times.stages:
            if stage.name in walls:
                of_base[stage.name].append(_low(walls[stage.name]))
                of_head[stage.name].append(_low(stage.wall))
                lines[stage.name] = stage.line
    code = evidence.code.at(place)
    stages = []
    for name, line in lines.items():
        first = line and code.of_function(line)
        before_seconds = rounded(median(of_base[name]))
        after_seconds = rounded(median(of_head[name]))
        stages.append(Part(name=name, base=before_seconds, head=after_seconds, line=first))
    return stages


def _low(wall: PackedArray) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9


def _grown_ranks(evidence: Evidence, comparison: Paired) -> list[Part]:
    """The proven growth in a time of all ranks, most first: the CPU time of a rank, and communication that is exposed."""
    quads = list(quads_of(evidence, comparison.workload).values())
    parts = rank_parts(comparison.metric, quads)
    if comparison.metric == RANKS_STEP:
        parts += exposed_parts(*turns_of(quads))
    return sorted(parts, key=lambda part: part.base - part.head)
