"""Experiments: calls that the workload does not make itself, which a step tries to
measure their gain.

Another precision, layout, batch size or shape, a compiled twin, copies side by side:
the workload was not written for them, so their exceptions are reasons for a missing
value and never errors of the workload. A step first makes the workload's own call with
``own_call``, and an exception there is the workload's error. The conductor counts on it
too: a step that fails in a process in which an experiment ran, or kills that process,
is repeated in a fresh one without experiments.

The outputs of another way are compared with the workload's: a faster way with different
answers is not a gain.
"""

from __future__ import annotations

import copy
import math
import os
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple, TypeVar

from perfgate.document.message import Message, ReasonedError, reason_of
from perfgate.errors import PerfgateError
from perfgate.measuring.checklist.mistakes import one_line
from perfgate.measuring.checklist.step import StepContext, StepOutcome, unavailable
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.batches import (
    each_tensor,
    in_double,
    tensors,
    values_of_both,
)
from perfgate.measuring.devices.device import Call, Device
from perfgate.system.processes import kill_descendants, running_below

_MAX_LINE = 300

Result = TypeVar("Result")


class ExperimentError(ReasonedError):
    """An experiment ended without a result; the error has the reason."""


class TimeUpError(BaseException):
    """A time limit around an experiment is over; the code that set it gives the reason.

    Not an Exception, so that no code in between handles it.
    """


class FailedExperiment(NamedTuple):
    """Why an experiment has no result; ``raised`` is True for an exception that is not
    perfgate's own.
    """

    reason: Message
    raised: bool = False
    out_of_memory: bool = False


def experiment(
    context: StepContext, run: Callable[[], Result], *, failing: str | None = None
) -> Result | FailedExperiment:
    """The result of ``run``, or why there is none: the exception, as ``{error}`` of the
    message ``failing`` if one is given.

    An ExperimentError brings its own reason. Everything else that is raised counts as
    failure, SystemExit included. The processes that a failed experiment started, such
    as compilers, are ended here, so that they are not taken for the workload's. If the
    conductor disabled experiments after one broke its process, the reason is the
    conductor's.
    """
    if context.experiments.refusal is not None:
        return FailedExperiment(context.experiments.refusal)
    before = set(running_below(os.getpid()))
    try:
        context.experiments.announce()
        return run()
    except (KeyboardInterrupt, TimeUpError):
        raise
    except ExperimentError as error:
        failed = FailedExperiment(error.reason)
    except BaseException as error:  # noqa: BLE001 - compilers and models that were not written for it raise anything
        reason = described(error, context)
        reason = Message(failing, {"error": reason}) if failing else reason
        failed = FailedExperiment(
            reason, raised=True, out_of_memory=context.device.is_out_of_memory(error)
        )
        context.experiments.failures.append(reason)
    # The exception is gone by now, and with it the tensors that its frames held.
    kill_descendants(spare=before)
    return failed


def outcome_of(
    context: StepContext, measure: Callable[[], StepOutcome], *, failing: str
) -> StepOutcome:
    """The outcome of a step that is one experiment; unavailable if it fails."""
    measured = experiment(context, measure, failing=failing)
    if isinstance(measured, FailedExperiment):
        return unavailable(measured.reason)
    return measured


def own_call(context: StepContext, shape: str) -> None:
    """Make one call as the workload makes it and wait for it.

    Its exceptions are the workload's errors.
    """
    context.workload.caller(shape)()
    context.device.synchronize()


def described(error: BaseException, context: StepContext) -> Message:
    """An exception with the code that raised it: a line of the project, or a module of
    someone else's.
    """
    if isinstance(error, PerfgateError):
        return reason_of(error)
    where = "?"
    for frame, line in deque(traceback.walk_tb(error.__traceback__), maxlen=1):
        of_project = SourceLines(context.root).at(frame.f_code.co_filename, line)
        module = str(frame.f_globals.get("__name__") or frame.f_code.co_filename)
        # Deeper names belong to generated code or are of no use to the reader.
        where = of_project or ".".join(module.split(".")[:2])
    return Message(
        "experiment.raised", {"error": one_line(error)[:_MAX_LINE], "where": where}
    )


TRAINS = Message("operators.training-changes-model")
# How far two answers to one input may lie apart by rounding alone, as a share of the
# largest value.
_ROUNDING = 1e-3


class Agreement(NamedTuple):
    """The largest absolute difference, and the largest relative to the reference's
    largest value, or the share of other values for integers of over 8 bits.

    ``not_finite`` counts elements that are NaN or infinite in the second output but not
    in the first; ``comparable`` is False if the outputs differ in number, shape or kind
    of their tensors, and the other fields are then undefined.
    """

    comparable: bool
    absolute: float = 0.0
    relative: float = 0.0
    not_finite: int = 0

    def within(self, tolerance: float) -> bool:
        """Whether the outputs agree to a relative tolerance, without new NaN or
        infinity.
        """
        return self.comparable and not self.not_finite and self.relative <= tolerance


def agreement(reference: Any, output: Any) -> Agreement:
    """Compare two outputs, each a tensor or a tuple, list or dict of tensors, in double
    precision on the host.
    """
    expected, actual = list(tensors(reference)), list(tensors(output))
    if not expected or len(expected) != len(actual):
        return Agreement(comparable=False)
    values: list[tuple[Any, Any]] = []
    for of_reference, of_output in zip(expected, actual):
        both = values_of_both(of_reference, of_output)
        if both is None:
            return Agreement(comparable=False)
        values += both
    absolute = relative = 0.0
    not_finite = 0
    for before, after in values:
        first, second = in_double(before), in_double(after)
        are_finite = first.isfinite() & second.isfinite()
        not_finite += int((first.isfinite() & ~second.isfinite()).sum())
        if not are_finite.any():
            continue
        apart = float((first - second)[are_finite].abs().max())
        absolute = max(absolute, apart)
        if _are_codes(before):
            relative = max(relative, float((before != after).double().mean()))
        elif apart:
            largest = float(first[are_finite].abs().max())
            relative = max(relative, apart / largest if largest else math.inf)
    return Agreement(True, absolute, relative, not_finite)


def _are_codes(tensor: Any) -> bool:
    """Whether values are names, such as token ids, classes or a mask, of which
    neighbours have nothing in common; integers of 8 bits are pixels or quantized.
    """
    import torch

    is_number = tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized
    return not is_number and tensor.dtype not in (torch.uint8, torch.int8)


def compare_outputs(first: Call, second: Call, device: Device) -> Agreement | Message:
    """The difference between the outputs of two implementations for one input, or why
    they cannot be compared.
    """
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
    # Kernels may round differently from call to call; chance, as in dropout, goes far
    # beyond that.
    if not repeated.within(_ROUNDING):
        return Message("operators.output-varies")
    return compared


def copy_of_model(context: StepContext) -> Any:
    """A copy of the model that may be changed, for an experiment.

    Raises ExperimentError if there is no model to copy.
    """
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
