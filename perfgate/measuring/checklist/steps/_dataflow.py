"""Which operator of a call takes the result of which: the order of dispatch alone does not say what could be one kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

Role = Literal["product", "pointwise", "softmax", "reduction", "batch_norm", "move", "other"]

# What fusing keeps as a kernel of its own and hangs the others on.
CONVOLUTIONS = frozenset({"convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"})
_PRODUCTS = CONVOLUTIONS | {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "matmul"}
_REDUCTIONS = frozenset({"mean", "var", "var_mean", "std", "sum"})
_BATCH_NORMS = frozenset({
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "_batch_norm_no_update",
    "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index", "batch_norm",
})  # fmt: skip
_MOVES = frozenset({"clone", "_to_copy", "copy_", "contiguous"})
# Position of the argument ``training`` in the schemas of batch normalization: normalizing by the batch cannot be folded.
_TRAINING_ARGUMENT = 5


class Node(NamedTuple):
    """One operator of a call that computes something, views left out.

    ``inputs`` are the positions of the operators whose results it takes, in the order of its arguments; what comes from
    outside the call (weights, inputs) is not among them. ``elements`` is the size of its first result.
    """

    name: str
    role: Role
    inputs: tuple[int, ...]
    elements: int
    line: str | None

    @property
    def plain(self) -> str:
        """Return the name without namespace and without the underscore of the variant that works in place."""
        return self.variant.rpartition("::")[2]

    @property
    def variant(self) -> str:
        """Return the name that it shares with its variant that works in place."""
        return variant_of(self.name)


def variant_of(name: str) -> str:
    """Return the name of an operator without the underscore of its variant that works in place (``aten::add_``)."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def record_dataflow(call: Callable[[], Any], *, root: Path) -> tuple[Node, ...]:
    """Make one call and return its operators in order of dispatch, with source lines relative to ``root``."""
    from perfgate.measuring.counting.dispatch import SourceLines, WatchingMode, is_view, weak_storage

    nodes: list[Node] = []
    lines = SourceLines(root)
    # Who wrote to a storage last. A view shares its base's storage, and so its writer. The weak references keep the
    # numbers of storages that are gone from being used again, and no memory.
    writers: dict[int, int] = {}
    held: list[Any] = []

    class Recorder(WatchingMode):  # type: ignore[no-untyped-call]
        def saw(self, func: Any, name: str, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
            if is_view(func):
                return
            sources = [weak_storage(tensor) for tensor in _flat((args, keywords))]
            inputs = [writers[source.cdata] for source in sources if source is not None and source.cdata in writers]
            results = [(tensor, storage) for tensor in _flat(result) if (storage := weak_storage(tensor)) is not None]
            for _, storage in results:
                held.append(storage)
                writers[storage.cdata] = len(nodes)
            nodes.append(
                Node(
                    name=name,
                    role=_role(func, name, args),
                    inputs=tuple(dict.fromkeys(inputs)),
                    elements=results[0][0].numel() if results else 0,
                    line=lines.of(sys._getframe(2)),
                )
            )

    with Recorder():  # type: ignore[no-untyped-call]
        call()
    return tuple(nodes)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for member in value:
            yield from _flat(member)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def _role(func: Any, name: str, args: tuple[Any, ...]) -> Role:
    import torch

    plain = name.rpartition("::")[2].rstrip("_")
    if plain in _PRODUCTS:
        return "product"
    if plain in _BATCH_NORMS:
        trains = len(args) > _TRAINING_ARGUMENT and args[_TRAINING_ARGUMENT] is True
        return "other" if trains else "batch_norm"
    if "softmax" in plain and "backward" not in plain:
        return "softmax"
    if plain in _REDUCTIONS:
        return "reduction"
    if name.rpartition("::")[2] in _MOVES:
        return "move"
    return "pointwise" if torch.Tag.pointwise in func.tags else "other"
