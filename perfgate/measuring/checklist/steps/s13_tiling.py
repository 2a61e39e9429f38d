"""Step 13: whether kernels use the cores that there are, and whether a model's sizes fit what the hardware works in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.agreement import agreement
from perfgate.measuring.checklist.limits import above, below, limit
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._core_use import Cores, CoreUse, core_uses, known_cores
from perfgate.measuring.checklist.steps._products import Product, Replay, record_products
from perfgate.measuring.checklist.steps._traces import steady_summary
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.measuring.timing.versus import Versus, compare
from perfgate.trace.summary import DeviceSummary

_TOP_OPS = 10
# A gain of less than a hundredth of the call is not worth a word.
_NOTICEABLE = 0.01
# Padding with zeros changes nothing but the order of summation; bfloat16 has eight bits of mantissa.
_TOLERANCE = 0.05
_ALIGNED = (
    "the sizes of all matrix products and convolutions are multiples already, or padding would cost more than a quarter"
)
_NO_PRODUCTS = "a call runs no matrix product and no convolution whose sizes could be tried"
_NO_CORES = "the profiler of this device tells neither cores nor pipes of a kernel"
_NO_PIPES = "the shares of the pipes were not collected; on an NPU record at Level1 with AiCMetrics.PipeUtilization"
_CORES_UNKNOWN = "nobody tells how many cores the device has, so the numbers of blocks say nothing"
_NO_BLOCKS = "the recording does not say over how many cores a kernel was split; on an NPU record at Level1"
_UNEQUAL = "the padded operands give another result, so this is no way to do the same"
_TOO_LONG = "one run takes {seconds:.2f} s, too long to be repeated here"
_TOO_LARGE = "the device has no memory left for the operands"


@dataclass(frozen=True)
class _Effort:
    warm_up_seconds: float
    products: int
    seconds: float
    longest_ns: int


_QUICK = _Effort(warm_up_seconds=0.3, products=3, seconds=0.5, longest_ns=50_000_000)
_FULL = _Effort(warm_up_seconds=2.0, products=8, seconds=2.0, longest_ns=500_000_000)


@dataclass
class _Found:
    """What was found; ``missing`` says what there is no value of."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class TilingStep:
    """The use of cores from a trace, where its profiler tells it; and the model's own products, run again padded."""

    card = card(13)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable where there is neither a product to try nor a core to look at."""
        shape = context.workload.shapes[0]
        found = _Found()
        with quiet():
            context.progress(f"sizes of matrix products with inputs of shape {shape}")
            _try_sizes(context, shape, found)
            if "kernel_timeline" in context.device.capabilities:
                context.progress(f"use of cores with inputs of shape {shape}")
                summary = steady_summary(context, shape)
                _judge_cores(summary, {"shape": shape}, context.device.properties(), context.limits, found)
        if not found.values:
            return StepOutcome(status="not_applicable", reason="; ".join(found.missing))
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the use of cores on every rank; unavailable where the recording does not show it."""
        found = _Found()
        for summary in context.summaries:
            labels = {"shape": summary.shape, "under": "profiler"}
            _judge_cores(summary, labels, context.recording.settings, context.limits, found)
        if not found.values:
            return StepOutcome(status="unavailable", reason="; ".join(dict.fromkeys(found.missing)) or _NO_BLOCKS)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


STEP = TilingStep()


def _judge_cores(
    summary: DeviceSummary, labels: dict[str, str], told: Mapping[str, str], limits: Mapping[str, float], found: _Found
) -> None:
    """Add what the table of kernels says of each of the heaviest operators."""
    kernels = summary.kernels()
    if not kernels:
        found.missing.append(_NO_CORES)
        return
    highest = summary.timeline.core_frequency[1] if summary.timeline.core_frequency else None
    cores = known_cores(told, kernels, highest)
    uses = core_uses(kernels, cores, attainable=limit("tiling.attained.warning", limits))[:_TOP_OPS]
    for use in uses:
        found.values += _use_values(use, labels)
        found.findings += _judge_use(use, labels["shape"], limits)
    if cores == Cores(None, None) and any(kernel.blocks for kernel in kernels):
        found.values.append(Value(metric="tiling.occupancy", value=None, labels=labels, reason=_CORES_UNKNOWN))
    elif all(use.occupancy is None for use in uses):
        found.missing.append(_NO_BLOCKS)
    if found.values and all(use.attained is None for use in uses):
        found.values.append(Value(metric="tiling.attained", value=None, labels=labels, reason=_NO_PIPES))
    found.values += _host_time(summary, labels)


