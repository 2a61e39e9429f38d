"""Where the calls of a process lie, for comparing two processes that took turns: the fast path, which others hardly disturb.

Of three locations whose errors differ the median counts: the 10th percentile of all calls, the same of every quad compared
within the quad, and the fastest call of every quad, also within the quad. Comparing within a quad cancels what changes from
second to second, as a neighbour on the other thread of a core does; a quantile of all calls has more of them. On recorded
pairs such effects spread less than any one location's (benchmarks/gate/FINDINGS.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

QUANTILE = 0.1
# What pairs differ by beyond the spread within them: layouts of memory. Weights with anything from 0.4 to 1.5 % do alike.
BETWEEN_PAIRS = 0.007
# sd of a median over that of a mean, of normal samples: sqrt(pi / 2)
_MEDIAN_ERROR = 1.25

Floats = npt.NDArray[np.float64]


class FastPath(NamedTuple):
    """One process: log seconds of the 10th percentile of all its calls; of every quad's calls, and of the fastest of them."""

    p10: float
    low: Floats
    fastest: Floats


class PairedFastPath(NamedTuple):
    """Second over first, as a logarithm, and what the pair weighs: less where its quads disagree."""

    effect: float
    weight: float


def fast_path(quads: Sequence[Floats]) -> FastPath:
    """Locate the calls of a process, given as seconds above 0 for every quad in the order of measuring."""
    return FastPath(
        p10=float(np.log(np.quantile(np.concatenate(quads), QUANTILE))),
        low=np.array([np.log(np.quantile(quad, QUANTILE)) for quad in quads]),
        fastest=np.array([np.log(quad.min()) for quad in quads]),
    )


def compare_fast_paths(first: FastPath, second: FastPath) -> PairedFastPath:
    """Compare two processes that ran the same quads.

    The weight is 1 / sqrt(0.7 %^2 + se^2), se the standard error of the median over quads from their median absolute
    deviation; swapping the sides changes neither.
    """
    low, fastest = second.low - first.low, second.fastest - first.fastest
    effect = float(np.median([second.p10 - first.p10, np.median(low), np.median(fastest)]))
    quads = (low + fastest) / 2
    error = _MEDIAN_ERROR * 1.4826 * float(np.median(np.abs(quads - np.median(quads)))) / math.sqrt(quads.size)
    return PairedFastPath(effect=effect, weight=1 / math.sqrt(BETWEEN_PAIRS**2 + error**2))
