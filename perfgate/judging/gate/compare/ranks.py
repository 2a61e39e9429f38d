"""Ranks that took turns: the ranks that do more on the head, and whether their losses agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import RANKS_CPU, RANKS_LOSS, RANKS_MEMORY
from perfgate.document.explanation import Part
from perfgate.document.job import Turn
from perfgate.document.lines import number_in
from perfgate.document.samples import unpack
from perfgate.judging.gate.compare.rule import p_slower
from perfgate.judging.gate.evidence.effect import Differences
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.summary import median

# The chance of naming a wrong rank, per job.
_WRONG_RANK = 0.01


def rank_parts(name: str, quads: Sequence[Quad]) -> list[Part]:
    """The ranks with more growth in CPU seconds of a step, or bytes of memory, than the others, most first.

    By the wall clock all ranks take equally long, for they wait for the slowest; waiting takes no CPU time. A rank is named
    only if a test over quads and starts shows that it leads: a slowdown of all ranks is not the fault of one.
    """
    metric, unit = RANKS_CPU, 1e9
    if name == RANKS_MEMORY:
        metric, unit = RANKS_MEMORY, 1.0
    of_base = []
    of_head = []
    starts = []
    for quad in quads:
        of_base.append(_medians(quad.base, metric))
        of_head.append(_medians(quad.head, metric))
        starts.append(quad.start)
    ranks = _ranks_of_all([*of_base, *of_head])
    if len(ranks) < 2:
        return []
    base = _table(of_base, ranks)
    head = _table(of_head, ranks)
    grown = head - base
    level = max(float(np.median(base)), 1e-9)
    parts = []
    for column, rank in enumerate(ranks):
        others = np.median(np.delete(grown, column, axis=1), axis=1)
        lead = Differences.of((grown[:, column] - others) / level, starts)
        if p_slower(lead, 0.0, (lead.size,)) <= _WRONG_RANK / len(ranks):
            before = median(base[:, column]) / unit
            after = median(head[:, column]) / unit
            parts.append(Part(name=f"rank {rank}", base=rounded(before), head=rounded(after)))
    return sorted(parts, key=lambda part: part.base - part.head)


def _ranks_of_all(tables: Sequence[Mapping[int, float]]) -> list[int]:
    """The ranks that every table has, in order."""
    if not tables:
        return []
    return sorted(set(tables[0]).intersection(*tables))


def _table(quads: Iterable[Mapping[int, float]], ranks: Sequence[int]) -> npt.NDArray[np.float64]:
    """The numbers of a side: a row for each quad, a column for each rank."""
    rows = []
    for by_rank in quads:
        rows.append([by_rank[rank] for rank in ranks])
    return np.array(rows)


def _medians(turns: Iterable[Turn], metric: str) -> dict[int, float]:
    """The median over turns of the samples of a metric, by rank."""
    samples: dict[int, list[int]] = defaultdict(list)
    for turn in turns:
        for entry in turn.samples:
            rank = number_in(entry.labels.get("rank", ""))
            if entry.metric == metric and rank is not None:
                samples[rank] += unpack(entry.samples).tolist()
    return {rank: median(values) for rank, values in samples.items() if values}


def losses_differ(base: Iterable[Turn], head: Iterable[Turn], tolerance: float) -> bool:
    """Whether the mean losses of turns with the same steps are further apart than ``tolerance``, as a share."""
    for before, after in zip(base, head):
        loss = before.values.get(RANKS_LOSS)
        loss_of_head = after.values.get(RANKS_LOSS)
        if loss is None or loss_of_head is None:
            continue
        if not math.isclose(loss, loss_of_head, rel_tol=tolerance):
            return True
    return False
