"""What a model is and does, to compare a model that was built on the host with one built on the device."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from perfgate.measuring.counting.again import count_again
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import Signature

if TYPE_CHECKING:
    import torch

# Elements of a tensor that are compared, spread over it.
_SAMPLED = 4096


def signature_of(workload: BoundWorkload, root: Path) -> Signature:
    """Describe the model's parameters and buffers, and count the operators of every shape."""
    kind = type(workload.model)
    operators: dict[str, dict[str, int]] = {}
    for counters in count_again(workload, root=root, parts=()):
        operators[counters.shape] = {entry.op: entry.count for entry in counters.ops}
    return Signature(
        model=f"{kind.__module__}.{kind.__qualname__}",
        tensors=_tensors_of(workload.model),
        operators=operators,
    )


def _tensors_of(model: object) -> dict[str, str]:
    import torch

    if not isinstance(model, torch.nn.Module):
        return {}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: _description(tensor) for name, tensor in tensors}


def _description(tensor: torch.Tensor) -> str:
    """Type, shape, strides, and a digest of a sample of the values."""
    import torch

    layout = (
        f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.requires_grad}"
    )
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _SAMPLED)
    sample = flat[::step].contiguous().cpu()
    return f"{layout} {hashlib.sha256(sample.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]}"
