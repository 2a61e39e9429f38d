"""Find operators that could be one kernel: by the data flow between operators, each in
one pattern only.

The order of dispatch alone is not enough: a pattern depends on which operator uses
which result.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.device import Call

if TYPE_CHECKING:
    from perfgate.measuring.counting.operator_calls import OperatorCall

# Shape and strides.
ShapeAndStrides = tuple[tuple[int, ...], tuple[int, ...]]
Role = Literal[
    "product", "pointwise", "softmax", "reduction", "batch_norm", "move", "other"
]

# Kept as separate kernels by fusion, with other operators fused to them.
_CONVOLUTIONS = frozenset(
    {"convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"}
)
_PRODUCTS = _CONVOLUTIONS | {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "linear",
    "matmul",
}
_REDUCTIONS = frozenset({"mean", "var", "var_mean", "std", "sum"})
_BATCH_NORMS = frozenset(
    {
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "_batch_norm_no_update",
    }
    | {"cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index", "batch_norm"}
)
_MOVES = frozenset({"clone", "_to_copy", "copy_", "contiguous"})
# Position of the argument ``training`` in the schemas of batch normalization:
# normalizing by the batch cannot be folded.
_TRAINING_ARGUMENT = 5

PatternKind = Literal[
    "attention",
    "layer_norm",
    "rms_norm",
    "conv_norm_activation",
    "conv_activation",
    "matmul_activation",
    "matmul_softmax",
    "gelu",
    "elementwise",
    "broken",
]

# A chain of fewer is as fast fused by hand as it is worth.
FEWEST_IN_CHAIN = 3
_ACTIVATIONS = frozenset(
    {
        "relu",
        "gelu",
        "silu",
        "mish",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "elu",
        "sigmoid",
        "tanh",
    }
    | {"clamp", "clamp_min", "softplus", "prelu"}
)
_ADDITIONS = frozenset({"add", "sub"})
_ROOTS = frozenset({"rsqrt", "sqrt", "std"})
_SCALINGS = frozenset({"mul", "div"})
_CENTRED = frozenset({"sub", "var", "var_mean", "std"})
_SQUARES = frozenset({"pow", "square", "mul", "sub"})
# Operators that copy a result only to change its layout.
_REORDERS = frozenset({"clone", "contiguous"})
# Frames between the call in Python and an operator that a composite one is made of.
_DISPATCHING = (
    "counting/dispatch.py",
    "torch/_compile.py",
    "torch/_dynamo/eval_frame.py",
)
_BETWEEN: frozenset[Role] = frozenset({"pointwise", "move"})


class Node(NamedTuple):
    """One operator of a call that computes something, views left out.

    ``inputs`` are the positions of the operators that produce its arguments, in their
    order; arguments from outside the call (weights, inputs) are left out. ``reshapes``
    names, for each of the inputs, the view through which it takes the result, None for
    a result as its operator left it. ``elements`` is the size of its first result.
    """

    name: str
    role: Role
    inputs: tuple[int, ...]
    elements: int
    line: str | None
    reshapes: tuple[str | None, ...] = ()

    @property
    def plain(self) -> str:
        """The name without namespace and without the underscore of the variant that
        works in place.
        """
        return plain_name(self.name)


def plain_name(name: str) -> str:
    return variant_of(name).rpartition("::")[2]


def variant_of(name: str) -> str:
    """The name of an operator without the underscore of its variant that works in place
    (``aten::add_``).
    """
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1]
    return name


def record_dataflow(call: Call, *, root: Path) -> tuple[Node, ...]:
    """Make one call and return its operators in order of dispatch, with source lines
    relative to ``root``.
    """
    from perfgate.measuring.counting.dispatch import WatchingMode

    dataflow = _Dataflow(root)

    class DataflowMode(WatchingMode):  # type: ignore[no-untyped-call]
        def saw(self, call: OperatorCall) -> None:
            dataflow.add(call, sys._getframe(2))

    with DataflowMode():  # type: ignore[no-untyped-call]
        call()
    return tuple(dataflow.nodes)


class _Dataflow:
    """The operators of a call so far, and which of them wrote each storage last."""

    def __init__(self, root: Path) -> None:
        self.nodes: list[Node] = []
        self._lines = SourceLines(root)
        # A view shares its base's storage, and so its writer. The weak references keep
        # the numbers of storages that are gone from being used again, and no memory.
        self._writers: dict[int, int] = {}
        self._storages: list[Any] = []
        # The Python call that each operator was dispatched from, and the view that
        # first gave its result a layout.
        self._calls: list[tuple[int, int]] = []
        self._reshapes: dict[tuple[int, ShapeAndStrides | None], str | None] = {}

    def add(self, call: OperatorCall, frame: FrameType) -> None:
        dispatched_from = _python_call(frame)
        if call.is_view:
            for tensor, writer in self._written(call.result):
                # Linear on three dimensions makes its result a view of a product of
                # two.
                own = self._calls[writer] == dispatched_from
                self._reshapes.setdefault(
                    (writer, _layout(tensor)), None if own else plain_name(call.name)
                )
            return
        inputs: dict[int, str | None] = {}
        for tensor, writer in self._written((call.args, call.keywords)):
            inputs.setdefault(writer, self._reshapes.get((writer, _layout(tensor))))
        node = Node(
            name=call.name,
            role=_role(call),
            inputs=tuple(inputs),
            elements=self._write(call.result),
            line=self._lines.of(frame),
            reshapes=tuple(inputs.values()),
        )
        self._calls.append(dispatched_from)
        self.nodes.append(node)

    def _written(self, values: Any) -> Iterator[tuple[Any, int]]:
        """The tensors among the values that an operator of the call wrote to, each with
        its last writer.
        """
        from perfgate.measuring.counting.operator_calls import weak_storage

        for tensor in tensors(values):
            storage = weak_storage(tensor)
            if storage is not None and storage.cdata in self._writers:
                yield tensor, self._writers[storage.cdata]

    def _write(self, result: Any) -> int:
        """Make the next node the writer of these tensors, and return the elements of
        the first.
        """
        from perfgate.measuring.counting.operator_calls import weak_storage

        elements = []
        writer = len(self.nodes)
        for tensor in tensors(result):
            storage = weak_storage(tensor)
            if storage is not None:
                elements.append(tensor.numel())
                self._storages.append(storage)
                self._writers[storage.cdata] = writer
                self._reshapes[writer, _layout(tensor)] = None
        return elements[0] if elements else 0


def _layout(tensor: Any) -> ShapeAndStrides | None:
    try:
        return tuple(tensor.shape), tuple(tensor.stride())
    except (
        RuntimeError
    ):  # a nested tensor has neither, and its results count as unchanged
        return None


def _python_call(frame: FrameType | None) -> tuple[int, int]:
    """The instruction of a frame that dispatched: all parts of one composite operator
    have it in common.
    """
    while frame is not None and frame.f_code.co_filename.endswith(_DISPATCHING):
        frame = frame.f_back
    if frame is not None:
        return (id(frame), frame.f_lasti)
    return (0, 0)


def _role(call: OperatorCall) -> Role:
    import torch

    _, _, name = call.name.rpartition("::")
    plain = name.rstrip("_")
    if plain in _PRODUCTS:
        return "product"
    if plain in _BATCH_NORMS:
        trains = (
            len(call.args) > _TRAINING_ARGUMENT
            and call.args[_TRAINING_ARGUMENT] is True
        )
        return "other" if trains else "batch_norm"
    if "softmax" in plain and "backward" not in plain:
        return "softmax"
    if plain in _REDUCTIONS:
        return "reduction"
    if name in _MOVES:
        return "move"
    if torch.Tag.pointwise in call.func.tags:
        return "pointwise"
    return "other"


class Pattern(NamedTuple):
    """Operators, by position in the call, that could be one kernel; ``merged`` are
    those that fusing does away with.

    Operators of the kind "broken" could be one if ``broken_by`` did not change a layout
    between them.
    """

    kind: PatternKind
    ops: tuple[int, ...]
    merged: tuple[int, ...]
    broken_by: str | None = None


def can_hold_patterns(nodes: Sequence[Node]) -> bool:
    """Whether any operator is of a sort that could be part of a pattern."""
    roles = Counter(node.role for node in nodes)
    return roles["pointwise"] > 1 or "product" in roles or "softmax" in roles


def find_patterns(nodes: Sequence[Node]) -> list[Pattern]:
    """Every pattern, in the order of the call: the largest kinds claim their operators
    first.
    """
    graph = _Graph(nodes)
    patterns = [*_attentions(graph), *_norms(graph)]
    patterns += _after_products(graph)
    patterns += _chains(graph)
    return sorted(patterns, key=lambda pattern: pattern.ops)


class _Graph:
    """The nodes, the producers and consumers of results, and the nodes already claimed
    by a pattern.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.claimed: set[int] = set()
        self.takers: list[list[int]] = [[] for _ in nodes]
        for at, node in enumerate(nodes):
            for source in node.inputs:
                self.takers[source].append(at)

    def free(self, role: Role) -> list[int]:
        return [
            at
            for at, node in enumerate(self.nodes)
            if node.role == role and at not in self.claimed
        ]

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
        """The shortest way from after ``start`` to a free node that is the goal,
        through free nodes of some roles.
        """
        ways: list[list[int]] = [[]]
        visited = set()
        while ways:
            way = ways.pop(0)
            for following in step(way[-1] if way else start):
                if following in visited or following in self.claimed:
                    continue
                visited.add(following)
                node = self.nodes[following]
                if goal(node):
                    return [*way, following]
                if node.role in through:
                    ways.append([*way, following])
        return None

    def pattern(
        self,
        kind: PatternKind,
        ops: Collection[int],
        *,
        remaining: Collection[int] = (),
    ) -> Pattern:
        """Claim the operators, of which the ``remaining`` stay separate kernels."""
        self.claimed.update(ops)
        return Pattern(
            kind, tuple(sorted(ops)), tuple(sorted(set(ops) - set(remaining)))
        )


