"""The state of the device under each side: how often its power limit held it, and whether both sides had one clock.

A card at its power limit is in the normal state of a heavy model. Times compare as long as both sides ran at the same clock;
otherwise cycles do, if the device counts them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfgate.document.decision import PowerCap
from perfgate.document.samples import Replicate
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.robust import shift

# Clocks of both sides that differ by more than this share are not one operating point.
CLOCK_TOLERANCE = 0.03


def power_cap(base: Iterable[Replicate], head: Iterable[Replicate]) -> PowerCap | None:
    """The share of each side's blocks at the power limit; None if no block was, or a side's state is unknown."""
    of_base = _capped_share(base)
    of_head = _capped_share(head)
    if of_base is None or of_head is None or not of_base + of_head:
        return None
    return PowerCap(base=rounded(of_base), head=rounded(of_head))


def _capped_share(replicates: Iterable[Replicate]) -> float | None:
    states = []
    for replicate in replicates:
        for columns in replicate.shapes.values():
            states += columns.device.power_capped
    reported = [state for state in states if state is not None]
    if not reported:
        return None
    return sum(reported) / len(reported)


def clock_shift(
    pairs: Iterable[tuple[Replicate, Replicate]], shape: str
) -> float | None:
    """The relative difference of head's clock from base's; None if it is within the tolerance, may be 0, or is unknown."""
    base: list[float] = []
    head: list[float] = []
    for first, second in pairs:
        base += _clocks(first, shape)
        head += _clocks(second, shape)
    of_base = np.log(base)
    of_head = np.log(head)
    if not of_base.size or not of_head.size:
        return None
    estimate = shift(of_base, of_head)
    if (
        estimate.low is None
        or estimate.high is None
        or estimate.low <= 0 <= estimate.high
    ):
        return None
    change = float(np.expm1(estimate.value))
    if abs(change) <= CLOCK_TOLERANCE:
        return None
    return change


def _clocks(process: Replicate, shape: str) -> list[float]:
    """The known clocks of the blocks of a shape, as shares of the rated clock."""
    if shape not in process.shapes:
        return []
    return list(filter(None, process.shapes[shape].device.clock_share))
