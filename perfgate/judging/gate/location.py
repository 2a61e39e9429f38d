"""Where the calls of a process lie, for comparing two processes that took turns: the fast path, which others hardly disturb.

Two locations whose errors differ are averaged: the 10th percentile of all calls, and the fastest call of every quad compared
within the quad, which cancels what changes from second to second. What the gate finds and alarms with them on recorded noise,
`make bench-rules` shows beside rules that use medians, means and minima.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

QUANTILE = 0.1
LOW_QUANTILES = (0.02, 0.04, 0.06, 0.08, 0.10)
# What pairs differ by beyond the spread within them: layouts of memory. Weights with anything from 0.5 to 3 % do alike.
BETWEEN_PAIRS = 0.015
# sd of a median over that of a mean, of normal samples: sqrt(pi / 2)
_MEDIAN_ERROR = 1.25

Floats = npt.NDArray[np.float64]


class FastPath(NamedTuple):
    """One process: log seconds of the 10th percentile of its calls; and for every quad of the fastest and of the low calls."""

    p10: float
    fastest: Floats
    low: Floats


class PairedFastPath(NamedTuple):
    """Second over first, as a logarithm, and what the pair weighs: less where its quads disagree."""

    effect: float
    weight: float


def fast_path(quads: Sequence[Floats]) -> FastPath:
    """Locate the calls of a process, given as seconds above 0 for every quad in the order of measuring."""
    return FastPath(
        p10=float(np.log(np.quantile(np.concatenate(quads), QUANTILE))),
        fastest=np.array([np.log(quad.min()) for quad in quads]),
        low=np.array([np.mean(np.log(np.quantile(quad, LOW_QUANTILES))) for quad in quads]),
    )


def compare_fast_paths(first: FastPath, second: FastPath) -> PairedFastPath:
    """Compare two processes that ran the same quads.

    The weight is 1 / sqrt(1.5 %^2 + se^2), se the standard error of the median over quads from their median absolute
    deviation; swapping the sides changes neither.
    """
    within = float(np.median(second.fastest - first.fastest))
    quads = second.low - first.low
    error = _MEDIAN_ERROR * 1.4826 * float(np.median(np.abs(quads - np.median(quads)))) / math.sqrt(quads.size)
    return PairedFastPath(
        effect=(second.p10 - first.p10 + within) / 2, weight=1 / math.sqrt(BETWEEN_PAIRS**2 + error**2)
    )