def _attentions(graph: _Graph) -> Iterator[Pattern]:
    """Product, scale and mask, softmax, product: one kernel in
    ``scaled_dot_product_attention``.
    """
    for softmax in graph.free("softmax"):
        before = graph.path(softmax, graph.up, _is_product, through=_BETWEEN)
        after = graph.path(softmax, graph.down, _is_product, through=_BETWEEN)
        if before and after:
            yield graph.pattern(
                "attention",
                {*before, softmax, *after},
                remaining={before[-1], after[-1]},
            )


def _is_product(node: Node) -> bool:
    return node.role == "product" and node.plain not in _CONVOLUTIONS


def _norms(graph: _Graph) -> Iterator[Pattern]:
    """A mean or variance, its root, and the scaling by it: layer or RMS normalization
    written out.
    """
    for reduction in graph.free("reduction"):
        if reduction in graph.claimed:
            # a mean that is taken off first belongs to the pattern of the second
            # reduction
            continue
        # A standard deviation is a root itself.
        root: list[int] | None = [reduction]
        if graph.nodes[reduction].plain not in _ROOTS:
            root = graph.path(
                reduction,
                graph.down,
                lambda node: node.plain in _ROOTS,
                through=_BETWEEN,
            )
        scaled = root and graph.path(
            root[-1], graph.down, lambda node: node.plain in _SCALINGS, through=_BETWEEN
        )
        if root and scaled:
            ops = {
                *_before_reduction(graph, reduction),
                reduction,
                *root,
                *scaled,
                *_affine(graph, scaled[-1]),
            }
            names = {graph.nodes[at].plain for at in ops}
            yield graph.pattern(
                "rms_norm" if names.isdisjoint(_CENTRED) else "layer_norm", ops
            )


