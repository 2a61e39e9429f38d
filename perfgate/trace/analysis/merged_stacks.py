"""Calls with the same stack as one node of a tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.flame import FLAME_KINDS, NONE
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    IntColumn,
    Mask,
    group_rows,
    rows_by,
)
from perfgate.trace.model.events import KINDS, EventTable
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.stacks import Stacks, levels

# A stack of generated code may be as deep as Python allows; deeper frames count as time of the frame at this depth.
MOST_LEVELS = 256
STREAM = FLAME_KINDS.index("stream")
_THREAD = FLAME_KINDS.index("thread")
_NUMBERS = Numbering[str](FLAME_KINDS)
_FLAME_CODES = np.array(
    [_NUMBERS.get(kind, _NUMBERS["other"]) for kind in KINDS], dtype=np.uint8
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
    own_frame: Mask


def merged_stacks(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The tree of the calls of each thread, and for each stream the tree of the calls above its work.

    ``labels`` are the names of the events. A node is a distinct stack. Parents come before children, level by level, and
    within a level nodes are in order of their start.
    """
    device = stacks.on_device
    tracks, kinds, root = _roots(stacks)
    tree = _Tree(stacks.events, labels, tracks, kinds)
    node, own = tree.merged(~device, stacks.around, root)
    # The calls above the work of a stream have other nodes than on their thread.
    for stream in np.flatnonzero(kinds == STREAM).tolist():
        launched = device & (root == stream)
        chosen = _with_calls_above(launched, stacks.called_by)
        node_in_stream, own_in_stream = tree.merged(
            chosen, stacks.called_by, np.full_like(root, stream)
        )
        node[launched] = node_in_stream[launched]
        own[launched] = own_in_stream[launched]
    return _in_order(tree.nodes(), tracks.size, node, own)


def _with_calls_above(chosen: Mask, above: CodeColumn) -> Mask:
    """The chosen events, and all calls above them."""
    every = chosen.copy()
    calls: Codes = np.flatnonzero(chosen)
    while calls.size:
        calls = above[calls]
        calls = calls[calls != NOTHING_AROUND]
        calls = calls[~every[calls]]
        every[calls] = True
    return every


class _Nodes(NamedTuple):
    """The nodes of a tree, the roots first: parents, labels, kinds, levels (0 for a root), and first starts."""

    parent: Codes
    label: Codes
    kind: Codes
    depth: Codes
    began: IntColumn


class _Tree:
    """A tree that grows with every merge: calls with one label and kind below one node become one node."""

    def __init__(
        self,
        events: EventTable,
        labels: Codes,
        tracks: CodeColumn,
        kinds: npt.NDArray[np.uint8],
    ) -> None:
        self._label, self._kind, self._start = (
            labels,
            _FLAME_CODES[events.kind],
            events.start,
        )
        zeros = np.zeros(tracks.size, dtype=np.int64)
        self._parts = [_Nodes(np.full(tracks.size, NONE), tracks, kinds, zeros, zeros)]
        self._size = tracks.size

    def merged(
        self, chosen: Mask, above: CodeColumn, root: CodeColumn
    ) -> tuple[CodeColumn, Mask]:
        """The node of each chosen call, whose calls above are chosen too, and whether it is not below the deepest level."""
        calls = np.flatnonzero(chosen)
        node = np.full(chosen.size, NONE, dtype=np.int32)
        own = np.ones(chosen.size, dtype=bool)
        for level, places in enumerate(rows_by(levels(above)[calls])):
            rows = calls[places]
            outer = above[rows]
            parent = np.where(outer == NOTHING_AROUND, root[rows], node[outer])
            if level >= MOST_LEVELS:
                node[rows] = parent
                own[rows] = False
                continue
            first, group = group_rows(parent, self._label[rows], self._kind[rows])
            began = np.full(first.size, np.iinfo(np.int64).max)
            np.minimum.at(began, group, self._start[rows])
            depth = np.full(first.size, level + 1)
            heads = rows[first]
            self._parts.append(
                _Nodes(
                    parent[first], self._label[heads], self._kind[heads], depth, began
                )
            )
            node[rows] = self._size + group
            self._size += first.size
        return node, own

    def nodes(self) -> _Nodes:
        return _Nodes(*(np.concatenate(columns) for columns in zip(*self._parts)))


def _roots(stacks: Stacks) -> tuple[CodeColumn, npt.NDArray[np.uint8], CodeColumn]:
    """The tracks in the order of their numbers, whether each is a thread or a stream, and each event's position among them."""
    first, root = group_rows(stacks.track)
    tracks = stacks.track[first].astype(np.int32)
    of_work = stacks.events.track[stacks.on_device]
    streams = np.isin(tracks, of_work[group_rows(of_work)[0]])
    return tracks, np.where(streams, STREAM, _THREAD).astype(np.uint8), root


def _in_order(
    nodes: _Nodes, roots: int, of_event: CodeColumn, own: Mask
) -> MergedStacks:
    """The nodes level by level, within a level by their start, their parents, kinds and labels."""
    number = np.arange(nodes.parent.size, dtype=np.int32)
    size = roots
    order: list[Codes] = [np.arange(roots)]
    for rows in rows_by(nodes.depth)[1:]:
        parent = number[nodes.parent[rows]]
        level = rows[
            np.lexsort((nodes.label[rows], nodes.kind[rows], parent, nodes.began[rows]))
        ]
        number[level] = np.arange(size, size + level.size)
        size += level.size
        order.append(level)
    places = np.concatenate(order)
    parents = np.where(nodes.depth[places] == 0, NONE, number[nodes.parent[places]])
    return MergedStacks(
        parents, nodes.kind[places], nodes.label[places], roots, number[of_event], own
    )
