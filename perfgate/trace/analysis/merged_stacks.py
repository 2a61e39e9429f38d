"""Calls with the same stack as one node of a tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.flame import FLAME_KINDS, NONE
from perfgate.trace.model.arithmetic import CodeColumn, Codes, Mask, group_rows, rows_by
from perfgate.trace.model.events import KINDS
from perfgate.trace.model.stacks import Stacks
from perfgate.trace.scanner.merging import Calls, TreeNodes, call_tree

# A stack of generated code may be as deep as Python allows; deeper frames count as time of the frame at this depth.
MOST_LEVELS = 256
STREAM = FLAME_KINDS.index("stream")
_THREAD = FLAME_KINDS.index("thread")
_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(FLAME_KINDS)}
_FLAME_CODES = np.array([_NUMBERS.get(kind, _NUMBERS["other"]) for kind in KINDS], dtype=np.uint8)


class MergedStacks(NamedTuple):
    """The nodes of a tree, the ``roots`` first (their ``label`` is a track); and the node of each event.

    An event without ``own_frame`` is deeper than the tree.
    """

    parent: Codes
    kind: Codes
    label: Codes
    roots: int
    of_event: CodeColumn
    own_frame: Mask


def merged_stacks(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The tree of the calls of each thread, and for each stream the tree of the calls above its work.

    ``labels`` are the names of the events. A node is a distinct stack. Parents come before children, level by level, and
    within a level nodes are in order of their start.
    """
    events, device = stacks.events, stacks.on_device
    tracks, kinds, root = _roots(stacks)
    tree = call_tree(tracks, kinds)
    size = len(events)
    calls = Calls(
        np.ascontiguousarray(labels, dtype=np.int32), _FLAME_CODES[events.kind], np.ascontiguousarray(events.start)
    )
    node = np.full(size, NONE, dtype=np.int32)
    own = np.ones(size, dtype=np.uint8)
    around = np.ascontiguousarray(stacks.around, dtype=np.int32)
    of_host = np.flatnonzero(~device).astype(np.int32)
    tree.merge(of_host, calls, above=around, root=root, most_levels=MOST_LEVELS, node=node, own=own)
    called_by = np.ascontiguousarray(stacks.called_by, dtype=np.int32)
    work = np.flatnonzero(device).astype(np.int32)
    # The calls above the work of a stream have other nodes than on their thread.
    node_in_stream = np.empty_like(node)
    own_in_stream = np.ones(size, dtype=np.uint8)
    for stream in np.flatnonzero(kinds == STREAM).tolist():
        launched = work[root[work] == stream]
        node_in_stream.fill(NONE)
        tree.merge(
            launched,
            calls,
            above=called_by,
            root=np.full(size, stream, dtype=np.int32),
            most_levels=MOST_LEVELS,
            node=node_in_stream,
            own=own_in_stream,
        )
        node[launched] = node_in_stream[launched]
        own[launched] = own_in_stream[launched]
    return _in_order(tree.nodes(), tracks.size, node, own.astype(bool))


def _roots(stacks: Stacks) -> tuple[CodeColumn, npt.NDArray[np.uint8], CodeColumn]:
    """The tracks in the order of their numbers, whether each is a thread or a stream, and each event's position among them."""
    first, root = group_rows(stacks.track)
    tracks = stacks.track[first].astype(np.int32)
    of_work = stacks.events.track[stacks.on_device]
    streams = np.isin(tracks, of_work[group_rows(of_work)[0]])
    return tracks, np.where(streams, STREAM, _THREAD).astype(np.uint8), root


def _in_order(nodes: TreeNodes, roots: int, of_event: CodeColumn, own: Mask) -> MergedStacks:
    """The nodes level by level, within a level by their start, their parents, kinds and labels."""
    number = np.arange(nodes.parent.size, dtype=np.int32)
    size = roots
    order: list[Codes] = [np.arange(roots)]
    for rows in rows_by(nodes.depth)[1:]:
        parent = number[nodes.parent[rows]]
        level = rows[np.lexsort((nodes.label[rows], nodes.kind[rows], parent, nodes.began[rows]))]
        number[level] = np.arange(size, size + level.size)
        size += level.size
        order.append(level)
    places = np.concatenate(order)
    parents = np.where(nodes.depth[places] == 0, NONE, number[nodes.parent[places]])
    return MergedStacks(parents, nodes.kind[places], nodes.label[places], roots, number[of_event], own)
