"""Select the undisturbed blocks, by the environment's report about each block and never by how long it took.

A block that is dropped takes its whole quad on both sides with it, so that dropping cannot favour a side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from perfgate.document.samples import BlockColumns, DeviceColumns

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
