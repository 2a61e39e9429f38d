"""Expected kernels: the names that ran in the head's traced calls, held against the patterns of ``[expect] kernels``."""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.document.decision import Comparison, Outcome, Part, Policy
from perfgate.document.run import RunDocument, ShapeKernels
from perfgate.document.tolerances import MissingKernel, missing_kernels

METRIC = "ops.expected_kernels"
_NOT_RECORDED = "step 4 kept no names of kernels; name the step with --steps"
_TOO_MANY = "more names of kernels were recorded than are kept"


def compare_expected(head: RunDocument, policy: Policy) -> list[Comparison]:
    """Return one comparison per workload: whether each pattern fits a name of a kernel that it ran, in any of its shapes.

    The head alone is judged, for a base that runs none of them is no excuse. Where no names were kept, nothing is shown.
    """
    return list(_compared(head, policy)) if policy.kernels else []


def _compared(head: RunDocument, policy: Policy) -> Iterator[Comparison]:
    for workload in head.workloads:
        kernels = [kept for step in head.steps if step.workload == workload.name for kept in step.kernels]
        missing = missing_kernels(policy.kernels, {name for kept in kernels for name in kept.names})
        outcome, reason = _outcome(kernels, missing)
        yield Comparison(
            workload=workload.name,
            shape="",
            metric=METRIC,
            unit="1",
            better="higher",
            method="expect",
            outcome=outcome,
            gating=True,
            base=len(policy.kernels),
            head=None if outcome == "inconclusive" else len(policy.kernels) - len(missing),
            reason=reason,
            parts=[Part(name=kernel.pattern, base=1, head=0) for kernel in missing] if outcome == "regressed" else [],
        )


def _outcome(kernels: list[ShapeKernels], missing: list[MissingKernel]) -> tuple[Outcome, str | None]:
    if not kernels:
        return "inconclusive", _NOT_RECORDED
    if not missing:
        return "unchanged", None
    if any(kept.left_out for kept in kernels):
        return "inconclusive", _TOO_MANY
    return "regressed", "; ".join(
        f"no kernel named {kernel.pattern} ran, as perfgate.toml expects; names nearest to it: {kernel.nearest}"
        for kernel in missing
    )
