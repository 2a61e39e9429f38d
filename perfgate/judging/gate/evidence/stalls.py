"""Stalls: times far above the median of their side and quad, which a mean hides or turns into a slowdown of every call.

A call of a function, or a gap between two tokens of a server, is a stall if it is longer than three times the median. So a
uniform slowdown has no more stalls. Stalls of a server are compared by the rule for all numbers of jobs, stalls of functions
in their long stretches (``stretches``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.names import ITL
from perfgate.document.job import Turn
from perfgate.document.samples import STALL_FACTOR, unpack
from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.stats.arrays import Flags, Floats, Ints
from perfgate.stats.summary import median

# Added to numbers of stalls, because 0 has neither a logarithm nor a ratio.
HALF = 0.5
# A quad with fewer gaps has no measurable tail.
_FEWEST_GAPS = 20


class StalledGaps(NamedTuple):
    """The number of stalls among the gaps between tokens."""

    stalls: int
    gaps: int

    @property
    def log_share(self) -> float:
        return math.log((self.stalls + HALF) / (self.gaps + 1))


def is_stall(times: Floats | Ints) -> Flags:
    """Which times of one side and quad are stalls."""
    stalled: Flags = times > STALL_FACTOR * median(times)
    return stalled


def stall_effect(quads: Iterable[Quad]) -> PairedEffect | None:
    """The stalls of both sides, quad by quad; None if turns have too few gaps between tokens, or no stall at all."""
    base = []
    head = []
    starts = []
    for quad in quads:
        before = _gaps(quad.base)
        after = _gaps(quad.head)
        if min(before.size, after.size) < _FEWEST_GAPS:
            return None
        base.append(_count(before))
        head.append(_count(after))
        starts.append(quad.start)
    if not any(count.stalls for count in (*base, *head)):
        return None
    logs = [after.log_share - before.log_share for before, after in zip(base, head)]
    return PairedEffect(
        Differences.of(logs, starts), _share(base), _share(head), "quad"
    )


def _gaps(turns: Iterable[Turn]) -> Ints:
    columns: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for turn in turns:
        columns += [
            unpack(entry.samples) for entry in turn.samples if entry.metric == ITL
        ]
    return np.concatenate(columns)


def _count(gaps: Ints) -> StalledGaps:
    return StalledGaps(int(np.count_nonzero(is_stall(gaps))), int(gaps.size))


def _share(counts: Iterable[StalledGaps]) -> float:
    stalls = gaps = 0
    for count in counts:
        stalls += count.stalls
        gaps += count.gaps
    return stalls / gaps
