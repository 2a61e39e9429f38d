"""Step 7: the time a call spends converting tensors between formats or memory orders."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.audit import AuditedOp, audit_shape
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.checklist.traces import kernels_are_hidden, steady_summary
from perfgate.measuring.devices.batches import tensors
from perfgate.trace.analysis.summary import kernels_of
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Kernel
from perfgate.trace.model.spans import is_format_conversion

# The costliest pairs of formats are listed.
_MOST_PAIRS = 10
# Inserted by CANN's graph engine between operators of different formats:
# trans_TransData_3, trans_Cast_5 (samples msinsight-910B-alexnet-2501,
# msinsight-gpt3-cann7-2309).
_INSERTED = "trans_"
_TURNED = re.compile(r"nchwtonhwc", re.IGNORECASE)
_TURNED_BACK = re.compile(r"nhwctonchw", re.IGNORECASE)
# The same bytes under different names (torch_npu FormatHelper, base formats).
_PLAIN_NPU_FORMATS = frozenset({"NCHW", "NHWC", "ND", "NCL", "NCDHW"})
_MOST_SHAPES = 200  # characters
_NO_KERNELS = Message("operators.no-formats-recorded")


class _Conversion(NamedTuple):
    """A group of identical conversions, with their total and longest nanoseconds.

    ``pair`` is e.g. ``NCHW -> NC1HWC0``, ``name`` a kernel or operator, ``inputs`` its
    shapes.
    """

    pair: str
    name: str
    ns: int
    longest_ns: int
    inputs: str
    line: str | None = None
    number: int = 1


# The conversions of a number of calls, the busy time of these calls, and their number.
_Conversions = tuple[Sequence[_Conversion], int, int]


class FormatStep:
    """Kernels of a short trace by their formats, or on a CPU the copies of single
    calls; and the convolutions of a call.
    """

    card = card(7)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable if neither kernels nor operators are
        visible.
        """
        outcome, busy_ns = context.outcome(), 0
        calls = 5 if context.extent.quick else 20
        for shape in context.workload.shapes:
            context.doing(
                "looking for format conversions with inputs of shape {shape}",
                shape=shape,
            )
            audit = audit_shape(context, shape, calls=calls)
            if context.shows_kernels:
                conversions = _of_trace(context, shape, audit)
            else:
                conversions = _of_operators(audit)
            busy_ns += conversions[1]
            of_shape = outcome.under(shape=shape)
            _judge(of_shape, conversions)
            _judge_orders(of_shape, audit)
            _judge_boundaries(of_shape, context, shape)
        if busy_ns:
            return outcome
        reason = "operators.no-operators-no-kernels"
        if kernels_are_hidden(context):
            reason = "times.kernels-hidden"
        return unavailable(Message(reason))

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the kernels of every device; unavailable if the recording has none."""
        outcome = context.outcome()
        for summary in context.summaries:
            device = outcome.under(shape=summary.shape)
            if kernels := kernels_of(summary.timeline):
                _judge(device, _of_kernels(kernels, calls=summary.spans))
            else:
                device.missing("format.share", _NO_KERNELS)
        return outcome.or_unavailable(_NO_KERNELS)


STEP = FormatStep()


def _of_kernels(kernels: KernelTable, *, calls: int) -> _Conversions:
    """The conversions among the kernels of some calls; collectives do not count as
    computing.
    """
    conversions, busy_ns = [], 0
    for (kernel, number, total_ns), longest_ns in zip(
        kernels.alike(), kernels.longest_alike()
    ):
        if kernel.is_collective:
            continue
        busy_ns += total_ns
        name = kernel.type or kernel.name
        if is_format_conversion(name) or kernel.name.startswith(_INSERTED):
            shapes = "; ".join(
                ",".join(map(str, shape)) for shape in kernel.inputs.shapes
            )
            conversion = _Conversion(
                _pair_of(kernel),
                name,
                total_ns,
                longest_ns,
                shapes[:_MOST_SHAPES],
                number=number,
            )
            conversions.append(conversion)
    return conversions, busy_ns, calls


def _pair_of(kernel: Kernel) -> str:
    """The formats before and after; the dtypes if only those differ; the name if the
    table has neither.
    """
    for before, after in (
        (kernel.inputs.formats, kernel.outputs.formats),
        (kernel.inputs.dtypes, kernel.outputs.dtypes),
    ):
        if before and after and before[0] != after[0]:
            return f"{before[0]} -> {after[0]}"
    if _TURNED.search(kernel.name):
        return "NCHW -> NHWC"
    if _TURNED_BACK.search(kernel.name):
        return "NHWC -> NCHW"
    return kernel.type or kernel.name


def _of_trace(
    context: StepContext, shape: str, audit: Sequence[AuditedOp]
) -> _Conversions:
    """The conversions of the run's trace, with the line of an explicit cast."""
    summary = steady_summary(context, shape)
    conversions, busy_ns, calls = _of_kernels(
        kernels_of(summary.timeline), calls=summary.spans
    )
    line = next((op.line for op in audit if "format_cast" in op.name and op.line), None)
    return (
        [conversion._replace(line=line) for conversion in conversions],
        busy_ns,
        calls,
    )


