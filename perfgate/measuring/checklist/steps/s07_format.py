"""Step 7: what a call spends on bringing tensors from one format or memory order into another."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, noticed
from perfgate.measuring.checklist.step import Judged, RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._audit import EITHER, AuditedOp, Convolution, audit_shape
from perfgate.measuring.checklist.steps._npu_formats import format_changes
from perfgate.measuring.checklist.steps._traces import steady_summary
from perfgate.trace.kernels import is_format_conversion
from perfgate.trace.recording import Kernel
from perfgate.trace.summary import kernels_of

# Pairs of formats that get a row of their own, those that take most.
_MOST_PAIRS = 10
# What the graph engine of CANN puts between two operators that do not agree: trans_TransData_3, trans_Cast_5
# (samples msinsight-910B-alexnet-2501, msinsight-gpt3-cann7-2309).
_INSERTED = "trans_"
_TURNED = re.compile(r"nchwtonhwc", re.IGNORECASE)
_TURNED_BACK = re.compile(r"nhwctonchw", re.IGNORECASE)
_MOST_SHAPES = 200  # characters
_NO_OPERATOR = "a call dispatches no operator of the framework, and the device shows no kernels"
_NO_KERNELS = (
    "the recording shows no kernel of a device, and operators of a host do not say in which format tensors are"
)


class Conversion(NamedTuple):
    """One conversion: ``pair`` is e.g. ``NCHW -> NC1HWC0``, ``name`` a kernel or operator, ``inputs`` its shapes."""

    pair: str
    name: str
    ns: int
    inputs: str
    line: str | None = None


class Conversions(NamedTuple):
    """The conversions of so many calls, and the nanoseconds of all that ran in them."""

    found: Sequence[Conversion]
    busy_ns: int
    calls: int


class FormatStep:
    """Kernels of a short trace by their formats, or on a CPU the copies of single calls; and the convolutions of a call."""

    card = card(7)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where neither kernels nor operators show."""
        found, seen = Judged(), False
        for shape in context.workload.shapes:
            context.progress(f"looking for format conversions with inputs of shape {shape}")
            audit = audit_shape(context, shape, calls=5 if context.quick else 20)
            conversions = _on_device(context, shape, audit)
            if conversions is None:
                conversions = Conversions(_of_operators(audit), sum(op.host_ns for op in audit), calls=1)
            seen = seen or conversions.busy_ns > 0
            found.add(_judge(conversions, shape=shape, limits=context.limits))
            found.add(_judge_orders(audit, shape=shape, limits=context.limits))
            found.add(_judge_boundaries(context, shape))
        if not seen:
            return StepOutcome(status="unavailable", reason=_NO_OPERATOR)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable where the recording has none."""
        found, seen = Judged(), False
        for summary in context.summaries:
            kernels = kernels_of(summary.timeline)
            if not kernels:
                missing = Value(metric="format.share", value=None, labels={"shape": summary.shape}, reason=_NO_KERNELS)
                found.values.append(missing)
                continue
            seen = True
            conversions = of_kernels(kernels, calls=summary.spans)
            found.add(_judge(conversions, shape=summary.shape, limits=context.limits))
        if not seen:
            return StepOutcome(status="unavailable", reason=_NO_KERNELS)
        return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


STEP = FormatStep()


def of_kernels(kernels: Iterable[Kernel], *, calls: int) -> Conversions:
    """Return the conversions among the kernels of so many calls; collectives are no part of what the device computes."""
    computed = [kernel for kernel in kernels if not kernel.is_collective]
    found = [_of_kernel(kernel) for kernel in computed if _converts(kernel)]
    return Conversions(found, sum(kernel.duration_ns for kernel in computed), calls)


def _converts(kernel: Kernel) -> bool:
    return is_format_conversion(kernel.type or kernel.name) or kernel.name.startswith(_INSERTED)


def _of_kernel(kernel: Kernel) -> Conversion:
    shapes = "; ".join(",".join(map(str, shape)) for shape in kernel.input_shapes)
    return Conversion(_pair_of(kernel), kernel.type or kernel.name, kernel.duration_ns, shapes[:_MOST_SHAPES])


def _pair_of(kernel: Kernel) -> str:
    """Return the formats before and after; the dtypes where only they differ; the name where the table knows neither."""
    for before, after in (
        (kernel.input_formats, kernel.output_formats),
        (kernel.input_dtypes, kernel.output_dtypes),
    ):
        if before and after and before[0] != after[0]:
            return f"{before[0]} -> {after[0]}"
    if _TURNED.search(kernel.name):
        return "NCHW -> NHWC"
    return "NHWC -> NCHW" if _TURNED_BACK.search(kernel.name) else kernel.type or kernel.name


def _on_device(context: StepContext, shape: str, audit: Sequence[AuditedOp]) -> Conversions | None:
    """Return the conversions of a short trace, with the line of a cast that the program itself asks for."""
    if "kernel_timeline" not in context.device.capabilities:
        return None
    summary = steady_summary(context, shape)
    conversions = of_kernels(kernels_of(summary.timeline), calls=summary.spans)
    asked = next((op.line for op in audit if "format_cast" in op.name and op.line), None)
    return conversions._replace(found=[one._replace(line=asked) for one in conversions.found]) if asked else conversions


def _of_operators(audit: Iterable[AuditedOp]) -> list[Conversion]:
    found = []
    for op in audit:
        pairs = [copy.pair for copy in op.copies if copy.cause == "layout"]
        pairs += [op.reorder] if op.reorder else []
        found += [Conversion(pair, op.name, op.host_ns // len(pairs), op.inputs, op.line) for pair in pairs]
    return found


def _judge(conversions: Conversions, *, shape: str, limits: Mapping[str, float]) -> Judged:
    """Return count, time by pair of formats, and share of a call; no conversion is 0 of them."""
    if not conversions.busy_ns:
        return Judged()
    labels, calls = {"shape": shape}, conversions.calls
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for one in conversions.found:
        times[one.pair] += one.ns
        counts[one.pair] += 1
    share = sum(times.values()) / conversions.busy_ns
    values = [
        Value(metric="format.share", value=share, labels=labels),
        Value(metric="format.conversions", value=len(conversions.found) / calls, count=calls, labels=labels),
    ]
    for pair, ns in times.most_common(_MOST_PAIRS):
        of_pair = {**labels, "pair": pair}
        values.append(Value(metric="format.conversions", value=counts[pair] / calls, count=calls, labels=of_pair))
        values.append(Value(metric="format.time", value=ns / calls / 1e9, count=calls, labels=of_pair))
    return Judged(values, _share_finding(conversions, share, times, shape, limits))


def _share_finding(
    conversions: Conversions, share: float, times: Counter[str], shape: str, limits: Mapping[str, float]
) -> list[Finding]:
    if not conversions.found:
        return []
    ((pair, _),) = times.most_common(1)
    longest = max((one for one in conversions.found if one.pair == pair), key=lambda one: one.ns)
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "pair": pair,
        "op": longest.name,
        "inputs": longest.inputs,
        "conversions": len(conversions.found) / conversions.calls,
    }
    if longest.line is not None:
        evidence["line"] = longest.line
    return above("format.share", share, given=limits, evidence=evidence)


def _judge_orders(audit: Sequence[AuditedOp], *, shape: str, limits: Mapping[str, float]) -> Judged:
    """Return which convolutions get their input in another order than their weight has, and how often the order changes."""
    found = [(op, op.convolution) for op in audit if op.convolution is not None]
    if not found:
        return Judged()
    mixed = [(op, convolution) for op, convolution in found if convolution.mixed]
    labels = {"shape": shape}
    values = [
        Value(metric="format.mixed_convolutions", value=len(mixed), labels=labels),
        Value(metric="format.flips", value=_flips([convolution for _, convolution in found]), labels=labels),
    ]
    if not mixed:
        return Judged(values)
    op, convolution = mixed[0]
    evidence: dict[str, Evidence] = {
        "shape": shape,
        "op": op.name,
        "inputs": op.inputs,
        "mixed": len(mixed),
        "convolutions": len(found),
        "input": convolution.input,
        "weight": convolution.weight,
    }
    if op.line is not None:
        evidence["line"] = op.line
    return Judged(values, above("format.mixed", len(mixed), given=limits, evidence=evidence))


def _flips(convolutions: Iterable[Convolution]) -> int:
    orders = [convolution.input for convolution in convolutions if convolution.input != EITHER]
    return sum(before != after for before, after in itertools.pairwise(orders))


def _judge_boundaries(context: StepContext, shape: str) -> Judged:
    """Return which modules hand on another NPU format than they got, where torch_npu says which format a tensor has."""
    changes = format_changes(context, shape)
    if changes is None:
        return Judged()
    found = Judged([Value(metric="format.boundaries", value=len(changes), labels={"shape": shape})])
    if changes:
        module, change = next(iter(changes.items()))
        evidence: dict[str, Evidence] = {"shape": shape, "modules": len(changes), "module": module, "change": change}
        found.findings.append(noticed("format.boundary", "info", evidence))
    return found
