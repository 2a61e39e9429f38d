"""Try a call in another way beside the workload as it is: a copy of its model, inputs that rotate, outputs that must agree."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from perfgate.measuring.checklist.agreement import Agreement, agreement
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload

TRAINS = "a training iteration changes the model it runs on, so two ways of it are not the same work"
_NO_MODULE = "the workload's model is no torch.nn.Module, so it cannot be copied into another layout or precision"
_NOT_REPEATABLE = "the same input gives another output each time, so outputs of two ways cannot be compared"
# How far two answers to one input may lie apart by rounding alone, as a share of the largest value.
_ROUNDING = 1e-3
_NO_TENSORS = "the outputs hold no tensors of one shape that could be compared"


class Agreed(NamedTuple):
    """How far the outputs of two ways lie apart, or why that cannot be told."""

    agreement: Agreement | None
    reason: str | None = None


class Copied(NamedTuple):
    """A copy of the workload's model, or why there is none."""

    model: Any
    reason: str | None = None


def copy_of_model(workload: BoundWorkload, device: Device) -> Copied:
    """Return a copy of the model that may be changed."""
    import torch

    if not isinstance(workload.model, torch.nn.Module):
        return Copied(None, _NO_MODULE)
    try:
        return Copied(copy.deepcopy(workload.model))
    except (RuntimeError, TypeError, ValueError, MemoryError) as error:
        if device.is_out_of_memory(error):
            return Copied(None, "there is no memory for a copy of the model")
        return Copied(None, f"the model cannot be copied: {str(error).partition(chr(10))[0]}")


def rotating(invoke: Callable[[Any], Any], pool: Sequence[Any]) -> Callable[[], Any]:
    """Return a function that makes one call on the next of these inputs."""
    inputs = cycle(pool)
    return lambda: invoke(next(inputs))


def compare_outputs(first: Callable[[], Any], second: Callable[[], Any], device: Device) -> Agreed:
    """Compare the outputs of two ways to answer one input; not where the first does not answer it twice alike."""
    reference, again, other = (_kept(way(), device) for way in (first, first, second))
    repeated, found = agreement(reference, again), agreement(reference, other)
    if not repeated.comparable or not found.comparable:
        return Agreed(None, _NO_TENSORS)
    # Kernels may round differently from call to call; chance, as in dropout, goes far beyond that.
    if not repeated.within(_ROUNDING):
        return Agreed(None, _NOT_REPEATABLE)
    return Agreed(found)


def _kept(output: Any, device: Device) -> Any:
    """Return an output as it is now: the next call may write into the same memory."""
    kept = each_tensor(device.to_host(output), lambda tensor: tensor.detach().clone())
    device.synchronize()
    return kept
