"""Describe a dispatched operator: the form of its inputs, and the work it stands for.

Imports torch: import it where something is counted, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfgate.measuring.devices.batches import tensors
from perfgate.trace.tally import Dispatched

MAX_INPUTS = 200  # characters
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def describe(
    func: Any,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
    result: Any,
    *,
    line: str | None,
    flops: int | None,
    view: bool,
) -> Dispatched:
    """Return what one dispatched operator was."""
    read = list(tensors((args, keywords)))
    return Dispatched(
        op=func._schema.name,
        line=line,
        inputs=", ".join(form_of(tensor) for tensor in read)[:MAX_INPUTS],
        flops=flops,
        moved_bytes=0 if view else sum(_bytes(tensor) for tensor in (*read, *tensors(result))),
        view=view,
    )


def form_of(tensor: torch.Tensor) -> str:
    """Return dtype, shape and what is unusual about the layout of a tensor: ``bfloat16[8,3,64,64] channels_last``."""
    text = f"{str(tensor.dtype).partition('.')[2]}[{','.join(str(size) for size in tensor.shape)}]"
    if tensor.layout != torch.strided:
        return f"{text} {str(tensor.layout).partition('.')[2]}"
    if tensor.is_nested or tensor.is_contiguous():
        return text
    channels_last = _CHANNELS_LAST.get(tensor.dim())
    if channels_last is not None and tensor.is_contiguous(memory_format=channels_last):
        return f"{text} channels_last"
    return f"{text} strided"


def flops_of(func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> int | None:
    """Return the arithmetic of an operator by torch's own formulas, None where there is none for it."""
    formula = _formulas().get(getattr(func, "overloadpacket", None))
    return None if formula is None else int(formula(*args, **keywords, out_val=result))


def _formulas() -> dict[Any, Callable[..., int]]:
    from torch.utils.flop_counter import flop_registry

    formulas: dict[Any, Callable[..., int]] = flop_registry
    return formulas


def _bytes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_nested else tensor.numel() * tensor.element_size()
