"""One dispatched operator with its arguments and result: what it reads, copies and
waits for. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from perfgate.measuring.devices.batches import bytes_of, is_sparse, shape_text, tensors

# Operators that copy a whole tensor, by schema name. contiguous(), reshape() and to()
# arrive as clone or _to_copy, because composite operators are taken apart.
_COPY_TO_RESULT = frozenset({"aten::clone", "aten::_to_copy", "aten::copy"})
_COPY_IN_PLACE = frozenset({"aten::copy_", "aten::_foreach_copy_"})
# The second half of a reshape that copies: the clone is counted, this hides from
# autograd that it is a view of it.
_UNMARKED_VIEWS = frozenset({"aten::_unsafe_view"})
# torch's own marks of operators that must read data before the host can go on: a value
# for Python, a shape that depends on the data (aten/src/ATen/native/tags.yaml).
_WAITING_TAGS = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
)
# Indexing carries such a tag for the sake of masks; with positions it does not wait.
_INDEXING = frozenset(
    {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
)
_MASKS = frozenset({torch.bool, torch.uint8})
LOW_PRECISION = frozenset(
    {
        torch.float16,
        torch.bfloat16,
        torch.qint8,
        torch.quint8,
        torch.qint32,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
    }
)
MAX_INPUTS = 200  # characters
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class OperatorCall(NamedTuple):
    """An operator that ran, with its arguments and its result."""

    func: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Any

    @property
    def name(self) -> str:
        """By its schema: ``aten::addmm``."""
        name: str = self.func._schema.name
        return name

    @property
    def is_view(self) -> bool:
        return _is_view(self.func)

    @property
    def inputs(self) -> list[torch.Tensor]:
        return list(tensors((self.args, self.keywords)))

    @property
    def results(self) -> list[torch.Tensor]:
        """The tensors of the result, without those inside records."""
        return [
            tensor
            for tensor in as_list(self.result)
            if isinstance(tensor, torch.Tensor)
        ]

    def forms(self) -> str:
        """The forms of all inputs."""
        return ", ".join(form_of(tensor) for tensor in self.inputs)[:MAX_INPUTS]

    def moved_bytes(self) -> int:
        """The bytes of its tensors, read or written once each."""
        if self.is_view:
            return 0
        touched = (*self.inputs, *tensors(self.result))
        return bytes_of([tensor for tensor in touched if not tensor.is_nested])

    def flops(self) -> int | None:
        """By torch's own formulas; None if there is none for the operator, or for a
        sparse tensor, of which they would count every zero.
        """
        from torch.utils.flop_counter import flop_registry

        formula: Callable[..., int] | None = flop_registry.get(
            getattr(self.func, "overloadpacket", None)
        )
        if formula is None or any(map(is_sparse, self.inputs)):
            return None
        return int(formula(*self.args, **self.keywords, out_val=self.result))

    def copies(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield (result, source) of every tensor that the operator copies."""
        if self.name in _COPY_TO_RESULT and isinstance(self.result, torch.Tensor):
            source = self.args[1 if self.name == "aten::copy" else 0]
            yield self.result, source
        elif self.name in _COPY_IN_PLACE:
            yield from zip(as_list(self.args[0]), as_list(self.args[1]))

    @property
    def non_blocking(self) -> bool:
        """Whether a copy lets the host go on: the third argument of operators that copy
        in place.
        """
        if "non_blocking" in self.keywords:
            return bool(self.keywords["non_blocking"])
        in_place = self.name in _COPY_IN_PLACE or self.name == "aten::copy"
        return in_place and len(self.args) > 2 and bool(self.args[2])

    def reads_data(self) -> bool:
        """Whether the operator must read data before the host can go on."""
        if self.name in _INDEXING:
            # Putting one value at a mask is a masked_fill, which needs no positions
            # (TensorAdvancedIndexing.cpp).
            if (
                len(self.args) > 2
                and isinstance(self.args[2], torch.Tensor)
                and self.args[2].numel() == 1
            ):
                return False
            return any(
                index is not None and index.dtype in _MASKS for index in self.args[1]
            )
        if (
            self.name == "aten::repeat_interleave"
            and self.keywords.get("output_size") is not None
        ):
            return False
        return _waits_for_data(self.func)


def as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


@lru_cache(maxsize=4096)
def _is_view(func: Any) -> bool:
    """Whether an operator's result shares its input's memory, by the alias marks of its
    schema (``Tensor(a)``).
    """
    if func._schema.name in _UNMARKED_VIEWS:
        return True
    marks = [
        argument.alias_info
        for argument in func._schema.arguments
        if argument.alias_info is not None
    ]
    return bool(marks) and not any(mark.is_write for mark in marks)


@lru_cache(maxsize=4096)
def _waits_for_data(func: Any) -> bool:
    return not _WAITING_TAGS.isdisjoint(func.tags)


def waits_for_copy(
    target: torch.Tensor, source: torch.Tensor, *, non_blocking: bool
) -> bool:
    """Whether the host waits for a copy between itself and a device.

    A copy to the device does not wait if it is non-blocking and its source page-locked:
    from pageable memory such a copy "might be synchronous with respect to host" (CUDA
    driver API, "API synchronization behavior", Memcpy, asynchronous).
    """
    if target.device.type == source.device.type or "meta" in (
        target.device.type,
        source.device.type,
    ):
        return False
    return target.device.type == "cpu" or not (non_blocking and source.is_pinned())


def weak_storage(tensor: Any) -> Any | None:
    """A weak reference to a tensor's memory, None if it has no accessible memory."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    except (
        NotImplementedError,
        RuntimeError,
    ):  # sparse tensors and wrappers have no storage
        return None


def layout_differs(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether source and result lie differently in memory; strides of dimensions of
    size 1 are ignored.
    """
    if (
        target.layout != torch.strided
        or source.layout != torch.strided
        or target.is_nested
        or source.is_nested
    ):
        return target.layout != source.layout
    if target.shape != source.shape:
        return True
    for size, target_stride, source_stride in zip(
        target.shape, target.stride(), source.stride()
    ):
        if size > 1 and target_stride != source_stride:
            return True
    return False


def form_of(tensor: torch.Tensor) -> str:
    """Dtype, shape and any unusual layout of a tensor:
    ``bfloat16[8,3,64,64] channels_last``.
    """
    text = f"{str(tensor.dtype).partition('.')[2]}[{shape_text(tensor)}]"
    if tensor.layout != torch.strided:
        return f"{text} {str(tensor.layout).partition('.')[2]}"
    if tensor.is_nested or tensor.is_contiguous():
        return text
    channels_last = _CHANNELS_LAST.get(tensor.dim())
    if channels_last is not None and tensor.is_contiguous(memory_format=channels_last):
        return f"{text} channels_last"
    return f"{text} strided"
