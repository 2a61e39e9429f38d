"""How long each operator of a call took in a trace of such calls: on the host, or in the kernels that it launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np

from perfgate.measuring.checklist.steps._dataflow import Node
from perfgate.measuring.trace.analysis import NOTHING_AROUND, IntColumn, self_times
from perfgate.measuring.trace.collect import CallTrace
from perfgate.measuring.trace.events import KERNEL_KINDS, KIND_CODES, EventTable
from perfgate.measuring.trace.stacks import operators_above, stacks_of

# Of the time of kernels so much must be that of kernels whose operator is known, or the shares would be of a part only.
_LEAST_JOINED = 0.8


class NodeTimes(NamedTuple):
    """Nanoseconds in a typical call: of each node, in their order, and of all operators or kernels together."""

    nodes: list[float]
    total: float


class _Window(NamedTuple):
    start: int
    end: int


def node_times(nodes: Sequence[Node], trace: CallTrace, *, on_device: bool) -> Optional[NodeTimes]:
    """Return the median over the calls; None where a call's events do not follow the nodes.

    With ``on_device`` the times are those of kernels; None also where the trace does not say which operator launched them.
    """
    ops = trace.host_ops()
    spans = trace.spans()
    kernels = _asked_kernels(trace) if on_device else None
    measured = []
    for start, end in zip(spans.start.tolist(), spans.end.tolist()):
        inside = ops.select((ops.start >= start) & (ops.start < end))
        windows = _windows(nodes, inside)
        if windows is None:
            return None
        times = _host_times(inside, windows) if kernels is None else _kernel_times(kernels, windows)
        if times is None:
            return None
        measured.append(times)
    return NodeTimes(
        nodes=np.median([times.nodes for times in measured], axis=0).tolist(),
        total=float(np.median([times.total for times in measured])),
    )


def _windows(nodes: Sequence[Node], ops: EventTable) -> Optional[list[_Window]]:
    """Return when each node ran.

    An operator's event encloses those of what it calls, and there are events of composite operators too, which are no
    nodes: nodes are looked for in order, and what lies inside one that was found is passed over.
    """
    found: list[_Window] = []
    order = np.lexsort((-ops.duration, ops.start))
    rows = zip(ops.name[order].tolist(), ops.track[order].tolist(), ops.start[order].tolist(), ops.end[order].tolist())
    covered: dict[int, int] = {}
    for name, track, start, end in rows:
        if len(found) == len(nodes):
            break
        if start >= covered.get(track, start) and ops.names[name] == nodes[len(found)].name:
            found.append(_Window(start, end))
            covered[track] = end
    return found if len(found) == len(nodes) else None


def _host_times(ops: EventTable, windows: Sequence[_Window]) -> NodeTimes:
    total = float(self_times(ops.start, ops.duration, ops.track).sum())
    return NodeTimes([float(window.end - window.start) for window in windows], total)


class _AskedKernels(NamedTuple):
    """When the operator that launched each kernel began, and the kernel's nanoseconds."""

    asked: IntColumn
    durations: IntColumn


def _asked_kernels(trace: CallTrace) -> _AskedKernels:
    """Return the kernels that an operator of the host asked for, on its own thread or over a queue."""
    stacks = stacks_of(trace.events)
    operators = operators_above(stacks)
    kernels = np.isin(stacks.events.kind, [KIND_CODES[kind] for kind in KERNEL_KINDS])
    chosen = np.flatnonzero(kernels & (operators != NOTHING_AROUND))
    return _AskedKernels(stacks.events.start[operators[chosen]], stacks.events.duration[chosen])


def _kernel_times(kernels: _AskedKernels, windows: Sequence[_Window]) -> Optional[NodeTimes]:
    """Give each kernel to the node in whose time on the host it was asked for."""
    asked = kernels.asked
    mine = (asked >= windows[0].start) & (asked <= windows[-1].end)
    starts = np.asarray([window.start for window in windows])
    ends = np.asarray([window.end for window in windows])
    at = np.maximum(np.searchsorted(starts, asked[mine], side="right") - 1, 0)
    durations = kernels.durations[mine]
    joined = asked[mine] <= ends[at]
    times = np.bincount(at[joined], weights=durations[joined], minlength=len(windows))
    total = float(durations.sum())
    if not total or times.sum() < _LEAST_JOINED * total:
        return None
    return NodeTimes(times.tolist(), total)
