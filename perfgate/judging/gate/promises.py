"""What a workload promises of itself: its correctness check and its SLA. A faster wrong model never passes."""

from __future__ import annotations

from typing import Optional

from perfgate.catalogue.lookup import metric
from perfgate.document.decision import Comparison
from perfgate.document.run import RunDocument, Value


def compare_promises(base: RunDocument, head: RunDocument) -> list[Comparison]:
    """Return one comparison per correctness check, changed output signature and SLA of the head."""
    return _correctness(base, head) + _signatures(base, head) + _slas(base, head)


def _correctness(base: RunDocument, head: RunDocument) -> list[Comparison]:
    before = {(check.workload, check.shape): check.status for check in base.correctness}
    return [
        Comparison(
            workload=check.workload,
            shape=check.shape,
            metric="correctness",
            unit="1",
            better="neutral",
            method="check",
            outcome="regressed" if check.status == "failed" else "unchanged",
            gating=True,
            base={"passed": 1.0, "failed": 0.0}.get(before.get((check.workload, check.shape), "")),
            head=1.0 if check.status == "passed" else 0.0,
            reason=check.message,
        )
        for check in head.correctness
        if check.status in ("passed", "failed")
    ]


def _signatures(base: RunDocument, head: RunDocument) -> list[Comparison]:
    """Only a changed signature is worth a comparison: an equal one says nothing that would make a gate pass."""
    before = {(check.workload, check.shape): check.signature for check in base.correctness}
    described = metric("correctness.signature")
    return [
        Comparison(
            workload=check.workload,
            shape=check.shape,
            metric=described.name,
            unit=described.unit,
            better=described.better,
            method="check",
            outcome="regressed",
            gating=True,
            base=1.0,
            head=0.0,
            reason=f"the output changed from {old} to {check.signature}",
        )
        for check in head.correctness
        if (old := before.get((check.workload, check.shape))) and check.signature and check.signature != old
    ]


def _slas(base: RunDocument, head: RunDocument) -> list[Comparison]:
    described = metric("sla.p99")
    comparisons = []
    for workload in head.workloads:
        for shape in workload.shapes if workload.sla_p99 is not None else ():
            value = _p99(head, workload.name, shape)
            if value is None or value.value is None:
                continue
            broken, broken_before = (
                _breaks(value, workload.sla_p99),
                _breaks(_p99(base, workload.name, shape), workload.sla_p99),
            )
            comparisons.append(
                Comparison(
                    workload=workload.name,
                    shape=shape,
                    metric="sla.p99",
                    unit=described.unit,
                    better=described.better,
                    method="check",
                    outcome="regressed" if broken and not broken_before else "inconclusive" if broken else "unchanged",
                    gating=not (broken and broken_before),
                    base=workload.sla_p99,
                    head=value.value,
                    reason="the base breaks this SLA too" if broken and broken_before else None,
                )
            )
    return comparisons


def _p99(run: RunDocument, workload: str, shape: str) -> Optional[Value]:
    for step in run.steps:
        for value in step.values:
            if step.workload == workload and value.metric == "latency.p99" and value.labels.get("shape") == shape:
                return value
    return None


def _breaks(value: Optional[Value], sla: Optional[float]) -> bool:
    """Return whether a P99 is above the SLA for certain: the lower end of its interval, or the value without one."""
    if value is None or value.value is None or sla is None:
        return False
    low = value.interval[0] if value.interval else None
    return (value.value if low is None else low) > sla
