"""A worker's turn: warm up, run timed blocks, and keep every call of every block."""

from __future__ import annotations

import gc
import itertools
import math
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from perfgate.document.samples import BlockColumns, KernelBlocks, StageTimes, pack
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.kernels import KernelRecorder
from perfgate.measuring.timing.calls import Ints, SteadyState, timed_call
from perfgate.measuring.timing.hardware import HardwareCounters, HardwareCounts, counted, shared_counters
from perfgate.measuring.timing.preprocessing import Preprocessing
from perfgate.measuring.workload.bound import BoundWorkload, line_of
from perfgate.protocol import FEWEST_CALLS, SLOW_CALL_SECONDS, WarmedUp
from perfgate.system.garbage import collector_off, thaw

# Fastest calls of blocks that lie this close together count as equal; after this time noise alone may keep them apart. The
# fastest, because a neighbour slows most calls of a block and hardly ever all: on a machine under load, medians never
# agreed in half a second, while fastest calls did in a tenth of it. A quarter of a block is enough: with whole ones warming
# up took as long as the blocks of a pair.
AGREEMENT = 0.02
SETTLING_SECONDS = 0.05
IN_A_ROW = 3
SETTLING_BLOCKS = 4

CpuSource = Literal["thread_cpu", "device"]


@dataclass(frozen=True)
class BlockTimes:
    """One block: nanoseconds of each call by the host clock, and of CPU or device; its start; its disturbances.

    ``host`` are those until the call returned, on a device with a queue.

    ``took_ns`` is the whole block, with the unrecorded call and the garbage collection, and ``took_delay_ns`` the part of
    it in which the thread was ready to run without a CPU; None if the kernel does not report it. ``counts`` are of the
    whole block too, None without counters. ``stages`` has a row per call and a column per stage for preprocessing.
    """

    wall: Ints
    cpu: Ints
    start_ns: int
    end_ns: int
    involuntary_switches: int
    minor_faults: int
    condition: DeviceState
    took_ns: int
    took_delay_ns: int | None
    counts: HardwareCounts | None = None
    stages: Ints | None = None
    host: Ints | None = None


class CallColumns(NamedTuple):
    """Nanoseconds of each call of a block by the host clock and by the second clock, and when the block began and ended."""

    wall: Ints
    cpu: Ints
    start_ns: int
    end_ns: int
    host: Ints | None = None


def run_block(
    call: Callable[[], Any],
    device: Device,
    *,
    calls: int,
    on_host: bool = False,
    as_served: bool = False,
    counters: HardwareCounters | None = None,
) -> BlockTimes:
    """Run ``calls`` calls, each waited for, after one that is not recorded.

    That first call absorbs caches and branch predictors left by the other side, and weights that have just moved. On a
    device with a queue the second column is device time between two events, including the launch of the first kernel,
    because the queue is empty before each call, and a third is the host's time until the call returns. Otherwise, and for
    work ``on_host``, the second is thread CPU time. Collection of garbage waits until the end.

    ``as_served`` keeps what makes single calls slow: garbage is collected inside the calls that leave it, as in a service. Only
    waits for a CPU are left out of their times.
    """
    timed = _run_on_host if on_host else _timed_on(device)
    began, waited = device.clock_ns(), device.run_delay_ns()
    counts_before = counters.read() if counters else []
    with device.leave_out_waits() if as_served else collector_off():
        call()
        device.synchronize()
        before = resource.getrusage(resource.RUSAGE_SELF)
        times = timed(call, device, calls, device.timer_ns if as_served else device.clock_ns)
        after = resource.getrusage(resource.RUSAGE_SELF)
    counts = counted(counts_before, counters.read()) if counters else None
    waited_after = device.run_delay_ns()
    # The whole process, not the thread alone: a switch of any OpenMP thread holds the call up just as well.
    return BlockTimes(
        wall=times.wall,
        cpu=times.cpu,
        host=times.host,
        start_ns=times.start_ns,
        end_ns=times.end_ns,
        involuntary_switches=after.ru_nivcsw - before.ru_nivcsw,
        minor_faults=after.ru_minflt - before.ru_minflt,
        condition=device.condition(),
        took_ns=device.clock_ns() - began,
        took_delay_ns=None if waited is None or waited_after is None else waited_after - waited,
        counts=counts,
    )


