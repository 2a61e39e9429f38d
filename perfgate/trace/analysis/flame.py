"""Make the tree of a flame graph from call stacks: one node for all events that have
the same stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.flame import (
    FLAME_KINDS,
    NONE,
    FlameCosts,
    FlameOmissions,
    FlameTree,
)
from perfgate.trace.analysis.stacks import EventFrame, frame, requests_served
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    IntColumn,
    Mask,
    counts_by_name,
    group_rows,
    rows_by,
    totals_by_name,
)
from perfgate.trace.model.events import KINDS, NO_TEXT, EventTable
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.stacks import Stacks, levels

MOST_NODES = 100_000
MOST_REQUESTS = 500
OTHER_REQUESTS = "other requests"


# A stack of generated code may be as deep as Python allows; deeper frames count as time
# of the frame at this depth.
MOST_LEVELS = 256
STREAM = FLAME_KINDS.index("stream")
_THREAD = FLAME_KINDS.index("thread")
_NUMBERS = Numbering[str](FLAME_KINDS)
_FLAME_CODES = np.array(
    [_NUMBERS.get(kind, _NUMBERS["other"]) for kind in KINDS], dtype=np.uint8
)


def flame_tree(
    stacks: Stacks, label: str, *, most_nodes: int = MOST_NODES
) -> FlameTree:
    """The stacks as one tree, a root for each thread and stream, with its costs as the
    costs of head.

    A stream contains the calls that launched its work, without their own time. Frames
    beyond ``most_nodes`` are folded into their parents, the smallest first.
    """
    frames = _Frames(stacks.events)
    nodes = merged_stacks(stacks, frames.labels)
    requests = _Requests(stacks)
    shape, more_shapes = _shapes(stacks, nodes)
    texts = Numbering[str]()
    names = _track_names(stacks, nodes)
    names += [frames.of[at].name for at in nodes.label[nodes.roots :].tolist()]
    shapes = (*stacks.events.names, None)  # NO_TEXT is the last place
    tree = FlameTree(
        label=label,
        unit=stacks.unit,
        requests=requests.names,
        parent=nodes.parent.tolist(),
        kind=nodes.kind.tolist(),
        name=texts.codes(name or None for name in names).tolist(),
        place=texts.codes(place or None for place in _places(nodes, frames)).tolist(),
        shape=texts.codes(shapes[at] or None for at in shape.tolist()).tolist(),
        more_shapes=more_shapes.tolist(),
        texts=list(texts),
        head=_costs(stacks, nodes, requests),
        omitted=FlameOmissions(cut=int(np.count_nonzero(~nodes.own_frame))),
    )
    return _folded(tree, most_nodes)


class _Frames:
    """The distinct frames of a table's events in ``of``, and for each event its
    position there in ``labels``.
    """

    def __init__(self, events: EventTable) -> None:
        first, row = group_rows(events.group, events.kind)
        numbers = Numbering[EventFrame]()
        labels = []
        for group, kind in zip(
            events.group[first].tolist(), events.kind[first].tolist()
        ):
            labels.append(numbers[frame(events.names[group], KINDS[kind])])
        self.of = list(numbers)
        self.labels: Codes = np.array(labels, dtype=np.min_scalar_type(len(self.of)))[
            row
        ]


class _Requests:
    """The requests with most time in ``names``, the rest under one name; and the
    position of each event's request there.
    """

    def __init__(self, stacks: Stacks) -> None:
        served = requests_served(stacks)
        real = np.flatnonzero(served != NO_TEXT)
        codes, request = np.unique(served[real], return_inverse=True)
        totals = totals_by_name(request, stacks.own[real], codes.size)
        most = np.sort(np.argsort(-totals, kind="stable")[:MOST_REQUESTS])
        number = np.full(codes.size, most.size)
        number[most] = np.arange(most.size)
        self.of_event = np.full(served.size, NONE, dtype=np.int32)
        self.of_event[real] = number[request]
        self.names = [stacks.events.names[code] for code in codes[most].tolist()]
        if codes.size > most.size:
            self.names.append(OTHER_REQUESTS)


def _costs(stacks: Stacks, nodes: MergedStacks, requests: _Requests) -> FlameCosts:
    """The time and the number of calls of each node per request; a call may leave all
    its time to those inside it.
    """
    node, request = nodes.of_event, requests.of_event
    first, cell = group_rows(node, request)
    counted = cell[nodes.own_frame]
    return FlameCosts(
        units=stacks.units,
        node=node[first].tolist(),
        request=request[first].tolist(),
        own=totals_by_name(cell, stacks.own, first.size).tolist(),
        count=counts_by_name(counted, first.size).tolist(),
    )


def _shapes(stacks: Stacks, nodes: MergedStacks) -> tuple[IntColumn, IntColumn]:
    """For each node the shapes with most of its time, or NO_TEXT, and the number of its
    other shapes.
    """
    most = np.full(nodes.parent.size, NO_TEXT, dtype=np.int64)
    more = np.zeros(nodes.parent.size, dtype=np.int64)
    shape = stacks.events.shape
    shaped = np.flatnonzero(nodes.own_frame & (shape != NO_TEXT)).astype(np.int32)
    first, pair = group_rows(nodes.of_event[shaped], shape[shaped])
    times = totals_by_name(pair, stacks.own[shaped], first.size)
    node = nodes.of_event[shaped[first]]
    order = np.lexsort((-times, node))
    owner, largest, count = np.unique(
        node[order], return_index=True, return_counts=True
    )
    event = shaped[first[order[largest]]]
    most[owner] = shape[event]
    more[owner] = count - 1
    return most, more


def _track_names(stacks: Stacks, nodes: MergedStacks) -> list[str]:
    """Streams keep their names; threads are numbered by time, because their ids are
    arbitrary.
    """
    tracks = nodes.label[: nodes.roots]
    totals = totals_by_name(
        np.searchsorted(tracks, stacks.track), stacks.own, tracks.size
    )
    names = [""] * tracks.size
    number = 0
    for at in np.argsort(-totals, kind="stable").tolist():
        text = stacks.events.tracks[int(tracks[at])][1]
        if nodes.kind[at] != STREAM:
            number += 1
            names[at] = f"thread {number}"
        elif text.isdecimal():
            names[at] = f"stream {text}"
        else:
            names[at] = text
    return names


def _places(nodes: MergedStacks, frames: _Frames) -> list[str]:
    """The place of a Python function is its first line; any other node has the nearest
    function of the project.
    """
    places = [""] * nodes.parent.size
    nearest = [""] * nodes.parent.size
    for at in range(nodes.roots, nodes.parent.size):
        label = frames.of[nodes.label[at]]
        nearest[at] = nearest[nodes.parent[at]]
        if label.is_project and label.place is not None:
            nearest[at] = label.place
        places[at] = label.place or nearest[at]
    return places


def _folded(tree: FlameTree, most: int) -> FlameTree:
    """The tree with its ``most`` largest nodes; the time of the others becomes own time
    of their nearest kept ancestor.
    """
    size, (costs,) = len(tree.parent), tree.sides
    if size <= most:
        return tree
    total = _totals(tree, costs)
    # A node is never larger than its parent and comes after it, so all ancestors of a
    # kept node are kept.
    by_size = sorted(range(size), key=lambda node: (-total[node], node))
    largest = sorted(by_size[:most])
    number = dict(zip(largest, range(most)))
    kept_above = _nearest_kept(tree.parent, number)

    def of_kept(column: Sequence[int]) -> list[int]:
        return [column[node] for node in largest]

    folded_names = {tree.texts[tree.name[node]] for node in by_size[most:]}
    return msgspec.structs.replace(
        tree,
        parent=[number.get(parent, NONE) for parent in of_kept(tree.parent)],
        kind=of_kept(tree.kind),
        name=of_kept(tree.name),
        place=of_kept(tree.place),
        shape=of_kept(tree.shape),
        more_shapes=of_kept(tree.more_shapes),
        head=_folded_costs(costs, number, kept_above),
        omitted=FlameOmissions(
            folded=size - most, names=sorted(folded_names), cut=tree.omitted.cut
        ),
    )


def _totals(tree: FlameTree, costs: FlameCosts) -> list[int]:
    """The time of each node and all nodes below it."""
    total = [0] * len(tree.parent)
    for node, own in zip(costs.node, costs.own):
        total[node] += own
    for node in range(len(total) - 1, -1, -1):
        parent = tree.parent[node]
        if parent != NONE:
            total[parent] += total[node]
    return total


def _nearest_kept(parents: Sequence[int], number: Mapping[int, int]) -> list[int]:
    """For each node the number of the nearest kept one, itself included; NONE if there
    is none.
    """
    nearest = []
    for node, parent in enumerate(parents):
        if node in number:
            nearest.append(number[node])
        elif parent == NONE:
            nearest.append(NONE)
        else:
            nearest.append(nearest[parent])
    return nearest


def _folded_costs(
    costs: FlameCosts, number: Mapping[int, int], kept_above: Sequence[int]
) -> FlameCosts:
    """The costs of the kept nodes; a folded node adds its time to the kept one above
    it, but none to its count.
    """
    own: Counter[tuple[int, int]] = Counter()
    count: Counter[tuple[int, int]] = Counter()
    for node, request, time, calls in zip(
        costs.node, costs.request, costs.own, costs.count
    ):
        cell = kept_above[node], request
        own[cell] += time
        count[cell] += calls if node in number else 0
    folded = FlameCosts(units=costs.units, node=[], request=[], own=[], count=[])
    for node, request in sorted(own):
        if node != NONE:
            folded.node.append(node)
            folded.request.append(request)
            folded.own.append(own[node, request])
            folded.count.append(count[node, request])
    return folded


class MergedStacks(NamedTuple):
    """The nodes of a tree, the ``roots`` first (their ``label`` is a track); and the
    node of each event.

    An event without ``own_frame`` is deeper than the tree.
    """

    parent: Codes
    kind: Codes
    label: Codes
    roots: int
    of_event: CodeColumn
    own_frame: Mask


def merged_stacks(stacks: Stacks, labels: Codes) -> MergedStacks:
    """The tree of the calls of each thread, and for each stream the tree of the calls
    above its work.

    ``labels`` are the names of the events. A node is a distinct stack. Parents come
    before children, level by level, and within a level nodes are in order of their
    start.
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
    """The nodes of a tree, the roots first: parents, labels, kinds, levels (0 for a
    root), and first starts.
    """

    parent: Codes
    label: Codes
    kind: Codes
    depth: Codes
    began: IntColumn


