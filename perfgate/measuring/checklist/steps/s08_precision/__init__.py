"""Step 8: whether lower precision would be faster and still right, and how much of the work is done in it already."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.audit import AuditedOp, Product, audit_shape, is_cast
from perfgate.measuring.checklist.experiment import FailedExperiment
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, below, finding, limit
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, not_applicable, unavailable
from perfgate.measuring.checklist.steps.s08_precision.trial import (
    Trial,
    rounding_switches,
    try_autocast,
    try_full,
)
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.measuring.checklist.values import missing
from perfgate.trace.kernel_table import Alike, KernelTable
from perfgate.trace.operators import op_class
from perfgate.trace.recording import Kernel
from perfgate.trace.summary import kernels_of

# From this share of low-precision products on a call counts as one in low precision.
_MOSTLY = 0.5
_FULL, _LOW = ("FLOAT", "DOUBLE"), ("FLOAT16", "BF16", "DT_BF16", "HIFLOAT8", "FLOAT8_E4M3FN", "FLOAT8_E5M2")
# CUDA kernels tell it by name: ampere_bf16_s16816gemm_bf16_128x64, sm80_xmma_fprop_..._f16f16_f16f32_f32, turing_h1688gemm,
# cutlass_tensorop_s1688tf32gemm, volta_sgemm_128x64_nn (samples cuda-hta, cuda-kineto; names of CUTLASS's profiler).
_LOW_NAME = re.compile(r"bf16|(?<!t)f16|fp16|s16816|hgemm|h1688|h884|s884|e4m3|e5m2|half", re.IGNORECASE)
_FULL_NAME = re.compile(r"tf32|sgemm|dgemm|f32f32|float", re.IGNORECASE)


class PrecisionStep:
    """Where the call computes in which precision, and a trial of the other one."""

    card = card(8)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable where none has a product."""
        outcome, in_full = StepOutcome(), list[AuditedOp]()
        for shape in context.workload.shapes:
            context.progress(f"looking at the precision of products with inputs of shape {shape}")
            audit = audit_shape(context, shape, calls=3)
            products = [(op, op.product) for op in audit if op.product is not None]
            if not products:
                continue
            in_full += [op for op, product in products if not product.low]
            low_flops = sum(product.flops for _, product in products if product.low)
            share = low_flops / sum(product.flops for _, product in products)
            outcome.add(_judge_products(products, share, shape, context.limits))
            outcome.add(_judge_kernels_or_casts(context, shape, audit))
            trial = _try(context, shape, [product for _, product in products], share)
            outcome.add(judge_trial(trial, shape, context.limits))
            if (
                isinstance(trial, FailedExperiment)
                and trial.raised
                and "spoiled_by_errors" in context.device.capabilities
            ):
                break
        if not outcome.values:
            return not_applicable(Message("operators.no-products"))
        outcome.findings += _judge_rounding(in_full, context.device.kind)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable where none has a product of known precision."""
        outcome, reasons = StepOutcome(), []
        for summary in context.summaries:
            kernels = kernels_of(summary.timeline)
            judged = _judge_kernels(kernels, summary.spans, summary.shape, context.limits)
            if not any(value.metric == "precision.low_share" for value in judged.values):
                code = "operators.precision-not-recorded" if kernels else "operators.no-precision-recorded"
                reasons.append(Message(code))
                judged.values += missing("precision.low_share", reasons[-1], {"shape": summary.shape})
            outcome.add(judged)
        return unavailable(together(reasons)) if len(reasons) == len(context.summaries) else outcome


STEP = PrecisionStep()


def _judge_products(
    products: Sequence[tuple[AuditedOp, Product]], share: float, shape: str, limits: Limits
) -> StepOutcome:
    """The share of low-precision arithmetic; some in full is worth a word in a call that uses low precision."""
    outcome = StepOutcome([Value(metric="precision.low_share", value=share, labels={"shape": shape, "of": "flops"})])
    if 0 < share < 1:
        sites: Counter[tuple[str, str | None, str]] = Counter()
        for op, product in products:
            if not product.low:
                sites[op.name, op.line, product.dtype] += product.flops
        (((name, line, dtype), flops),) = sites.most_common(1)
        evidence: MaybeEvidence = {"shape": shape, "op": name, "dtype": dtype, "flops": flops, "line": line}
        outcome.findings = below("precision.low_share", share, limits, evidence)
    return outcome


def _judge_kernels_or_casts(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> StepOutcome:
    """Judge the kernels of the run's trace; casts are those of the dispatched operators where no kernel tells of them."""
    if not context.shows_kernels:
        return _judge_casts(audit, shape, context.limits, timed=True)
    summary = steady_summary(context, shape)
    outcome = _judge_kernels(kernels_of(summary.timeline), summary.spans, shape, context.limits, audit)
    if not any(value.metric == "precision.casts" for value in outcome.values):
        outcome.add(_judge_casts(audit, shape, context.limits, timed=False))
    return outcome


