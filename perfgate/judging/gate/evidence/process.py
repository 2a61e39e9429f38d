"""The statistics of one process of a pair, from its raw blocks.

Other processes hardly disturb the fast path of calls. Its effect is the median of three
locations with different errors: the 10th percentile of all calls, the same of every
quad compared within the quad, and the fastest call of every quad, also within the quad.
Comparing within a quad cancels changes from second to second, such as a neighbour on
the other thread of a core; a quantile of all calls has more of them. On recorded pairs
such effects spread less than any one location's (benchmarks/gate/FINDINGS.md, section
6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfgate.catalogue.names import INSTRUCTIONS
from perfgate.document.comparison import Clock
from perfgate.document.samples import BlockColumns, unpack
from perfgate.judging.gate.evidence.blocks import (
    CPU_CLOCKS,
    awake_seconds,
    sum_by_block,
)
from perfgate.stats.arrays import Flags, Floats, Ints
from perfgate.stats.summary import linear_quantile, median

QUANTILE = 0.1
# Difference between pairs beyond the spread within them, from layouts of memory.
# Weights with 0.4 to 1.5 % do equally well.
BETWEEN_PAIRS = 0.007
# sd of the median over sd of the mean, for normal samples: sqrt(pi / 2)
_MEDIAN_ERROR = 1.25


class ProcessFastPath(NamedTuple):
    """One process: log seconds of the 10th percentile of all calls, of each quad's
    calls, and of the fastest of each quad.
    """

    p10: float
    low: Floats
    fastest: Floats


def fast_path(quads: Sequence[Floats]) -> ProcessFastPath:
    """Locate the calls of a process, given as seconds above 0 for every quad in the
    order of measuring.
    """
    low = []
    fastest = []
    for quad in quads:
        low.append(linear_quantile(quad, QUANTILE))
        fastest.append(quad.min())
    p10 = linear_quantile(np.concatenate(quads), QUANTILE)
    return ProcessFastPath(float(np.log(p10)), np.log(low), np.log(fastest))


def compare_fast_paths(
    first: ProcessFastPath, second: ProcessFastPath
) -> tuple[float, float]:
    """Second over first, as a logarithm, and the weight of the pair, of two processes
    that ran the same quads.

    The weight is less if the quads disagree: 1 / sqrt(0.7 %^2 + se^2), se the standard
    error of the median over quads from their median absolute deviation. Swapping the
    sides changes only the sign of the effect.
    """
    low = second.low - first.low
    fastest = second.fastest - first.fastest
    effect = median([second.p10 - first.p10, median(low), median(fastest)])
    quads = (low + fastest) / 2
    error = (
        _MEDIAN_ERROR
        * 1.4826
        * median(np.abs(quads - median(quads)))
        / math.sqrt(quads.size)
    )
    return effect, 1 / math.sqrt(BETWEEN_PAIRS**2 + error**2)


# The processor's counts of a block, by metric.
HARDWARE: dict[str, Literal["instructions", "cycles", "cache_misses"]] = {
    INSTRUCTIONS: "instructions",
    "hardware.cycles": "cycles",
    "hardware.cache_misses": "cache_misses",
}
TURNAROUND_QUANTILES = (0.1, 0.2, 0.3)
GAP_QUANTILE = 0.1
SHORTEST = 1e-9  # seconds; a logarithm needs more than none


class Statistics(NamedTuple):
    """One process and shape: its fast path by the deciding clock, by the wall clock
    and, on a device, by the host's time until calls return, and other times of its
    calls.

    P50 is in log seconds, the gap in seconds, device or CPU time in seconds a call.
    ``turnaround`` is log seconds a call as the conductor saw its blocks, without waits
    for a CPU; None if the conductor did not look, or if the waits cannot be separated.
    By the clock ``awake``, P50 is of the same. ``hardware`` is the logarithm of the
    processor's counts a call, by metric, for the metrics that were counted.
    """

    fast_path: ProcessFastPath
    wall_path: ProcessFastPath
    host_path: ProcessFastPath | None
    p50: float
    cpu: Floats
    gap: float
    turnaround: float | None
    hardware: dict[str, float]


class UsedBlocks(NamedTuple):
    """The blocks of a process that count, the number of calls of each, and the quad and
    the seconds of those calls.
    """

    is_used: Flags
    calls: Ints
    quad_of_call: Ints
    wall: Floats
    cpu: Floats
    host: Floats | None

    @classmethod
    def of(cls, blocks: BlockColumns, quads: frozenset[int] | None) -> UsedBlocks:
        """The blocks of these quads, by default of all."""
        is_used = np.array([quads is None or quad in quads for quad in blocks.quad])
        calls = np.asarray(blocks.calls)
        of_used = np.repeat(is_used, calls)
        # validity.py rejects a worker with calls that take no time; until then the
        # logarithm needs a positive time.
        times = blocks.times
        wall = np.maximum(unpack(times.wall)[of_used], 1) / 1e9
        cpu = unpack(times.cpu)[of_used] / 1e9
        quad_of_call = np.repeat(np.asarray(blocks.quad)[is_used], calls[is_used])
        host = None
        if times.host is not None:
            host = np.maximum(unpack(times.host)[of_used] / 1e9, SHORTEST)
        return cls(is_used, calls[is_used], quad_of_call, wall, cpu, host)

    def times(self, clock: Clock) -> Floats:
        if clock in CPU_CLOCKS:
            return np.maximum(self.cpu, SHORTEST)
        return self.wall

    def fast_path(self, times: Floats) -> ProcessFastPath:
        return fast_path(
            [times[self.quad_of_call == quad] for quad in np.unique(self.quad_of_call)]
        )


def statistics(
    blocks: BlockColumns, quads: frozenset[int] | None = None, *, clock: Clock = "wall"
) -> Statistics:
    """Summarise one process, or only these quads of it, by ``clock``: the metrics'
    entries have the formulas.
    """
    used = UsedBlocks.of(blocks, quads)
    times = used.times(clock)
    path = wall_path = used.fast_path(used.wall)
    if clock in CPU_CLOCKS:
        path = used.fast_path(times)
    host_path: ProcessFastPath | None = None
    if used.host is not None:
        host_path = used.fast_path(used.host)
    awake: Floats | None = None
    if blocks.conductor.seen_ns:
        awake = awake_seconds(blocks, used.is_used)
    turnaround: float | None = None
    if awake is not None:
        low_seconds = [linear_quantile(awake, share) for share in TURNAROUND_QUANTILES]
        turnaround = float(np.mean(np.log(low_seconds)))
        if clock == "awake":
            times = awake
    gaps = block_seconds(blocks)[used.is_used] - sum_by_block(used.wall, used.calls)
    return Statistics(
        fast_path=path,
        wall_path=wall_path,
        host_path=host_path,
        p50=float(np.log(linear_quantile(times, 0.5))),
        cpu=used.cpu,
        gap=linear_quantile(gaps / used.calls, GAP_QUANTILE),
        turnaround=turnaround,
        hardware=_hardware(blocks, used),
    )


def _hardware(blocks: BlockColumns, used: UsedBlocks) -> dict[str, float]:
    counts = {}
    for metric, name in HARDWARE.items():
        column = getattr(blocks.worker, name)
        if column:
            # One call of every block is made and not recorded. A count of 0 has no
            # logarithm.
            of_blocks = np.maximum(
                np.asarray(column, dtype=np.float64)[used.is_used], 1
            )
            counts[metric] = float(np.log(median(of_blocks / (used.calls + 1))))
    return counts


def block_seconds(blocks: BlockColumns) -> Floats:
    """The duration of each block by the worker's clock."""
    began = np.asarray(blocks.worker.start_ns)
    seconds: Floats = (np.asarray(blocks.worker.end_ns) - began) / 1e9
    return seconds
