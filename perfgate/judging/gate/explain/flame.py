"""Flame graphs of both sides of a check, with the times that the pairs profiled.

A trace shows which frames ran under which; its times, under a heavy profiler in some
calls, are the weaker evidence. So the times of operators and of the rest of the call
come from the pairs, spread over the stacks as traced. If they still contradict the
clock, frames are not compared by time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import OperatorDelta
from perfgate.document.flame import (
    FLAME_KINDS,
    NONE,
    FlameCosts,
    FlameMark,
    FlameResult,
    FlameTree,
    WhyCounts,
    node_totals,
)
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.explain.contributions import call_time

_STREAM = FLAME_KINDS.index("stream")
_OPERATOR = FLAME_KINDS.index("host_op")
_ON_DEVICE = frozenset(
    FLAME_KINDS.index(kind) for kind in ("compute", "copy", "comm", "fused")
)


def with_pairs(
    tree: FlameTree, decision: DecisionDocument, workload: str, shape: str
) -> FlameTree:
    """The tree of both sides of a workload's shape with the pairs' times and their
    result for the call.
    """
    place = ShapePlace(workload, shape)
    paired = [
        row
        for row in decision.comparisons
        if isinstance(row, Paired) and row.workload == workload
    ]
    is_job = any(row.is_of_job for row in paired)
    if is_job or tree.base is None or tree.head is None:
        return tree
    operators = [row for row in decision.explained.operators if row.place == place]
    base = _with_times(tree, tree.base, {row.op: row.base for row in operators})
    head = _with_times(tree, tree.head, {row.op: row.head for row in operators})
    tree = replace(tree, base=base, head=head)
    call = call_time(decision.comparisons, place)
    marks = _marks(tree, decision, operators, place)
    result = FlameResult(call=call, by_counts=why_counts(tree, call), marks=marks)
    return replace(tree, result=result)


def _marks(
    tree: FlameTree,
    decision: DecisionDocument,
    operators: Sequence[OperatorDelta],
    place: ShapePlace,
) -> list[FlameMark]:
    """The operators of the tree that the decision's causes name, and those decided by
    the times of the pairs.
    """
    named = {cause.op for cause in decision.explained.causes if cause.place == place}
    explained: set[str] = set()
    for explanation in decision.explained.explanations:
        if explanation.place == place:
            explained.update(part.profiled for part in explanation.contributions)
    seconds = {}
    for row in operators:
        is_decided = row.op in explained or row.outcome in ("regressed", "improved")
        if row.base is not None and is_decided:
            seconds[row.op] = row.seconds
    marks = []
    for number, text in enumerate(tree.texts):
        if text in named or text in seconds:
            marks.append(
                FlameMark(name=number, named=text in named, seconds=seconds.get(text))
            )
    return marks


def why_counts(tree: FlameTree, call: Paired | None) -> WhyCounts | None:
    """Why the times of a tree do not show the change, None if they agree with the
    pairs.

    The times of the host's threads add up to the call, so their difference must lie in
    the pairs' interval. The time on a device is a part of it, which must not point the
    other way.
    """
    if call is None or call.base is None or call.head is None or call.interval is None:
        return "unpaired"
    low, high = call.interval
    threads = _change(tree, streams=False)
    streams = _change(tree, streams=True)
    if call.outcome in ("regressed", "improved"):
        measured = call.head - call.base
        if (threads or 0.0) * measured < 0 or (streams or 0.0) * measured < 0:
            return "sign"
    if threads is not None and not call.base * low <= threads <= call.base * high:
        return "outside"
    return None


def _change(tree: FlameTree, *, streams: bool) -> float | None:
    """The seconds by which a call of head takes longer on all threads, or all streams;
    None without any.
    """
    base = node_totals(tree, tree.base)
    head = node_totals(tree, tree.head)
    changes = []
    for node, parent in enumerate(tree.parent):
        if parent == NONE and (tree.kind[node] == _STREAM) == streams:
            changes.append(head[node].total - base[node].total)
    if changes:
        return sum(changes)
    return None


def _with_times(
    tree: FlameTree, side: FlameCosts, times: Mapping[str, float | None]
) -> FlameCosts:
    """A side's costs with the pairs' time for each operator and for the rest of the
    call.

    An operator that the pairs did not profile keeps its traced time.
    """
    on_device = _STREAM in tree.kind
    names = [_timed_name(tree, node, on_device=on_device) for node in side.node]
    traced: dict[str, float] = defaultdict(float)
    for name, own in zip(names, side.own):
        if name is not None:
            traced[name] += own / side.units / 1e9
    factors: dict[str | None, float] = {}
    for name, traced_seconds in traced.items():
        seconds = times.get(name)
        if seconds is not None and traced_seconds:
            factors[name] = seconds / traced_seconds
    scaled = [round(own * factors.get(name, 1.0)) for name, own in zip(names, side.own)]
    return replace(side, own=scaled)


def _timed_name(tree: FlameTree, node: int, *, on_device: bool) -> str | None:
    """The name under which the pairs timed a node: an operator or a kernel, or a CPU's
    time outside operators.
    """
    kind = tree.kind[node]
    is_timed = kind in _ON_DEVICE if on_device else kind == _OPERATOR
    if is_timed:
        return tree.texts[tree.name[node]]
    if on_device:
        return None
    return OUTSIDE_OPERATORS
