"""Try a call in another precision: under autocast, or for a low-precision model with a
float32 copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from perfgate.document.message import Message
from perfgate.measuring.checklist.audit import audit_call
from perfgate.measuring.checklist.experiment import (
    TRAINS,
    Agreement,
    ExperimentError,
    FailedExperiment,
    compare_outputs,
    copy_of_model,
    experiment,
    rotating,
)
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.timing.calls import Versus, compare
from perfgate.measuring.workload.bound import refusal
from perfgate.system.garbage import quiet

Against = Literal["as_is", "full"]


class PrecisionTrial(NamedTuple):
    """A call in low precision compared with one in full precision: how much faster, and
    how its output differs.

    ``against`` is the workload's own precision: full (``as_is``), or low and compared
    with a float32 copy (``full``). ``agreement`` is a reason if outputs cannot be
    compared; ``refused`` is the workload's check's objection to the low-precision
    output.
    """

    dtype: str
    against: Against
    versus: Versus
    agreement: Agreement | Message
    refused: str | None


# A call in one precision, and the pool of its inputs.
_Way = tuple[Callable[[Any], Any], list[Any]]


def try_other_precision(
    context: StepContext, shape: str, low: str | None, *, seconds: float
) -> PrecisionTrial | FailedExperiment:
    """Compare the workload as it is with a float32 copy if its precision is ``low``,
    else with itself under autocast.
    """
    if context.workload.workload.train_step is not None:
        return FailedExperiment(TRAINS)
    trial = partial(_under_autocast, context, shape, seconds)
    failing = "operators.autocast-fails"
    if low is not None:
        trial = partial(_beside_full_copy, context, shape, low, seconds)
        failing = "operators.float32-copy-fails"
    return experiment(context, trial, failing=failing)


def _under_autocast(context: StepContext, shape: str, seconds: float) -> PrecisionTrial:
    import torch

    kind, workload = context.device.kind, context.workload
    dtype = low_dtype(kind)

    def under_autocast(inputs: Any) -> Any:
        with torch.autocast(kind, dtype=dtype):
            return workload.invoke(inputs)

    pool = workload.pool(shape)
    full, low = (workload.invoke, pool), (under_autocast, pool)
    return _trial(
        context,
        shape,
        full,
        low,
        dtype=str(dtype).rpartition(".")[2],
        against="as_is",
        seconds=seconds,
    )


def _beside_full_copy(
    context: StepContext, shape: str, dtype: str, seconds: float
) -> PrecisionTrial:
    workload = context.workload
    copy = workload.around(copy_of_model(context).float())
    low_pool = workload.pool(shape)
    full_pool = [each_tensor(inputs, _in_full) for inputs in low_pool]
    audit = audit_call(context, lambda: copy.invoke(full_pool[0]))
    if any(op.product is not None and op.product.low for op in audit):
        raise ExperimentError(Message("operators.autocast-inside"))
    full, low = (copy.invoke, full_pool), (workload.invoke, low_pool)
    return _trial(
        context, shape, full, low, dtype=dtype, against="full", seconds=seconds
    )


def _in_full(tensor: Any) -> Any:
    return tensor.float() if tensor.is_floating_point() else tensor


def low_dtype(kind: str) -> Any:
    """bfloat16, or float16 on devices without bfloat16: the first Ascend 910 and 310P,
    GPUs before Ampere.
    """
    import torch

    supported = getattr(getattr(torch, kind, None), "is_bf16_supported", None)
    if supported is None or supported():
        return torch.bfloat16
    return torch.float16


def _trial(
    context: StepContext,
    shape: str,
    full: _Way,
    low: _Way,
    *,
    dtype: str,
    against: Against,
    seconds: float,
) -> PrecisionTrial:
    context.doing("comparing precisions with inputs of shape {shape}", shape=shape)
    (call, pool), (low_call, low_pool) = full, low
    agreed = compare_outputs(
        lambda: call(pool[0]), lambda: low_call(low_pool[0]), context.device
    )
    device = context.device
    # The workload's own check may refuse the low output.
    inputs = context.workload.host_inputs(shape)
    output = device.to_host(low_call(device.to_device(inputs)))
    device.synchronize()
    refused = refusal(context.workload, output, inputs)
    with quiet():
        versus = compare(
            rotating(*full),
            rotating(*low),
            context.device,
            seconds=seconds,
            seed=context.seed,
        )
    return PrecisionTrial(dtype, against, versus, agreed, refused)