# Makes calls on a device, timed by a clock.
_Timed = Callable[[Callable[[], Any], Device, int, Callable[[], int]], CallColumns]


def _timed_on(device: Device) -> _Timed:
    return _run_on_queue if "queue" in device.capabilities else _run_on_host


def _run_on_host(call: Callable[[], Any], device: Device, calls: int, timer: Callable[[], int]) -> CallColumns:
    """The CPU clock is a system call: it is read outside the wall time, and stops between calls as that does."""
    clock, cpu_clock, synchronize = device.clock_ns, device.cpu_clock_ns, device.synchronize
    starts, ends, cpu_starts, cpu_ends = [0] * calls, [0] * calls, [0] * calls, [0] * calls
    block_start = clock()
    for index in range(calls):
        cpu_starts[index] = cpu_clock()
        starts[index] = timer()
        output = call()
        synchronize()
        ends[index] = timer()
        cpu_ends[index] = cpu_clock()
        # A caller has its output when the call ends, and releases it later: the cost of that is gap.
        del output
    block_end = clock()
    return CallColumns(
        _as_ns(ends) - _as_ns(starts), _as_ns(cpu_ends) - _as_ns(cpu_starts), start_ns=block_start, end_ns=block_end
    )


def _run_on_queue(call: Callable[[], Any], device: Device, calls: int, timer: Callable[[], int]) -> CallColumns:
    clock, synchronize = device.clock_ns, device.synchronize
    marks = [(device.event(), device.event()) for _ in range(calls)]
    starts, returns, ends = [0] * calls, [0] * calls, [0] * calls
    block_start = clock()
    for index, (before, after) in enumerate(marks):
        starts[index] = timer()
        before.record()
        output = call()
        returns[index] = timer()
        after.record()
        synchronize()
        ends[index] = timer()
        del output
    block_end = clock()
    device_ns = [after.time_ns() - before.time_ns() for before, after in marks]
    began = _as_ns(starts)
    return CallColumns(
        _as_ns(ends) - began,
        _as_ns(device_ns),
        start_ns=block_start,
        end_ns=block_end,
        host=_as_ns(returns) - began,
    )


def _as_ns(values: list[int]) -> Ints:
    return np.asarray(values, dtype=np.int64)


# A block, its quad and its place in the sequence.
_Recorded = tuple[int, int, BlockTimes]