def _before_reduction(graph: _Graph, reduction: int) -> set[int]:
    """The squares that are summed up, and the mean that was taken off before."""
    ops: set[int] = set()
    waiting = list(graph.up(reduction))
    while waiting:
        at = waiting.pop()
        node = graph.nodes[at]
        squares = node.role == "pointwise" and node.plain in _SQUARES
        if at in graph.claimed or at in ops or not (squares or node.plain == "mean"):
            continue
        ops.add(at)
        # The input of the mean is the normalized tensor, which is not part of the
        # pattern.
        if squares:
            waiting += graph.up(at)
    return ops


def _affine(graph: _Graph, at: int) -> list[int]:
    """The weight and bias that follow: one result each, taken together with something
    from outside the call.
    """
    ops: list[int] = []
    while len(takers := graph.down(at)) == 1 and len(ops) < 2:
        at = takers[0]
        node = graph.nodes[at]
        if (
            at in graph.claimed
            or len(node.inputs) != 1
            or node.plain not in _ADDITIONS | _SCALINGS
        ):
            break
        ops.append(at)
    return ops


def _after_products(graph: _Graph) -> Iterator[Pattern]:
    """A convolution or matrix product and the operators on its result alone:
    normalization by constants, bias, activation.
    """
    for product in graph.free("product"):
        following, behind, by = _epilogue(graph, product)
        if following:
            kind: PatternKind = "conv_activation"
            if any(graph.nodes[at].role == "batch_norm" for at in following):
                kind = "conv_norm_activation"
            if graph.nodes[following[-1]].role == "softmax":
                kind = "matmul_softmax"
            elif _is_product(graph.nodes[product]):
                kind = "matmul_activation"
            yield graph.pattern(kind, {product, *following}, remaining={product})
        elif behind:
            # The operators stay unclaimed, so that other patterns may still use them.
            ops = tuple(sorted(behind))
            yield Pattern("broken", (product, *ops), ops, broken_by=by)


