"""The fast path of calls, which other processes hardly disturb.

The effect is the median of three locations with different errors: the 10th percentile of all calls, the same of every quad
compared within the quad, and the fastest call of every quad, also within the quad. Comparing within a quad cancels changes from
second to second, such as a neighbour on the other thread of a core; a quantile of all calls has more of them. On recorded pairs
such effects spread less than any one location's (benchmarks/gate/FINDINGS.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfgate.stats.arrays import Floats
from perfgate.stats.summary import linear_quantile, median

QUANTILE = 0.1
# Difference between pairs beyond the spread within them, from layouts of memory. Weights with 0.4 to 1.5 % do equally well.
BETWEEN_PAIRS = 0.007
# sd of the median over sd of the mean, for normal samples: sqrt(pi / 2)
_MEDIAN_ERROR = 1.25


class ProcessFastPath(NamedTuple):
    """One process: log seconds of the 10th percentile of all calls, of each quad's calls, and of the fastest of each quad."""

    p10: float
    low: Floats
    fastest: Floats


def fast_path(quads: Sequence[Floats]) -> ProcessFastPath:
    """Locate the calls of a process, given as seconds above 0 for every quad in the order of measuring."""
    low = []
    fastest = []
    for quad in quads:
        low.append(linear_quantile(quad, QUANTILE))
        fastest.append(quad.min())
    p10 = linear_quantile(np.concatenate(quads), QUANTILE)
    return ProcessFastPath(float(np.log(p10)), np.log(low), np.log(fastest))


def compare_fast_paths(
    first: ProcessFastPath, second: ProcessFastPath
) -> tuple[float, float]:
    """Second over first, as a logarithm, and the weight of the pair, of two processes that ran the same quads.

    The weight is less if the quads disagree: 1 / sqrt(0.7 %^2 + se^2), se the standard error of the median over quads from
    their median absolute deviation. Swapping the sides changes only the sign of the effect.
    """
    low = second.low - first.low
    fastest = second.fastest - first.fastest
    effect = median([second.p10 - first.p10, median(low), median(fastest)])
    quads = (low + fastest) / 2
    error = (
        _MEDIAN_ERROR
        * 1.4826
        * median(np.abs(quads - median(quads)))
        / math.sqrt(quads.size)
    )
    return effect, 1 / math.sqrt(BETWEEN_PAIRS**2 + error**2)
