"""The knee of a sweep over batch sizes: the smallest size that is about as fast per item as the best one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.stats.signed_rank import lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE


class Knee(NamedTuple):
    """The smallest size shown to be about as fast as the best one, and the smallest not shown to be slower, the earliest.

    ``visits`` is how often each size was measured.
    """

    earliest: int
    shown: int
    largest: int
    visits: int

    @property
    def is_resolved(self) -> bool:
        """Whether the visits leave at most a factor of two open; a wider range would not repeat in the next run.

        The largest measured size is trivially as fast as itself.
        """
        return self.shown <= 2 * self.earliest and self.shown < self.largest


def find_knee(rates: Mapping[int, Sequence[float]], gain: float) -> Knee | None:
    """The size from which on the best one is not ``gain`` times as fast; None if only the largest qualifies.

    ``rates`` are the items per second of each visit. Sizes are compared visit by visit, so that a disturbance of a whole
    round cancels out.
    """
    sizes = sorted(rates)
    if len(sizes) < 2:
        return None
    best = max(sizes, key=lambda size: float(np.median(rates[size])))
    tail = (1 - CONFIDENCE) / 2
    earliest = shown = best
    for smaller in reversed(sizes[: sizes.index(best)]):
        behind = np.log(np.asarray(rates[best])) - np.log(np.asarray(rates[smaller]))
        earliest = smaller if lower_bound(behind, tail) <= math.log(gain) else earliest
        shown = smaller if upper_bound(behind, tail) < math.log(gain) else shown
    return None if earliest == sizes[-1] else Knee(earliest, shown, sizes[-1], len(rates[best]))
