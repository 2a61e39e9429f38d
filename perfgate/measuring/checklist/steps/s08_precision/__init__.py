"""Step 8: whether lower precision would be faster and still correct, and how much of
the work already uses it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, together
from perfgate.measuring.checklist.audit import (
    AuditedOp,
    AuditedProduct,
    Copy,
    audit_shape,
    is_cast,
)
from perfgate.measuring.checklist.experiment import FailedExperiment
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.checklist.steps.s08_precision.trial import (
    PrecisionTrial,
    try_other_precision,
)
from perfgate.measuring.checklist.traces import steady_summary
from perfgate.trace.analysis.operators import op_class
from perfgate.trace.analysis.summary import kernels_of
from perfgate.trace.model.kernel_table import Alike, KernelTable
from perfgate.trace.model.recording import Kernel

# A call counts as low precision from this share of low-precision products on.
_MOSTLY = 0.5
_FULL = ("FLOAT", "DOUBLE")
_LOW = ("FLOAT16", "BF16", "DT_BF16", "HIFLOAT8", "FLOAT8_E4M3FN", "FLOAT8_E5M2")
# CUDA kernels have it in their names: ampere_bf16_s16816gemm_bf16_128x64,
# sm80_xmma_fprop_..._f16f16_f16f32_f32, turing_h1688gemm,
# cutlass_tensorop_s1688tf32gemm, volta_sgemm_128x64_nn (samples cuda-hta, cuda-kineto;
# names of CUTLASS's profiler).
_LOW_NAME = re.compile(
    r"bf16|(?<!t)f16|fp16|s16816|hgemm|h1688|h884|s884|e4m3|e5m2|half", re.IGNORECASE
)
_FULL_NAME = re.compile(r"tf32|sgemm|dgemm|f32f32|float", re.IGNORECASE)


class PrecisionStep:
    """The precision of each product of a call, and a trial of the other precision."""

    card = card(8)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable if none has a product."""
        outcome = context.outcome()
        for shape in context.workload.shapes:
            context.doing(
                "looking at the precision of products with inputs of shape {shape}",
                shape=shape,
            )
            audit = audit_shape(context, shape, calls=3)
            products = [(op, op.product) for op in audit if op.product is not None]
            if not products:
                continue
            low_flops = sum(product.flops for _, product in products if product.low)
            share = low_flops / sum(product.flops for _, product in products)
            of_shape = outcome.under(shape=shape)
            _judge_products(of_shape, products, share)
            _judge_kernels_or_casts(of_shape, context, shape, audit)
            trial = _try(context, shape, [product for _, product in products], share)
            judge_trial(of_shape, trial)
            if (
                isinstance(trial, FailedExperiment)
                and trial.raised
                and "spoiled_by_errors" in context.device.capabilities
            ):
                break
        return outcome.or_else(not_applicable(Message("operators.no-products")))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable if none has a product of known
        precision.
        """
        outcome, reasons = context.outcome(), []
        for summary in context.summaries:
            kernels = kernels_of(summary.timeline)
            device = outcome.under(shape=summary.shape)
            has_products = _judge_product_times(device, kernels.alike(), judge=True)
            _judge_kernel_casts(device, kernels, summary.spans)
            if not has_products:
                code = "operators.no-precision-recorded"
                if kernels:
                    code = "operators.precision-not-recorded"
                reasons.append(Message(code))
                device.missing("precision.low_share", reasons[-1])
        if len(reasons) == len(context.summaries):
            return unavailable(together(reasons))
        return outcome


STEP = PrecisionStep()


def _judge_products(
    outcome: StepOutcome,
    products: Sequence[tuple[AuditedOp, AuditedProduct]],
    share: float,
) -> None:
    """The share of low-precision arithmetic; products in full precision are judged in a
    call that mixes both.
    """
    outcome.under(of="flops").number("precision.low_share", share)
    if 0 < share < 1:
        sites: Counter[tuple[str, str | None, str]] = Counter()
        for op, product in products:
            if not product.low:
                sites[op.name, op.line, product.dtype] += product.flops
        (((name, line, dtype), flops),) = sites.most_common(1)
        outcome.below(
            "precision.low_share",
            share,
            {"op": name, "dtype": dtype, "flops": flops, "line": line},
        )


def _judge_kernels_or_casts(
    outcome: StepOutcome, context: StepContext, shape: str, audit: Sequence[AuditedOp]
) -> None:
    """Judge the kernels of the run's trace; if no kernel shows casts, the dispatched
    operators count.

    The products of an audited call are judged by their arithmetic, and their time is
    only shown.
    """
    if not context.shows_kernels:
        _judge_casts(outcome, audit, timed=True)
        return
    summary = steady_summary(context, shape)
    kernels = kernels_of(summary.timeline)
    _judge_product_times(outcome, kernels.alike(), judge=False)
    if not _judge_kernel_casts(outcome, kernels, summary.spans, audit):
        _judge_casts(outcome, audit, timed=False)


def _judge_casts(
    outcome: StepOutcome, audit: Sequence[AuditedOp], *, timed: bool
) -> None:
    """The casts of a call, and their share if operators are synchronous."""
    casts = _casts_of(audit)
    outcome.number("precision.casts", len(casts))
    busy_ns = sum(op.host_ns for op in audit)
    if not timed or not busy_ns:
        return
    casts_ns = 0.0
    for op, _ in casts:
        casts_ns += op.host_ns / len(op.copies)
    share = casts_ns / busy_ns
    outcome.number("precision.cast_share", share)
    if casts:
        op, copy = max(casts, key=lambda cast: cast[0].host_ns)
        outcome.above(
            "precision.cast_share",
            share,
            {"op": op.name, "change": copy.pair, "casts": len(casts), "line": op.line},
        )


def _casts_of(audit: Sequence[AuditedOp]) -> list[tuple[AuditedOp, Copy]]:
    casts = []
    for op in audit:
        casts += [(op, copy) for copy in op.copies if copy.cause == "dtype"]
    return casts


def _judge_kernel_casts(
    outcome: StepOutcome,
    table: KernelTable,
    calls: int,
    audit: Sequence[AuditedOp] = (),
) -> bool:
    """Judge the share of casts in the kernels' time; False if the kernels do not show
    their types.

    The audit has the lines of the casts.
    """
    busy_ns = casts = casts_ns = 0
    has_types = False
    changes: Counter[str] = Counter()
    for kernel, number, total_ns in table.alike():
        has_types |= bool(kernel.inputs.dtypes)
        if not kernel.is_collective:
            busy_ns += total_ns
        if is_cast(kernel):
            casts += number
            casts_ns += total_ns
            if kernel.inputs.dtypes and kernel.outputs.dtypes:
                changes[f"{kernel.inputs.dtypes[0]} -> {kernel.outputs.dtypes[0]}"] += (
                    total_ns
                )
    if not busy_ns or not has_types:
        return False
    share = casts_ns / busy_ns
    outcome.number("precision.casts", casts / calls, count=calls)
    outcome.number("precision.cast_share", share)
    lines = Counter(op.line for op, _ in _casts_of(audit))
    del lines[None]
    line = None
    if lines:
        line = lines.most_common(1)[0][0]
    for change, _ in changes.most_common(1):
        outcome.above(
            "precision.cast_share",
            share,
            {"op": "Cast", "change": change, "line": line},
        )
    return True


def _judge_product_times(
    outcome: StepOutcome, kernels: Iterable[Alike], *, judge: bool
) -> bool:
    """The time of products, convolutions and attention in low precision, and in float32
    with rounded inputs.

    False if there is none of known precision.
    """
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
        return False
    share = low_ns / (low_ns + full_ns)
    outcome.under(of="time").number("precision.low_share", share)
    if in_full:
        outcome.number("precision.rounded_share", rounded_ns / full_ns)
    if in_full and share > 0 and judge:
        ((op, _),) = in_full.most_common(1)
        outcome.below("precision.low_share", share, {"op": op, "dtype": "float32"})
    return True


def _is_low(kernel: Kernel) -> bool | None:
    """Whether a kernel's first floating-point input has low precision; None if unknown.

    A gradient's first input may be a shape (Conv2DBackpropInput reads INT32, FLOAT,
    FLOAT).
    """
    for dtype in kernel.inputs.dtypes:
        if dtype in _LOW:
            return True
        if dtype in _FULL:
            return False
    if kernel.inputs.dtypes:
        return None
    # tf32 contains f32, and f16f32 both: the type of the first input comes first.
    low, full = _LOW_NAME.search(kernel.name), _FULL_NAME.search(kernel.name)
    if low and full:
        return low.start() < full.start()
    if low:
        return True
    if full:
        return False
    return None


def _try(
    context: StepContext, shape: str, products: Iterable[AuditedProduct], share: float
) -> PrecisionTrial | FailedExperiment:
    seconds = context.seconds(quick=1.0, full=12.0) / len(context.workload.shapes)
    dtype = None
    if share >= _MOSTLY:
        flops: Counter[str] = Counter()
        for product in products:
            if product.low:
                flops[product.dtype] += product.flops
        ((dtype, _),) = flops.most_common(1)
    return try_other_precision(context, shape, dtype, seconds=seconds)


def judge_trial(outcome: StepOutcome, trial: PrecisionTrial | FailedExperiment) -> None:
    if isinstance(trial, FailedExperiment):
        outcome.missing("precision.speedup", trial.reason)
        return
    tried = outcome.under(dtype=trial.dtype, against=trial.against)
    tried.speedup("precision.speedup", trial.versus)
    if isinstance(trial.agreement, Message):
        tried.missing("precision.error", trial.agreement)
    else:
        if math.isfinite(trial.agreement.relative):
            tried.number("precision.error", trial.agreement.relative)
        else:
            tried.missing("precision.error", Message("operators.zero-output"))
        tried.number("precision.not_finite", float(trial.agreement.not_finite))
    if trial.against == "as_is":
        _judge_gain(tried, trial)
    else:
        # Judge a low-precision model against its float32 copy: the accuracy it lost,
        # and whether it is faster at all.
        evidence: MaybeEvidence = {
            "dtype": trial.dtype,
            "speedup": trial.versus.speedup,
        }
        if not isinstance(trial.agreement, Message):
            if elements := trial.agreement.not_finite:
                tried.note(
                    "precision.not_finite", "severe", {**evidence, "elements": elements}
                )
            tried.above("precision.error", _finite(trial.agreement.relative), evidence)
        if trial.versus.high < 1.0:
            tried.note("precision.slower", "warning", evidence)


def _judge_gain(outcome: StepOutcome, trial: PrecisionTrial) -> None:
    """Recommend autocast if it is certainly faster and its output is right; note it if
    it is only faster.
    """
    relative_error = (
        None
        if isinstance(trial.agreement, Message)
        else _finite(trial.agreement.relative)
    )
    evidence: MaybeEvidence = {
        "dtype": trial.dtype,
        "speedup": trial.versus.speedup,
        "relative error": relative_error,
    }
    if (why := _objection(trial, outcome.limit("precision.error.warning"))) is None:
        outcome.above("precision.gain", trial.versus.low, evidence)
    elif trial.versus.low > outcome.limit("precision.gain.info"):
        outcome.note("precision.inaccurate", "info", {**evidence, "why": why})


def _objection(trial: PrecisionTrial, tolerance: float) -> Message | None:
    """The reason to reject the low-precision output, None if there is none."""
    if trial.refused is not None:
        return Message("operators.check-says", {"said": trial.refused})
    if isinstance(trial.agreement, Message):
        return trial.agreement
    if count := trial.agreement.not_finite:
        return Message("operators.not-finite", {"count": count})
    if not trial.agreement.within(tolerance):
        return Message(
            "operators.deviation",
            {"difference": trial.agreement.relative, "tolerance": tolerance},
        )
    return None


def _finite(relative_error: float) -> float:
    """The error relative to an output of zeros is infinite, and counts as the largest:
    all of it.
    """
    if math.isinf(relative_error):
        return 1.0
    return relative_error
