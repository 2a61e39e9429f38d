"""Step 14: the operators that copy whole tensors, their lines, and the gain of
channels_last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.audit import (
    CAUSES,
    EITHER,
    AuditedOp,
    Cause,
    audit_shape,
    is_cast,
)
from perfgate.measuring.checklist.experiment import (
    TRAINS,
    ExperimentError,
    FailedExperiment,
    compare_outputs,
    copy_of_model,
    experiment,
    rotating,
)
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.timing.calls import Versus, compare
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import kernels_of
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Kernel
from perfgate.trace.model.spans import is_format_conversion

_SPEEDUP = "contiguity.channels_last_speedup"
# Copies to another dtype belong to step 8, copies to another device to step 3.
_JUDGED: tuple[Cause, ...] = ("layout", "duplicate")
# Types of Ascend kernels that only move data, the names of aclnn's copy kernels, and
# PyTorch's own copy kernel on CUDA (samples msinsight-910B-alexnet-2501,
# msinsight-910B-qwen3-cann8.3RC1-2511, cuda-hta).
_MOVING_TYPES = re.compile(
    r"(Strided)?SliceV?\d?|TensorMove|AsStrided|ViewCopy|TransposeD?|Contiguous",
    re.IGNORECASE,
)
_MOVING_NAMES = re.compile(r"aclnnContiguous|aclnnInplaceCopy|direct_copy_kernel")
# Tolerance for outputs of kernels that compute in another order, products in bfloat16
# or TF32 included.
_SAME = 1e-2
_NO_KERNELS = Message("operators.no-strides-recorded")


class ContiguityStep:
    """An audit of single calls, the kernels of a short trace if there are any, and a
    trial of channels_last.
    """

    card = card(14)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable if neither operators nor kernels are
        visible.
        """
        outcome = context.outcome()
        for shape in context.workload.shapes:
            context.doing(
                "looking at memory layouts with inputs of shape {shape}", shape=shape
            )
            audit, of_shape = audit_shape(context, shape), outcome.under(shape=shape)
            _judge_copies(of_shape, audit)
            if context.shows_kernels:
                _judge_kernels(
                    of_shape, kernels_of(steady_summary(context, shape).timeline)
                )
            if any(
                op.convolution is not None
                and {"NCHW", "NHWC", EITHER} & set(op.convolution)
                for op in audit
            ):
                _try_channels_last(of_shape, context, shape, audit)
        return outcome.or_else(
            unavailable(Message("operators.no-operators-no-kernels"))
        )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable if the recording has none."""
        outcome = context.outcome()
        for summary in context.summaries:
            device = outcome.under(shape=summary.shape)
            if not _judge_kernels(device, kernels_of(summary.timeline)):
                device.missing("contiguity.kernel_share", _NO_KERNELS)
        return outcome.or_unavailable(_NO_KERNELS)


STEP = ContiguityStep()


def _judge_copies(outcome: StepOutcome, audit: Sequence[AuditedOp]) -> None:
    """Copies and bytes of a call by cause; the share of copies that change the layout,
    or no property, is judged.
    """
    written = sum(op.written for op in audit)
    if not written:
        return
    counts: Counter[Cause] = Counter()
    sizes: Counter[Cause] = Counter()
    judged_counts: Counter[tuple[str, Cause, str | None]] = Counter()
    judged_sizes: Counter[tuple[str, Cause, str | None]] = Counter()
    for op in audit:
        for copy in op.copies:
            counts[copy.cause] += 1
            sizes[copy.cause] += copy.size
            if copy.cause in _JUDGED:
                judged_counts[op.name, copy.cause, op.line] += 1
                judged_sizes[op.name, copy.cause, op.line] += copy.size
    for cause in CAUSES:
        outcome.under(cause=cause).numbers(
            {
                "contiguity.copies": counts[cause],
                "contiguity.copy_share": sizes[cause] / written,
            }
        )
    share = judged_sizes.total() / written
    outcome.number("contiguity.copy_share", share)
    for site, size in judged_sizes.most_common(1):
        name, why, line = site
        outcome.above(
            "contiguity.copy_share",
            share,
            {
                "op": name,
                "cause": why,
                "copies": judged_counts[site],
                "bytes": size,
                "line": line,
            },
        )


def _judge_kernels(outcome: StepOutcome, kernels: KernelTable) -> bool:
    """Judge the share of kernels that only copy or rearrange; False if no kernel ran."""
    busy_ns = count = 0
    times: Counter[str] = Counter()
    for kernel, number, total_ns in kernels.alike():
        if kernel.is_collective:
            continue
        busy_ns += total_ns
        count += number
        if _moves(kernel):
            times[kernel.type or kernel.name] += total_ns
    if not busy_ns:
        return False
    share = times.total() / busy_ns
    outcome.number("contiguity.kernel_share", share, count=count)
    for op, _ in times.most_common(1):
        outcome.above("contiguity.kernel_share", share, {"op": op})
    return True


def _moves(kernel: Kernel) -> bool:
    name = kernel.type or kernel.name
    # Casts, which aclnnInplaceCopy may be, belong to step 8, format conversions to step
    # 7.
    if is_format_conversion(name) or is_cast(kernel):
        return False
    return (
        _MOVING_TYPES.fullmatch(name) is not None
        or _MOVING_NAMES.search(kernel.name) is not None
    )


def _try_channels_last(
    outcome: StepOutcome, context: StepContext, shape: str, audit: Sequence[AuditedOp]
) -> None:
    """Measure the gain of channels_last on a copy of the model; differing outputs do
    not count as a gain.
    """
    if (reason := _no_channels_last(context, audit)) is not None:
        outcome.missing(_SPEEDUP, reason)
        return
    context.doing("comparing channels_last with inputs of shape {shape}", shape=shape)
    versus = experiment(
        context,
        partial(_in_channels_last, context, shape),
        failing="operators.channels-last-fails",
    )
    if isinstance(versus, FailedExperiment):
        outcome.missing(_SPEEDUP, versus.reason)
        return
    outcome.speedup(_SPEEDUP, versus)
    op = next(op for op in audit if op.convolution is not None)
    outcome.above(
        "contiguity.channels_last",
        versus.low,
        {"speedup": versus.speedup, "op": op.name, "line": op.line},
    )


def _no_channels_last(
    context: StepContext, audit: Sequence[AuditedOp]
) -> Message | None:
    """Why channels_last is not tried, None if it is."""
    convolutions = [op.convolution for op in audit if op.convolution]
    orders = set(chain.from_iterable(convolutions)) - {EITHER}
    if "own_formats" in context.device.capabilities:
        return Message("operators.npu-own-formats")
    if context.workload.workload.train_step is not None:
        return TRAINS
    if orders == {"NHWC"}:
        return Message("operators.channels-last-already")
    return None


def _in_channels_last(context: StepContext, shape: str) -> Versus:
    """The speedup of channels_last.

    Raises ExperimentError if the outputs cannot be compared or differ.
    """
    import torch

    workload, pool = context.workload, context.workload.pool(shape)
    turned = workload.around(
        copy_of_model(context).to(memory_format=torch.channels_last)
    )
    turned_pool = [each_tensor(inputs, _turn) for inputs in pool]
    agreed = compare_outputs(
        lambda: workload.invoke(pool[0]),
        lambda: turned.invoke(turned_pool[0]),
        context.device,
    )
    if isinstance(agreed, Message):
        raise ExperimentError(agreed)
    if not agreed.within(_SAME):
        raise ExperimentError(Message("operators.channels-last-differs"))
    with quiet():
        return compare(
            rotating(workload.invoke, pool),
            rotating(turned.invoke, turned_pool),
            context.device,
            seconds=(1.5 if context.extent.quick else 8.0) / len(workload.shapes),
            seed=context.seed,
        )


def _turn(tensor: Any) -> Any:
    """An image in channels_last."""
    import torch

    if tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