def _of_operators(audit: Sequence[AuditedOp]) -> _Conversions:
    conversions = []
    busy_ns = 0
    for op in audit:
        busy_ns += op.host_ns
        pairs = [copy.pair for copy in op.copies if copy.cause == "layout"]
        if op.reorder:
            pairs.append(op.reorder)
        for pair in pairs:
            each_ns = op.host_ns // len(pairs)
            conversions.append(
                _Conversion(pair, op.name, each_ns, each_ns, op.inputs, op.line)
            )
    return conversions, busy_ns, 1


def _judge(outcome: StepOutcome, measured: _Conversions) -> None:
    """Count, time by pair of formats, and share of a call; a call without conversions
    has a share of 0.
    """
    conversions, busy_ns, calls = measured
    if not busy_ns:
        return
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for conversion in conversions:
        times[conversion.pair] += conversion.ns
        counts[conversion.pair] += conversion.number
    share, per_call = sum(times.values()) / busy_ns, sum(counts.values()) / calls
    outcome.number("format.share", share)
    outcome.number("format.conversions", per_call, count=calls)
    for pair, ns in times.most_common(_MOST_PAIRS):
        outcome.under(pair=pair).numbers(
            {
                "format.conversions": counts[pair] / calls,
                "format.time": ns / calls / 1e9,
            },
            count=calls,
        )
    if conversions:
        ((pair, _),) = times.most_common(1)
        of_pair = [conversion for conversion in conversions if conversion.pair == pair]
        longest = max(of_pair, key=lambda conversion: conversion.longest_ns)
        evidence: MaybeEvidence = {
            "pair": pair,
            "op": longest.name,
            "inputs": longest.inputs,
            "line": longest.line,
        }
        outcome.above("format.share", share, {**evidence, "conversions": per_call})


def _judge_orders(outcome: StepOutcome, audit: Sequence[AuditedOp]) -> None:
    """Judge convolutions with different memory orders of input and weight."""
    convolutions = [(op, op.convolution) for op in audit if op.convolution is not None]
    if not convolutions:
        return
    mixed = [(op, convolution) for op, convolution in convolutions if convolution.mixed]
    outcome.number("format.mixed_convolutions", len(mixed))
    if mixed:
        op, convolution = mixed[0]
        outcome.above(
            "format.mixed",
            len(mixed),
            {
                "op": op.name,
                "inputs": op.inputs,
                "mixed": len(mixed),
                "convolutions": len(convolutions),
                "input": convolution.input,
                "weight": convolution.weight,
                "line": op.line,
            },
        )


def _judge_boundaries(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    """Note the modules that change the NPU format, if torch_npu reports the format of a
    tensor.
    """
    changes = _format_changes(context, shape)
    if changes is None:
        return
    outcome.number("format.boundaries", len(changes))
    if changes:
        module, change = next(iter(changes.items()))
        outcome.note(
            "format.boundary",
            "info",
            {"modules": len(changes), "module": module, "change": change},
        )


def _format_changes(context: StepContext, shape: str) -> dict[str, str] | None:
    """Innermost modules with different NPU formats of input and result, with both
    (``ND -> FRACTAL_NZ``).

    None if torch_npu is not loaded or has no ``get_npu_format``, or the model is not a
    module.
    """
    torch_npu: Any = sys.modules.get("torch_npu")
    if (
        "own_formats" not in context.device.capabilities
        or getattr(torch_npu, "get_npu_format", None) is None
    ):
        return None
    import torch

    model = context.workload.model
    if not isinstance(model, torch.nn.Module):
        return None
    changes: dict[str, str] = {}

    def compare(name: str, module: Any, arguments: Any, result: Any) -> None:
        before, after = next(tensors(arguments), None), next(tensors(result), None)
        if before is None or after is None:
            return
        first, last = format_of(before), format_of(after)
        if first != last and not {first, last} <= _PLAIN_NPU_FORMATS:
            changes.setdefault(name or type(module).__name__, f"{first} -> {last}")

    def format_of(tensor: Any) -> str:
        code = torch_npu.get_npu_format(tensor)
        return str(getattr(code, "name", code))

    hooks = []
    for name, module in model.named_modules():
        if not list(module.children()):
            hooks.append(module.register_forward_hook(partial(compare, name)))
    try:
        context.workload.caller(shape)()
        context.device.synchronize()
    finally:
        for hook in hooks:
            hook.remove()
    return changes
