"""Two ways to do the same work, in one process and in turns: how much faster the second is, with its interval.

A step tries its proposals (another precision, layout, batch or a compiled graph), so that their gain is measured and not
promised. Blocks of both run in random ABBA or BAAB order: a drift of the machine meets both alike.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np

from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.calls import timed_call
from perfgate.stats.arrays import Floats
from perfgate.stats.signed_rank import estimate, lower_bound, upper_bound
from perfgate.stats.summary import CONFIDENCE

# Of five quads no signed rank gives a two-sided interval at 95 %; of six it does.
FEWEST_QUADS = 6
MOST_QUADS = 40
_BLOCK_NS = 20_000_000
_WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Versus:
    """How many times as fast the second way is as the first (above 1: faster), and the interval at ``CONFIDENCE``.

    ``first_ns`` and ``second_ns`` are the median nanoseconds of a call; ``quads`` the pairs of blocks behind the interval.
    """

    speedup: float
    low: float
    high: float
    first_ns: float
    second_ns: float
    quads: int

    @property
    def faster(self) -> bool:
        """Whether the second way is faster beyond doubt."""
        return self.low > 1.0


def compare(
    first: Call,
    second: Call,
    device: Device,
    *,
    seconds: float,
    seed: int = 0,
) -> Versus:
    """Time both ways in turns for about ``seconds``, and at least ``FEWEST_QUADS`` quads.

    A block is calls for 20 ms, each waited for; both ways make the same number, so that a call weighs the same. A
    quad has the mean over both blocks of each way of the median nanoseconds of a call.
    The speed-up is the Hodges-Lehmann estimate over the quads' log ratios of block medians, its interval by the exact
    signed-rank distribution. Warm-up, compilation included, is not timed.
    """
    for _ in range(_WARM_UP_CALLS):
        slowest_ns = max(timed_call(first, device), timed_call(second, device))
    calls = max(1, int(_BLOCK_NS / max(slowest_ns, 1)))
    order = random.Random(seed)
    quads: list[tuple[float, float]] = []
    until = device.clock_ns() + int(seconds * 1e9)
    while len(quads) < FEWEST_QUADS or (
        device.clock_ns() < until and len(quads) < MOST_QUADS
    ):
        swapped = order.random() < 0.5
        outer, inner = (second, first) if swapped else (first, second)
        blocks = [_block(way, device, calls) for way in (outer, inner, inner, outer)]
        around, within = (blocks[0] + blocks[3]) / 2, (blocks[1] + blocks[2]) / 2
        quads.append((within, around) if swapped else (around, within))
    return summarize_turns(np.asarray(quads))


def _block(call: Call, device: Device, calls: int) -> float:
    # The first call finds the caches as the other way left them, and is not counted.
    timed_call(call, device)
    return float(np.median([timed_call(call, device) for _ in range(calls)]))


def summarize_turns(quads: Floats) -> Versus:
    """How both ways compare, from an array of shape (quads, 2): nanoseconds of a call in both ways, turn by turn."""
    quads = np.maximum(quads, 1.0)  # a coarse clock may not have moved
    differences = np.log(quads[:, 0]) - np.log(quads[:, 1])
    alpha = (1 - CONFIDENCE) / 2
    first_ns, second_ns = np.median(quads, axis=0).tolist()
    return Versus(
        speedup=math.exp(estimate(differences)),
        low=math.exp(lower_bound(differences, alpha)),
        high=math.exp(upper_bound(differences, alpha)),
        first_ns=first_ns,
        second_ns=second_ns,
        quads=len(quads),
    )
