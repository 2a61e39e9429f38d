"""Step 14: which operators copy whole tensors, from which line, and what channels_last would gain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Value
from perfgate.measuring.checklist.limits import above
from perfgate.measuring.checklist.step import Judged, RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._audit import CAUSES, EITHER, AuditedOp, Cause, audit_shape
from perfgate.measuring.checklist.steps._precision_kernels import is_cast
from perfgate.measuring.checklist.steps._traces import steady_summary
from perfgate.measuring.checklist.steps._variants import TRAINS, compare_outputs, copy_of_model, rotating
from perfgate.measuring.devices.batches import each_tensor
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.versus import compare
from perfgate.trace.kernels import is_format_conversion
from perfgate.trace.recording import Kernel
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
_NO_OPERATOR = "a call dispatches no operator of the framework, and the device shows no kernels"
_NO_KERNELS = "the recording shows no kernel of a device, and operators of a host do not say how tensors lie in memory"


class _Site(NamedTuple):
    op: str
    cause: Cause
    line: str | None


class ContiguityStep:
    """An audit of single calls, the kernels of a short trace where there are any, and a trial of channels_last."""

    card = card(14)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where neither operators nor kernels show."""
        found = Judged()
        for shape in context.workload.shapes:
            context.progress(f"looking at memory layouts with inputs of shape {shape}")
            audit = audit_shape(context, shape)
            found.add(_judge_copies(audit, shape=shape, limits=context.limits))
            if "kernel_timeline" in context.device.capabilities:
                summary = steady_summary(context, shape)
                found.add(_judge_kernels(kernels_of(summary.timeline), shape=shape, limits=context.limits))
            if _has_2d_convolution(audit):
                found.add(_try_channels_last(context, shape, audit))
        if not found.values:
            return StepOutcome(status="unavailable", reason=_NO_OPERATOR)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable where the recording has none."""
        found, seen = Judged(), False
        for summary in context.summaries:
            judged = _judge_kernels(kernels_of(summary.timeline), shape=summary.shape, limits=context.limits)
            seen = seen or bool(judged.values)
            missing = Value(
                metric="contiguity.kernel_share", value=None, labels={"shape": summary.shape}, reason=_NO_KERNELS
            )
            found.add(judged if judged.values else Judged([missing]))
        if not seen:
            return StepOutcome(status="unavailable", reason=_NO_KERNELS)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


STEP = ContiguityStep()


def _judge_copies(audit: Sequence[AuditedOp], *, shape: str, limits: Mapping[str, float]) -> Judged:
    """Return copies and bytes of a call by cause; the share of those that only change the layout, or nothing, is judged."""
    written = sum(op.written for op in audit)
    if not written:
        return Judged()
    counts: Counter[_Site] = Counter()
    sizes: Counter[_Site] = Counter()
    for op in audit:
        for copy in op.copies:
            site = _Site(op.name, copy.cause, op.line)
            counts[site] += 1
            sizes[site] += copy.size
    values = [Value(metric="contiguity.strided_inputs", value=sum(op.strided for op in audit), labels={"shape": shape})]
    for cause in CAUSES:
        labels = {"shape": shape, "cause": cause}
        of_cause = [site for site in counts if site.cause == cause]
        copies, size = sum(counts[site] for site in of_cause), sum(sizes[site] for site in of_cause)
        values.append(Value(metric="contiguity.copies", value=copies, labels=labels))
        values.append(Value(metric="contiguity.copy_share", value=size / written, labels=labels))
    judged = Counter({site: size for site, size in sizes.items() if site.cause in _JUDGED})
    if not judged:
        return Judged(values)
    ((largest, size),) = judged.most_common(1)
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "op": largest.op,
        "cause": largest.cause,
        "copies": counts[largest],
        "bytes": size,
    }
    if largest.line is not None:
        evidence["line"] = largest.line
    share = sum(judged.values()) / written
    return Judged(values, above("contiguity.copy_share", share, given=limits, evidence=evidence))


def _judge_kernels(kernels: Iterable[Kernel], *, shape: str, limits: Mapping[str, float]) -> Judged:
    """Return the share of kernels that only copy or rearrange; nothing where no kernel ran."""
    computed = [kernel for kernel in kernels if not kernel.is_collective]
    busy_ns = sum(kernel.duration_ns for kernel in computed)
    if not busy_ns:
        return Judged()
    times: Counter[str] = Counter()
    for kernel in computed:
        if _moves(kernel):
            times[kernel.type or kernel.name] += kernel.duration_ns
    share = sum(times.values()) / busy_ns
    value = Value(metric="contiguity.kernel_share", value=share, count=len(computed), labels={"shape": shape})
    if not times:
        return Judged([value])
    ((op, _),) = times.most_common(1)
    evidence: dict[str, Evidence] = {"shape": shape, "op": op}
    return Judged([value], above("contiguity.kernel_share", share, given=limits, evidence=evidence))


def _moves(kernel: Kernel) -> bool:
    known = kernel.type or kernel.name
    # aclnnInplaceCopy casts too: that is step 8's, and a format conversion step 7's.
    if is_format_conversion(known) or is_cast(kernel):
        return False
    return _MOVING_TYPES.fullmatch(known) is not None or _MOVING_NAMES.search(kernel.name) is not None


def _has_2d_convolution(audit: Iterable[AuditedOp]) -> bool:
    return any(op.convolution is not None and {"NCHW", "NHWC", EITHER} & set(op.convolution) for op in audit)


def _try_channels_last(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> Judged:
    """Measure what channels_last gains, on a copy of the model; outputs that differ are no gain."""
    labels = {"shape": shape}
    turned, reason = _in_channels_last(context, shape, audit)
    if turned is None:
        return Judged([Value(metric=_SPEEDUP, value=None, labels=labels, reason=reason)])
    context.progress(f"comparing channels_last with inputs of shape {shape}")
    with quiet():
        versus = compare(
            rotating(context.workload.invoke, context.workload.pool(shape)),
            turned,
            context.device,
            seconds=(1.5 if context.quick else 8.0) / len(context.workload.shapes),
            seed=context.seed,
        )
    first = next(op for op in audit if op.convolution is not None)
    evidence: dict[str, Evidence] = {"shape": shape, "speedup": versus.speedup, "op": first.name}
    if first.line is not None:
        evidence["line"] = first.line
    findings = above("contiguity.channels_last", versus.low, given=context.limits, evidence=evidence)
    return Judged([versus.value(_SPEEDUP, labels)], findings)


class _Turned(NamedTuple):
    """A call in channels_last, or why there is none to compare with."""

    call: Callable[[], Any] | None
    reason: str | None = None


def _in_channels_last(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> _Turned:
    if (reason := _not_to_try(context, audit)) is not None:
        return _Turned(None, reason)
    import torch

    model, reason = copy_of_model(context.workload, context.device)
    if reason is not None:
        return _Turned(None, reason)
    workload, inputs = context.workload, context.workload.pool(shape)
    turned = workload.around(model.to(memory_format=torch.channels_last))
    turned_inputs = [each_tensor(one, _image_in_channels_last) for one in inputs]
    agreed = compare_outputs(
        lambda: workload.invoke(inputs[0]), lambda: turned.invoke(turned_inputs[0]), context.device
    )
    if agreed.agreement is None:
        return _Turned(None, agreed.reason)
    if not agreed.agreement.within(_SAME):
        return _Turned(None, "the output in channels_last is another one, so its speed is no gain")
    return _Turned(rotating(turned.invoke, turned_inputs))


def _image_in_channels_last(tensor: Any) -> Any:
    import torch

    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _not_to_try(context: StepContext, audit: Iterable[AuditedOp]) -> str | None:
    """Return why channels_last is not tried, None where it is."""
    if context.device.kind == "npu":
        return "an NPU keeps images in formats of its own; channels_last is none of them"
    if context.workload.workload.train_step is not None:
        return TRAINS
    orders = {order for op in audit if op.convolution for order in op.convolution} - {EITHER}
    return "every convolution runs in channels_last already" if orders == {"NHWC"} else None
