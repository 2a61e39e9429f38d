"""Ranks that took turns: which of them does more on the head, and whether their losses agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from perfgate.catalogue.names import RANKS_CPU, RANKS_LOSS
from perfgate.document.decision import Part
from perfgate.document.job import Turn
from perfgate.document.samples import unpack


def rank_parts(base: Iterable[Turn], head: Iterable[Turn]) -> list[Part]:
    """The CPU seconds of one step in every rank on both sides, the rank that grew most first.

    By the clock on the wall all ranks take alike long, for they wait for the slowest; waiting takes no CPU time.
    """
    before, after = _seconds(base), _seconds(head)
    parts = [
        Part(name=f"rank {rank}", base=before[rank], head=after[rank]) for rank in sorted(before.keys() & after.keys())
    ]
    return sorted(parts, key=lambda part: part.base - part.head)


def _seconds(turns: Iterable[Turn]) -> dict[int, float]:
    """The median over turns of the CPU seconds of one step, by rank."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for turn in turns:
        for entry in turn.samples:
            if entry.metric == RANKS_CPU and entry.labels.get("rank", "").isdecimal():
                seconds[int(entry.labels["rank"])] += [float(value) / 1e9 for value in unpack(entry.samples)]
    return {rank: float(np.median(values)) for rank, values in seconds.items() if values}


def losses_differ(base: Iterable[Turn], head: Iterable[Turn], tolerance: float) -> bool:
    """Whether the mean losses of turns that did the same steps are further apart than ``tolerance``, as a share."""
    means = [[turn.values.get(RANKS_LOSS) for turn in turns] for turns in (base, head)]
    return any(
        before is not None and after is not None and not math.isclose(before, after, rel_tol=tolerance)
        for before, after in zip(*means)
    )
