"""Make the tree of a flame graph from call stacks: one node for all events that have the same stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.flame import FLAME_KINDS, NONE, FlameCosts, FlameTree
from perfgate.trace.analysis import NOTHING_AROUND, CodeColumn, Codes, IntColumn, group_rows, totals_by_name
from perfgate.trace.events import KINDS, NO_TEXT, EventTable
from perfgate.trace.stacks import Frame, Stacks, frame, levels

# A stack of generated code may be as deep as Python allows; what lies deeper is time of the frame at this depth.
MOST_LEVELS = 256
MOST_NODES = 100_000
MOST_REQUESTS = 500
OTHER_REQUESTS = "other requests"

_FLAME_CODES = np.array(
    [FLAME_KINDS.index(kind) if kind in FLAME_KINDS else FLAME_KINDS.index("other") for kind in KINDS], dtype=np.uint8
)
_THREAD, _STREAM = FLAME_KINDS.index("thread"), FLAME_KINDS.index("stream")


def flame_tree(stacks: Stacks, label: str, *, most_nodes: int = MOST_NODES) -> FlameTree:
    """The stacks as one tree, a root for each thread and stream, with its costs as those of head.

    Under a stream stand the calls that launched its work, without time of their own. Frames beyond ``most_nodes`` are folded
    into those around them, the smallest first.
    """
    rows = _rows(stacks)
    frames = _Frames(stacks.events)
    nodes = _merge(stacks, rows, frames.labels)
    own = stacks.own[rows.event]
    own[~rows.counted] = 0
    costs, requests = _costs(stacks, nodes, own)
    texts: dict[str, int] = {}
    shape, more_shapes = _shapes(stacks.events, rows, nodes, own)
    names = _track_names(stacks, rows, nodes, own) + [frames.of[at].name for at in nodes.label[nodes.roots :].tolist()]

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts)) if text else NONE

    tree = FlameTree(
        label=label,
        unit=stacks.unit,
        requests=requests,
        parent=nodes.parent.tolist(),
        kind=nodes.kind.tolist(),
        name=[number(name) for name in names],
        place=[number(place) for place in _places(nodes, frames)],
        shape=[NONE if at == NO_TEXT else number(stacks.events.names[at]) for at in shape.tolist()],
        more_shapes=more_shapes.tolist(),
        texts=list(texts),
        head=costs,
        cut=int(np.count_nonzero(rows.counted & ~nodes.own_frame)),
    )
    return _folded(tree, most_nodes)


class _Frames:
    """The frames of a table's events: those that differ in ``of``, and ``labels`` as positions in it, event by event."""

    def __init__(self, events: EventTable) -> None:
        first, row = group_rows(events.group, events.kind)
        numbers: dict[Frame, int] = {}
        labels = [
            numbers.setdefault(frame(events.names[group], KINDS[kind]), len(numbers))
            for group, kind in zip(events.group[first].tolist(), events.kind[first].tolist())
        ]
        self.of = list(numbers)
        self.labels: CodeColumn = np.array(labels, dtype=np.int32)[row]


class _Rows(NamedTuple):
    """What becomes a tree: all events, and once more, without time, the calls above the work of each stream.

    ``parent`` is a row or NONE, ``depth`` how many rows lie above, ``root`` the track of thread or stream, ``event`` a position
    among the events. There are several times as many rows as events at worst, so they take four bytes a number.
    """

    parent: CodeColumn
    depth: CodeColumn
    root: CodeColumn
    event: CodeColumn
    counted: npt.NDArray[np.bool_]


def _rows(stacks: Stacks) -> _Rows:
    device = stacks.on_device
    hosts, work = _narrow(np.flatnonzero(~device)), _narrow(np.flatnonzero(device))
    streams, launches = stacks.track[work], stacks.called_by[work]
    copies = _calls_above(stacks.called_by, streams, launches)
    row_of_host = np.full(len(stacks.events) + 1, NONE, dtype=np.int32)  # the last place is for nothing around
    row_of_host[hosts] = np.arange(hosts.size)
    parent = (
        row_of_host[stacks.around[hosts]],
        copies.rows(copies.root, stacks.called_by[copies.event], first=hosts.size),
        copies.rows(streams, launches, first=hosts.size),
    )
    above = levels(stacks.called_by)
    by_thread = above if stacks.called_by is stacks.around else levels(stacks.around)
    return _Rows(
        parent=np.concatenate(parent),
        depth=np.concatenate((by_thread[hosts], above[copies.event], above[work])),
        root=np.concatenate((stacks.track[hosts], copies.root, streams), dtype=np.int32),
        event=np.concatenate((hosts, copies.event, work)),
        counted=np.repeat([True, False, True], [hosts.size, copies.event.size, work.size]),
    )


