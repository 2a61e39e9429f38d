"""How long each operator of a call took in a trace of such calls: on the host, or in
the kernels that it launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from perfgate.measuring.checklist.steps.s06_fusion.patterns import Node, variant_of
from perfgate.measuring.counting.collect import CallTrace
from perfgate.trace.analysis.stacks import operators_above, stacks_of
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    IntColumn,
    TimeSpan,
    self_times,
)
from perfgate.trace.model.events import KERNEL_KINDS, KIND_CODES, EventTable

# The least share of kernel time with a known operator, or shares would be of a part
# only.
_LEAST_JOINED = 0.8


class NodeTimes(NamedTuple):
    """Nanoseconds in a typical call: of each node, in their order, and of all operators
    or kernels together.

    None for a node that the trace does not show in every call, or not under its name.
    """

    nodes: list[float | None]
    total: float

    def of(self, positions: Sequence[int]) -> float | None:
        """The time of some nodes together, None if one of them is unknown."""
        total = 0.0
        for at in positions:
            time = self.nodes[at]
            if time is None:
                return None
            total += time
        return total


def node_times(
    nodes: Sequence[Node], trace: CallTrace, *, on_device: bool
) -> NodeTimes | None:
    """The median over the faster half of the calls, because disturbances add time,
    mostly around operators.

    None if a call's events show none of the nodes. With ``on_device`` these are times
    of kernels; None also if the trace does not link kernels to operators.
    """
    ops = trace.host_ops()
    spans = trace.spans()
    kernels = None
    if on_device:
        # Those that an operator launched, on its own thread or over a queue: when it
        # began, and nanoseconds.
        stacks = stacks_of(trace.events)
        operators = operators_above(stacks)
        is_kernel = np.isin(
            stacks.events.kind, [KIND_CODES[kind] for kind in KERNEL_KINDS]
        )
        rows = np.flatnonzero(is_kernel & (operators != NOTHING_AROUND))
        kernels = stacks.events.start[operators[rows]], stacks.events.duration[rows]
    measured = []
    for start, end in zip(spans.start.tolist(), spans.end.tolist()):
        inside = ops.select((ops.start >= start) & (ops.start < end))
        windows = _windows(nodes, inside)
        if not any(windows):
            return None
        times: NodeTimes | None
        if kernels is None:
            lengths = []
            for window in windows:
                lengths.append(None if window is None else float(window.length))
            times = NodeTimes(
                lengths,
                float(self_times(inside.start, inside.duration, inside.track).sum()),
            )
        else:
            times = _kernel_times(*kernels, windows)
        if times is None:
            return None
        measured.append(times)
    measured.sort(key=lambda times: times.total)
    faster = measured[: (len(measured) + 1) // 2]
    by_node = zip(*[times.nodes for times in faster])
    total = float(np.median([times.total for times in faster]))
    return NodeTimes(list(map(_median, by_node)), total)


def _median(times: Sequence[float | None]) -> float | None:
    if None in times:
        return None
    return float(np.median(np.array(times, dtype=np.float64)))


def _windows(nodes: Sequence[Node], ops: EventTable) -> list[TimeSpan | None]:
    """When each node ran, None for one that no event stands for.

    An operator's event encloses the events of nested operators, and composite operators
    have events but are not nodes. So the outermost events with the name of any node are
    aligned with the nodes, in order; the variant of an operator that works in place is
    the same one, for the framework chooses between them behind the dispatcher.
    """
    variants = [variant_of(node.name) for node in nodes]
    names, windows = _outermost(ops, frozenset(variants))
    matched: list[TimeSpan | None] = [None] * len(nodes)
    for block in SequenceMatcher(
        None, variants, names, autojunk=False
    ).get_matching_blocks():
        matched[block.a : block.a + block.size] = windows[
            block.b : block.b + block.size
        ]
    return matched


def _outermost(
    ops: EventTable, variants: frozenset[str]
) -> tuple[list[str], list[TimeSpan]]:
    """Names and times of the events that lie in no other event of such a name in their
    thread, in order.
    """
    order = np.lexsort((-ops.duration, ops.start))
    rows = zip(
        ops.name[order].tolist(),
        ops.track[order].tolist(),
        ops.start[order].tolist(),
        ops.end[order].tolist(),
    )
    names, windows = [], []
    covered: dict[int, int] = {}
    for name, track, start, end in rows:
        variant = variant_of(ops.names[name])
        if start >= covered.get(track, start) and variant in variants:
            names.append(variant)
            windows.append(TimeSpan(start, end))
            covered[track] = end
    return names, windows


def _kernel_times(
    launched: IntColumn, durations: IntColumn, windows: Sequence[TimeSpan | None]
) -> NodeTimes | None:
    """Assign each kernel to the node during which the host launched it."""
    positions = []
    ran = []
    for position, window in enumerate(windows):
        if window is not None:
            positions.append(position)
            ran.append(window)
    starts, ends = np.asarray(ran).T
    of_call = (launched >= starts[0]) & (launched <= ends[-1])
    launched, durations = launched[of_call], durations[of_call]
    at = np.maximum(np.searchsorted(starts, launched, side="right") - 1, 0)
    joined = launched <= ends[at]
    times = np.bincount(at[joined], weights=durations[joined], minlength=len(ran))
    total = float(durations.sum())
    if not total or times.sum() < _LEAST_JOINED * total:
        return None
    nodes: list[float | None] = [None] * len(windows)
    for position, time in zip(positions, times.tolist()):
        nodes[position] = time
    return NodeTimes(nodes, total)
