"""The clock that decides about timed calls.

On a CPU calls are timed by the wall clock, or if other processes often had the CPUs, by a clock that does not count waiting:
the scheduler favours a side that sleeps, so that side would seem faster on the wall clock. The clock is chosen before the times
are examined: by the kernel's account of the workers' waits, and by whether the calls compute. On an accelerator the device's
clock decides, in addition to the time of its kernels and the host's (``producers/device_clocks.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.comparison import Clock
from perfgate.document.samples import BlockColumns, Replicate, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.undisturbed import LEAST_CLEAN, waited_share
from perfgate.stats.arrays import Flags, Floats, Ints

# Of the measured time. On an idle machine workers wait for less than 0.1 % of it.
WAITED = 0.02
# The calling thread must compute for this share of the time in which it does not wait for a CPU, and on both sides alike: a
# call that sleeps, waits for a lock or a file, or leaves its work to other threads is timed right on the wall clock alone.
COMPUTES = 0.8
ALIKE = 0.1
# Of the computation of its calls, by their own account: the waiting of a block awake for less was counted twice.
LEAST_AWAKE = 0.95
# The clocks, other than the wall clock, that time every single call.
CPU_CLOCKS = frozenset({"cpu", "device"})


class TimedLane(NamedTuple):
    """A timed activity: the calls of a shape, or their preprocessing."""

    place: ShapePlace
    preprocess: bool


# None if no clock is fair to both sides.
Clocks = Mapping[TimedLane, Clock | None]
ALL_BY_WALL: Clocks = {}


def deciding_clocks(base: Iterable[Replicate], head: Iterable[Replicate]) -> Clocks:
    before = _blocks_by_lane(base)
    after = _blocks_by_lane(head)
    clocks = {}
    for lane in before.keys() & after.keys():
        clocks[lane] = deciding_clock(before[lane], after[lane])
    return clocks


def deciding_clock(
    base: Sequence[BlockColumns], head: Sequence[BlockColumns]
) -> Clock | None:
    """The clock that decides about these blocks of both sides: the CPU time of the calling thread if the host computes.

    Calls that sleep or leave their work to other threads are timed by how long their blocks were awake. None if that is
    unknown: a thread's CPU time would hide its waits, and the wall clock the scheduler's bias.
    """
    if base[0].times.cpu_source == "device":
        return "device"
    blocks = [*base, *head]
    if any(
        columns.conductor.seen_ns and awake_seconds(columns) is None
        for columns in blocks
    ):
        return None
    if (waited_share(blocks) or 0.0) < WAITED:
        return "wall"
    if not all(columns.conductor.seen_ns for columns in blocks):
        return None
    before = _computing_share(base)
    after = _computing_share(head)
    if min(before, after) >= COMPUTES and abs(after - before) <= ALIKE:
        return "cpu"
    return "awake"


def _blocks_by_lane(
    replicates: Iterable[Replicate],
) -> dict[TimedLane, list[BlockColumns]]:
    blocks: dict[TimedLane, list[BlockColumns]] = {}
    for replicate in replicates:
        if replicate.arm != "ab":
            continue
        for preprocess, lanes in (
            (False, replicate.shapes),
            (True, replicate.preprocess),
        ):
            for shape, columns in lanes.items():
                lane = TimedLane(ShapePlace(replicate.workload, shape), preprocess)
                blocks.setdefault(lane, []).append(columns)
    return blocks


def _computing_share(blocks: Sequence[BlockColumns]) -> float:
    """The share of the time awake that the calling thread computed, by the worker's own account of it."""
    computed = awake = 0.0
    for columns in blocks:
        calls = np.asarray(columns.calls)
        block_seconds = awake_by_block(columns)
        known = np.isfinite(block_seconds)
        # One call of every block is made and not recorded.
        cpu_ns = sum_by_block(unpack(columns.times.cpu), calls) * (calls + 1) / calls
        computed += float(cpu_ns[known].sum()) / 1e9
        awake += float(block_seconds[known].sum())
    return computed / awake


def awake_seconds(columns: BlockColumns, is_used: Flags | None = None) -> Floats | None:
    """Seconds a call of the blocks with a known time awake; None if too few of these blocks have one."""
    seconds = awake_by_block(columns) / (np.asarray(columns.calls) + 1)
    if is_used is not None:
        seconds = seconds[is_used]
    known: Floats = seconds[np.isfinite(seconds)]
    if known.size < LEAST_CLEAN * seconds.size:
        return None
    return known


def awake_by_block(columns: BlockColumns) -> Floats:
    """The duration of each block as seen by the conductor, without its own and the worker's waits for a CPU taken by others.

    Both may have waited in the same moment. A block that seems shorter than its own computation is unknown, and becomes NaN.
    """
    observed = columns.conductor
    awake = np.asarray(observed.seen_ns, dtype=np.float64)
    for delays in (observed.run_delay_ns, observed.conductor_delay_ns):
        if delays:
            awake = awake - np.asarray(delays)
    least = np.ones(awake.size)
    if columns.times.cpu_source == "thread_cpu":
        computed = sum_by_block(unpack(columns.times.cpu), np.asarray(columns.calls))
        least = np.maximum(least, LEAST_AWAKE * computed)
    awake[awake < least] = np.nan
    return awake / 1e9


def sum_by_block(times: Floats | Ints, calls: Ints) -> Floats:
    """The sum over the calls of each block."""
    starts = np.concatenate([[0], np.cumsum(calls)[:-1]])
    sums: Floats = np.add.reduceat(times.astype(np.float64), starts)
    return sums