def _narrow(positions: npt.NDArray[np.intp]) -> CodeColumn:
    return positions.astype(np.int32)


class _Copies(NamedTuple):
    """Calls of the host under the streams whose work they launched, sorted by stream and event; ``size`` events there are."""

    root: CodeColumn
    event: CodeColumn
    size: int

    def rows(self, root: Codes, event: IntColumn, *, first: int) -> CodeColumn:
        """The rows of events under streams, where the first of these copies is row ``first``."""
        rows = np.full(event.size, NONE, dtype=np.int32)
        real = event != NOTHING_AROUND
        wanted = root[real].astype(np.int64) * self.size + event[real]
        rows[real] = first + np.searchsorted(self.root.astype(np.int64) * self.size + self.event, wanted)
        return rows


def _calls_above(around: IntColumn, streams: Codes, launches: IntColumn) -> _Copies:
    """Every call above the work of each stream, once a stream."""
    size = max(around.size, 1)
    joined = launches != NOTHING_AROUND
    nothing = np.zeros(0, dtype=np.int32)
    roots, events, last = [nothing], [nothing], np.empty(size, dtype=np.int32)
    for stream in np.unique(streams[joined]).tolist():
        above, outer = np.zeros(size, dtype=bool), launches[joined & (streams == stream)]
        while outer.size:
            outer = outer[~above[outer]]
            above[outer] = True
            # Of those that lie in one call, one goes on to it.
            last[outer] = np.arange(outer.size)
            outer = around[outer[last[outer] == np.arange(outer.size)]]
            outer = outer[outer != NOTHING_AROUND]
        events.append(_narrow(np.flatnonzero(above)))
        roots.append(np.full(events[-1].size, stream, dtype=np.int32))
    return _Copies(np.concatenate(roots), np.concatenate(events), size)


class _Nodes(NamedTuple):
    """The nodes of a tree, the ``roots`` first (their ``label`` is a track); and of each row its node and its request.

    A row that is not its node's ``own_frame`` lies deeper than the tree is.
    """

    parent: Codes
    kind: Codes
    label: Codes
    roots: int
    of_row: CodeColumn
    request: Codes
    own_frame: npt.NDArray[np.bool_]


def _merge(stacks: Stacks, rows: _Rows, labels: CodeColumn) -> _Nodes:
    """Make one node of the rows that have the same stack, level by level, in each in the order in which they began."""
    events, tracks = stacks.events, np.unique(rows.root)
    streams = np.isin(tracks, np.unique(events.track[stacks.on_device]))
    columns: list[tuple[Codes, Codes, Codes]] = [
        (np.full(tracks.size, NONE), np.where(streams, _STREAM, _THREAD), tracks)
    ]
    node, request, size = np.full(rows.event.size, NONE, dtype=np.int32), events.request[rows.event], tracks.size
    for level in _levels(rows.depth):
        outer, event = rows.parent[level], rows.event[level]
        outermost = outer == NONE
        above = node[outer]
        above[outermost] = np.searchsorted(tracks, rows.root[level[outermost]])
        inherits = (request[level] == NO_TEXT) & ~outermost
        request[level] = np.where(inherits, request[outer], request[level])
        if rows.depth[level[0]] >= MOST_LEVELS:
            node[level] = above
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
    return _Nodes(parents, kinds, names, tracks.size, node, request, rows.depth < MOST_LEVELS)


def _levels(depth: CodeColumn) -> Iterator[CodeColumn]:
    """The rows of each depth, in their order."""
    # Numbers of two bytes numpy sorts by their digits.
    small = depth.astype(np.uint16) if depth.max(initial=0) < 1 << 16 else depth
    order = _narrow(np.argsort(small, kind="stable"))
    yield from np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if order.size else ()


def _costs(stacks: Stacks, nodes: _Nodes, own: IntColumn) -> tuple[FlameCosts, list[str]]:
    """What each node took for each request, and the requests: those with most time, the rest under one name."""
    events = stacks.events
    served = np.flatnonzero(nodes.request != NO_TEXT)
    codes, at = np.unique(nodes.request[served], return_inverse=True)
    totals = totals_by_name(at, own[served], codes.size)
    most = np.argsort(-totals, kind="stable")[:MOST_REQUESTS]
    number = np.full(codes.size, most.size)
    number[np.sort(most)] = np.arange(most.size)
    request = np.full(nodes.request.size, NONE, dtype=np.int32)
    request[served] = number[at]
    names = [events.names[code] for code in codes[np.sort(most)].tolist()]
    names += [OTHER_REQUESTS] if codes.size > most.size else []
    spent = _narrow(np.flatnonzero(own > 0))
    node, asked = nodes.of_row[spent], request[spent]
    first, cell = group_rows(node, asked)
    counted = nodes.own_frame[spent].astype(np.int64)
    return FlameCosts(
        units=stacks.units,
        node=node[first].tolist(),
        request=asked[first].tolist(),
        own=totals_by_name(cell, own[spent], first.size).tolist(),
        count=totals_by_name(cell, counted, first.size).tolist(),
    ), names


