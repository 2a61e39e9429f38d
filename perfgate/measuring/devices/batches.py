"""Batches and outputs: tensors in any tuples, lists, mappings and records that a model
takes or returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


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
