"""A history as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfgate.judging.report.text.words import Words
from perfgate.stats.summary import median

_TICKS = "▁▂▃▄▅▆▇█"
_WIDTH = 24


def sparkline(values: Sequence[float], width: int = _WIDTH) -> Words:
    """The newest values as blocks, the last at the right; equal values all in the middle.

    Values outside the range of most others are drawn at the edge, so that one outlier does not flatten the rest.
    """
    if not values:
        return Words("")
    newest = np.asarray(values[-4 * width :], dtype=np.float64)
    if newest.size > width:
        newest = np.array([median(part) for part in np.array_split(newest, width)])
    low, high = (float(end) for end in np.quantile(newest, [0.05, 0.95], method="nearest"))
    if high <= low:
        low, high = float(newest.min()), float(newest.max())
    if high <= low:
        return Words(_TICKS[3] * newest.size)
    places = np.clip((newest - low) / (high - low), 0, 1) * (len(_TICKS) - 1)
    return Words("".join(_TICKS[round(float(place))] for place in places))
