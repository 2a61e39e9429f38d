"""Which clock decides about the calls of a shape: the one on the wall, or where others often had the CPUs, one without waiting.

That is said before anybody looks at the times: by what the kernel says that workers waited, and whether the calls compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.decision import Clock
from perfgate.document.run import BlockColumns, RunDocument
from perfgate.document.samples import unpack

# Of the measured time. On an idle machine workers wait for less than 0.1 % of it.
WAITED = 0.02
# The thread that calls must compute for this share of the time in which it does not wait for a CPU, and on both sides alike:
# what sleeps, waits for a lock or a file, or leaves its work to other threads is told by the wall alone.
COMPUTES = 0.8
ALIKE = 0.1


class TimedLane(NamedTuple):
    """What is timed: the calls of a shape of a workload, or their preprocessing."""

    workload: str
    shape: str
    preprocess: bool


Clocks = Mapping[TimedLane, Clock]
BY_THE_WALL: Clocks = {}


def deciding_clocks(base: RunDocument, head: RunDocument) -> Clocks:
    """Return the clock of every lane that both sides have in their pairs."""
    before, after = _blocks(base), _blocks(head)
    return {lane: deciding_clock(before[lane], after[lane]) for lane in before.keys() & after.keys()}


def deciding_clock(base: Sequence[BlockColumns], head: Sequence[BlockColumns]) -> Clock:
    """Return what decides about these blocks of both sides: the CPU's time of the calling thread for what the host computes."""
    if _waited_share([*base, *head]) < WAITED:
        return "wall"
    if base[0].cpu_source == "device":
        return "device"
    before, after = _computing_share(base), _computing_share(head)
    return "cpu" if min(before, after) >= COMPUTES and abs(after - before) <= ALIKE else "wall"


def awake_ns(columns: BlockColumns) -> npt.NDArray[np.float64]:
    """Return what the conductor saw each block take, without what it and the worker waited for a CPU that others had."""
    seen = np.asarray(columns.seen_ns, dtype=np.float64)
    for delays in (columns.run_delay_ns, columns.conductor_delay_ns):
        if delays:
            seen = seen - np.asarray(delays)
    return np.maximum(seen, 1.0)


def _blocks(run: RunDocument) -> dict[TimedLane, list[BlockColumns]]:
    found: dict[TimedLane, list[BlockColumns]] = {}
    for replicate in run.replicates:
        if replicate.arm == "ab":
            for preprocess, lanes in ((False, replicate.shapes), (True, replicate.preprocess)):
                for shape, columns in lanes.items():
                    found.setdefault(TimedLane(replicate.workload, shape, preprocess), []).append(columns)
    return found


def _waited_share(blocks: Iterable[BlockColumns]) -> float:
    told = [columns for columns in blocks if columns.run_delay_ns]
    seen = sum(sum(columns.seen_ns) for columns in told)
    return sum(sum(columns.run_delay_ns) for columns in told) / seen if seen else 0.0


def _computing_share(blocks: Sequence[BlockColumns]) -> float:
    """Return the share of the time awake that the calling thread computed, by the worker's own account of it."""
    computed = awake = 0.0
    for columns in blocks:
        calls = np.asarray(columns.calls)
        ends = np.concatenate([[0], np.cumsum(calls)[:-1]])
        # One call of every block is made and not recorded.
        computed += float((np.add.reduceat(unpack(columns.cpu), ends) * (calls + 1) / calls).sum())
        awake += float(awake_ns(columns).sum())
    return computed / awake if awake else 0.0