class BlockRecorder:
    """Runs blocks of a workload and keeps them until they are asked for.

    ``preprocessing`` maps each shape to its preprocessing; it is empty for a workload without any.
    """

    def __init__(self, workload: BoundWorkload, device: Device, *, counters: HardwareCounters | None = None) -> None:
        self._device = device
        self._counters = counters
        self._kernels = KernelRecorder(device)
        self._callers = {shape: workload.caller(shape) for shape in workload.shapes}
        self._recorded: dict[str, list[_Recorded]] = {shape: [] for shape in workload.shapes}
        measured = workload.shapes if workload.stages else []
        self.preprocessing = {shape: Preprocessing(workload, device, shape) for shape in measured}
        self._preprocessed: dict[str, list[_Recorded]] = {shape: [] for shape in measured}

    def record(self, shape: str, *, calls: int, quad: int, sequence: int, as_served: bool = False) -> BlockTimes:
        if as_served:
            thaw()
        block = run_block(self._callers[shape], self._device, calls=calls, as_served=as_served, counters=self._counters)
        if as_served:
            # A wait that the kernel booked between the readings of the two clocks may exceed a short call.
            block = replace(block, wall=np.maximum(block.wall, 1))
        self._recorded[shape].append((quad, sequence, block))
        return block

    def wake(self, shape: str, *, seconds: float) -> None:
        """Bring a device that idled back to its temperature and clock, by calls that are not recorded."""
        until = self._device.clock_ns() + int(seconds * 1e9)
        while self._device.clock_ns() < until:
            self._callers[shape]()
            self._device.synchronize()

    def record_kernels(self, shape: str, *, calls: int, quad: int) -> None:
        self._kernels.record(shape, self._callers[shape], calls=calls, quad=quad)

    def record_preprocessing(self, shape: str, *, calls: int, quad: int, sequence: int) -> BlockTimes:
        preprocessing = self.preprocessing[shape]
        block = run_block(preprocessing, self._device, calls=calls, on_host=True, counters=self._counters)
        stages = preprocessing.taken(calls)
        block = replace(block, wall=stages.sum(axis=1), stages=stages)
        self._preprocessed[shape].append((quad, sequence, block))
        return block

    def clear(self) -> None:
        """Forget the recorded blocks."""
        for lane in (*self._recorded.values(), *self._preprocessed.values()):
            lane.clear()
        self._kernels.clear()

    @property
    def uncounted(self) -> str | None:
        """The hardware counters missing from the blocks, and why; None if none is missing or counting is off."""
        if self._counters is None or self._counters.absent:
            return self._counters.absent if self._counters else None
        counts = []
        for lane in (*self._recorded.values(), *self._preprocessed.values()):
            counts += [block.counts for *_, block in lane if block.counts]
        return shared_counters(counts)

    def columns(self) -> dict[str, BlockColumns]:
        """The blocks of every shape in the order they ran; shapes without a block are left out."""
        source: CpuSource = "device" if "queue" in self._device.capabilities else "thread_cpu"
        return {shape: _as_columns(lane, source, []) for shape, lane in self._recorded.items() if lane}

    def kernel_columns(self) -> dict[str, KernelBlocks]:
        """The profiled blocks of every shape, in the order they ran."""
        return self._kernels.columns()

    def preprocess_columns(self, root: Path) -> dict[str, BlockColumns]:
        """The blocks of preprocessing of every shape; lines of stages are those below ``root``."""
        columns = {}
        for shape, lane in self._preprocessed.items():
            if not lane:
                continue
            times = np.concatenate([block.stages for *_, block in lane if block.stages is not None]).T
            stages = []
            for stage, wall in zip(self.preprocessing[shape].stages, times):
                stages.append(StageTimes(name=stage.name, wall=pack(wall), line=line_of(stage.run, root)))
            columns[shape] = _as_columns(lane, "thread_cpu", stages)
        return columns


def _as_columns(lane: Sequence[_Recorded], source: CpuSource, stages: list[StageTimes]) -> BlockColumns:
    of_host = [block.host for *_, block in lane if block.host is not None]
    columns = BlockColumns(
        quad=[],
        sequence=[],
        calls=[],
        start_ns=[],
        end_ns=[],
        involuntary_switches=[],
        minor_faults=[],
        wall=pack(np.concatenate([block.wall for *_, block in lane])),
        cpu=pack(np.concatenate([block.cpu for *_, block in lane])),
        host=pack(np.concatenate(of_host)) if of_host else None,
        cpu_source=source,
        stages=stages,
    )
    partial_columns = (columns.took_delay_ns, columns.instructions, columns.cycles, columns.cache_misses)
    for quad, sequence, block in lane:
        columns.quad.append(quad)
        columns.sequence.append(sequence)
        _append_block(columns, block)
        counts = block.counts or HardwareCounts(None, None, None)
        for column, value in zip(partial_columns, (block.took_delay_ns, *counts)):
            if value is not None:
                column.append(value)
    for column in partial_columns:
        if len(column) < len(lane):  # a number of some blocks is none
            column.clear()
    return columns


def _append_block(columns: BlockColumns, block: BlockTimes) -> None:
    state = block.condition
    columns.calls.append(int(block.wall.size))
    columns.start_ns.append(block.start_ns)
    columns.end_ns.append(block.end_ns)
    columns.involuntary_switches.append(block.involuntary_switches)
    columns.minor_faults.append(block.minor_faults)
    columns.took_ns.append(block.took_ns)
    columns.throttled.append(state.throttled)
    columns.power_capped.append(state.power_capped)
    columns.clock_share.append(state.clock_share())
    others = state.foreign_processes
    columns.foreign_processes.append(None if others is None else len(others))


