"""The parts of a number that explain its change: stages of the preprocessing, ranks, and exposed communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perfgate.catalogue.names import PREPROCESSING, RANKS_CPU, RANKS_MEMORY, RANKS_STEP
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.explanation import Part
from perfgate.judging.gate.compare.rank_counts import exposed_parts
from perfgate.judging.gate.compare.ranks import rank_parts
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.quads import quads_of, turns_of
from perfgate.judging.gate.evidence.stages import stage_times


def with_parts(comparisons: Iterable[Comparison], evidence: Evidence) -> Iterator[Comparison]:
    for comparison in comparisons:
        parts: list[Part] = []
        if not isinstance(comparison, Paired):
            pass
        elif comparison.metric == PREPROCESSING:
            parts = _stages(evidence, ShapePlace(*comparison.place))
        elif comparison.is_of_job and comparison.metric in (RANKS_STEP, RANKS_CPU, RANKS_MEMORY):
            parts = _grown_ranks(evidence, comparison)
        yield msgspec.structs.replace(comparison, parts=parts) if parts else comparison


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
