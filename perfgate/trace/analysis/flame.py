"""Make the tree of a flame graph from call stacks: one node for all events that have the same stack."""

from __future__ import annotations

import msgspec
import numpy as np

from perfgate.document.flame import NONE, FlameCosts, FlameTree
from perfgate.trace.analysis.merged_stacks import STREAM, MergedStacks, merged_stacks
from perfgate.trace.analysis.stacks import EventFrame, frame, requests_served
from perfgate.trace.model.arithmetic import (
    Codes,
    IntColumn,
    counts_by_name,
    group_rows,
    totals_by_name,
)
from perfgate.trace.model.events import KINDS, NO_TEXT, EventTable
from perfgate.trace.model.stacks import Stacks

MOST_NODES = 100_000
MOST_REQUESTS = 500
OTHER_REQUESTS = "other requests"


def flame_tree(stacks: Stacks, label: str, *, most_nodes: int = MOST_NODES) -> FlameTree:
    """The stacks as one tree, a root for each thread and stream, with its costs as those of head.

    A stream contains the calls that launched its work, without time of their own. Frames beyond ``most_nodes`` are folded
    into their parents, the smallest first.
    """
    frames = _Frames(stacks.events)
    nodes = merged_stacks(stacks, frames.labels)
    costs, requests = _costs(stacks, nodes)
    texts: dict[str, int] = {}
    shape, more_shapes = _shapes(stacks, nodes)
    names = _track_names(stacks, nodes) + [frames.of[at].name for at in nodes.label[nodes.roots :].tolist()]

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
        cut=int(np.count_nonzero(~nodes.own_frame)),
    )
    return _folded(tree, most_nodes)


class _Frames:
    """The frames of a table's events: the distinct ones in ``of``, and per event in ``labels`` a position in it."""

    def __init__(self, events: EventTable) -> None:
        first, row = group_rows(events.group, events.kind)
        numbers: dict[EventFrame, int] = {}
        labels = [
            numbers.setdefault(frame(events.names[group], KINDS[kind]), len(numbers))
            for group, kind in zip(events.group[first].tolist(), events.kind[first].tolist())
        ]
        self.of = list(numbers)
        self.labels: Codes = np.array(labels, dtype=np.min_scalar_type(len(self.of)))[row]


def _costs(stacks: Stacks, nodes: MergedStacks) -> tuple[FlameCosts, list[str]]:
    """The time of each node per request, and the requests: those with most time, the rest under one name."""
    served = requests_served(stacks)
    real = np.flatnonzero(served != NO_TEXT)
    codes, at = np.unique(served[real], return_inverse=True)
    totals = totals_by_name(at, stacks.own[real], codes.size)
    most = np.argsort(-totals, kind="stable")[:MOST_REQUESTS]
    number = np.full(codes.size, most.size)
    number[np.sort(most)] = np.arange(most.size)
    request = np.full(served.size, NONE, dtype=np.int32)
    request[real] = number[at]
    names = [stacks.events.names[code] for code in codes[np.sort(most)].tolist()]
    names += [OTHER_REQUESTS] if codes.size > most.size else []
    spent = np.flatnonzero(stacks.own > 0).astype(np.int32)
    node, asked = nodes.of_event[spent], request[spent]
    first, cell = group_rows(node, asked)
    return FlameCosts(
        units=stacks.units,
        node=node[first].tolist(),
        request=asked[first].tolist(),
        own=totals_by_name(cell, stacks.own[spent], first.size).tolist(),
        count=counts_by_name(cell[nodes.own_frame[spent]], first.size).tolist(),
    ), names


def _shapes(stacks: Stacks, nodes: MergedStacks) -> tuple[IntColumn, IntColumn]:
    """For each node the shapes with most of its time, or NO_TEXT, and the number of its other shapes."""
    most, more = np.full(nodes.parent.size, NO_TEXT, dtype=np.int64), np.zeros(nodes.parent.size, dtype=np.int64)
    shape = stacks.events.shape
    shaped = np.flatnonzero(nodes.own_frame & (shape != NO_TEXT)).astype(np.int32)
    first, pair = group_rows(nodes.of_event[shaped], shape[shaped])
    times, node = totals_by_name(pair, stacks.own[shaped], first.size), nodes.of_event[shaped[first]]
    order = np.lexsort((-times, node))
    owner, largest, count = np.unique(node[order], return_index=True, return_counts=True)
    most[owner] = shape[shaped[first[order[largest]]]]
    more[owner] = count - 1
    return most, more


def _track_names(stacks: Stacks, nodes: MergedStacks) -> list[str]:
    """Streams keep their names; threads are numbered by time, because their ids mean nothing."""
    tracks = nodes.label[: nodes.roots]
    totals = totals_by_name(np.searchsorted(tracks, stacks.track), stacks.own, tracks.size)
    names, number = [""] * tracks.size, 0
    for at in np.argsort(-totals, kind="stable").tolist():
        text = stacks.events.tracks[int(tracks[at])][1]
        if nodes.kind[at] == STREAM:
            names[at] = f"stream {text}" if text.isdecimal() else text
        else:
            number += 1
            names[at] = f"thread {number}"
    return names


def _places(nodes: MergedStacks, frames: _Frames) -> list[str]:
    """The place of a Python function is its first line, that of any other node the nearest function of the project."""
    places, nearest = [""] * nodes.parent.size, [""] * nodes.parent.size
    for at in range(nodes.roots, nodes.parent.size):
        label, above = frames.of[nodes.label[at]], nearest[nodes.parent[at]]
        nearest[at] = (label.place if label.is_project else above) or ""
        places[at] = label.place or nearest[at]
    return places


def _folded(tree: FlameTree, most: int) -> FlameTree:
    """The tree with its ``most`` largest nodes; the time of the others becomes own time of their nearest kept ancestor."""
    size, (costs,) = len(tree.parent), tree.sides
    if size <= most:
        return tree
    total = [0] * size
    for node, own in zip(costs.node, costs.own):
        total[node] += own
    for node in range(size - 1, -1, -1):
        if tree.parent[node] != NONE:
            total[tree.parent[node]] += total[node]
    # A node is never larger than its parent and comes after it, so all ancestors of a kept node are kept.
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
