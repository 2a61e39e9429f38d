"""Find what could be one kernel and is several: by the flow of data from operator to operator, each in one pattern only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from perfgate.measuring.checklist.steps._dataflow import CONVOLUTIONS, Node, Role

PatternKind = Literal[
    "attention", "layer_norm", "rms_norm", "conv_norm_activation", "matmul_activation", "gelu", "elementwise"
]

# A chain of fewer is as fast fused by hand as it is worth.
FEWEST_IN_CHAIN = 3
_ACTIVATIONS = frozenset({
    "relu", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "sigmoid", "tanh",
    "clamp", "clamp_min", "softplus", "prelu",
})  # fmt: skip
_ADDITIONS = frozenset({"add", "sub"})
_ROOTS = frozenset({"rsqrt", "sqrt", "std"})
_SCALINGS = frozenset({"mul", "div"})
_CENTRED = frozenset({"sub", "var", "var_mean", "std"})
_SQUARES = frozenset({"pow", "square", "mul", "sub"})
_BETWEEN: frozenset[Role] = frozenset({"pointwise", "move"})


class Pattern(NamedTuple):
    """Operators, by position in the call, that could be one kernel; ``merged`` are those that fusing does away with."""

    kind: PatternKind
    ops: tuple[int, ...]
    merged: tuple[int, ...]


def can_hold_patterns(nodes: Sequence[Node]) -> bool:
    """Return whether any operator is of a sort that could be part of a pattern."""
    return any(node.role in ("product", "softmax") for node in nodes) or _pointwise(nodes) > 1


def _pointwise(nodes: Sequence[Node]) -> int:
    return sum(node.role == "pointwise" for node in nodes)


def find_patterns(nodes: Sequence[Node]) -> list[Pattern]:
    """Return every pattern, in the order of the call: the largest kinds claim their operators first."""
    graph = _Graph(nodes)
    finders: tuple[Callable[[_Graph], Iterator[Pattern]], ...] = (_attentions, _norms, _after_products, _chains)
    found = [pattern for finder in finders for pattern in finder(graph)]
    return sorted(found, key=lambda pattern: pattern.ops)


class _Graph:
    """The nodes, who takes whose result, and which nodes a pattern has claimed."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.claimed: set[int] = set()
        self.takers: list[list[int]] = [[] for _ in nodes]
        for at, node in enumerate(nodes):
            for source in node.inputs:
                self.takers[source].append(at)

    def free(self, role: Role) -> list[int]:
        return [at for at, node in enumerate(self.nodes) if node.role == role and at not in self.claimed]

    def up(self, at: int) -> Sequence[int]:
        return self.nodes[at].inputs

    def down(self, at: int) -> Sequence[int]:
        return self.takers[at]

    def path(
        self,
        start: int,
        step: Callable[[int], Sequence[int]],
        goal: Callable[[Node], bool],
        *,
        through: Collection[Role],
    ) -> list[int] | None:
        """Return the shortest way from after ``start`` to a free node that is the goal, through free nodes of some roles."""
        ways = [[following] for following in step(start)]
        seen: set[int] = set()
        while ways:
            way = ways.pop(0)
            node = self.nodes[way[-1]]
            if way[-1] in seen or way[-1] in self.claimed:
                continue
            seen.add(way[-1])
            if goal(node):
                return way
            if node.role in through:
                ways += [[*way, following] for following in step(way[-1])]
        return None

    def pattern(self, kind: PatternKind, ops: Collection[int], *, kept: Collection[int] = ()) -> Pattern:
        """Claim the operators and return them as a pattern."""
        self.claimed.update(ops)
        return Pattern(kind, tuple(sorted(ops)), tuple(sorted(set(ops) - set(kept))))


def _attentions(graph: _Graph) -> Iterator[Pattern]:
    """Product, scale and mask, softmax, product: what ``scaled_dot_product_attention`` does in one kernel."""
    for softmax in graph.free("softmax"):
        before = graph.path(softmax, graph.up, _is_product, through=_BETWEEN)
        after = graph.path(softmax, graph.down, _is_product, through=_BETWEEN)
        if before and after:
            yield graph.pattern("attention", {*before, softmax, *after}, kept={before[-1], after[-1]})


def _is_product(node: Node) -> bool:
    return node.role == "product" and node.plain not in CONVOLUTIONS


def _norms(graph: _Graph) -> Iterator[Pattern]:
    """A mean or variance, the root of it, and what is scaled by that: layer or RMS normalization written out."""
    for reduction in graph.free("reduction"):
        # A mean that is taken off first belongs to the pattern of the second reduction.
        root = None if reduction in graph.claimed else _root_of(graph, reduction)
        scaled = root and graph.path(root[-1], graph.down, lambda node: node.plain in _SCALINGS, through=_BETWEEN)
        if root and scaled:
            ops = {*_before_reduction(graph, reduction), reduction, *root, *scaled, *_affine(graph, scaled[-1])}
            centred = any(graph.nodes[at].plain in _CENTRED for at in ops)
            yield graph.pattern("layer_norm" if centred else "rms_norm", ops)


