"""The table of operators and what is worth a word about it, for calls that were measured and for recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfgate.document.run import CounterSet, Evidence, Finding, OperatorRow, Value
from perfgate.measuring.checklist.limits import above, below, noticed
from perfgate.trace.fallbacks import fallback_sites
from perfgate.trace.operators import OpClass, OperatorTotal, class_totals, op_class

# The classes of operators whose share of the busy time has a limit.
_JUDGED_CLASSES: tuple[OpClass, ...] = ("conv_matmul", "copy", "reshape", "softmax")

TOP_OPS = 10
# Rows kept per shape. What stands in no row is not explained, and ops.coverage says so.
MAX_ROWS = 100


@dataclass
class ShapeOperators:
    """What the operators of one shape gave."""

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)


def judge_operators(
    totals: Sequence[OperatorTotal],
    *,
    workload: str,
    shape: str,
    calls: int,
    counted: int,
    limits: Mapping[str, float],
) -> ShapeOperators:
    """Return values, rows and findings of the operators of so many calls; ``counted`` events stand behind them."""
    busy_ns = sum(row.typical_ns for row in totals)
    if not busy_ns:
        reason = "the trace holds no operator"
        return ShapeOperators(values=[Value(metric="ops.coverage", value=None, labels={"shape": shape}, reason=reason)])
    rows = [_row(workload, shape, row, calls, busy_ns) for row in totals[:MAX_ROWS]]
    coverage = sum(row.typical_ns for row in totals[:MAX_ROWS]) / busy_ns
    shares = _class_shares(totals)
    return ShapeOperators(
        values=[
            Value(metric="ops.coverage", value=coverage, count=counted, labels={"shape": shape}),
            *(Value(metric="ops.share", value=share, labels={"shape": shape, "class": group})
              for group, share in shares.items()),
            *(Value(metric="ops.time", value=row.self_time, labels={"shape": shape, "op": row.op})
              for row in rows[:TOP_OPS]),
        ],
        findings=[*_judge_coverage(limits, shape, coverage), *_judge_shares(limits, shape, shares, totals)],
        operators=rows,
    )  # fmt: skip


def _class_shares(totals: Sequence[OperatorTotal]) -> dict[OpClass, float]:
    """Return the share of each class in what the device computes: in a collective it mostly waits for others."""
    computed = [row for row in totals if row.kind != "comm"]
    computed_ns = sum(row.typical_ns for row in computed)
    return {group: ns / computed_ns if computed_ns else 0.0 for group, ns in class_totals(computed).items()}


def judge_fallbacks(counted: CounterSet) -> list[Finding]:
    """Return a finding for each operator that the device has no kernel for, with its line."""
    findings = []
    for site in fallback_sites(counted):
        evidence: dict[str, Evidence] = {"op": site.name, "calls": site.count, "shape": counted.shape}
        if site.line is not None:
            evidence["line"] = site.line
        findings.append(noticed("ops.fallback", "warning", evidence))
    return findings


def judge_unstable(counted: CounterSet) -> list[Finding]:
    """Say which counters differ between the calls that were counted."""
    if not counted.unstable:
        return []
    return [noticed("counters.unstable", "info", {"metrics": ", ".join(counted.unstable), "shape": counted.shape})]


def _row(workload: str, shape: str, total: OperatorTotal, calls: int, busy_ns: float) -> OperatorRow:
    return OperatorRow(
        workload=workload,
        shape=shape,
        op=total.name,
        kind=total.kind,
        self_time=total.typical_ns / 1e9,
        count=total.count / calls,
        share=total.typical_ns / busy_ns,
    )


def _judge_coverage(limits: Mapping[str, float], shape: str, coverage: float) -> list[Finding]:
    return below("ops.coverage", coverage, given=limits, evidence={"shape": shape})


def _judge_shares(
    limits: Mapping[str, float], shape: str, shares: dict[OpClass, float], totals: Sequence[OperatorTotal]
) -> list[Finding]:
    findings: list[Finding] = []
    for group in _JUDGED_CLASSES:
        # Totals are sorted, so the first of the class is its heaviest.
        heaviest = next((row.name for row in totals if op_class(row.name) == group), None)
        if heaviest is not None:
            evidence: dict[str, Evidence] = {"shape": shape, "op": heaviest}
            findings += above(f"ops.share.{group}", shares[group], given=limits, evidence=evidence)
    return findings
