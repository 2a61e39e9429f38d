"""The parts of a number that explain its change: kernels, stages of the preprocessing, ranks, and exposed communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import (
    BUSY,
    PREPROCESSING,
    RANKS_CPU,
    RANKS_MEMORY,
    RANKS_STEP,
)
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.judging.gate.compare.grown_lines import most_grown
from perfgate.judging.gate.compare.operators import MIN_PAIRS
from perfgate.judging.gate.compare.ranks import exposed_parts, rank_parts
from perfgate.judging.gate.evidence.quads import Quad, turns_of
from perfgate.judging.gate.evidence.values import rounded
from perfgate.judging.gate.evidence.work_table import PairedTimes, WorkTable
from perfgate.stats.signed_rank import estimate, lower_bound
from perfgate.stats.summary import median

# Of the loss in the time of kernels; the interval of a kernel's growth, one-sided; and the kernels that are named.
LEAST_OF_LOSS = 0.2
_TAIL = 0.025
MOST_KERNELS = 5


def with_parts(
    comparisons: Iterable[Comparison], work: WorkTable
) -> Iterator[Comparison]:
    for comparison in comparisons:
        parts: list[Part] = []
        if isinstance(comparison, Paired):
            parts = _parts(work, comparison)
        if parts:
            yield replace(comparison, parts=parts)
        else:
            yield comparison


def _parts(work: WorkTable, comparison: Paired) -> list[Part]:
    if comparison.metric == BUSY:
        return _grown_kernels(work.kernels(comparison.place), comparison)
    if comparison.metric == PREPROCESSING:
        return work.stages(comparison.place)
    if comparison.is_of_job and comparison.metric in (
        RANKS_STEP,
        RANKS_CPU,
        RANKS_MEMORY,
    ):
        return _grown_ranks(work.jobs[comparison.workload].quads, comparison.metric)
    return []


def _grown_kernels(pairs: PairedTimes, comparison: Paired) -> list[Part]:
    """The kernels that take longer without doubt and explain a good part of the loss, the largest first."""
    loss = (comparison.head or 0.0) - (comparison.base or 0.0)
    if not comparison.looks_worse or len(pairs) < MIN_PAIRS:
        return []
    parts = []
    for name in pairs.names:
        base, head = pairs.of_part(name).T
        added = estimate(head - base)
        if added >= LEAST_OF_LOSS * loss and lower_bound(head - base, _TAIL) > 0:
            level = median(base)
            parts.append(
                Part(name=name, base=rounded(level), head=rounded(level + added))
            )
    return most_grown(parts)[:MOST_KERNELS]


def _grown_ranks(quads: Sequence[Quad], metric: str) -> list[Part]:
    """The proven growth in a time of all ranks, most first: the CPU time of a rank, and communication that is exposed."""
    parts = rank_parts(metric, quads)
    if metric == RANKS_STEP:
        parts += exposed_parts(*turns_of(quads))
    return most_grown(parts)