def _judge_casts(audit: Sequence[AuditedOp], shape: str, limits: Limits, *, timed: bool) -> StepOutcome:
    """The casts of a call; their share only where operators are done when they return."""
    casts = [(op, copy) for op in audit for copy in op.copies if copy.cause == "dtype"]
    labels = {"shape": shape}
    outcome = StepOutcome([Value(metric="precision.casts", value=len(casts), labels=labels)])
    busy_ns = sum(op.host_ns for op in audit)
    if not timed or not busy_ns:
        return outcome
    share = sum(op.host_ns / len(op.copies) for op, _ in casts) / busy_ns
    outcome.values.append(Value(metric="precision.cast_share", value=share, labels=labels))
    if casts:
        op, copy = max(casts, key=lambda cast: cast[0].host_ns)
        evidence: MaybeEvidence = {
            "shape": shape,
            "op": op.name,
            "change": copy.pair,
            "casts": len(casts),
            "line": op.line,
        }
        outcome.findings = above("precision.cast_share", share, limits, evidence)
    return outcome


def _judge_kernels(
    table: KernelTable, calls: int, shape: str, limits: Limits, audit: Sequence[AuditedOp] = ()
) -> StepOutcome:
    """Shares of the kernels' time: of products by precision, and of casts.

    Of calls that were audited too the arithmetic is judged, and the time stands beside it; the audit knows lines.
    """
    kernels = table.alike()
    outcome = _judge_product_times(kernels, shape, limits, judge=not audit)
    busy_ns = sum(alike.total_ns for alike in kernels if not alike.kernel.is_collective)
    if not busy_ns or not any(alike.kernel.input_dtypes for alike in kernels):
        return outcome
    labels = {"shape": shape}
    casts = [alike for alike in kernels if is_cast(alike.kernel)]
    share = sum(alike.total_ns for alike in casts) / busy_ns
    number = sum(alike.number for alike in casts)
    outcome.values += [
        Value(metric="precision.casts", value=number / calls, count=calls, labels=labels),
        Value(metric="precision.cast_share", value=share, labels=labels),
    ]
    changes: Counter[str] = Counter()
    for kernel, _, total_ns in casts:
        if kernel.input_dtypes and kernel.output_dtypes:
            changes[f"{kernel.input_dtypes[0]} -> {kernel.output_dtypes[0]}"] += total_ns
    lines = Counter(op.line for op in audit for copy in op.copies if copy.cause == "dtype" and op.line is not None)
    for change, _ in changes.most_common(1):
        # The line is the one from which most casts come.
        line = next((line for line, _ in lines.most_common(1)), None)
        evidence = {"shape": shape, "op": "Cast", "change": change, "line": line}
        outcome.findings += above("precision.cast_share", share, limits, evidence)
    return outcome


def _judge_product_times(kernels: Iterable[Alike], shape: str, limits: Limits, *, judge: bool) -> StepOutcome:
    """What matrix products, convolutions and attention take in low precision, and in float32 with rounded inputs."""
    low_ns = rounded_ns = 0
    in_full: Counter[str] = Counter()
    for kernel, _, total_ns in kernels:
        name, low = kernel.type or kernel.name, _is_low(kernel)
        if kernel.is_collective or op_class(name) != "conv_matmul" or low is None:
            continue
        if low:
            low_ns += total_ns
            continue
        in_full[name] += total_ns
        if kernel.hf32 or "tf32" in kernel.name.lower():
            rounded_ns += total_ns
    full_ns = sum(in_full.values())
    if not low_ns + full_ns:
        return StepOutcome()
    share = low_ns / (low_ns + full_ns)
    outcome = StepOutcome([Value(metric="precision.low_share", value=share, labels={"shape": shape, "of": "time"})])
    if in_full:
        rounded = rounded_ns / full_ns
        outcome.values.append(Value(metric="precision.rounded_share", value=rounded, labels={"shape": shape}))
    if in_full and share > 0 and judge:
        ((op, _),) = in_full.most_common(1)
        evidence = {"shape": shape, "op": op, "dtype": "float32"}
        outcome.findings = below("precision.low_share", share, limits, evidence)
    return outcome


def _is_low(kernel: Kernel) -> bool | None:
    """Whether a kernel reads low precision; None where nothing says. What it reads first counts, integers apart.

    A gradient's first input may be a shape (Conv2DBackpropInput reads INT32, FLOAT, FLOAT).
    """
    dtype = next((dtype for dtype in kernel.input_dtypes if dtype in (*_FULL, *_LOW)), None)
    if dtype is not None:
        return dtype in _LOW
    if kernel.input_dtypes:
        return None
    # tf32 holds f32, and f16f32 both: what is read first stands first.
    low, full = _LOW_NAME.search(kernel.name), _FULL_NAME.search(kernel.name)
    if low and full:
        return low.start() < full.start()
    return True if low else False if full else None


