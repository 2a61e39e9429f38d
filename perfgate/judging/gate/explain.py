"""Why it changed: operators of base and head side by side, and what to try about the counters that rose."""

from __future__ import annotations

from typing import Optional

from perfgate.document.decision import Comparison, OperatorChange, Suggestion
from perfgate.document.run import OperatorRow, RunDocument
from perfgate.judging.gate.rounding import rounded

MAX_CHANGES = 10
MIN_SHARE = 0.002  # of the base's busy time; an op that runs more often for less than this explains nothing


def operator_changes(base: RunDocument, head: RunDocument) -> list[OperatorChange]:
    """Return the operators that came, went or changed, the largest change of time first, a few per shape.

    Recordings that mark no calls are left out: their counts are not of one call.
    """
    before, after = _by_shape(base), _by_shape(head)
    whole = {(c.workload, c.shape) for run in (base, head) for c in run.counters if not c.repeats}
    changes: list[OperatorChange] = []
    for key in sorted((before.keys() & after.keys()) - whole):
        total = sum(row.self_time for row in before[key].values()) or 1.0
        lines = operator_lines(head, *key)
        found = [
            change
            for op in before[key].keys() | after[key].keys()
            if (change := _change(key, op, before[key].get(op), after[key].get(op), lines.get(op)))
            and _matters(change, total)
        ]
        found.sort(key=lambda change: (-abs(change.head_time - change.base_time), change.op))
        changes += found[:MAX_CHANGES]
    return changes


def operator_lines(run: RunDocument, workload: str, shape: str) -> dict[str, str]:
    """Return the project line that most often calls each operator of a shape, as the exact counters found it."""
    return {
        op.op: op.line
        for counters in run.counters
        if (counters.workload, counters.shape) == (workload, shape)
        for op in counters.ops
        if op.line
    }


def _by_shape(run: RunDocument) -> dict[tuple[str, str], dict[str, OperatorRow]]:
    shapes: dict[tuple[str, str], dict[str, OperatorRow]] = {}
    for row in run.operators:
        shapes.setdefault((row.workload, row.shape), {})[row.op] = row
    return shapes


def _change(
    key: tuple[str, str], op: str, before: Optional[OperatorRow], after: Optional[OperatorRow], line: Optional[str]
) -> OperatorChange:
    return OperatorChange(
        workload=key[0],
        shape=key[1],
        op=op,
        base_time=rounded(before.self_time) if before else 0.0,
        head_time=rounded(after.self_time) if after else 0.0,
        base_count=rounded(before.count) if before else 0.0,
        head_count=rounded(after.count) if after else 0.0,
        line=line,
    )


def _matters(change: OperatorChange, total: float) -> bool:
    """Only ops whose count changed: the profiler's times alone are too noisy to accuse one."""
    if change.base_count == change.head_count:
        return False
    came_or_went = min(change.base_count, change.head_count) == 0
    return came_or_went or abs(change.head_time - change.base_time) > MIN_SHARE * total


def suggestions(comparisons: list[Comparison]) -> list[Suggestion]:
    """Return what to try about the counters that regressed, one suggestion a rule and workload."""
    found: dict[tuple[str, str], Suggestion] = {}
    for comparison in comparisons:
        if comparison.outcome != "regressed" or comparison.method != "exact":
            continue
        for suggestion in _suggest(comparison):
            found.setdefault((suggestion.workload, suggestion.rule), suggestion)
    return list(found.values())


def _suggest(comparison: Comparison) -> list[Suggestion]:
    rules = {
        "counters.framework_ops": _small_ops,
        "counters.noncontiguous_copies": _layout,
        "counters.copies": _conversions,
        "counters.format_conversions": _formats,
        "counters.fallbacks": _fallbacks,
        "memory.peak": _memory,
        "counters.low_precision_ops": _precision,
    }
    rule = rules.get(comparison.metric)
    return rule(comparison) if rule else []


def _small_ops(comparison: Comparison) -> list[Suggestion]:
    rises = {part.name: part for part in comparison.parts if part.head > part.base and not _is_format_cast(part.name)}
    if "aten::bmm" in rises and any("attention" in part.name for part in comparison.parts if part.head < part.base):
        return [_suggestion("unfused-attention", comparison, rises["aten::bmm"].line,
                            "attention runs as separate matmul and softmax now; keep scaled_dot_product_attention, "
                            "which transformers calls sdpa")]  # fmt: skip
    most = max(rises.values(), key=lambda part: part.head - part.base, default=None)
    if most is None or most.head - most.base < 2:
        return []
    return [_suggestion("small-ops", comparison, most.line,
                        f"{most.name} runs {most.head:g} times a call instead of {most.base:g}; do it once on the whole "
                        "tensor (stack, a broadcast, or one fused op) instead of in a loop")]  # fmt: skip


def _layout(comparison: Comparison) -> list[Suggestion]:
    line = _line_of_rise(comparison)
    return [_suggestion("layout-copy", comparison, line,
                        "a copy changes the memory layout on every call; keep one layout through the block, or convert "
                        "once outside the call")]  # fmt: skip


def _conversions(comparison: Comparison) -> list[Suggestion]:
    casts = [part for part in comparison.parts if part.name == "aten::_to_copy" and part.head > part.base]
    if not casts:
        return []
    return [_suggestion("dtype-round-trip", comparison, casts[0].line,
                        "tensors are converted between dtypes or devices on every call; keep one dtype through the "
                        "model, or convert once when it is built")]  # fmt: skip


def _formats(comparison: Comparison) -> list[Suggestion]:
    return [_suggestion("format-conversion", comparison, _line_of_rise(comparison),
                        "tensors change between formats (NCHW, NC1HWC0, FRACTAL_NZ) in every call; cast weights once when "
                        "the model is built, and keep neighbouring operators in one format")]  # fmt: skip


def _fallbacks(comparison: Comparison) -> list[Suggestion]:
    rises = [part for part in comparison.parts if part.head > part.base]
    named = f"{rises[0].name} has" if rises else "an operator has"
    return [_suggestion("host-fallback", comparison, _line_of_rise(comparison),
                        f"{named} no kernel on this device, so its inputs go to the host and its result back; use an "
                        "operator that has one, or move it out of the call")]  # fmt: skip


def _is_format_cast(name: str) -> bool:
    """Return whether an operator of torch_npu only changes a format (``npu::npu_format_cast``, its in-place form)."""
    return "format_cast" in name


def _memory(comparison: Comparison) -> list[Suggestion]:
    return [_suggestion("peak-memory", comparison, _line_of_rise(comparison),
                        "one call holds more memory at once; free or reuse intermediate tensors "
                        "(in-place ops, del)")]  # fmt: skip


def _precision(comparison: Comparison) -> list[Suggestion]:
    return [_suggestion("dropped-precision", comparison, _line_of_rise(comparison),
                        "operators compute in 32-bit floating point again; put the call back under autocast, or keep model "
                        "and inputs in one lower precision")]  # fmt: skip


def _line_of_rise(comparison: Comparison) -> Optional[str]:
    return next((part.line for part in comparison.parts if part.head > part.base and part.line), None)


def _suggestion(rule: str, comparison: Comparison, line: Optional[str], message: str) -> Suggestion:
    return Suggestion(rule=rule, workload=comparison.workload, message=message, line=line)
