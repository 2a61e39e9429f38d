"""A flame graph: the stacks of one recording, or of base and head in one tree. Times
are integer nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from perfgate.document.comparison import Paired
from perfgate.document.records import FrozenStruct

FlameKind = Literal[
    "thread",  # the root of all work of a host thread
    # the root of all work of a stream of a device, under the calls that launched it
    "stream",
    "python",
    "host_op",
    "annotation",
    "runtime",
    "compute",
    "copy",
    "comm",
    "other",
    "fused",
]
FLAME_KINDS: tuple[FlameKind, ...] = get_args(FlameKind)
FlameUnit = Literal["call", "profiler step", "whole recording"]
# Why the frames of two sides are compared by how often they ran: the pairs did not time
# the call, or the trace shows it slower although they show it faster (or the other way
# round), or the trace differs by an amount that they exclude.
WhyCounts = Literal["unpaired", "sign", "outside"]
NONE = -1


class FlameCosts(FrozenStruct, kw_only=True):
    """The costs of one side, cell by cell: the node, the request it served (NONE: of
    none), its own time, how often it ran.

    ``units`` calls, steps or recordings were added up.
    """

    units: int
    node: list[int]
    request: list[int]
    own: list[int]
    count: list[int]


class FlameMark(FrozenStruct, kw_only=True):
    """An operator that a decision is about; ``name`` indexes the tree's texts.

    ``named`` is whether one of the decision's causes names it; ``seconds`` is head -
    base a call, None if the pairs did not decide it.
    """

    name: int
    named: bool
    seconds: float | None = None


class FlameResult(FrozenStruct, kw_only=True):
    """What a check tells about a tree."""

    # The pairs' result for the call.
    call: Paired | None = None
    # Why times cannot show the change, if they cannot.
    by_counts: WhyCounts | None = None
    # Operators that the decision names or that the pairs decided by time.
    marks: list[FlameMark] = []


class FlameOmissions(FrozenStruct, kw_only=True):
    """Frames that a tree leaves out; their time is added to the frames around them."""

    # Frames too small to keep, and their names.
    folded: int = 0
    names: list[str] = []
    # Frames deeper than the tree goes.
    cut: int = 0


class FlameTree(FrozenStruct, kw_only=True):
    """One timeline, or the same timeline of base and head: a node for each distinct
    stack, parents before children.

    The columns from ``parent`` to ``more_shapes`` have an entry per node. Of frames
    with one parent, the earlier begun come first. A side that was not recorded is None.
    """

    label: str
    unit: FlameUnit
    texts: list[str]
    requests: list[str]
    # A position among the nodes, or NONE.
    parent: list[int]
    # A position in FLAME_KINDS.
    kind: list[int]
    # A position in ``texts``, or NONE.
    name: list[int]
    # A position in ``texts``, or NONE, of ``file.py:12``: the beginning of a Python
    # function; for any other frame the beginning of the nearest function around it
    # outside all frameworks.
    place: list[int]
    # A position in ``texts``, or NONE: the shapes of inputs that took most time.
    shape: list[int]
    # How many other shapes there were.
    more_shapes: list[int]
    base: FlameCosts | None = None
    head: FlameCosts | None = None
    omitted: FlameOmissions = FlameOmissions()
    # In a check with pairs.
    result: FlameResult | None = None

    @property
    def sides(self) -> tuple[FlameCosts, ...]:
        return tuple(side for side in (self.base, self.head) if side is not None)


@dataclass(frozen=True)
class FlameTotal:
    """The totals of one node, or of all nodes of one name, per unit: its own seconds,
    with all it called, and how often.
    """

    own: float
    total: float
    count: float


def side_by_side(base: FlameTree, head: FlameTree) -> FlameTree:
    union = _Union()
    before, after = union.add(base), union.add(head)
    return union.tree([base, head], base=before, head=after)


def merged(trees: Sequence[FlameTree]) -> FlameTree:
    """One tree of several recordings of one side; their units and costs are added up."""
    union = _Union()
    units = 0
    own: Counter[tuple[int, int]] = Counter()
    count: Counter[tuple[int, int]] = Counter()
    for tree in trees:
        side = union.add(tree)
        units += side.units
        for cell, time, times in zip(
            zip(side.node, side.request), side.own, side.count
        ):
            own[cell] += time
            count[cell] += times
    costs = FlameCosts(
        units=units,
        node=[node for node, _ in own],
        request=[request for _, request in own],
        own=list(own.values()),
        count=list(count.values()),
    )
    return union.tree(trees, base=None, head=costs)


class _Union:
    """Nodes by parent, kind and name. A later tree's place and shape replace those
    before: head is added last.
    """

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.requests: dict[str, int] = {}
        self.nodes: dict[tuple[int, int, int], int] = {}
        # Place, shape and how many other shapes, by node.
        self.details: dict[int, tuple[int, int, int]] = {}

    def add(self, tree: FlameTree) -> FlameCosts:
        """Add the nodes of a tree and return its costs by their new numbers."""
        (costs,) = tree.sides
        number = [self.texts.setdefault(text, len(self.texts)) for text in tree.texts]
        requests = [
            self.requests.setdefault(request, len(self.requests))
            for request in tree.requests
        ]
        node: list[int] = []
        for at, parent in enumerate(tree.parent):
            key = (
                NONE if parent == NONE else node[parent],
                tree.kind[at],
                number[tree.name[at]],
            )
            node.append(self.nodes.setdefault(key, len(self.nodes)))
            place = _moved(tree.place[at], number)
            shape = _moved(tree.shape[at], number)
            self.details[node[at]] = place, shape, tree.more_shapes[at]
        return msgspec.structs.replace(
            costs,
            node=[node[at] for at in costs.node],
            request=[_moved(at, requests) for at in costs.request],
        )

    def tree(
        self, trees: Sequence[FlameTree], *, base: FlameCosts | None, head: FlameCosts
    ) -> FlameTree:
        parents, kinds, names = _columns(self.nodes)
        places, shapes, more_shapes = _columns(self.details.values())
        return FlameTree(
            label=trees[-1].label,
            unit=trees[-1].unit,
            texts=list(self.texts),
            requests=list(self.requests),
            parent=parents,
            kind=kinds,
            name=names,
            place=places,
            shape=shapes,
            more_shapes=more_shapes,
            base=base,
            head=head,
            omitted=omitted_from(trees),
        )


def omitted_from(trees: Iterable[FlameTree]) -> FlameOmissions:
    """The omissions of several trees together."""
    folded, cut = 0, 0
    names: set[str] = set()
    for tree in trees:
        folded += tree.omitted.folded
        cut += tree.omitted.cut
        names.update(tree.omitted.names)
    return FlameOmissions(folded=folded, names=sorted(names), cut=cut)


def _columns(
    rows: Iterable[tuple[int, int, int]],
) -> tuple[list[int], list[int], list[int]]:
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for row in rows:
        for column, value in zip(columns, row):
            column.append(value)
    return columns


def node_totals(tree: FlameTree, costs: FlameCosts | None) -> list[FlameTotal]:
    """The totals of each node of a tree per unit of one side; zeros if that side was
    not recorded.
    """
    size = len(tree.parent)
    own, count = [0] * size, [0] * size
    if costs is not None:
        for node, time, times in zip(costs.node, costs.own, costs.count):
            own[node] += time
            count[node] += times
    total = own.copy()
    for node in range(size - 1, -1, -1):
        if tree.parent[node] != NONE:
            total[tree.parent[node]] += total[node]
    units = max(costs.units, 1) if costs is not None else 1
    return [
        FlameTotal(own[at] / units / 1e9, total[at] / units / 1e9, count[at] / units)
        for at in range(size)
    ]


def _moved(at: int, numbers: Sequence[int]) -> int:
    return NONE if at == NONE else numbers[at]
