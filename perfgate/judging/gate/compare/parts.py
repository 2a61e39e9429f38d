"""The parts of a number that explain its change: kernels, stages of the preprocessing, ranks, and exposed communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.names import BUSY, PREPROCESSING, RANKS_CPU, RANKS_MEMORY, RANKS_STEP
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.document.samples import PackedArray, Replicate, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.rank_counts import exposed_parts
from perfgate.judging.gate.compare.ranks import rank_parts
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.fast_path import QUANTILE
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import kernel_seconds
from perfgate.judging.gate.evidence.pairs import members_of_pairs, preprocess_lanes
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
        if not isinstance(comparison, Paired):
            pass
        elif comparison.metric == BUSY:
            parts = _grown_kernels(evidence, comparison)
        elif comparison.metric == PREPROCESSING:
            parts = _stages(evidence, comparison.place)
        elif comparison.is_of_job and comparison.metric in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
            parts = _grown_ranks(evidence, comparison)
        yield replace(comparison, parts=parts) if parts else comparison


def _grown_kernels(evidence: Evidence, comparison: Paired) -> list[Part]:
    """The kernels that take longer without doubt and explain a good part of the loss, the largest first."""
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    workload, shape = comparison.place
    pairs = kernel_seconds(evidence.pairs.get(workload, ()), shape)
    if not comparison.looks_worse or len(pairs) < MIN_PAIRS:
        return []
    names = dict.fromkeys(name for pair in pairs for side in pair for name in side)
    parts: list[Part] = []
    for name in names:
        base = np.array([before.get(name, 0.0) for before, _ in pairs])
        head = np.array([after.get(name, 0.0) for _, after in pairs])
        added = estimate(head - base)
        if added >= LEAST_OF_LOSS * loss and lower_bound(head - base, _TAIL) > 0:
            level = median(base)
            parts.append(Part(name=name, base=rounded(level), head=rounded(level + added)))
    return sorted(parts, key=lambda part: part.base - part.head)[:MOST_KERNELS]


def _stages(evidence: Evidence, place: ShapePlace) -> list[Part]:
    """The stages of the preprocessing, each at the first changed line of its function."""
    base, head = evidence.runs
    changed = ChangedCode(head.source.changes)
    stages = []
    for stage in stage_times(base.replicates, head.replicates, workload=place.workload, shape=place.shape):
        line = changed.of_function(stage.line) if stage.line else None
        stages.append(replace(stage, line=line))
    return stages


def _grown_ranks(evidence: Evidence, comparison: Paired) -> list[Part]:
    """The proven growth in a time of all ranks, most first: the CPU time of a rank, and communication that is exposed."""
    quads = list(quads_of(evidence, comparison.workload).values())
    parts = rank_parts(comparison.metric, quads)
    if comparison.metric == RANKS_STEP:
        parts += exposed_parts(*turns_of(quads))
    return sorted(parts, key=lambda part: part.base - part.head)


# --- stages of the preprocessing


class _Stage(NamedTuple):
    """A stage in all pairs: its seconds in each, and the line at which its function starts."""

    base: list[float]
    head: list[float]
    line: str | None


def stage_times(first: Iterable[Replicate], second: Iterable[Replicate], *, workload: str, shape: str) -> list[Part]:
    """The stages that both sides have, each with the line at which its function starts.

    Their times are the median over pairs of the 10th percentile of the calls of a process.
    """
    pairs = members_of_pairs(first, second, ShapePlace(workload, shape), "ab")
    stages: dict[str, _Stage] = {}
    for before, after in preprocess_lanes(pairs, shape):
        of_base = {stage.name: stage for stage in before.stages}
        for stage in after.stages:
            if stage.name in of_base:
                measured = stages.get(stage.name, _Stage([], [], stage.line))._replace(line=stage.line)
                measured.base.append(_low(of_base[stage.name].wall))
                measured.head.append(_low(stage.wall))
                stages[stage.name] = measured
    return [_part(name, stage) for name, stage in stages.items()]


def _part(name: str, stage: _Stage) -> Part:
    base, head = float(np.median(stage.base)), float(np.median(stage.head))
    return Part(name=name, base=rounded(base), head=rounded(head), line=stage.line)


def _low(wall: PackedArray) -> float:
    return float(np.quantile(unpack(wall), QUANTILE)) / 1e9
