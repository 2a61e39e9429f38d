"""Batches and outputs: tensors in any tuples, lists, mappings and records that a model
takes or returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def tensors(batch: Any) -> Iterator[Any]:
    """Yield every tensor in a batch or output, in order."""
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for member in batch.values():
            yield from tensors(member)
    elif isinstance(batch, (tuple, list)):
        for member in batch:
            yield from tensors(member)
    elif _is_record(batch):
        for field in dataclasses.fields(batch):
            yield from tensors(getattr(batch, field.name))


def bytes_of(batch: Any) -> int:
    """The bytes of all tensors; of sparse ones those of their values and indices."""
    total = 0
    for tensor in tensors(batch):
        for part in (tensor, *_indices(tensor)):
            total += _stored(part) * part.element_size()
    return total


def outline(batch: Any) -> object:
    """The shapes of the tensors and arrays of a batch, and its other values themselves.

    Two batches of equal outline hold equally much. An object of another kind equals
    nothing, so that it never counts as equally much.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        return shape_text(batch), _stored(batch)
    if isinstance(batch, np.ndarray):
        return batch.shape
    if batch is None or isinstance(batch, (bool, int, float, str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return {key: outline(member) for key, member in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [outline(member) for member in batch]
    if _is_record(batch):
        return [
            outline(getattr(batch, field.name)) for field in dataclasses.fields(batch)
        ]
    return object()


def each_tensor(batch: Any, change: Callable[[Any], Any]) -> Any:
    import torch

    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: each_tensor(member, change) for key, member in batch.items()}
        if type(batch) is dict:
            return changed
        try:
            return type(batch)(changed)  # type: ignore[call-arg]
        except TypeError:
            return changed
    if isinstance(batch, (list, tuple)):
        members = [each_tensor(member, change) for member in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*members)
        return type(batch)(members)
    if _is_record(batch):
        fields = {}
        for field in dataclasses.fields(batch):
            if field.init:
                fields[field.name] = each_tensor(getattr(batch, field.name), change)
        return dataclasses.replace(batch, **fields)
    return batch


# --- tensors of unusual layouts


def shape_text(tensor: Any) -> str:
    """The sizes of a tensor; ``*`` is one that differs between the members of a nested
    tensor, and ``2 nested`` one of two members without a shape.
    """
    import torch

    if tensor.is_nested and tensor.layout == torch.strided:
        return f"{tensor.size(0)} nested"
    # torch numbers the ragged sizes of a process as they come: j1, j2 ...
    return ",".join(
        str(size) if isinstance(size, int) else "*" for size in tensor.shape
    )


def is_sparse(tensor: Any) -> bool:
    import torch

    return tensor.layout in (
        torch.sparse_coo,
        torch.sparse_csr,
        torch.sparse_csc,
        torch.sparse_bsr,
        torch.sparse_bsc,
    )


def values_of_both(first: Any, second: Any) -> list[tuple[Any, Any]] | None:
    """Pairs of dense tensors of equal shape with the values of two tensors.

    None if the two differ in layout or shape, or are sparse and hold other elements.
    """
    import torch

    if first.layout != second.layout or shape_text(first) != shape_text(second):
        return None
    if first.layout == torch.sparse_coo:
        first, second = first.coalesce(), second.coalesce()
    for indices in zip(_indices(first), _indices(second)):
        if not torch.equal(*indices):
            return None
    before, after = _values(first), _values(second)
    if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
        return None
    return list(zip(before, after))


def in_double(tensor: Any) -> Any:
    """The numbers of a dense tensor on the host in double precision: two of each
    complex number.
    """
    import torch

    tensor = tensor.detach().cpu()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.double()


def _indices(tensor: Any) -> list[Any]:
    """The tensors that place the values of a sparse tensor."""
    import torch

    if tensor.layout == torch.sparse_coo:
        return [tensor._indices()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices()]
    return []


def _values(tensor: Any) -> list[Any]:
    """Dense tensors with the values of a tensor, one for each member of a nested one."""
    import torch

    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        return [tensor._values()]
    if _indices(tensor):
        return [tensor.values()]
    return [tensor.to_dense()]


def _stored(tensor: Any) -> int:
    """The number of elements in memory."""
    import torch

    if tensor.layout == torch.sparse_coo:
        return int(tensor._values().numel())
    if _indices(tensor):
        return int(tensor.values().numel())
    return int(tensor.numel())


def _is_record(batch: Any) -> bool:
    return dataclasses.is_dataclass(batch) and not isinstance(batch, type)