def warm_up(
    workload: BoundWorkload,
    device: Device,
    *,
    block_seconds: float,
    cap_seconds: float,
    least_seconds: float = 0.0,
    preprocessing: Mapping[str, Preprocessing] | None = None,
) -> WarmedUp:
    """Warm up every shape and return the number of calls in a block of about ``block_seconds``: at least 3.

    A block of ``preprocessing``, by shape, has at least one: few calls are enough to locate 100 ms.

    A call of SLOW_CALL_SECONDS or more makes a block alone, and is warm once it is no longer faster than the one before.

    A shape is steady when the fastest calls of three blocks in a row lie within 2 %, or when a twentieth of a second has
    passed and they do not keep falling (then noise, not warming, holds them apart). All shapes share that time, because the
    process as a whole warms up, ``least_seconds`` before which none is steady, and ``cap_seconds``; if that ends the search,
    ``steady`` is False. Live objects are frozen, so that the collections between blocks are short.
    """
    _freeze()
    block_ns = int(block_seconds * 1e9)
    callers = {shape: workload.caller(shape) for shape in workload.shapes}
    preprocessing = preprocessing or {}
    lanes = len(callers) + len(preprocessing)
    settle = partial(
        _settle,
        device=device,
        block_ns=block_ns // SETTLING_BLOCKS,
        least_ns=int(least_seconds * 1e9 / lanes),
        settling_ns=int(SETTLING_SECONDS * 1e9 / lanes),
        cap_ns=int(cap_seconds * 1e9 / lanes),
    )
    calls, steady, call_ns = 0, True, 0.0
    block_calls, preprocess_calls = {}, {}
    for shape, call in callers.items():
        settled = settle(call)
        calls, steady, call_ns = calls + settled.calls, steady and settled.steady, call_ns + settled.call_ns
        fitting = max(FEWEST_CALLS, math.ceil(block_ns / settled.call_ns))
        block_calls[shape] = 1 if _is_slow(settled.call_ns) else fitting
    for shape, preprocess in preprocessing.items():
        settled = settle(preprocess)
        calls, steady = calls + settled.calls, steady and settled.steady
        preprocess_calls[shape] = math.ceil(block_ns / settled.call_ns)
    _freeze()
    return WarmedUp(
        calls=calls,
        steady=steady,
        call_seconds=call_ns / 1e9,
        block_calls=block_calls,
        preprocess_calls=preprocess_calls,
    )


def _is_slow(call_ns: float) -> bool:
    return call_ns >= SLOW_CALL_SECONDS * 1e9


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _settle(
    call: Callable[[], Any], *, device: Device, block_ns: int, least_ns: int, settling_ns: int, cap_ns: int
) -> SteadyState:
    # The first call may compile for longer than all the rest may take.
    first_ns = timed_call(call, device)
    started = device.clock_ns()
    used, block_calls, fastest = 1, 1, list[float]()
    timed = _timed_on(device)
    while True:
        with collector_off():
            wall = timed(call, device, block_calls, device.clock_ns).wall
        used += block_calls
        fastest.append(max(1.0, float(wall.min())))
        call_ns = max(1.0, float(np.median(wall)))
        block_calls = max(1, math.ceil(block_ns / call_ns))
        elapsed = device.clock_ns() - started
        is_warm = elapsed >= least_ns
        if is_warm and _is_slow(call_ns) and fastest[-1] >= (1 - AGREEMENT) * ([first_ns, *fastest][-2]):
            return SteadyState(used, True, first_ns, call_ns)
        if is_warm and _is_settled(fastest[-IN_A_ROW:], may_wander=elapsed >= settling_ns):
            return SteadyState(used, True, first_ns, call_ns)
        if elapsed >= cap_ns:
            return SteadyState(used, False, first_ns, call_ns)


def _is_settled(last: list[float], *, may_wander: bool) -> bool:
    """Whether the fastest calls of the last blocks agree, or, if they ``may_wander``, at least do not fall any more."""
    if len(last) < IN_A_ROW:
        return False
    if max(last) - min(last) <= AGREEMENT * min(last):
        return True
    falls = all(later < earlier for earlier, later in itertools.pairwise(last))
    return may_wander and not (falls and last[-1] < last[0] * (1 - AGREEMENT))
