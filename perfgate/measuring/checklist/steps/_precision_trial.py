"""Try a call in another precision: autocast around it, or where it is low already a float32 copy of its model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from perfgate.measuring.checklist.agreement import Agreement
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.checklist.steps._audit import AuditedOp, audit_call
from perfgate.measuring.checklist.steps._variants import TRAINS, compare_outputs, copy_of_model, rotating
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.measuring.workload.refusal import refusal, words_of

Against = Literal["as_is", "full"]
_OWN_AUTOCAST = "the call turns autocast on by itself, so it cannot be had in full precision from outside"
# What user code raises that was not written for another precision: torch words mixed dtypes as RuntimeError.
_FAILURES = (RuntimeError, ValueError, TypeError, AssertionError)


class Trial(NamedTuple):
    """A call in low precision beside one in full: how much faster, and how its output differs.

    ``against`` says which of them is the workload as it is: the full one (``as_is``), or the low one, beside a float32 copy
    (``full``). ``agreement`` is None, with ``unknown`` saying why, where outputs cannot be compared; ``refused`` is what the
    workload's check says against the low-precision output.
    """

    dtype: str
    against: Against
    versus: Versus
    agreement: Agreement | None
    unknown: str | None
    refused: str | None
    memory_ratio: float | None


class Failed(NamedTuple):
    """Why there is no trial; ``broken`` where the call was made and raised."""

    reason: str
    broken: bool = False


class _Ways(NamedTuple):
    """One call in full and in low precision, each on an input of its own pool."""

    full: Callable[[Any], Any]
    full_pool: list[Any]
    low: Callable[[Any], Any]
    low_pool: list[Any]


def try_autocast(context: StepContext, shape: str, *, seconds: float) -> tuple[Trial | None, Failed | None]:
    """Compare the call as it is with itself under autocast."""
    import torch

    if context.workload.workload.train_step is not None:
        return None, Failed(TRAINS)
    kind, workload = context.device.kind, context.workload
    dtype = low_dtype(kind)

    def under_autocast(inputs: Any) -> Any:
        with torch.autocast(kind, dtype=dtype):
            return workload.invoke(inputs)

    pool = workload.pool(shape)
    ways = _Ways(workload.invoke, pool, under_autocast, pool)
    try:
        return _trial(context, shape, ways, dtype=_word(dtype), against="as_is", seconds=seconds), None
    except _FAILURES as error:
        return None, Failed(f"the call fails under autocast: {words_of(error)}", broken=True)


def try_full(context: StepContext, shape: str, *, dtype: str, seconds: float) -> tuple[Trial | None, Failed | None]:
    """Compare a float32 copy of a model in low precision with the workload as it is."""
    if context.workload.workload.train_step is not None:
        return None, Failed(TRAINS)
    model, reason = copy_of_model(context.workload, context.device)
    if reason is not None:
        return None, Failed(reason)
    workload = context.workload
    full = workload.around(model.float())
    low_pool = workload.pool(shape)
    full_pool = [each_tensor(one, _in_full) for one in low_pool]
    try:
        if any(op.product is not None and op.product.low for op in _audited(context, full.invoke, full_pool[0])):
            return None, Failed(_OWN_AUTOCAST)
        ways = _Ways(full.invoke, full_pool, workload.invoke, low_pool)
        return _trial(context, shape, ways, dtype=dtype, against="full", seconds=seconds), None
    except _FAILURES as error:
        return None, Failed(f"a float32 copy of the model cannot be called: {words_of(error)}", broken=True)


def low_dtype(kind: str) -> Any:
    """Return bfloat16, or float16 where the device has no bfloat16: the first Ascend 910 and 310P, GPUs before Ampere."""
    import torch

    supported = getattr(getattr(torch, kind, None), "is_bf16_supported", None)
    return torch.bfloat16 if supported is None or supported() else torch.float16


def rounding_switches(kind: str, *, multiplies: bool, convolves: bool) -> list[str]:
    """Return by which switches the program allows its float32 products and convolutions to be rounded."""
    import torch

    found = []
    if multiplies and (precision := torch.get_float32_matmul_precision()) != "highest":
        found.append(f"float32_matmul_precision = {precision}")
    if kind == "cuda" and convolves and torch.backends.cudnn.allow_tf32:
        found.append("cudnn.allow_tf32")
    if kind == "npu":
        module: Any = getattr(torch, "npu", None)
        asked = [name for name, there in (("matmul", multiplies), ("conv", convolves)) if there]
        found += [f"npu.{name}.allow_hf32" for name in asked if _allows(getattr(module, name, None))]
    return found


def _allows(owner: Any) -> bool:
    return bool(getattr(owner, "allow_hf32", False))


def _trial(context: StepContext, shape: str, ways: _Ways, *, dtype: str, against: Against, seconds: float) -> Trial:
    context.progress(f"comparing precisions with inputs of shape {shape}")
    agreed = compare_outputs(lambda: ways.full(ways.full_pool[0]), lambda: ways.low(ways.low_pool[0]), context.device)
    refused = _refused(context, shape, ways.low)
    ratio = _memory_ratio(context, ways)
    with quiet():
        versus = compare(
            rotating(ways.full, ways.full_pool),
            rotating(ways.low, ways.low_pool),
            context.device,
            seconds=seconds,
            seed=context.seed,
        )
    return Trial(dtype, against, versus, agreed.agreement, agreed.reason, refused, ratio)


def _refused(context: StepContext, shape: str, low: Callable[[Any], Any]) -> str | None:
    device = context.device
    inputs = context.workload.host_inputs(shape)
    output = device.to_host(low(device.to_device(inputs)))
    device.synchronize()
    return refusal(context.workload, output, inputs)


def _memory_ratio(context: StepContext, ways: _Ways) -> float | None:
    """Return the peak of a low call over that of a full one, None where the device does not count or nothing is taken."""
    peaks = []
    for way, pool in ((ways.full, ways.full_pool), (ways.low, ways.low_pool)):
        # The first of two calls takes what libraries keep.
        counts = context.device.count_memory([partial(way, pool[0])] * 2)
        peaks.append(counts[-1].peak_bytes if counts else 0)
    return peaks[1] / peaks[0] if all(peaks) else None


def _audited(context: StepContext, invoke: Callable[[Any], Any], inputs: Any) -> list[AuditedOp]:
    return audit_call(context, lambda: invoke(inputs))


def _in_full(tensor: Any) -> Any:
    return tensor.float() if tensor.is_floating_point() else tensor


def _word(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
