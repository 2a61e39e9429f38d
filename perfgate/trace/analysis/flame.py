"""Make the tree of a flame graph from call stacks: one node for all events that have the same stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from perfgate.document.flame import NONE, FlameCosts, FlameOmissions, FlameTree
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
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.stacks import Stacks

MOST_NODES = 100_000
MOST_REQUESTS = 500
OTHER_REQUESTS = "other requests"


def flame_tree(
    stacks: Stacks, label: str, *, most_nodes: int = MOST_NODES
) -> FlameTree:
    """The stacks as one tree, a root for each thread and stream, with its costs as the costs of head.

    A stream contains the calls that launched its work, without their own time. Frames beyond ``most_nodes`` are folded
    into their parents, the smallest first.
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
    """The distinct frames of a table's events in ``of``, and for each event its position there in ``labels``."""

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
    """The requests with most time in ``names``, the rest under one name; and the position of each event's request there."""

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
    """The time of each node per request."""
    spent = np.flatnonzero(stacks.own > 0).astype(np.int32)
    node, request = nodes.of_event[spent], requests.of_event[spent]
    first, cell = group_rows(node, request)
    counted = cell[nodes.own_frame[spent]]
    return FlameCosts(
        units=stacks.units,
        node=node[first].tolist(),
        request=request[first].tolist(),
        own=totals_by_name(cell, stacks.own[spent], first.size).tolist(),
        count=counts_by_name(counted, first.size).tolist(),
    )


def _shapes(stacks: Stacks, nodes: MergedStacks) -> tuple[IntColumn, IntColumn]:
    """For each node the shapes with most of its time, or NO_TEXT, and the number of its other shapes."""
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
    """Streams keep their names; threads are numbered by time, because their ids are arbitrary."""
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
    """The place of a Python function is its first line; any other node has the nearest function of the project."""
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
    """The tree with its ``most`` largest nodes; the time of the others becomes own time of their nearest kept ancestor."""
    size, (costs,) = len(tree.parent), tree.sides
    if size <= most:
        return tree
    total = _totals(tree, costs)
    # A node is never larger than its parent and comes after it, so all ancestors of a kept node are kept.
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
    """For each node the number of the nearest kept one, itself included; NONE if there is none."""
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
    """The costs of the kept nodes; a folded node adds its time to the kept one above it, but none to its count."""
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
