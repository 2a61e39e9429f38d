"""Count calls once more in another process: a count that differs between processes is
not exact.
"""

from __future__ import annotations

from collections.abc import Collection

from perfgate.document.run import CounterSet
from perfgate.measuring.counting.collect import calls_within, trace_calls
from perfgate.measuring.counting.counters import (
    count_calls,
    count_operators,
    with_fallbacks,
    with_kernels,
    with_steady,
)
from perfgate.measuring.counting.kept import with_kept_bytes
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.protocol import COUNTED_PARTS, CountedPart
from perfgate.system.garbage import quiet
from perfgate.trace.model.spans import KERNEL_METRICS, work_by_span


def count_again(
    workload: BoundWorkload, *, parts: Collection[CountedPart] = COUNTED_PARTS
) -> list[CounterSet]:
    """The counters of every shape in the order in which step 4 counts them, without
    compilations.

    Without any of the ``parts`` these are the operators of the first few calls.
    """
    counters = [_count(workload, shape, parts) for shape in workload.shapes]
    if "kept" in parts:
        counters = [with_kept_bytes(workload, counted) for counted in counters]
    return [with_steady(counted) for counted in counters]


def _count(
    workload: BoundWorkload, shape: str, parts: Collection[CountedPart]
) -> CounterSet:
    if parts:
        # Make calls until all effects of the first calls are gone: the first process
        # has made many calls before it counts, so that tuners have chosen and caches
        # are full by then.
        call, device = workload.caller(shape), workload.device
        with quiet():
            timed_call(call, device)
            took = timed_call(call, device)
            for _ in range(
                calls_within(took, seconds=0.5, fewest=0, most=2 * POOL_SIZE)
            ):
                call()
            device.synchronize()
    count = count_calls if "memory" in parts else count_operators
    counted = count(workload, shape)
    if parts and "kernel_timeline" in workload.device.capabilities:
        counted = _with_traced_kernels(workload, shape, counted)
    fallbacks = workload.device.fallbacks()
    if fallbacks is not None:
        counted = with_fallbacks(counted, fallbacks)
    if "python" in parts:
        counted = with_python_work(workload, counted)
    return counted


def _with_traced_kernels(
    workload: BoundWorkload, shape: str, counted: CounterSet
) -> CounterSet:
    with quiet():
        trace = trace_calls(workload.device, workload.caller(shape), calls=3)
        works = work_by_span(trace.events, trace.spans())
    return with_kernels(
        counted, works, absent=KERNEL_METRICS if trace.hides_kernels else ()
    )