def _root_of(graph: _Graph, reduction: int) -> list[int] | None:
    """Return the way from a reduction to the root of its result; a standard deviation is a root itself."""
    if graph.nodes[reduction].plain in _ROOTS:
        return [reduction]
    return graph.path(reduction, graph.down, lambda node: node.plain in _ROOTS, through=_BETWEEN)


def _before_reduction(graph: _Graph, reduction: int) -> set[int]:
    """Return the squares that are summed up, and the mean that was taken off before."""
    found: set[int] = set()
    waiting = list(graph.up(reduction))
    while waiting:
        at = waiting.pop()
        node = graph.nodes[at]
        squares = node.role == "pointwise" and node.plain in _SQUARES
        if at in graph.claimed or at in found or not (squares or node.plain == "mean"):
            continue
        found.add(at)
        # What the mean is taken of is what is normalized, and no part of it.
        waiting += graph.up(at) if squares else ()
    return found


def _affine(graph: _Graph, at: int) -> list[int]:
    """Return the weight and bias that follow: one result each, taken together with something from outside the call."""
    found: list[int] = []
    while len(takers := graph.down(at)) == 1 and len(found) < 2:
        at = takers[0]
        node = graph.nodes[at]
        if at in graph.claimed or len(node.inputs) != 1 or node.plain not in _ADDITIONS | _SCALINGS:
            break
        found.append(at)
    return found


def _after_products(graph: _Graph) -> Iterator[Pattern]:
    """A convolution or matrix product, and what follows its result alone: normalization by constants, bias, activation."""
    for product in graph.free("product"):
        following = list(_epilogue(graph, product))
        if following:
            convolves = graph.nodes[product].plain in CONVOLUTIONS
            kind: PatternKind = "conv_norm_activation" if convolves else "matmul_activation"
            yield graph.pattern(kind, {product, *following}, kept={product})


def _epilogue(graph: _Graph, product: int) -> list[int]:
    """Return what could be computed with the product's result at hand; nothing where it ends in a mere addition."""
    found: list[int] = []
    at = product
    while len(takers := graph.down(at)) == 1 and takers[0] not in graph.claimed:
        at = takers[0]
        node = graph.nodes[at]
        activates = node.role == "pointwise" and node.plain in _ACTIVATIONS
        if not (activates or node.role == "batch_norm" or node.plain in _ADDITIONS):
            break
        found.append(at)
        if activates:
            break
    while found and graph.nodes[found[-1]].plain in _ADDITIONS:
        found.pop()
    return found


def _chains(graph: _Graph) -> Iterator[Pattern]:
    """Element by element one after another: operators that take each other's results, at least three deep."""
    chosen = {at for at in graph.free("pointwise") if graph.nodes[at].elements > 1}
    stages = _stages(graph, chosen)
    for group in _connected(graph, chosen, stages):
        if _depth(graph, group) >= FEWEST_IN_CHAIN:
            names = {graph.nodes[at].plain for at in group}
            written_out = "erf" in names or {"tanh", "pow"} <= names
            yield graph.pattern("gelu" if written_out else "elementwise", group)


def _stages(graph: _Graph, chosen: set[int]) -> list[int]:
    """Return for each node how many others than the chosen ones lie before it, on the longest way.

    Two chosen ones of one stage can be one kernel. The sums of two residual branches cannot, though one takes the other's
    result: a matrix product between them needs the first, and the second needs the product.
    """
    stages: list[int] = []
    for at in range(len(graph.nodes)):
        stages.append(max((stages[source] + (not {source, at} <= chosen) for source in graph.up(at)), default=0))
    return stages


def _connected(graph: _Graph, chosen: set[int], stages: Sequence[int]) -> Iterator[set[int]]:
    """Return the groups of chosen nodes of one stage, joined by who takes whose result, in the order of the call."""
    left = set(chosen)
    for first in sorted(chosen):
        group: set[int] = set()
        waiting = [first]
        while waiting:
            at = waiting.pop()
            if at in left and stages[at] == stages[first]:
                left.remove(at)
                group.add(at)
                waiting += [*graph.up(at), *graph.down(at)]
        if group:
            yield group


def _depth(graph: _Graph, group: set[int]) -> int:
    """Return how many operators of a group follow one another at most."""
    depth: dict[int, int] = {}
    for at in sorted(group):
        depth[at] = 1 + max((depth[source] for source in graph.up(at) if source in depth), default=0)
    return max(depth.values())
