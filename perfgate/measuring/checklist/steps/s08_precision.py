"""Step 8: whether lower precision would be faster and still right, and how much of the work is done in it already."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, below, limit, noticed
from perfgate.measuring.checklist.step import Judged, RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._audit import AuditedOp, Product, audit_shape
from perfgate.measuring.checklist.steps._precision_kernels import cast_times, product_times
from perfgate.measuring.checklist.steps._precision_trial import (
    Failed,
    Trial,
    rounding_switches,
    try_autocast,
    try_full,
)
from perfgate.measuring.checklist.steps._traces import steady_summary
from perfgate.trace.recording import Kernel
from perfgate.trace.summary import kernels_of

# From this share of low-precision products on a call counts as one in low precision.
_MOSTLY = 0.5
_NO_PRODUCT = "a call has no matrix product, convolution or attention whose precision could be lowered"
_NO_KERNELS = (
    "the recording shows no kernel of a device, and operators of a host do not say in which precision they compute"
)
_NO_DTYPES = "the recording does not say in which precision its kernels compute; record at Level1"
_NO_MEMORY_COUNT = "the device does not count what a call allocates"


class PrecisionStep:
    """Where the call computes in which precision, and a trial of the other one."""

    card = card(8)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; not applicable where none has a product."""
        found, full = Judged(), list[AuditedOp]()
        for shape in context.workload.shapes:
            context.progress(f"looking at the precision of products with inputs of shape {shape}")
            audit = audit_shape(context, shape, calls=3)
            products = [(op, op.product) for op in audit if op.product is not None]
            if not products:
                continue
            full += [op for op, product in products if not product.low]
            share = _low_share(product for _, product in products)
            found.add(_judge_products(products, share, shape, context.limits))
            found.add(_kernels_or_casts(context, shape, audit))
            trial, failed = _try(context, shape, [product for _, product in products], share)
            found.add(_judge_trial(trial, failed, shape, context.limits))
            if failed is not None and failed.broken and "spoiled_by_errors" in context.device.capabilities:
                break
        if not found.values:
            return StepOutcome(status="not_applicable", reason=_NO_PRODUCT)
        found.findings += _rounded(full, context.device.kind)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable where none has a product of known precision."""
        found, reasons = Judged(), []
        for summary in context.summaries:
            kernels = kernels_of(summary.timeline)
            judged = _judge_kernels(kernels, summary.spans, summary.shape, context.limits)
            reason = _NO_DTYPES if kernels else _NO_KERNELS
            if not any(value.metric == "precision.low_share" for value in judged.values):
                reasons.append(reason)
                labels = {"shape": summary.shape}
                judged.values.append(Value(metric="precision.low_share", value=None, labels=labels, reason=reason))
            found.add(judged)
        if len(reasons) == len(context.summaries):
            return StepOutcome(status="unavailable", reason="; ".join(dict.fromkeys(reasons)))
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


STEP = PrecisionStep()


def _low_share(products: Iterable[Product]) -> float:
    each = list(products)
    return sum(product.flops for product in each if product.low) / sum(product.flops for product in each)


def _judge_products(
    products: Sequence[tuple[AuditedOp, Product]], share: float, shape: str, limits: Mapping[str, float]
) -> Judged:
    """Return the share of low-precision arithmetic; some in full is worth a word in a call that uses low precision."""
    value = Value(metric="precision.low_share", value=share, labels={"shape": shape, "of": "flops"})
    if not 0 < share < 1:
        return Judged([value])
    sites: Counter[tuple[str, str | None, str]] = Counter()
    for op, product in products:
        if not product.low:
            sites[op.name, op.line, product.dtype] += product.flops
    (((name, line, dtype), flops),) = sites.most_common(1)
    evidence: dict[str, Evidence] = {"shape": shape, "op": name, "dtype": dtype, "flops": flops}
    if line is not None:
        evidence["line"] = line
    return Judged([value], below("precision.low_share", share, given=limits, evidence=evidence))


def _kernels_or_casts(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> Judged:
    """Judge the kernels of a short trace; casts are those of the dispatched operators where no kernel tells of them."""
    if "kernel_timeline" not in context.device.capabilities:
        return _judge_casts(audit, shape, context.limits, timed=True)
    summary = steady_summary(context, shape)
    found = _judge_kernels(kernels_of(summary.timeline), summary.spans, shape, context.limits, audit)
    if not any(value.metric == "precision.casts" for value in found.values):
        found.add(_judge_casts(audit, shape, context.limits, timed=False))
    return found


def _judge_casts(audit: Sequence[AuditedOp], shape: str, limits: Mapping[str, float], *, timed: bool) -> Judged:
    """Return the casts of a call; their share only where operators are done when they return."""
    casts = [(op, copy) for op in audit for copy in op.copies if copy.cause == "dtype"]
    values = [Value(metric="precision.casts", value=len(casts), labels={"shape": shape})]
    busy_ns = sum(op.host_ns for op in audit)
    if not timed or not busy_ns:
        return Judged(values)
    share = sum(op.host_ns / len(op.copies) for op, _ in casts) / busy_ns
    values.append(Value(metric="precision.cast_share", value=share, labels={"shape": shape}))
    if not casts:
        return Judged(values)
    op, copy = max(casts, key=lambda cast: cast[0].host_ns)
    evidence: dict[str, Evidence] = {"shape": shape, "op": op.name, "change": copy.pair, "casts": len(casts)}
    if op.line is not None:
        evidence["line"] = op.line
    return Judged(values, above("precision.cast_share", share, given=limits, evidence=evidence))


def _judge_kernels(
    kernels: Sequence[Kernel],
    calls: int,
    shape: str,
    limits: Mapping[str, float],
    audit: Sequence[AuditedOp] = (),
) -> Judged:
    """Return shares of the kernels' time.

    Of calls that were audited too the arithmetic is judged, and the time stands beside it; they know lines.
    """
    products, casts = product_times(kernels), cast_times(kernels)
    found = Judged()
    labels = {"shape": shape}
    if products.known_ns:
        share = products.low_share
        found.values.append(Value(metric="precision.low_share", value=share, labels={**labels, "of": "time"}))
        if products.full:
            rounded = products.rounded_ns / sum(products.full.values())
            found.values.append(Value(metric="precision.rounded_share", value=rounded, labels=labels))
        if products.full and share > 0 and not audit:
            ((op, _),) = products.full.most_common(1)
            evidence: dict[str, Evidence] = {"shape": shape, "op": op, "dtype": "float32"}
            found.findings += below("precision.low_share", share, given=limits, evidence=evidence)
    if casts is not None and casts.busy_ns:
        share = casts.cast_ns / casts.busy_ns
        found.values.append(Value(metric="precision.casts", value=casts.casts / calls, count=calls, labels=labels))
        found.values.append(Value(metric="precision.cast_share", value=share, labels=labels))
        if casts.change is not None:
            of_casts: dict[str, Evidence] = {"shape": shape, "op": "Cast", "change": casts.change}
            if (line := _line_of_cast(audit)) is not None:
                of_casts["line"] = line
            found.findings += above("precision.cast_share", share, given=limits, evidence=of_casts)
    return found


def _line_of_cast(audit: Iterable[AuditedOp]) -> str | None:
    """Return the line from which most casts come."""
    lines = Counter(op.line for op in audit for copy in op.copies if copy.cause == "dtype" and op.line is not None)
    return next((line for line, _ in lines.most_common(1)), None)


def _try(
    context: StepContext, shape: str, products: Iterable[Product], share: float
) -> tuple[Trial | None, Failed | None]:
    seconds = (2.0 if context.quick else 12.0) / len(context.workload.shapes)
    if share < _MOSTLY:
        return try_autocast(context, shape, seconds=seconds)
    flops: Counter[str] = Counter()
    for product in products:
        if product.low:
            flops[product.dtype] += product.flops
    ((dtype, _),) = flops.most_common(1)
    return try_full(context, shape, dtype=dtype, seconds=seconds)


def _judge_trial(trial: Trial | None, failed: Failed | None, shape: str, limits: Mapping[str, float]) -> Judged:
    if trial is None:
        reason = failed.reason if failed is not None else None
        return Judged([Value(metric="precision.speedup", value=None, labels={"shape": shape}, reason=reason)])
    labels = {"shape": shape, "dtype": trial.dtype, "against": trial.against}
    values = [trial.versus.value("precision.speedup", labels), *_output_values(trial, labels)]
    ratio = Value(
        metric="precision.memory_ratio",
        value=trial.memory_ratio,
        labels=labels,
        reason=_NO_MEMORY_COUNT if trial.memory_ratio is None else None,
    )
    judge = _judge_gain if trial.against == "as_is" else _judge_low
    return Judged([*values, ratio], judge(trial, shape, limits))


def _output_values(trial: Trial, labels: dict[str, str]) -> list[Value]:
    """Return how both outputs differ, as far as finite numbers say it."""
    if trial.agreement is None:
        return [Value(metric="precision.error", value=None, labels=labels, reason=trial.unknown)]
    numbers = {
        "precision.error": trial.agreement.relative,
        "precision.absolute_error": trial.agreement.absolute,
        "precision.cosine": trial.agreement.cosine,
        "precision.not_finite": float(trial.agreement.not_finite),
    }
    return [_finite_value(metric, number, labels) for metric, number in numbers.items()]


def _finite_value(metric: str, number: float, labels: dict[str, str]) -> Value:
    if math.isinf(number):
        return Value(metric=metric, value=None, labels=labels, reason="the output in full precision is zero throughout")
    return Value(metric=metric, value=number, labels=labels)


def _judge_gain(trial: Trial, shape: str, limits: Mapping[str, float]) -> list[Finding]:
    """Recommend autocast where it is faster beyond doubt and the output is right; say so where it is only faster."""
    evidence: dict[str, Evidence] = {"shape": shape, "dtype": trial.dtype, "speedup": trial.versus.speedup}
    if trial.agreement is not None:
        evidence["relative error"] = _finite(trial.agreement.relative)
    gain = above("precision.gain", trial.versus.low, given=limits, evidence=evidence)
    if gain and (why := _why_not(trial, limits)):
        return [noticed("precision.inaccurate", "info", {**evidence, "why": why})]
    return gain


def _why_not(trial: Trial, limits: Mapping[str, float]) -> str | None:
    """Return what speaks against the low-precision output, None where nothing does."""
    if trial.refused is not None:
        return f"the workload's check says: {trial.refused}"
    if trial.agreement is None:
        return trial.unknown
    if trial.agreement.not_finite:
        return f"{trial.agreement.not_finite} elements became NaN or infinite"
    tolerance = limit("precision.error.warning", limits)
    if not trial.agreement.within(tolerance):
        return f"it is off by {trial.agreement.relative:.2g} of its largest value, allowed are {tolerance:g}"
    return None


def _judge_low(trial: Trial, shape: str, limits: Mapping[str, float]) -> list[Finding]:
    """Judge a model in low precision beside its float32 copy: what it lost, and whether it is faster at all."""
    evidence: dict[str, Evidence] = {"shape": shape, "dtype": trial.dtype, "speedup": trial.versus.speedup}
    findings = []
    if trial.agreement is not None and trial.agreement.not_finite:
        lost = {**evidence, "elements": trial.agreement.not_finite}
        findings.append(noticed("precision.not_finite", "severe", lost))
    if trial.agreement is not None:
        findings += above("precision.error", _finite(trial.agreement.relative), given=limits, evidence=evidence)
    if trial.versus.high < 1.0:
        findings.append(noticed("precision.slower", "warning", evidence))
    return findings


def _finite(number: float) -> float:
    """Return the number, or where the full-precision output is zero throughout the largest error there can be: all of it."""
    return 1.0 if math.isinf(number) else number


def _rounded(full: Sequence[AuditedOp], kind: str) -> list[Finding]:
    """Say by which switches the products in full precision may be rounded."""
    convolves = any(op.convolution is not None for op in full)
    multiplies = any(op.convolution is None for op in full)
    switches = rounding_switches(kind, multiplies=multiplies, convolves=convolves)
    return [noticed("precision.rounded", "info", {"switches": ", ".join(switches)})] if switches else []
