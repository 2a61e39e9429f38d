"""Select the undisturbed blocks, by the environment's report about each block and never by how long it took.

A block that is dropped takes its whole quad on both sides with it, so that dropping cannot favour a side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from perfgate.document.samples import BlockColumns

RATED_CLOCK_SHARE = 0.97
LEAST_CLEAN = 0.4  # of the quads of a pair, and of the pairs of a shape

Taint = Literal["throttled", "slow_clock", "foreign_process"]


def clean_pair(first: BlockColumns, second: BlockColumns) -> tuple[frozenset[int] | None, Counter[Taint]]:
    """The quads of a pair undisturbed on both sides, None if too few are left; and the number of quads by disturbance.

    Both sides run every quad, so a quad that a side lacks does not count.
    """
    quads = set(first.quad) & set(second.quad)
    ran = set(first.quad) | set(second.quad)
    tainted: dict[int, Taint] = {}
    for columns in (first, second):
        for index, quad in enumerate(columns.quad):
            if taint := _taint(columns, index):
                tainted.setdefault(quad, taint)
    taints = Counter(tainted.values())
    clean = frozenset(quads - tainted.keys())
    if not clean or len(clean) < LEAST_CLEAN * len(ran):
        return None, taints
    return clean, taints


def _taint(columns: BlockColumns, index: int) -> Taint | None:
    if columns.throttled and columns.throttled[index]:
        return "throttled"
    clock_share = columns.clock_share[index] if columns.clock_share else None
    # A driver that reports throttling is trusted: a lower clock was requested, or its power limit holds it.
    unexplained = not columns.throttled or columns.throttled[index] is None
    if unexplained and clock_share is not None and clock_share < RATED_CLOCK_SHARE:
        return "slow_clock"
    if columns.foreign_processes and columns.foreign_processes[index]:
        return "foreign_process"
    return None


def waited_share(blocks: Iterable[BlockColumns]) -> float | None:
    """The share of the measured time that workers waited for a CPU taken by another process; None if it is unknown."""
    reported = [columns for columns in blocks if columns.run_delay_ns]
    seen = sum(sum(columns.seen_ns) for columns in reported)
    return sum(sum(columns.run_delay_ns) for columns in reported) / seen if seen else None
