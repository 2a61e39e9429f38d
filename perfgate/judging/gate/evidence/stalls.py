"""Stalls: times far above the median of their side and quad, which a mean hides or turns into a slowdown of every call.

A call of a function, or a gap between two tokens of a server, is a stall if it is longer than three times the median. So a
uniform slowdown has no more stalls. Those of a server are compared by the rule for all numbers of jobs, those of functions
in their long stretches (``stretches``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import ITL, STALLS
from perfgate.document.decision import Policy
from perfgate.document.job import Turn
from perfgate.document.samples import STALL_FACTOR, unpack
from perfgate.judging.gate.compare.judge import Tested
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.tolerance import tolerance
from perfgate.stats.summary import median

# Added to numbers of stalls, because 0 has neither a logarithm nor a ratio.
HALF = 0.5
# A quad with fewer gaps has no measurable tail.
_FEWEST_GAPS = 20

_Gaps = npt.NDArray[np.int64]


def is_stall(times: npt.NDArray[np.float64] | _Gaps) -> npt.NDArray[np.bool_]:
    """Which times of one side and quad are stalls."""
    stalled: npt.NDArray[np.bool_] = times > STALL_FACTOR * median(times)
    return stalled


def stalls_of(place: ShapePlace, quads: Mapping[int, Quad], policy: Policy) -> Tested | None:
    """The stalls of both sides, quad by quad; None if turns have too few gaps between tokens, or no stall at all."""
    counted = [
        (quad.start, _stalls(_gaps(quad.base)), _stalls(_gaps(quad.head)))
        for quad in quads.values()
        if min(_gaps(quad.base).size, _gaps(quad.head).size) >= _FEWEST_GAPS
    ]
    if len(counted) < len(quads) or not any(before + after for _, (before, _), (after, _) in counted):
        return None
    logs = [
        math.log((after + HALF) / (gaps_after + 1)) - math.log((before + HALF) / (gaps_before + 1))
        for _, (before, gaps_before), (after, gaps_after) in counted
    ]
    base, head = (
        sum(stalls for stalls, _ in sides) / sum(gaps for _, gaps in sides) for sides in list(zip(*counted))[1:]
    )
    allowed = tolerance(policy, STALLS, *place)
    return Tested(
        place,
        STALLS,
        PairedEffect(Differences.of(logs, [start for start, _, _ in counted]), base, head, "quad"),
        tolerance=allowed,
        margins=[allowed],
    )


def _gaps(turns: Iterable[Turn]) -> _Gaps:
    columns = [unpack(entry.samples) for turn in turns for entry in turn.samples if entry.metric == ITL]
    return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)


def _stalls(gaps: _Gaps) -> tuple[int, int]:
    """How many gaps are stalls, and of how many."""
    return int(np.count_nonzero(is_stall(gaps))), int(gaps.size)
