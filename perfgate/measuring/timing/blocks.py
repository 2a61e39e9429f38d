"""One timed block of calls: the nanoseconds of each call, and what disturbed the block."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.timing.hardware import (
    NOT_COUNTED,
    HardwareCounters,
    HardwareCounts,
    counted,
)
from perfgate.stats.arrays import Ints
from perfgate.system.garbage import collector_off

# The device works on after a call if it is idle this share of the call later than the
# stream that the call ended on, and later than some synchronizations of an idle device
# take.
OVERHANG_SHARE, OVERHANG_WAITS = 0.05, 3


class BlockCalls(NamedTuple):
    """The calls of a block, in order, and when the block began and ended.

    ``wall`` has the nanoseconds of each call by the host's clock, ``cpu`` the thread's
    CPU time or the device's time. On a device with a queue ``host`` has the time until
    each call returned. Preprocessing has ``stages``: a row per call and a column per
    stage.
    """

    wall: Ints
    cpu: Ints
    start_ns: int
    end_ns: int
    host: Ints | None = None
    stages: Ints | None = None


class BlockTimes(NamedTuple):
    """One block: its calls, and its disturbances.

    ``took_ns`` is the whole block, with the unrecorded call and the garbage collection,
    and ``took_delay_ns`` the part of it in which the thread was ready to run without a
    CPU; None if the kernel does not report it. ``counts`` covers the whole block too.
    """

    calls: BlockCalls
    involuntary_switches: int
    minor_faults: int
    condition: DeviceState
    took_ns: int
    took_delay_ns: int | None
    counts: HardwareCounts = NOT_COUNTED


def run_block(
    call: Call,
    device: Device,
    *,
    calls: int,
    on_host: bool = False,
    as_served: bool = False,
    counters: HardwareCounters | None = None,
) -> BlockTimes:
    """Run ``calls`` calls, each waited for, after one that is not recorded.

    That first call absorbs caches and branch predictors left by the other side, and
    weights that have just moved. On a device with a queue the second column is device
    time between two events, including the launch of the first kernel, because the queue
    is empty before each call, and a third is the host's time until the call returns. A
    call ends when the device is idle, so work on streams that the call does not wait
    for belongs to it. Otherwise, and for work ``on_host``, the second is thread CPU
    time. Collection of garbage waits until the end.

    ``as_served`` keeps what makes single calls slow: garbage is collected inside the
    calls that leave it, as in a service. Only waits for a CPU are left out of their
    times.
    """
    timer = device.clock_ns
    around: AbstractContextManager[None] = collector_off()
    if as_served:
        timer, around = device.timer_ns, device.leave_out_waits()
    began, delay_before = device.clock_ns(), device.run_delay_ns()
    readings = counters.read() if counters else []
    with around:
        call()
        device.synchronize()
        usage_before = resource.getrusage(resource.RUSAGE_SELF)
        timed = time_calls_of_block(call, device, calls, timer, on_host=on_host)
        usage = resource.getrusage(resource.RUSAGE_SELF)
    counts = counted(readings, counters.read()) if counters else NOT_COUNTED
    delay = device.run_delay_ns()
    if delay is not None:
        delay = None if delay_before is None else delay - delay_before
    # The whole process, not the thread alone: a switch of any OpenMP thread holds the
    # call up just as well.
    return BlockTimes(
        calls=timed,
        involuntary_switches=usage.ru_nivcsw - usage_before.ru_nivcsw,
        minor_faults=usage.ru_minflt - usage_before.ru_minflt,
        condition=device.condition(),
        took_ns=device.clock_ns() - began,
        took_delay_ns=delay,
        counts=counts,
    )


def time_calls_of_block(
    call: Call,
    device: Device,
    calls: int,
    timer: Callable[[], int],
    *,
    on_host: bool = False,
) -> BlockCalls:
    """Make calls one after the other, each waited for, and time them by ``timer``."""
    if on_host or "queue" not in device.capabilities:
        return _time_on_host(call, device, calls, timer)
    return _time_on_queue(call, device, calls, timer)


def _time_on_host(
    call: Call, device: Device, calls: int, timer: Callable[[], int]
) -> BlockCalls:
    """The CPU clock is a system call: it is read outside the wall time, and stops
    between calls as that does.
    """
    cpu_clock, synchronize = device.cpu_clock_ns, device.synchronize
    starts = [0] * calls
    ends = [0] * calls
    cpu_starts = [0] * calls
    cpu_ends = [0] * calls
    block_start = device.clock_ns()
    for index in range(calls):
        cpu_starts[index] = cpu_clock()
        starts[index] = timer()
        output = call()
        synchronize()
        ends[index] = timer()
        cpu_ends[index] = cpu_clock()
        # A caller has its output when the call ends, and releases it later: the cost of
        # that is gap.
        del output
    block_end = device.clock_ns()
    return BlockCalls(
        np.subtract(ends, starts),
        np.subtract(cpu_ends, cpu_starts),
        block_start,
        block_end,
    )


def _time_on_queue(
    call: Call, device: Device, calls: int, timer: Callable[[], int]
) -> BlockCalls:
    synchronize = device.synchronize
    marks = [(device.event(), device.event()) for _ in range(calls)]
    starts = [0] * calls
    returns = [0] * calls
    passed = [0] * calls
    ends = [0] * calls
    synchronize()
    was_idle = timer()
    synchronize()
    wait_ns = timer() - was_idle
    block_start = device.clock_ns()
    for index, (before, after) in enumerate(marks):
        starts[index] = timer()
        before.record()
        output = call()
        returns[index] = timer()
        after.record()
        after.wait()
        passed[index] = timer()
        synchronize()
        ends[index] = timer()
        del output
    block_end = device.clock_ns()
    span_ns = np.asarray(
        [after.time_ns() - before.time_ns() for before, after in marks], dtype=np.int64
    )
    device_ns = span_ns + _overhang(span_ns, np.subtract(ends, passed), wait_ns)
    return BlockCalls(
        np.subtract(ends, starts),
        device_ns,
        block_start,
        block_end,
        host=np.subtract(returns, starts),
    )


def _overhang(span_ns: Ints, until_idle_ns: Ints, wait_ns: int) -> Ints:
    """How long each call's other streams worked on after its own; 0 if those of most
    calls did not.

    The events mark one stream, and no function tells the time of the others: the host's
    clock does. ``wait_ns`` is what a synchronization of the idle device takes.
    """
    least = OVERHANG_SHARE * float(np.median(span_ns)) + OVERHANG_WAITS * wait_ns
    if float(np.median(until_idle_ns)) > least:
        return until_idle_ns
    return np.zeros_like(until_idle_ns)
