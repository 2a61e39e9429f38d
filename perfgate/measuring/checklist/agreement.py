"""Whether another way to make a call answers as the workload does: a faster way that answers differently is no gain."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

from perfgate.measuring.devices.batches import each_tensor, tensors
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload

TRAINS = "a training iteration changes the model it runs on, so two ways of it are not the same work"
_NO_MODULE = "the workload's model is no torch.nn.Module, so it cannot be copied into another layout or precision"
_NO_MEMORY = "there is no memory for a copy of the model"
_NOT_REPEATABLE = "the same input gives another output each time, so outputs of two ways cannot be compared"
_NO_TENSORS = "the outputs hold no tensors of one shape that could be compared"
# How far two answers to one input may lie apart by rounding alone, as a share of the largest value.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Agreement:
    """The largest absolute difference, the largest relative to the reference's largest value, and the smallest cosine.

    ``not_finite`` is how many elements are NaN or infinite in the second output and not in the first; ``comparable`` is
    False where the outputs differ in number, shape or kind of their tensors, and nothing else is then known.
    """

    comparable: bool
    absolute: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    not_finite: int = 0

    def within(self, tolerance: float) -> bool:
        """Whether the outputs agree to a relative tolerance, without new NaN or infinity."""
        return self.comparable and not self.not_finite and self.relative <= tolerance


def agreement(reference: Any, output: Any) -> Agreement:
    """Compare two outputs, each a tensor or a tuple, list or dict of tensors, in double precision on the host."""
    expected, actual = list(tensors(reference)), list(tensors(output))
    if not expected or [tensor.shape for tensor in expected] != [tensor.shape for tensor in actual]:
        return Agreement(comparable=False)
    pairs = [_compare(*pair) for pair in zip(expected, actual)]
    return Agreement(
        comparable=True,
        absolute=max(pair.absolute for pair in pairs),
        relative=max(pair.relative for pair in pairs),
        cosine=min(pair.cosine for pair in pairs),
        not_finite=sum(pair.not_finite for pair in pairs),
    )


def _compare(reference: Any, output: Any) -> Agreement:
    import torch

    first, second = reference.detach().cpu().double().flatten(), output.detach().cpu().double().flatten()
    both = torch.isfinite(first) & torch.isfinite(second)
    not_finite = int((torch.isfinite(first) & ~torch.isfinite(second)).sum())
    first, second = first[both], second[both]
    if not first.numel():
        return Agreement(comparable=True, not_finite=not_finite)
    absolute = float((first - second).abs().max())
    largest = float(first.abs().max())
    norms = float(first.norm() * second.norm())
    return Agreement(
        comparable=True,
        absolute=absolute,
        relative=absolute / largest if largest else (math.inf if absolute else 0.0),
        cosine=float(first @ second) / norms if norms else 1.0,
        not_finite=not_finite,
    )


class Agreed(NamedTuple):
    """How far the outputs of two ways lie apart, or why that cannot be told."""

    agreement: Agreement | None
    reason: str | None = None


def compare_outputs(first: Callable[[], Any], second: Callable[[], Any], device: Device) -> Agreed:
    """Compare the outputs of two ways to answer one input; not where the first does not answer it twice alike."""
    outputs = []
    for way in (first, first, second):
        # A clone, because the next call may write into the same memory.
        outputs.append(each_tensor(device.to_host(way()), lambda tensor: tensor.detach().clone()))
        device.synchronize()
    reference, again, output = outputs
    repeated, compared = agreement(reference, again), agreement(reference, output)
    if not repeated.comparable or not compared.comparable:
        return Agreed(None, _NO_TENSORS)
    # Kernels may round differently from call to call; chance, as in dropout, goes far beyond that.
    if not repeated.within(_ROUNDING):
        return Agreed(None, _NOT_REPEATABLE)
    return Agreed(compared)


class ModelCopy(NamedTuple):
    """A copy of the workload's model, or why there is none."""

    model: Any
    reason: str | None = None


def copy_of_model(workload: BoundWorkload, device: Device) -> ModelCopy:
    """A copy of the model that may be changed."""
    import torch

    if not isinstance(workload.model, torch.nn.Module):
        return ModelCopy(None, _NO_MODULE)
    try:
        return ModelCopy(copy.deepcopy(workload.model))
    except (RuntimeError, TypeError, ValueError, MemoryError) as error:
        if device.is_out_of_memory(error):
            return ModelCopy(None, _NO_MEMORY)
        return ModelCopy(None, f"the model cannot be copied: {str(error).partition(chr(10))[0]}")


def rotating(invoke: Callable[[Any], Any], pool: Sequence[Any]) -> Callable[[], Any]:
    """A function that makes one call on the next of these inputs."""
    inputs = cycle(pool)
    return lambda: invoke(next(inputs))
