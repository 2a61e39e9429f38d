"""What a workload says of its output: its check and its signature. A faster wrong model never passes."""

from __future__ import annotations

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import SIGNATURE
from perfgate.document.decision import Comparison
from perfgate.document.run import RunDocument


def compare_promises(base: RunDocument | None, head: RunDocument) -> list[Comparison]:
    """Return one comparison per correctness check of the head, and beside a base one per changed output signature."""
    return _correctness(base, head) + (_signatures(base, head) if base else [])


def _correctness(base: RunDocument | None, head: RunDocument) -> list[Comparison]:
    before = {(check.workload, check.shape): check.status for check in base.correctness} if base else {}
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
    described = metric(SIGNATURE)
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