def _try(context: StepContext, shape: str, products: Iterable[Product], share: float) -> Trial | FailedExperiment:
    seconds = context.seconds(quick=2.0, full=12.0) / len(context.workload.shapes)
    if share < _MOSTLY:
        return try_autocast(context, shape, seconds=seconds)
    flops: Counter[str] = Counter()
    for product in products:
        if product.low:
            flops[product.dtype] += product.flops
    ((dtype, _),) = flops.most_common(1)
    return try_full(context, shape, dtype=dtype, seconds=seconds)


def judge_trial(trial: Trial | FailedExperiment, shape: str, limits: Limits) -> StepOutcome:
    if isinstance(trial, FailedExperiment):
        return StepOutcome(missing("precision.speedup", trial.reason, {"shape": shape}))
    labels = {"shape": shape, "dtype": trial.dtype, "against": trial.against}
    outcome = StepOutcome([trial.versus.value("precision.speedup", labels)])
    if isinstance(trial.agreement, Message):
        outcome.values += missing("precision.error", trial.agreement, labels)
    else:
        numbers = {
            "precision.error": trial.agreement.relative,
            "precision.absolute_error": trial.agreement.absolute,
            "precision.cosine": trial.agreement.cosine,
            "precision.not_finite": float(trial.agreement.not_finite),
        }
        for metric, number in numbers.items():
            finite = math.isfinite(number)
            reason = None if finite else Message("operators.zero-output")
            outcome.values.append(Value(metric=metric, value=number if finite else None, labels=labels, reason=reason))
    ratio, reason = (
        trial.memory_ratio,
        Message("operators.no-allocation-counts") if trial.memory_ratio is None else None,
    )
    outcome.values.append(Value(metric="precision.memory_ratio", value=ratio, labels=labels, reason=reason))
    outcome.findings = (_judge_gain if trial.against == "as_is" else _judge_low)(trial, shape, limits)
    return outcome


def _judge_gain(trial: Trial, shape: str, limits: Limits) -> list[Finding]:
    """Recommend autocast where it is faster beyond doubt and the output is right; say so where it is only faster."""
    relative_error = None if isinstance(trial.agreement, Message) else _finite(trial.agreement.relative)
    evidence: MaybeEvidence = {
        "shape": shape,
        "dtype": trial.dtype,
        "speedup": trial.versus.speedup,
        "relative error": relative_error,
    }
    gain = above("precision.gain", trial.versus.low, limits, evidence)
    if gain and (why := _objection(trial, limits)):
        return [finding("precision.inaccurate", "info", {**evidence, "why": why})]
    return gain


def _objection(trial: Trial, limits: Limits) -> Message | None:
    """What speaks against the low-precision output, None where nothing does."""
    if trial.refused is not None:
        return Message("operators.check-says", {"said": trial.refused})
    if isinstance(trial.agreement, Message):
        return trial.agreement
    if count := trial.agreement.not_finite:
        return Message("operators.not-finite", {"count": count})
    tolerance = limit("precision.error.warning", limits)
    if not trial.agreement.within(tolerance):
        return Message("operators.deviation", {"difference": trial.agreement.relative, "tolerance": tolerance})
    return None


def _judge_low(trial: Trial, shape: str, limits: Limits) -> list[Finding]:
    """Judge a model in low precision beside its float32 copy: what it lost, and whether it is faster at all."""
    evidence: MaybeEvidence = {"shape": shape, "dtype": trial.dtype, "speedup": trial.versus.speedup}
    findings: list[Finding] = []
    if not isinstance(trial.agreement, Message):
        if elements := trial.agreement.not_finite:
            findings.append(finding("precision.not_finite", "severe", {**evidence, "elements": elements}))
        findings += above("precision.error", _finite(trial.agreement.relative), limits, evidence)
    if trial.versus.high < 1.0:
        findings.append(finding("precision.slower", "warning", evidence))
    return findings


def _finite(relative_error: float) -> float:
    """Where the full-precision output is zero throughout it is the largest error there can be: all of it."""
    return 1.0 if math.isinf(relative_error) else relative_error


def _judge_rounding(in_full: Sequence[AuditedOp], kind: str) -> list[Finding]:
    """Say by which switches the products in full precision may be rounded."""
    convolves = any(op.convolution is not None for op in in_full)
    multiplies = any(op.convolution is None for op in in_full)
    switches = rounding_switches(kind, multiplies=multiplies, convolves=convolves)
    return [finding("precision.rounded", "info", {"switches": ", ".join(switches)})] if switches else []