def _shapes(events: EventTable, rows: _Rows, nodes: _Nodes, own: IntColumn) -> tuple[IntColumn, IntColumn]:
    """For each node the shapes that took most of its time, or NO_TEXT, and how many more it was run with."""
    most, more = np.full(nodes.parent.size, NO_TEXT, dtype=np.int64), np.zeros(nodes.parent.size, dtype=np.int64)
    shape = events.shape[rows.event]
    shaped = np.flatnonzero(rows.counted & nodes.own_frame & (shape != NO_TEXT))
    first, pair = group_rows(nodes.of_row[shaped], shape[shaped])
    times, node = totals_by_name(pair, own[shaped], first.size), nodes.of_row[shaped[first]]
    order = np.lexsort((-times, node))
    owner, largest, count = np.unique(node[order], return_index=True, return_counts=True)
    most[owner] = shape[shaped[first[order[largest]]]]
    more[owner] = count - 1
    return most, more


def _track_names(stacks: Stacks, rows: _Rows, nodes: _Nodes, own: IntColumn) -> list[str]:
    """A stream keeps its name; threads, whose ids mean nothing, are numbered by time."""
    tracks = nodes.label[: nodes.roots]
    totals = totals_by_name(np.searchsorted(tracks, rows.root), own, tracks.size)
    names, number = [""] * tracks.size, 0
    for at in np.argsort(-totals, kind="stable").tolist():
        text = stacks.events.tracks[int(tracks[at])][1]
        if nodes.kind[at] == _STREAM:
            names[at] = f"stream {text}" if text.isdecimal() else text
        else:
            number += 1
            names[at] = f"thread {number}"
    return names


def _places(nodes: _Nodes, frames: _Frames) -> list[str]:
    """A Python function stands where it begins, all else in the nearest function of the project."""
    places, nearest = [""] * nodes.parent.size, [""] * nodes.parent.size
    for at in range(nodes.roots, nodes.parent.size):
        label, above = frames.of[nodes.label[at]], nearest[nodes.parent[at]]
        nearest[at] = (label.place if label.is_project else above) or ""
        places[at] = label.place or nearest[at]
    return places


def _folded(tree: FlameTree, most: int) -> FlameTree:
    """The tree with its ``most`` largest nodes; what the others took is own time of those above them."""
    size, (costs,) = len(tree.parent), tree.sides
    if size <= most:
        return tree
    total = [0] * size
    for node, own in zip(costs.node, costs.own):
        total[node] += own
    for node in range(size - 1, -1, -1):
        if tree.parent[node] != NONE:
            total[tree.parent[node]] += total[node]
    # A node is never larger than its parent and stands behind it, so all above a kept node are kept.
    largest = sorted(sorted(range(size), key=lambda node: (-total[node], node))[:most])
    number = dict(zip(largest, range(most)))
    stays: list[int] = []
    for node in range(size):
        stays.append(
            number[node] if node in number else stays[tree.parent[node]] if tree.parent[node] != NONE else NONE
        )
    cells: dict[tuple[int, int], list[int]] = {}
    for node, request, own, count in zip(costs.node, costs.request, costs.own, costs.count):
        cell = cells.setdefault((stays[node], request), [0, 0])
        cell[0] += own
        cell[1] += count if node in number else 0
    order = sorted(key for key in cells if key[0] != NONE)
    return msgspec.structs.replace(
        tree,
        parent=[NONE if tree.parent[node] == NONE else number[tree.parent[node]] for node in largest],
        kind=[tree.kind[node] for node in largest],
        name=[tree.name[node] for node in largest],
        place=[tree.place[node] for node in largest],
        shape=[tree.shape[node] for node in largest],
        more_shapes=[tree.more_shapes[node] for node in largest],
        head=FlameCosts(
            units=costs.units,
            node=[node for node, _ in order],
            request=[request for _, request in order],
            own=[cells[key][0] for key in order],
            count=[cells[key][1] for key in order],
        ),
        folded=size - most,
        folded_names=sorted({tree.texts[tree.name[node]] for node in range(size) if node not in number}),
    )
