"""What passes on the host between the beginning of a compiled call and its first work on the device, in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import IntColumn, Intervals
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.launches import launch_starts, launched_or_began


class HeadSpans(NamedTuple):
    """Parts of the names of two spans: the compiler's entry of a call, and running the graph."""

    compiler: str
    graph: str


class HeadTimes(NamedTuple):
    """Nanoseconds until the compiler's entry, from there until the graph is run, from there until the first work."""

    framework: float
    compiler: float
    graph: float


# torchair wraps every call in record_function("npu_fx_compiler inference") and runs its graph in ExecuteGraph
# (torch_npu, dynamo/torchair/npu_fx_compiler.py); dynamo and inductor mark theirs since torch 2.1.
HEAD_SPANS: Mapping[str, HeadSpans] = {
    "npu": HeadSpans("npu_fx_compiler inference", "ExecuteGraph"),
    "cuda": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
    "cpu": HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph"),
}


def spans_of(parts: Sequence[str]) -> HeadSpans | None:
    """Return the names that the project gives, None where it gives none."""
    return HeadSpans(*parts) if parts else None


def head_times(events: EventTable, calls: Intervals, names: HeadSpans) -> HeadTimes | None:
    """Return the medians over the calls, None where a call does not hold both spans and work after them.

    Work is what runs on the device, or where the trace shows no device the first operator inside the graph; inductor's own
    kernels on a CPU leave no mark in a trace.
    """
    device = events.of_kind(*DEVICE_KINDS)
    work = device if len(device) else _operators(events)
    # The host may be done with a call before the device begins it, so work is of the call that launched it.
    launched = launched_or_began(work, launch_starts(work, events.of_kind("runtime")))
    order = np.lexsort((work.start, launched))
    launches, begins = launched[order], work.start[order]
    compiler, graph = (_starts(events, part) for part in names)
    found = []
    for start, end in zip(calls.start.tolist(), calls.end.tolist()):
        entry = _first_from(compiler, start, end)
        run = _NONE if entry == _NONE else _first_from(graph, entry, end)
        launch = _NONE if run == _NONE else _first_from(launches, run, end)
        if launch == _NONE:
            return None
        begun = int(begins[np.searchsorted(launches, launch)])
        found.append(np.diff([start, entry, run, begun]))
    return HeadTimes(*np.median(found, axis=0).tolist()) if found else None


_NONE = -1


def _first_from(starts: IntColumn, begin: int, end: int) -> int:
    at = int(np.searchsorted(starts, begin))
    return int(starts[at]) if at < starts.size and starts[at] < end else _NONE


def _starts(events: EventTable, part: str) -> IntColumn:
    codes = [code for code, name in enumerate(events.names) if part in name]
    return np.sort(events.start[np.isin(events.name, codes)])


def _operators(events: EventTable) -> EventTable:
    """Return the operators of a namespace; the compiler's own marks count as operators too, and have none."""
    ops = events.of_kind("host_op")
    return ops.select(np.isin(ops.name, [code for code, name in enumerate(ops.names) if "::" in name]))
