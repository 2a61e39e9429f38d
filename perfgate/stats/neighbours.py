"""How alike the values of a series are to those before them, and what errors are then worth."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_WILD = 2.5  # beyond so many standard deviations a value is cut before it is asked how alike neighbours are
_MAD = 1.4826  # standard deviation over median absolute deviation, of normal values


def likeness(values: npt.NDArray[np.float64]) -> float:
    """The correlation of neighbours around 0, wild values cut; 0 for values that hardly differ."""
    most = _WILD * _MAD * float(np.median(np.abs(values)))
    if not most:
        return 0.0
    # In units of the cut: the squares of tiny numbers are none.
    cut = np.clip(values, -most, most) / most
    return float(np.mean(cut[1:] * cut[:-1]) / np.mean(cut**2))


def wider(alike: float) -> float:
    """How much wider the error of a location is than that of independent values, where neighbours are alike so much.

    n such values say as much as n (1 - r)/(1 + r) independent ones. Source: Bayley & Hammersley, The "Effective" Number of
    Independent Observations, J. R. Stat. Soc. Suppl. 8 (1946).
    """
    return math.sqrt((1 + alike) / (1 - alike))
