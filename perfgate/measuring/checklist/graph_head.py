"""The head of a compiled call: the host's work before the device begins, divided by the
project that maintains the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import Covered, IntColumn, Intervals
from perfgate.trace.model.events import DEVICE_KINDS, EventTable
from perfgate.trace.model.spans import launch_starts, launched_or_began
from perfgate.trace.model.steps import step_marks, windows_of


class HeadSpans(NamedTuple):
    """Parts of span names: the compiler's entry of a call, running the graph, and the
    start of its native code.
    """

    compiler: str
    graph: str
    native: str = ""


class HeadPart(NamedTuple):
    """A part of the head in nanoseconds of a typical call, and its exposed part, None
    if no device was recorded.

    ``operators`` are the names of its longest host operators.
    """

    ns: float
    exposed_ns: float | None
    operators: tuple[str, ...] = ()


# torchair wraps every call in record_function("npu_fx_compiler inference"), which some
# builds write with an underscore, and runs its graph in ExecuteGraph (torch_npu,
# dynamo/torchair/npu_fx_compiler.py), within TorchNpuGraphBase::Run if its C++ side is
# marked; dynamo and inductor mark theirs since torch 2.1.
_INDUCTOR = HeadSpans("Torch-Compiled Region", "Call CompiledFxGraph")
_TORCHAIR = HeadSpans(
    "npu_fx_compiler inference", "ExecuteGraph", "TorchNpuGraphBase::Run"
)
HEAD_SPANS: Mapping[str, HeadSpans] = {
    "npu": _TORCHAIR,
    "cuda": _INDUCTOR,
    "cpu": _INDUCTOR,
}
_WHOLE = ("framework", "compiler", "graph")
_SPLIT = ("framework", "python", "native", "graph")
_MOST_OPERATORS = 3
# What torch.compile returns, as Python's function and module mark it, and the loading
# of data before it.
_MODULE = re.compile(r"OptimizedModule|Torch-Compiled Region")
_LOADING = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__")


def spans_of_recording(graph_spans: Sequence[str]) -> list[HeadSpans]:
    """The spans to look for in a recording of an unknown device; the project's spans
    replace the usual spans.
    """
    if graph_spans:
        return [HeadSpans(*graph_spans)]
    return [_TORCHAIR, _INDUCTOR]


def exposed_head_ns(summary: DeviceSummary, graph_spans: Sequence[str]) -> float:
    """The nanoseconds of all steps in which the device waits for the head of a compiled
    call.
    """
    calls, parts = head_of_steps(
        summary.timeline.events, spans_of_recording(graph_spans)
    )
    return len(calls.start) * sum(part.exposed_ns or 0.0 for part in parts.values())


def head_of_steps(
    events: EventTable, spans: Sequence[HeadSpans]
) -> tuple[Intervals, dict[str, HeadPart]]:
    """The calls and the parts of their head, from the start of each step if steps are
    marked and each runs a graph.

    Otherwise a call lasts from one entry of the compiler to the next, without the
    framework's part; no calls if the recording has none of the spans.
    """
    marks = step_marks(events)
    for names in spans:
        entries = np.sort(_named(events, names.compiler).start)
        if not entries.size:
            continue
        if marks:
            steps = windows_of(marks)
            if parts := head_times(events, steps, names):
                return steps, parts
        calls = Intervals(
            entries, np.append(entries[1:], (events.start + events.duration).max())
        )
        if parts := head_times(events, calls, names):
            del parts["framework"]
            return calls, parts
    return Intervals(np.array([], np.int64), np.array([], np.int64)), {}


def head_times(
    events: EventTable, calls: Intervals, names: HeadSpans
) -> dict[str, HeadPart]:
    """The parts of a typical call's head, all its compiled modules together; none
    unless every call has a whole one.

    The framework's part begins with the compiled module and ends at the compiler's
    entry, the compiler's at the start of the graph (split into ``python`` and
    ``native`` if every module marks its native code), the graph's at the first work.
    Work is a device event, or without a device the first operator inside the graph;
    inductor's own kernels on a CPU leave no mark in a trace. The graph's part ends
    before its span does: host time after the first kernel began is hidden behind the
    device.
    """
    device = events.of_kind(*DEVICE_KINDS)
    marks = _HeadMarks(events, device, names)
    heads: list[_Head] = []
    owners = []
    for call, (start, end) in enumerate(zip(calls.start.tolist(), calls.end.tolist())):
        of_call = marks.heads(start, end)
        if not of_call:
            return {}
        heads += of_call
        owners += [call] * len(of_call)
    if not heads:
        return {}
    columns = np.array(
        [(head.module, head.entry, head.run, head.begun) for head in heads], np.int64
    )
    natives = [head.native for head in heads if head.native is not None]
    is_split = len(natives) == len(heads)
    if is_split:
        columns = np.insert(columns, 2, natives, axis=1)
    busy = Covered(device.intervals) if len(device) else None
    operators = _operators(events)
    operators = operators.select(~operators.is_named(_holds(*names)))
    parts = {}
    for at, name in enumerate(_SPLIT if is_split else _WHOLE):
        windows = Intervals(columns[:, at], columns[:, at + 1])
        lengths = windows.end - windows.start
        exposed = (
            None if busy is None else _typical(owners, lengths - busy.within(windows))
        )
        parts[name] = HeadPart(
            _typical(owners, lengths), exposed, _longest_operators(operators, windows)
        )
    return parts


class _Head(NamedTuple):
    """The moments of one compiled module: its begin, the compiler's entry, native code,
    the graph, and the first work.
    """

    module: int
    entry: int
    native: int | None
    run: int
    begun: int


class _HeadMarks:
    """The begins of all compiled modules of a recording, and the launches of the work
    that follows them.
    """

    def __init__(
        self, events: EventTable, device: EventTable, names: HeadSpans
    ) -> None:
        work = device if len(device) else _operators(events)
        # The host may finish a call before the device begins it, so work belongs to the
        # call that launched it.
        launched = launched_or_began(
            work, launch_starts(work, events.of_kind("runtime"))
        )
        order = np.lexsort((work.start, launched))
        self._launches = launched[order]
        self._begins = work.start[order]
        self._compiler = np.sort(_named(events, names.compiler).start)
        self._graph = np.sort(_named(events, names.graph).start)
        self._native = np.sort(_named(events, names.native).start)
        # The region that torch marks is the compiler's own entry of some backends.
        self._modules = events.select(
            events.is_named(_MODULE.search) & ~events.is_named(_holds(names.compiler))
        )
        self._loading = events.select(events.is_named(_LOADING.search))

    def heads(self, start: int, end: int) -> list[_Head]:
        """The heads of one call.

        A compiler entry without a graph lies inside another one, and has no head.
        """
        first, last = np.searchsorted(self._compiler, (start, end)).tolist()
        entries = self._compiler[first:last].tolist()
        heads: list[_Head] = []
        for entry, until in zip(entries, [*entries[1:], end]):
            run = _next_start(self._graph, entry, until)
            if run is None:
                continue
            launch = _next_start(self._launches, run, until)
            if launch is None:
                continue
            module = self._module(entry if heads else start, entry)
            if heads:
                # The next module's head begins while the device still works for this
                # one.
                before = heads[-1]
                heads[-1] = before._replace(
                    begun=max(before.run, min(before.begun, module))
                )
            begun = int(self._begins[np.searchsorted(self._launches, launch)])
            heads.append(
                _Head(module, entry, _next_start(self._native, entry, run), run, begun)
            )
        return heads

    def _module(self, start: int, entry: int) -> int:
        """When the compiled module around an entry began, else the given start, or the
        end of loading data after it.
        """
        modules = self._modules
        around = (
            (modules.start >= start) & (modules.start <= entry) & (modules.end >= entry)
        )
        if around.any():
            return int(modules.start[around].min())
        loaded = self._loading.end[
            (self._loading.end > start) & (self._loading.end <= entry)
        ]
        return int(loaded.max(initial=start))


def _typical(owners: Sequence[int], lengths: IntColumn) -> float:
    """The median over calls of the sum of their modules."""
    return float(np.median(np.bincount(owners, lengths)))


def _longest_operators(operators: EventTable, windows: Intervals) -> tuple[str, ...]:
    """The operators that begin in these windows, which do not overlap, most time first."""
    at = np.searchsorted(windows.start, operators.start, side="right") - 1
    inside = operators.select((at >= 0) & (operators.start < windows.end[at]))
    times = np.bincount(inside.name, inside.duration, len(inside.names))
    longest = np.argsort(-times, kind="stable")[:_MOST_OPERATORS].tolist()
    return tuple(inside.names[code] for code in longest if times[code])


def _next_start(starts: IntColumn, begin: int, end: int) -> int | None:
    at = int(np.searchsorted(starts, begin))
    if at < starts.size and starts[at] < end:
        return int(starts[at])
    return None


def _named(events: EventTable, part: str) -> EventTable:
    return events.select(events.is_named(_holds(part)))


def _holds(*parts: str) -> Callable[[str], bool]:
    """A test for names that contain one of these parts; spaces equal underscores, and
    an empty part is in no name.
    """
    plain_parts = [part.replace("_", " ") for part in parts if part]
    return lambda name: any(part in name.replace("_", " ") for part in plain_parts)


def _operators(events: EventTable) -> EventTable:
    """The operators with a namespace, unlike the compiler's own marks."""
    return _named(events.of_kind("host_op"), "::")
