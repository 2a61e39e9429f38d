"""Calls with the same stack as one node of a tree: by the compiled loop if it was built, else level by level."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.flame import FLAME_KINDS, NONE
from perfgate.trace.model.arithmetic import NOTHING_AROUND, CodeColumn, Codes, group_rows, rows_by
from perfgate.trace.model.events import KINDS
from perfgate.trace.model.stacks import Stacks, levels
from perfgate.trace.scanner.merging import CallTree, TreeNodes, can_merge

# A stack of generated code may be as deep as Python allows; deeper frames count as time of the frame at this depth.
MOST_LEVELS = 256
STREAM = FLAME_KINDS.index("stream")
_THREAD = FLAME_KINDS.index("thread")
_FLAME_CODES = np.array(
    [FLAME_KINDS.index(kind) if kind in FLAME_KINDS else FLAME_KINDS.index("other") for kind in KINDS], dtype=np.uint8
)


class MergedStacks(NamedTuple):
    """The nodes of a tree, the ``roots`` first (their ``label`` is a track); and the node of each event.

    An event without ``own_frame`` is deeper than the tree.
    """

    parent: Codes
    kind: Codes
    label: Codes
    roots: int
    of_event: CodeColumn
    own_frame: npt.NDArray[np.bool_]


def merged_stacks(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The tree of all stacks; ``labels`` are the names of the events.

    A node is a distinct stack. Parents come before children, level by level, and within a level nodes in order of their start.
    """
    return by_compiled_loop(stacks, labels) if can_merge() else by_levels(stacks, labels)