class _Tree:
    """A tree that grows with every merge: calls with one label and kind below one node
    become one node.
    """

    def __init__(
        self,
        events: EventTable,
        labels: Codes,
        tracks: CodeColumn,
        kinds: npt.NDArray[np.uint8],
    ) -> None:
        self._label = labels
        self._kind = _FLAME_CODES[events.kind]
        self._start = events.start
        zeros = np.zeros(tracks.size, dtype=np.int64)
        self._parts = [_Nodes(np.full(tracks.size, NONE), tracks, kinds, zeros, zeros)]
        self._size = tracks.size

    def merged(
        self, chosen: Mask, above: CodeColumn, root: CodeColumn
    ) -> tuple[CodeColumn, Mask]:
        """The node of each chosen call, whose calls above are chosen too, and whether
        it is not below the deepest level.
        """
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
    """The tracks in the order of their numbers, whether each is a thread or a stream,
    and each event's position among them.
    """
    first, root = group_rows(stacks.track)
    tracks = stacks.track[first].astype(np.int32)
    of_work = stacks.events.track[stacks.on_device]
    streams = np.isin(tracks, of_work[group_rows(of_work)[0]])
    return tracks, np.where(streams, STREAM, _THREAD).astype(np.uint8), root


def _in_order(
    nodes: _Nodes, roots: int, of_event: CodeColumn, own: Mask
) -> MergedStacks:
    """The nodes level by level, within a level by their start, their parents, kinds and
    labels.
    """
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
