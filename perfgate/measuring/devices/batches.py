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
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(batch))


def outline(batch: Any) -> object:
    """The shapes of the tensors and arrays of a batch, and its other values themselves.

    Two batches of equal outline hold equally much. An object of another kind equals
    nothing, so that it never counts as equally much.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        return _outline_of_tensor(batch)
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


def _outline_of_tensor(tensor: Any) -> object:
    if tensor.is_nested:  # it has no shape
        return tensor.size(0), tensor.numel()
    if tensor.is_sparse:
        return tensor.shape, tensor._nnz()
    return tensor.shape


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


def _is_record(batch: Any) -> bool:
    return dataclasses.is_dataclass(batch) and not isinstance(batch, type)