def _epilogue(graph: _Graph, product: int) -> tuple[list[int], list[int], str | None]:
    """The operators that could run in the product's epilogue, those that a change of
    layout keeps out of it, and which.
    """
    following = []
    behind = []
    separated_by: str | None = None
    at = product
    while len(takers := graph.down(at)) == 1 and takers[0] not in graph.claimed:
        before, at = at, takers[0]
        node = graph.nodes[at]
        activates = node.role == "pointwise" and node.plain in _ACTIVATIONS
        ends = activates or (
            node.role == "softmax" and _is_product(graph.nodes[product])
        )
        reorders = node.role == "move" and node.plain in _REORDERS
        if not (
            ends
            or reorders
            or node.role == "batch_norm"
            or node.plain in _ADDITIONS | _SCALINGS
        ):
            break
        by = node.reshapes[node.inputs.index(before)] if node.reshapes else None
        if by is None and reorders:
            by = node.plain
        separated_by = separated_by or by
        if separated_by:
            behind.append(at)
        else:
            following.append(at)
        if ends:
            break
    _without_mere_arithmetic(graph, following)
    _without_mere_arithmetic(graph, behind)
    return following, behind, separated_by


def _without_mere_arithmetic(graph: _Graph, ops: list[int]) -> None:
    """Drop the additions, scalings and copies at the end: alone they are not worth
    fusing.
    """
    while ops and graph.nodes[ops[-1]].plain in _ADDITIONS | _SCALINGS | _REORDERS:
        ops.pop()


def _chains(graph: _Graph) -> Iterator[Pattern]:
    """Element by element one after another: operators that take each other's results,
    at least three deep.
    """
    pointwise = {at for at in graph.free("pointwise") if graph.nodes[at].elements > 1}
    stages = _stages(graph, pointwise)
    for group in _connected(graph, pointwise, stages):
        if _depth(graph, group) >= FEWEST_IN_CHAIN:
            names = {graph.nodes[at].plain for at in group}
            written_out = "erf" in names or {"tanh", "pow"} <= names
            yield graph.pattern("gelu" if written_out else "elementwise", group)


def _stages(graph: _Graph, pointwise: set[int]) -> list[int]:
    """For each node the number of nodes that are not pointwise on the longest path to
    it.

    Two pointwise nodes of one stage can be one kernel. The sums of two residual
    branches cannot, though one takes the other's result: a matrix product between them
    needs the first, and the second needs the product.
    """
    stages: list[int] = []
    for at in range(len(graph.nodes)):
        stage = 0
        for source in graph.up(at):
            is_next = source not in pointwise or at not in pointwise
            stage = max(stage, stages[source] + is_next)
        stages.append(stage)
    return stages


def _connected(
    graph: _Graph, pointwise: set[int], stages: Sequence[int]
) -> Iterator[set[int]]:
    """The groups of pointwise nodes of one stage that use each other's results, in the
    order of the call.
    """
    unclaimed = set(pointwise)
    for first in sorted(pointwise):
        group = set()
        waiting = [first]
        while waiting:
            at = waiting.pop()
            if at in unclaimed and stages[at] == stages[first]:
                unclaimed.remove(at)
                group.add(at)
                waiting += [*graph.up(at), *graph.down(at)]
        if group:
            yield group


def _depth(graph: _Graph, group: set[int]) -> int:
    """How many operators of a group follow one another at most."""
    depth: dict[int, int] = {}
    for at in sorted(group):
        depth[at] = 1 + max(
            (depth.get(source, 0) for source in graph.up(at)), default=0
        )
    return max(depth.values())
