"""Step 14: which operators copy whole tensors, from which line, and what channels_last would gain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.measuring.checklist.agreement import TRAINS, compare_outputs, copy_of_model, rotating
from perfgate.measuring.checklist.audit import CAUSES, EITHER, AuditedOp, Cause, audit_shape, is_cast
from perfgate.measuring.checklist.experiment import ExperimentError, FailedExperiment, experiment
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, unavailable
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.checklist.values import missing
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.system.garbage import quiet
from perfgate.trace.kernel_table import KernelTable
from perfgate.trace.recording import Kernel
from perfgate.trace.spans import is_format_conversion
from perfgate.trace.summary import kernels_of

_SPEEDUP = "contiguity.channels_last_speedup"
# A copy into another dtype is step 8's matter, one to another device step 3's.
_JUDGED: tuple[Cause, ...] = ("layout", "duplicate")
# Types of Ascend kernels that move and do not compute, the names of those that aclnn copies with, and PyTorch's own copy
# kernel on CUDA (samples msinsight-910B-alexnet-2501, msinsight-910B-qwen3-cann8.3RC1-2511, cuda-hta).
_MOVING_TYPES = re.compile(r"(Strided)?SliceV?\d?|TensorMove|AsStrided|ViewCopy|TransposeD?|Contiguous", re.IGNORECASE)
_MOVING_NAMES = re.compile(r"aclnnContiguous|aclnnInplaceCopy|direct_copy_kernel")
# How far outputs may lie apart that other kernels compute in another order: products in bfloat16 or TF32 included.
_SAME = 1e-2
_NO_KERNELS = Message("operators.no-strides-recorded")


class ContiguityStep:
    """An audit of single calls, the kernels of a short trace where there are any, and a trial of channels_last."""

    card = card(14)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where neither operators nor kernels show."""
        outcome = StepOutcome()
        for shape in context.workload.shapes:
            context.progress(f"looking at memory layouts with inputs of shape {shape}")
            audit = audit_shape(context, shape)
            outcome.add(_judge_copies(audit, shape, context.limits))
            if context.shows_kernels:
                summary = steady_summary(context, shape)
                outcome.add(_judge_kernels(kernels_of(summary.timeline), shape, context.limits))
            if any(op.convolution is not None and {"NCHW", "NHWC", EITHER} & set(op.convolution) for op in audit):
                outcome.add(_try_channels_last(context, shape, audit))
        return outcome if outcome.values else unavailable(Message("operators.no-operators-no-kernels"))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable where the recording has none."""
        outcome, any_kernel = StepOutcome(), False
        for summary in context.summaries:
            judged = _judge_kernels(kernels_of(summary.timeline), summary.shape, context.limits)
            any_kernel = any_kernel or bool(judged.values)
            outcome.add(judged)
            if not judged.values:
                outcome.values += missing("contiguity.kernel_share", _NO_KERNELS, {"shape": summary.shape})
        return outcome if any_kernel else unavailable(_NO_KERNELS)


STEP = ContiguityStep()


class _Site(NamedTuple):
    op: str
    cause: Cause
    line: str | None


def _judge_copies(audit: Sequence[AuditedOp], shape: str, limits: Limits) -> StepOutcome:
    """Copies and bytes of a call by cause; the share of those that only change the layout, or nothing, is judged."""
    written = sum(op.written for op in audit)
    if not written:
        return StepOutcome()
    counts: Counter[_Site] = Counter()
    sizes: Counter[_Site] = Counter()
    for op in audit:
        for copy in op.copies:
            site = _Site(op.name, copy.cause, op.line)
            counts[site] += 1
            sizes[site] += copy.size
    strided = sum(op.strided for op in audit)
    outcome = StepOutcome([Value(metric="contiguity.strided_inputs", value=strided, labels={"shape": shape})])
    for cause in CAUSES:
        labels = {"shape": shape, "cause": cause}
        copies = sum(count for site, count in counts.items() if site.cause == cause)
        size = sum(size for site, size in sizes.items() if site.cause == cause)
        outcome.values.append(Value(metric="contiguity.copies", value=copies, labels=labels))
        outcome.values.append(Value(metric="contiguity.copy_share", value=size / written, labels=labels))
    judged = Counter({site: size for site, size in sizes.items() if site.cause in _JUDGED})
    for largest, size in judged.most_common(1):
        evidence: MaybeEvidence = {
            "shape": shape,
            "op": largest.op,
            "cause": largest.cause,
            "copies": counts[largest],
            "bytes": size,
            "line": largest.line,
        }
        share = sum(judged.values()) / written
        outcome.findings = above("contiguity.copy_share", share, limits, evidence)
    return outcome


def _judge_kernels(kernels: KernelTable, shape: str, limits: Limits) -> StepOutcome:
    """The share of kernels that only copy or rearrange; nothing where no kernel ran."""
    computed = [alike for alike in kernels.alike() if not alike.kernel.is_collective]
    busy_ns = sum(alike.total_ns for alike in computed)
    if not busy_ns:
        return StepOutcome()
    times: Counter[str] = Counter()
    for kernel, _, total_ns in computed:
        if _moves(kernel):
            times[kernel.type or kernel.name] += total_ns
    share, count = sum(times.values()) / busy_ns, sum(alike.number for alike in computed)
    value = Value(metric="contiguity.kernel_share", value=share, count=count, labels={"shape": shape})
    outcome = StepOutcome([value])
    for op, _ in times.most_common(1):
        outcome.findings = above("contiguity.kernel_share", share, limits, {"shape": shape, "op": op})
    return outcome


def _moves(kernel: Kernel) -> bool:
    name = kernel.type or kernel.name
    # aclnnInplaceCopy casts too: that is step 8's, and a format conversion step 7's.
    if is_format_conversion(name) or is_cast(kernel):
        return False
    return _MOVING_TYPES.fullmatch(name) is not None or _MOVING_NAMES.search(kernel.name) is not None


def _try_channels_last(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> StepOutcome:
    """Measure what channels_last gains, on a copy of the model; outputs that differ are no gain."""
    labels = {"shape": shape}
    orders = {order for op in audit if op.convolution for order in op.convolution} - {EITHER}
    if context.device.kind == "npu":
        return StepOutcome(missing(_SPEEDUP, Message("operators.npu-own-formats"), labels))
    if context.workload.workload.train_step is not None:
        return StepOutcome(missing(_SPEEDUP, TRAINS, labels))
    if orders == {"NHWC"}:
        return StepOutcome(missing(_SPEEDUP, Message("operators.channels-last-already"), labels))
    context.progress(f"comparing channels_last with inputs of shape {shape}")
    versus = experiment(context, partial(_in_channels_last, context, shape), failing="operators.channels-last-fails")
    if isinstance(versus, FailedExperiment):
        return StepOutcome(missing(_SPEEDUP, versus.reason, labels))
    op = next(op for op in audit if op.convolution is not None)
    evidence: MaybeEvidence = {"shape": shape, "speedup": versus.speedup, "op": op.name, "line": op.line}
    findings = above("contiguity.channels_last", versus.low, context.limits, evidence)
    return StepOutcome([versus.value(_SPEEDUP, labels)], findings)


def _in_channels_last(context: StepContext, shape: str) -> Versus:
    """How much faster the call is in channels_last. Raises ExperimentError where the outputs cannot be compared or differ."""
    import torch

    workload, pool = context.workload, context.workload.pool(shape)
    turned = workload.around(copy_of_model(context).to(memory_format=torch.channels_last))
    turned_pool = [each_tensor(inputs, _turn) for inputs in pool]
    agreed = compare_outputs(lambda: workload.invoke(pool[0]), lambda: turned.invoke(turned_pool[0]), context.device)
    if isinstance(agreed, Message):
        raise ExperimentError(agreed)
    if not agreed.within(_SAME):
        raise ExperimentError(Message("operators.channels-last-differs"))
    with quiet():
        return compare(
            rotating(workload.invoke, pool),
            rotating(turned.invoke, turned_pool),
            context.device,
            seconds=(1.5 if context.quick else 8.0) / len(workload.shapes),
            seed=context.seed,
        )


def _turn(tensor: Any) -> Any:
    """An image in channels_last."""
    import torch

    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
