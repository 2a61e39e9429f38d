"""Blocks of calls: the state of the machine under each, the blocks that it left
undisturbed, and the clock that decides about timed calls.

Blocks are selected by the environment's report and never by how long they took. A block
that is dropped takes its whole quad on both sides with it, so that dropping cannot
favour a side.

On a CPU calls are timed by the wall clock, or if other processes often had the CPUs, by
a clock that does not count waiting: the scheduler favours a side that sleeps, so that
side would seem faster on the wall clock. The clock is chosen before the times are
examined: by the kernel's account of the workers' waits, and by whether the calls
compute. On an accelerator the device's clock decides, in addition to the time of its
kernels and the host's (``producers/device_clocks.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfgate.document.comparison import Clock
from perfgate.document.decision import PowerCap
from perfgate.document.samples import BlockColumns, DeviceColumns, Replicate, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.arrays import Flags, Floats, Ints
from perfgate.stats.robust import shift

RATED_CLOCK_SHARE = 0.97
LEAST_CLEAN = 0.4  # of the quads of a pair, and of the pairs of a shape

Taint = Literal["throttled", "slow_clock", "foreign_process"]


def clean_pair(
    first: BlockColumns, second: BlockColumns
) -> tuple[frozenset[int] | None, Counter[Taint]]:
    """The quads of a pair undisturbed on both sides, None if too few are left; and the
    number of quads by disturbance.

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
    # A driver that reports throttling is trusted: a lower clock was requested, or its
    # power limit holds it.
    unexplained = not device.throttled or device.throttled[index] is None
    if unexplained and device.clock_share:
        share = device.clock_share[index]
        if share is not None and share < RATED_CLOCK_SHARE:
            return "slow_clock"
    if device.foreign_processes and device.foreign_processes[index]:
        return "foreign_process"
    return None


def waited_share(blocks: Iterable[BlockColumns]) -> float | None:
    """The share of the measured time that workers waited for a CPU taken by another
    process; None if it is unknown.
    """
    waited = seen = 0
    for columns in blocks:
        observed = columns.conductor
        if observed.run_delay_ns:
            waited += sum(observed.run_delay_ns)
            seen += sum(observed.seen_ns)
    if not seen:
        return None
    return waited / seen


# --- the device under each side: how often its power limit held it, and its clock. A
# card at its power limit is in the normal state of a heavy model. Times compare as long
# as both sides ran at the same clock; otherwise cycles do, if the device counts them.


# Clocks of both sides that differ by more than this share are not one operating point.
CLOCK_TOLERANCE = 0.03


def power_cap(base: Iterable[Replicate], head: Iterable[Replicate]) -> PowerCap | None:
    """The share of each side's blocks at the power limit; None if no block was, or a
    side's state is unknown.
    """
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
    """The relative difference of head's clock from base's; None if it is within the
    tolerance, may be 0, or is unknown.
    """
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


# --- the clock that decides about timed calls

# Of the measured time. On an idle machine workers wait for less than 0.1 % of it.
WAITED = 0.02
# The calling thread must compute for this share of the time in which it does not wait
# for a CPU, and on both sides alike: a call that sleeps, waits for a lock or a file, or
# leaves its work to other threads is timed right on the wall clock alone.
COMPUTES = 0.8
ALIKE = 0.1
# Of the computation of its calls, by their own account: the waiting of a block awake
# for less was counted twice.
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
    """The clock that decides about these blocks of both sides: the CPU time of the
    calling thread if the host computes.

    Calls that sleep or leave their work to other threads are timed by how long their
    blocks were awake. None if that is unknown: a thread's CPU time would hide its
    waits, and the wall clock the scheduler's bias.
    """
    if base[0].times.cpu_source == "device":
        return "device"
    blocks = [*base, *head]
    for columns in blocks:
        if columns.conductor.seen_ns and awake_seconds(columns) is None:
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
        lanes = {False: replicate.shapes, True: replicate.preprocess}
        for preprocess, blocks_by_shape in lanes.items():
            for shape, columns in blocks_by_shape.items():
                lane = TimedLane(ShapePlace(replicate.workload, shape), preprocess)
                blocks.setdefault(lane, []).append(columns)
    return blocks


def _computing_share(blocks: Sequence[BlockColumns]) -> float:
    """The share of the time awake that the calling thread computed, by the worker's own
    account of it.
    """
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
    """Seconds a call of the blocks with a known time awake; None if too few of these
    blocks have one.
    """
    seconds = awake_by_block(columns) / (np.asarray(columns.calls) + 1)
    if is_used is not None:
        seconds = seconds[is_used]
    known: Floats = seconds[np.isfinite(seconds)]
    if known.size < LEAST_CLEAN * seconds.size:
        return None
    return known


def awake_by_block(columns: BlockColumns) -> Floats:
    """The duration of each block as seen by the conductor, without its own and the
    worker's waits for a CPU taken by others.

    Both may have waited in the same moment. A block that seems shorter than its own
    computation is unknown, and becomes NaN.
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
