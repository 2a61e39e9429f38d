"""What passes on the host between the beginning of a compiled call and its first work on the device, in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import IntColumn, Intervals
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.spans import launch_starts, launched_or_began
from perfgate.trace.steps import step_marks, windows_of


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


def head_times(events: EventTable, calls: Intervals, names: HeadSpans) -> HeadTimes | None:
    """The medians over the calls, None where a call does not hold both spans and work after them.

    Work is what runs on the device, or where the trace shows no device the first operator inside the graph; inductor's own
    kernels on a CPU leave no mark in a trace.
    """
    device = events.of_kind(*DEVICE_KINDS)
    work = device if len(device) else _operators(events)
    # The host may be done with a call before the device begins it, so work is of the call that launched it.
    launched = launched_or_began(work, launch_starts(work, events.of_kind("runtime")))
    order = np.lexsort((work.start, launched))
    launches, begins = launched[order], work.start[order]
    compiler, graph = (np.sort(_named(events, part).start) for part in names)
    parts = []
    for start, end in zip(calls.start.tolist(), calls.end.tolist()):
        entry = _next_start(compiler, start, end)
        run = None if entry is None else _next_start(graph, entry, end)
        launch = None if run is None else _next_start(launches, run, end)
        if launch is None:
            return None
        began = int(begins[np.searchsorted(launches, launch)])
        parts.append(np.diff([start, entry, run, began]))
    return HeadTimes(*np.median(parts, axis=0).tolist()) if parts else None


def head_of_steps(events: EventTable, known: Sequence[HeadSpans]) -> Mapping[str, float]:
    """The nanoseconds of each part: from the begin of a step on, where the recording marks steps and each runs a graph.

    Else the parts are those from the compiler's entry on; none where no known span is in the recording.
    """
    marks = step_marks(events)
    for names in known:
        entries = _named(events, names.compiler)
        if not len(entries):
            continue
        if marks and (times := head_times(events, windows_of(marks), names)) is not None:
            return times._asdict()
        if (times := head_times(events, entries.intervals, names)) is not None:
            return {"compiler": times.compiler, "graph": times.graph}
    return {}


def _next_start(starts: IntColumn, begin: int, end: int) -> int | None:
    at = int(np.searchsorted(starts, begin))
    return int(starts[at]) if at < starts.size and starts[at] < end else None


def _named(events: EventTable, part: str) -> EventTable:
    return events.select(np.isin(events.name, [code for code, name in enumerate(events.names) if part in name]))


def _operators(events: EventTable) -> EventTable:
    """The operators of a namespace; the compiler's own marks count as operators too, and have none."""
    return _named(events.of_kind("host_op"), "::")
