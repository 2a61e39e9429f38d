"""Whether another way to make a call answers as the workload does: a faster way with different answers is not a gain."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import (
    ExperimentError,
    FailedExperiment,
    experiment,
)
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import each_tensor, tensors
from perfgate.measuring.devices.device import Call, Device

TRAINS = Message("operators.training-changes-model")
# How far two answers to one input may lie apart by rounding alone, as a share of the largest value.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Agreement:
    """The largest absolute difference, the largest relative to the reference's largest value.

    ``not_finite`` counts elements that are NaN or infinite in the second output but not in the first; ``comparable`` is
    False if the outputs differ in number, shape or kind of their tensors, and the other fields are then undefined.
    """

    comparable: bool
    absolute: float = 0.0
    relative: float = 0.0
    not_finite: int = 0

    def within(self, tolerance: float) -> bool:
        """Whether the outputs agree to a relative tolerance, without new NaN or infinity."""
        return self.comparable and not self.not_finite and self.relative <= tolerance


def agreement(reference: Any, output: Any) -> Agreement:
    """Compare two outputs, each a tensor or a tuple, list or dict of tensors, in double precision on the host."""
    expected, actual = list(tensors(reference)), list(tensors(output))
    shapes = [tensor.shape for tensor in expected]
    if not shapes or shapes != [tensor.shape for tensor in actual]:
        return Agreement(comparable=False)
    absolute = relative = 0.0
    not_finite = 0
    for first, second in zip(map(_flat, expected), map(_flat, actual)):
        both = first.isfinite() & second.isfinite()
        not_finite += int((first.isfinite() & ~second.isfinite()).sum())
        if not both.any():
            continue
        apart = float((first - second)[both].abs().max())
        absolute = max(absolute, apart)
        if apart:
            largest = float(first[both].abs().max())
            relative = max(relative, apart / largest if largest else math.inf)
    return Agreement(True, absolute, relative, not_finite)


def _flat(tensor: Any) -> Any:
    return tensor.detach().cpu().double().flatten()


def compare_outputs(first: Call, second: Call, device: Device) -> Agreement | Message:
    """The difference between the outputs of two implementations for one input, or why they cannot be compared."""
    outputs = []
    for way in (first, first, second):
        output = device.to_host(way())
        # A clone, because the next call may write into the same memory.
        outputs.append(each_tensor(output, lambda tensor: tensor.detach().clone()))
        device.synchronize()
    reference, again, output = outputs
    repeated, compared = agreement(reference, again), agreement(reference, output)
    if not repeated.comparable or not compared.comparable:
        return Message("operators.outputs-not-comparable")
    # Kernels may round differently from call to call; chance, as in dropout, goes far beyond that.
    if not repeated.within(_ROUNDING):
        return Message("operators.output-varies")
    return compared


def copy_of_model(context: StepContext) -> Any:
    """A copy of the model that may be changed, for an experiment. Raises ExperimentError if there is no model to copy."""
    import torch

    model = context.workload.model
    if not isinstance(model, torch.nn.Module):
        raise ExperimentError(Message("operators.not-a-module"))
    copied = experiment(
        context, lambda: copy.deepcopy(model), failing="operators.copy-fails"
    )
    if not isinstance(copied, FailedExperiment):
        return copied
    if copied.out_of_memory:
        raise ExperimentError(Message("operators.no-memory-for-copy"))
    raise ExperimentError(copied.reason)


def rotating(invoke: Callable[[Any], Any], pool: Sequence[Any]) -> Call:
    """A function that makes one call on the next of these inputs."""
    inputs = cycle(pool)
    return lambda: invoke(next(inputs))