def _use_values(use: CoreUse, labels: dict[str, str]) -> list[Value]:
    op = {"op": use.op, "unit": use.unit}
    values = []
    if use.occupancy is not None:
        values.append(Value(metric="tiling.occupancy", value=use.occupancy, labels={**labels, **op}))
    if use.tail is not None:
        values.append(Value(metric="tiling.tail", value=use.tail, labels={**labels, **op}))
    if use.attained is not None and use.bound is not None:
        values.append(Value(metric="tiling.attained", value=use.attained, labels={**labels, **op, "bound": use.bound}))
    return values


def _judge_use(use: CoreUse, shape: str, limits: Mapping[str, float]) -> list[Finding]:
    """Judge an operator that takes much of the time."""
    if use.time_share < limit("tiling.heavy", limits):
        return []
    evidence: dict[str, Evidence] = {"op": use.op, "unit": use.unit, "time_share": use.time_share, "shape": shape}
    findings: list[Finding] = []
    if use.attained is not None:
        findings += below("tiling.attained", use.attained, given=limits, evidence=evidence)
    if use.occupancy is not None:
        findings += below("tiling.occupancy", use.occupancy, given=limits, evidence=evidence)
    return findings


def _host_time(summary: DeviceSummary, labels: dict[str, str]) -> list[Value]:
    """Return the time in which the host works out how to split kernels (``MatMulV2_Tiling``), of the whole recording."""
    calls = [call for call in summary.timeline.calls or () if call.name.endswith("_Tiling")]
    if not calls:
        return []
    seconds = sum(call.total_ns for call in calls) / summary.spans / 1e9
    return [Value(metric="tiling.host_time", value=seconds, labels=labels)]


def _try_sizes(context: StepContext, shape: str, found: _Found) -> None:
    """Run the largest products whose sizes are no multiples again, as they are and padded."""
    effort = _QUICK if context.quick else _FULL
    inputs = context.workload.pool(shape)[0]
    state = find_steady_state(context.workload.caller(shape), context.device, cap_seconds=effort.warm_up_seconds)
    products = record_products(lambda: context.workload.invoke(inputs), root=context.root)
    context.device.synchronize()
    if not products:
        found.missing.append(_NO_PRODUCTS)
        return
    multiple = max(1, round(limit("tiling.multiple", context.limits)))
    unfit = [(product, padding) for product in products if (padding := product.padding(multiple))]
    labels = {"shape": shape}
    found.values.append(Value(metric="tiling.aligned_share", value=_fit_share(products, multiple), labels=labels))
    for product, padding in unfit[: effort.products]:
        value, finding = _try_padding(context, product, padding, labels, effort, call_ns=state.call_ns)
        found.values.append(value)
        found.findings += finding
    if not unfit:
        found.values.append(Value(metric="tiling.padding_gain", value=None, labels=labels, reason=_ALIGNED))


def _fit_share(products: Sequence[Product], multiple: int) -> float:
    """Return the part of all operations that is in products which padding would not change."""
    total = sum(product.flops * product.count for product in products)
    fit = sum(product.flops * product.count for product in products if not product.padding(multiple))
    return fit / total if total else 1.0


def _try_padding(
    context: StepContext,
    product: Product,
    padding: Mapping[str, int],
    labels: dict[str, str],
    effort: _Effort,
    *,
    call_ns: float,
) -> tuple[Value, list[Finding]]:
    named = {**labels, "op": product.op, "sizes": product.worded({}), "padded": product.worded(padding)}
    try:
        versus: Versus | str = _compare(context, product, padding, effort)
    except RuntimeError as error:
        if not context.device.is_out_of_memory(error):
            raise
        versus = _TOO_LARGE
    if isinstance(versus, str):
        return Value(metric="tiling.padding_gain", value=None, labels=named, reason=versus), []
    saved = (versus.first_ns - versus.second_ns) * product.count
    findings: list[Finding] = []
    if saved > _NOTICEABLE * call_ns:
        evidence: dict[str, Evidence] = {**named, "count": product.count, "saves": saved / 1e9, "gain": versus.speedup}
        if product.line is not None:
            evidence["line"] = product.line
        findings = above("tiling.padding_gain", versus.low, given=context.limits, evidence=evidence)
    return versus.value("tiling.padding_gain", named), findings


def _compare(context: StepContext, product: Product, padding: Mapping[str, int], effort: _Effort) -> Versus | str:
    """Return how much faster the padded product is, or why that was not measured."""
    with context.device.inference_mode():
        replay = Replay(product, padding, context.device.handle())
        plain, padded = replay.outputs()
        if not agreement(plain, padded).within(_TOLERANCE):
            return _UNEQUAL
        once_ns = timed_call(replay.plain, context.device)
        if once_ns > effort.longest_ns:
            return _TOO_LONG.format(seconds=once_ns / 1e9)
        return compare(replay.plain, replay.padded, context.device, seconds=effort.seconds, seed=context.seed)
