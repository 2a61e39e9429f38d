"""What a call returns: its signature, and whether it follows the input. Imports torch only when asked."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload

MAX_SIGNATURE = 1000
# How far two outputs of the same input may lie apart, as a share of the largest value: kernels choose their way by where
# in memory the input lies, and round differently. An output of another input is far beyond it.
ROUNDING = 1e-3
STALE = (
    "the output does not follow its input: after the tensors of an input were filled with other values, the call does not "
    "return what it returns for these values in new tensors; a result is kept by the identity of its input"
)


def signature(output: Any) -> str:
    """Structure, dtypes and shapes of an output, e.g. ``(float32[8,48], {mask: bool[8]})``.

    One that is too long ends in a hash of the rest.
    """
    text = _signature(output)
    if len(text) <= MAX_SIGNATURE:
        return text
    return f"{text[:MAX_SIGNATURE]}… {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def stale_output(workload: BoundWorkload, device: Device, shape: str) -> str | None:
    """What is wrong where outputs are kept by the identity of an input; None where nothing is, or it cannot be told.

    It cannot where the workload trains, where inputs are no tensors that can be filled anew, and where the same input does
    not give the same output each time.
    """
    if workload.workload.train_step is not None:
        return None
    reused, fresh = workload.new_inputs(shape), workload.new_inputs(shape)
    if not _same_layout(reused, fresh):
        return None

    def output(inputs: Any) -> list[Any]:
        output = device.to_host(workload.invoke(inputs))
        device.synchronize()
        return [tensor.detach().clone() for tensor in tensors(output)]

    expected = output(copy.deepcopy(fresh))
    if not expected or not agree(expected, output(copy.deepcopy(fresh))):
        return None
    output(reused)
    if not _filled(reused, fresh):
        return None
    refilled = output(reused)
    # Once more: a model that changes with every call would otherwise look as if it did not follow.
    if agree(expected, refilled) or not agree(expected, output(copy.deepcopy(fresh))):
        return None
    return STALE


def _signature(output: Any) -> str:
    if isinstance(output, Mapping):
        return "{" + ", ".join(f"{key}: {_signature(value)}" for key, value in output.items()) + "}"
    if isinstance(output, (tuple, list)):
        inner = ", ".join(map(_signature, output))
        if isinstance(output, list):
            return f"[{inner}]"
        return f"({inner},)" if len(output) == 1 else f"({inner})"
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return (
            "{"
            + ", ".join(f"{f.name}: {_signature(getattr(output, f.name))}" for f in dataclasses.fields(output))
            + "}"
        )
    dtype, shape = getattr(output, "dtype", None), getattr(output, "shape", None)
    if dtype is None or shape is None:
        return "None" if output is None else type(output).__name__
    return f"{str(dtype).rpartition('.')[2]}[{','.join(map(str, shape))}]"


def _same_layout(first: Any, second: Any) -> bool:
    forms = [[(t.shape, t.dtype, t.layout) for t in tensors(batch)] for batch in (first, second)]
    return bool(forms[0]) and forms[0] == forms[1]


def _filled(inputs: Any, values: Any) -> bool:
    """Fill the tensors of an input with other values; False where one of them cannot be written to."""
    import torch

    try:
        with torch.no_grad():
            for target, source in zip(tensors(inputs), tensors(values)):
                target.copy_(source)
    except RuntimeError:  # e.g. an expanded tensor, several elements of which share one memory location
        return False
    return True


def agree(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(map(_close, first, second))


def _close(first: Any, second: Any) -> bool:
    import torch

    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not first.dtype.is_floating_point or not first.numel() or first.layout != torch.strided:
        return bool(torch.equal(first, second))
    first, second = first.double(), second.double()
    largest = float(first.nan_to_num(posinf=0.0, neginf=0.0).abs().max())
    return bool(torch.allclose(first, second, rtol=0.0, atol=ROUNDING * largest, equal_nan=True))