def by_compiled_loop(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The tree of the calls of each thread, and for each stream that of the calls above its work."""
    events, device = stacks.events, stacks.on_device
    tracks, kinds, root = _roots(stacks)
    tree = CallTree(tracks, kinds)
    size = len(events)
    columns: dict[str, Any] = {
        "label": np.ascontiguousarray(labels, dtype=np.int32),
        "kind": _FLAME_CODES[events.kind],
        "start": np.ascontiguousarray(events.start),
        "most_levels": MOST_LEVELS,
    }
    node, own = np.full(size, NONE, dtype=np.int32), np.ones(size, dtype=np.uint8)
    around = np.ascontiguousarray(stacks.around, dtype=np.int32)
    of_host = np.flatnonzero(~device).astype(np.int32)
    tree.merge(of_host, above=around, root=root, node=node, own=own, **columns)
    called_by = np.ascontiguousarray(stacks.called_by, dtype=np.int32)
    work = np.flatnonzero(device).astype(np.int32)
    of_stream, own_of_stream = np.empty_like(node), np.ones(size, dtype=np.uint8)
    for number in np.flatnonzero(kinds == STREAM).tolist():
        launched = work[root[work] == number]
        of_stream.fill(NONE)
        same_root = np.full(size, number, dtype=np.int32)
        tree.merge(launched, above=called_by, root=same_root, node=of_stream, own=own_of_stream, **columns)
        node[launched], own[launched] = of_stream[launched], own_of_stream[launched]
    return _in_order(tree.nodes(), tracks.size, node, own.astype(bool))


def _roots(stacks: Stacks) -> tuple[CodeColumn, npt.NDArray[np.uint8], CodeColumn]:
    """The tracks in the order of their numbers, whether each is a thread or a stream, and each event's position among them."""
    first, root = group_rows(stacks.track)
    tracks = stacks.track[first].astype(np.int32)
    of_work = stacks.events.track[stacks.on_device]
    streams = np.isin(tracks, of_work[group_rows(of_work)[0]])
    return tracks, np.where(streams, STREAM, _THREAD).astype(np.uint8), root


def _in_order(nodes: TreeNodes, roots: int, of_event: CodeColumn, own: npt.NDArray[np.bool_]) -> MergedStacks:
    """The nodes level by level, within a level by their start, their parents, kinds and labels."""
    number, size = np.arange(nodes.parent.size, dtype=np.int32), roots
    order: list[Codes] = [np.arange(roots)]
    for rows in rows_by(nodes.depth)[1:]:
        above = number[nodes.parent[rows]]
        level = rows[np.lexsort((nodes.label[rows], nodes.kind[rows], above, nodes.began[rows]))]
        number[level] = np.arange(size, size + level.size)
        size += level.size
        order.append(level)
    places = np.concatenate(order)
    parent = np.where(nodes.depth[places] == 0, NONE, number[nodes.parent[places]])
    return MergedStacks(parent, nodes.kind[places], nodes.label[places], roots, number[of_event], own)


def _with_calls_above(stacks: Stacks) -> tuple[CodeColumn, CodeColumn]:
    """The event and the parent of each row of a tree.

    The rows are all events in order, followed by a second entry, without time, for the calls above the work of each stream. An
    event is a position among the events; a parent is a row, or ~track of the thread or stream for an outermost one.
    At worst there are several times as many rows as events, so numbers take four bytes.
    """
    called_by, size = stacks.called_by, len(stacks.events)
    parent = np.where(stacks.around == NOTHING_AROUND, ~stacks.track, stacks.around)
    events, parents, rows = [np.arange(size, dtype=np.int32)], [parent], size
    row_of = np.empty(size + 1, dtype=np.int32)  # the last entry stands for no parent
    work = np.flatnonzero(stacks.on_device)
    for stream in np.unique(stacks.track[work]).tolist():
        launched = work[stacks.track[work] == stream]
        above = _calls_above(called_by, called_by[launched])
        row_of[NOTHING_AROUND] = ~stream
        row_of[above] = np.arange(rows, rows + above.size)
        parent[launched] = row_of[called_by[launched]]
        events.append(above)
        parents.append(row_of[called_by[above]])
        rows += above.size
    return np.concatenate(events), np.concatenate(parents)


def _calls_above(around: CodeColumn, launches: CodeColumn) -> CodeColumn:
    """The calls that launched work and all their callers, each once, in order."""
    above, last = np.zeros(around.size, dtype=bool), np.empty(around.size, dtype=np.int32)
    outer = launches[launches != NOTHING_AROUND]
    while outer.size:
        outer = outer[~above[outer]]
        above[outer] = True
        # Only one of the calls with the same caller continues to it.
        last[outer] = np.arange(outer.size)
        outer = around[outer[last[outer] == np.arange(outer.size)]]
        outer = outer[outer != NOTHING_AROUND]
    return np.flatnonzero(above).astype(np.int32)


def by_levels(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The same one level after the other, all rows of it at once."""
    events = stacks.events
    event_of, parent = _with_calls_above(stacks)
    depths = levels(stacks.called_by)[event_of]
    if stacks.called_by is not stacks.around:
        of_thread = np.flatnonzero(~stacks.on_device)
        depths[of_thread] = levels(stacks.around)[of_thread]
    rows = rows_by(depths)[::-1]
    del depths
    tracks, kinds_of_tracks, _ = _roots(stacks)
    columns: list[tuple[Codes, Codes, Codes]] = [(np.full(tracks.size, NONE), kinds_of_tracks, tracks)]
    node, size, own_frame = np.empty_like(event_of), tracks.size, np.ones(len(events), dtype=bool)
    for depth in range(len(rows)):
        level = rows.pop()  # each is freed after use
        outer, event = parent[level], event_of[level]
        above = node[outer] if depth else np.searchsorted(tracks, ~outer)
        if depth >= MOST_LEVELS:
            node[level] = above
            own_frame[level[level < len(events)]] = False
            continue
        kind, label = _FLAME_CODES[events.kind[event]], labels[event]
        first, group = group_rows(above, kind, label)
        began = np.full(first.size, np.iinfo(np.int64).max)
        np.minimum.at(began, group, events.start[event])
        by_time = np.argsort(began, kind="stable")
        number = np.empty_like(by_time)
        number[by_time] = np.arange(by_time.size)
        node[level] = size + number[group]
        first = first[by_time]
        columns.append((above[first], kind[first], label[first]))
        size += first.size
    parents, kinds, names = (np.concatenate(column) for column in zip(*columns))
    return MergedStacks(parents, kinds, names, tracks.size, node[: len(events)].copy(), own_frame)
