"""How far one sample lies from another that is not paired with it, without assuming a distribution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from perfgate.stats.summary import CONFIDENCE

Floats = npt.NDArray[np.float64]


class Shift(NamedTuple):
    """By how much the second sample lies above the first, and the interval of it; infinite where too few entries give none."""

    value: float
    low: float
    high: float


def shift(first: Floats, second: Floats, *, confidence: float = CONFIDENCE) -> Shift:
    """The Hodges-Lehmann shift from the first sample to the second: the median of all differences.

    Source: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd ed., 4.2-4.3, with the normal approximation of
    the Mann-Whitney distribution. Raises ValueError where a sample is empty.
    """
    if not first.size or not second.size:
        raise ValueError("a shift needs two samples that are not empty")
    differences = np.sort((second[None, :] - first[:, None]).ravel())
    spread = math.sqrt(first.size * second.size * (first.size + second.size + 1) / 12)
    rank = math.floor(differences.size / 2 - float(ndtri((1 + confidence) / 2)) * spread)
    if rank < 1:
        return Shift(float(np.median(differences)), -math.inf, math.inf)
    return Shift(float(np.median(differences)), float(differences[rank - 1]), float(differences[-rank]))
