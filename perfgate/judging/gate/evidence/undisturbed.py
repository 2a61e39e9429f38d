"""The state of the machine under each block, and the blocks that it left undisturbed.

Blocks are selected by the environment's report and never by how long they took. A block that
is dropped takes its whole quad on both sides with it, so that dropping cannot favour a side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import numpy as np

from perfgate.document.decision import PowerCap
from perfgate.document.samples import BlockColumns, DeviceColumns, Replicate
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.robust import shift

RATED_CLOCK_SHARE = 0.97
LEAST_CLEAN = 0.4  # of the quads of a pair, and of the pairs of a shape

Taint = Literal["throttled", "slow_clock", "foreign_process"]


def clean_pair(
    first: BlockColumns, second: BlockColumns
) -> tuple[frozenset[int] | None, Counter[Taint]]:
    """The quads of a pair undisturbed on both sides, None if too few are left; and the number of quads by disturbance.

    Both sides run every quad, so a quad that a side lacks does not count.
    """
    quads = set(first.quad) & set(second.quad)
    ran = set(first.quad) | set(second.quad)
    tainted: dict[int, Taint] = {}
    for columns in (first, second):
        for index, quad in enumerate(columns.quad):
            if taint := _taint(columns.device, index):
                tainted.setdefault(quad, taint)
    taints = Counter(tainted.values())
    clean = frozenset(quads - tainted.keys())
    if not clean or len(clean) < LEAST_CLEAN * len(ran):
        return None, taints
    return clean, taints


def _taint(device: DeviceColumns, index: int) -> Taint | None:
    if device.throttled and device.throttled[index]:
        return "throttled"
    # A driver that reports throttling is trusted: a lower clock was requested, or its power limit holds it.
    unexplained = not device.throttled or device.throttled[index] is None
    if unexplained and device.clock_share:
        share = device.clock_share[index]
        if share is not None and share < RATED_CLOCK_SHARE:
            return "slow_clock"
    if device.foreign_processes and device.foreign_processes[index]:
        return "foreign_process"
    return None


def waited_share(blocks: Iterable[BlockColumns]) -> float | None:
    """The share of the measured time that workers waited for a CPU taken by another process; None if it is unknown."""
    waited = seen = 0
    for columns in blocks:
        observed = columns.conductor
        if observed.run_delay_ns:
            waited += sum(observed.run_delay_ns)
            seen += sum(observed.seen_ns)
    if not seen:
        return None
    return waited / seen


# --- the device under each side: how often its power limit held it, and its clock. A card at
# its power limit is in the normal state of a heavy model. Times compare as long as both sides
# ran at the same clock; otherwise cycles do, if the device counts them.


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
