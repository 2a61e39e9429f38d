"""Step 4: which operators take the time, from a recorded trace; and what one call does, counted exactly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.document.checklist import step_title
from perfgate.document.run import Artifact, CounterSet, Evidence, Finding, OperatorRow, Severity, Value
from perfgate.measuring.checklist.limits import limit
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.measuring.trace.collect import CallTrace, calls_within, record_calls, trace_name
from perfgate.measuring.trace.compiled import with_compilations
from perfgate.measuring.trace.counters import count_calls
from perfgate.measuring.trace.events import EventTable
from perfgate.measuring.trace.operators import OpClass, OperatorTotal, class_totals, op_class, operator_totals

# Shares of the busy time from which a class of operators is worth a word, and how loud (the checklist's own marks).
DEFAULT_LIMITS = {
    "ops.coverage.warning": 0.98,
    "ops.share.conv_matmul.info": 0.60,
    "ops.share.copy.severe": 0.30,
    "ops.share.reshape.warning": 0.20,
    "ops.share.softmax.warning": 0.15,
}
_CLASS_RULES: tuple[tuple[OpClass, Severity, str], ...] = (
    ("conv_matmul", "info", "convolutions and matrix products take most of the time, as they should"),
    ("copy", "severe", "copies of data take much of the time"),
    ("reshape", "warning", "operators that only rearrange dimensions take much of the time"),
    ("softmax", "warning", "softmax takes much of the time"),
)

TOP_OPS = 10
# Rows kept per shape. What stands in no row is not explained, and ops.coverage says so.
MAX_ROWS = 100


@dataclass
class _Shape:
    """What one shape gave."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)


class TopOpsStep:
    """Trace some steady calls of every shape; the operators of the CPU, or the kernels of a device that shows them."""

    number = 4
    slug = step_title(4).slug
    title = step_title(4).title

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape; unavailable where no trace holds an operator. The counters are there in any case."""
        shapes: list[_Shape] = []
        counters: list[CounterSet] = []
        artifacts: list[Artifact] = []
        for shape in context.workload.shapes:
            context.progress(f"tracing inputs of shape {shape}")
            trace = _trace(context, shape)
            shapes.append(_operators(context, shape, trace))
            artifacts.append(_artifact(trace.path, context.workload.name))
            context.progress(f"counting operators with inputs of shape {shape}")
            counters.append(count_calls(context.workload, context.device, shape, root=context.root))
        counters = with_compilations(context.workload, counters, root=context.root)
        findings = [finding for shape in shapes for finding in shape.findings]
        findings += [finding for counted in counters for finding in _unstable(counted)]
        empty = not any(shape.operators for shape in shapes)
        return StepOutcome(
            status="unavailable" if empty else status_of(findings),
            reason="the trace holds no operator: a call runs none that the profiler knows" if empty else None,
            values=[value for shape in shapes for value in shape.values],
            findings=findings,
            operators=[row for shape in shapes for row in shape.operators],
            counters=counters,
            artifacts=artifacts,
        )


STEP = TopOpsStep()


def _trace(context: StepContext, shape: str) -> CallTrace:
    call = context.workload.caller(shape)
    with quiet():
        state = find_steady_state(call, context.device, cap_seconds=1.0 if context.quick else 5.0)
        most = 10 if context.quick else 20
        calls = calls_within(state.call_ns, seconds=5.0, fewest=3, most=most)
        name = trace_name(context.workload.name, shape)
        return record_calls(context.device, call, calls=calls, folder=context.artifacts, name=name)


def _operators(context: StepContext, shape: str, trace: CallTrace) -> _Shape:
    events = _events(context, trace)
    totals = operator_totals(events, calls=trace.calls)
    busy_ns = sum(row.typical_ns for row in totals)
    if not busy_ns:
        reason = "the trace holds no operator"
        return _Shape(values=[Value(metric="ops.coverage", value=None, labels={"shape": shape}, reason=reason)])
    rows = [_row(context, shape, row, trace.calls, busy_ns) for row in totals[:MAX_ROWS]]
    coverage = sum(row.typical_ns for row in totals[:MAX_ROWS]) / busy_ns
    shares = {group: ns / busy_ns for group, ns in class_totals(totals).items()}
    return _Shape(
        values=[
            Value(metric="ops.coverage", value=coverage, count=len(events), labels={"shape": shape}),
            *(Value(metric="ops.share", value=share, labels={"shape": shape, "class": group})
              for group, share in shares.items()),
            *(Value(metric="ops.time", value=row.self_time, labels={"shape": shape, "op": row.op})
              for row in rows[:TOP_OPS]),
        ],
        findings=[
            *_judge_coverage(context, shape, coverage),
            *_judge_shares(context, shape, shares, totals),
        ],
        operators=rows,
    )  # fmt: skip


def _events(context: StepContext, trace: CallTrace) -> EventTable:
    return trace.device_work() if "kernel_timeline" in context.device.capabilities else trace.host_ops()


def _row(context: StepContext, shape: str, total: OperatorTotal, calls: int, busy_ns: float) -> OperatorRow:
    return OperatorRow(
        workload=context.workload.name,
        shape=shape,
        op=total.name,
        kind=total.kind,
        self_time=total.typical_ns / 1e9,
        count=total.count / calls,
        share=total.typical_ns / busy_ns,
    )


def _judge_coverage(context: StepContext, shape: str, coverage: float) -> list[Finding]:
    bound = limit("ops.coverage.warning", context.limits, DEFAULT_LIMITS)
    if coverage >= bound:
        return []
    evidence: dict[str, Evidence] = {"ops.coverage": coverage, "limit": bound, "shape": shape}
    message = "much of the time is spread over so many operators that the table does not explain it"
    return [Finding(rule="ops.coverage", severity="warning", message=message, evidence=evidence)]


def _judge_shares(
    context: StepContext, shape: str, shares: dict[OpClass, float], totals: list[OperatorTotal]
) -> list[Finding]:
    findings = []
    for group, severity, message in _CLASS_RULES:
        rule = f"ops.share.{group}"
        bound = limit(f"{rule}.{severity}", context.limits, DEFAULT_LIMITS)
        if shares[group] > bound:
            # Totals are sorted, so the first of the class is its heaviest.
            heaviest = next(row.name for row in totals if op_class(row.name) == group)
            evidence: dict[str, Evidence] = {rule: shares[group], "limit": bound, "shape": shape, "op": heaviest}
            findings.append(Finding(rule=rule, severity=severity, message=message, evidence=evidence))
    return findings


def _unstable(counted: CounterSet) -> list[Finding]:
    if not counted.unstable:
        return []
    message = "these counters differ between calls on inputs of one shape, so they are not compared exactly"
    evidence: dict[str, Evidence] = {"metrics": ", ".join(counted.unstable), "shape": counted.shape}
    return [Finding(rule="counters.unstable", severity="info", message=message, evidence=evidence)]


def _artifact(path: Path, workload: str) -> Artifact:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return Artifact(
        name=path.name,
        kind="trace",
        path=path.name,
        bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        workload=workload,
    )
