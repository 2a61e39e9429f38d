"""The parts of a number that explain its change: kernels, stages of the preprocessing, ranks, and exposed communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from perfgate.catalogue.names import BUSY, PREPROCESSING, RANKS_CPU, RANKS_MEMORY, RANKS_STEP
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.rank_counts import exposed_parts
from perfgate.judging.gate.compare.ranks import rank_parts
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.kernel_blocks import kernel_seconds
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.quads import quads_of, turns_of
from perfgate.judging.gate.evidence.stages import stage_times
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
            parts = _stages(evidence, ShapePlace(*comparison.place))
        elif comparison.is_of_job and comparison.metric in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
            parts = _grown_ranks(evidence, comparison)
        yield msgspec.structs.replace(comparison, parts=parts) if parts else comparison


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
        stages.append(msgspec.structs.replace(stage, line=line))
    return stages


def _grown_ranks(evidence: Evidence, comparison: Paired) -> list[Part]:
    """The proven growth in a time of all ranks, most first: the CPU time of a rank, and communication that is exposed."""
    quads = list(quads_of(evidence, comparison.workload).values())
    parts = rank_parts(comparison.metric, quads)
    if comparison.metric == RANKS_STEP:
        parts += exposed_parts(*turns_of(quads))
    return sorted(parts, key=lambda part: part.base - part.head)
