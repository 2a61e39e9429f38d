"""Exact counters of single calls: operators, copies and their bytes, allocations, and from which line they come."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfgate.document.run import CounterSet, OpCount
from perfgate.measuring.devices.device import Device
from perfgate.measuring.trace.tally import CallTally
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload

# An optimizer makes its state in the first step and a kernel library its plans in the first call; neither is steady.
WARM_UP_CALLS = 3


def count_calls(workload: BoundWorkload, device: Device, shape: str, *, repeats: int = 3, root: Path) -> CounterSet:
    """Count ``repeats`` single steady calls, each on another input of the shape.

    Source lines are given relative to ``root``, the checkout. A metric that differs between the repeats, an operator's
    count (``ops.count:NAME``) included, is listed in ``unstable``; values are those of the last repeat. Compiled
    regions are counted as the framework dispatches them under a dispatch mode, which is without their fusion.
    """
    pool = workload.pool(shape)
    with _garbage_collection_paused():
        for index in range(WARM_UP_CALLS):
            workload.invoke(pool[index % POOL_SIZE])
        tallies = [_count_call(workload, device, pool[index % POOL_SIZE], root) for index in range(repeats)]
    return counter_set(tallies, workload=workload.name, shape=shape)


def counter_set(tallies: list[CallTally], *, workload: str, shape: str) -> CounterSet:
    """Return one CounterSet of repeated calls."""
    last = tallies[-1]
    ops = [
        OpCount(op=name, count=op.count, copy_bytes=op.copy_bytes, view=op.view, line=op.line())
        for name, op in sorted(last.ops.items(), key=lambda item: (-item[1].count, item[0]))
    ]
    return CounterSet(
        workload=workload,
        shape=shape,
        repeats=len(tallies),
        values=last.values(),
        ops=ops,
        unstable=_differing([{**tally.values(), **tally.counts()} for tally in tallies]),
    )


def _differing(repeats: list[dict[str, int]]) -> list[str]:
    names = sorted({name for values in repeats for name in values})
    return [name for name in names if len({values.get(name) for values in repeats}) > 1]


def _count_call(workload: BoundWorkload, device: Device, inputs: Any, root: Path) -> CallTally:
    # torch is imported here, so that a step that counts can be listed without it.
    from perfgate.measuring.trace.dispatch import CountingMode

    tally = CallTally()
    with CountingMode(tally.ops, root=root):
        workload.invoke(inputs)
    device.synchronize()
    # A second call, because the mode's own work would allocate too.
    memory = device.count_memory(lambda: workload.invoke(inputs))
    if memory is not None:
        tally.memory = {"counters.allocations": memory.allocations, "memory.peak": memory.peak_bytes}
    return tally


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    # A collection within a call frees what other calls left, at a moment of its own choosing.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
