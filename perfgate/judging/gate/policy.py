"""The default tolerances, and which comparisons may fail the gate."""

from __future__ import annotations

from typing import NamedTuple

from perfgate.document.decision import Policy

# Allowed relative worsening. A counter is exact, so any worsening counts; time tolerances lie above what a code change that
# does not change speed can shift by luck of memory layout (below 1 % has not been excluded).
DEFAULT_TOLERANCES: dict[str, float] = {
    "counters.framework_ops": 0.0,
    "counters.copies": 0.0,
    "counters.copy_bytes": 0.0,
    "counters.noncontiguous_copies": 0.0,
    "counters.allocations": 0.0,
    "memory.peak": 0.01,
    "latency.low": 0.01,
    "throughput.gap": 0.01,
    "latency.p50": 0.02,
    "latency.p99": 0.05,
}


class Family(NamedTuple):
    """Time metrics corrected for together; ``share`` is their part of the gate's alpha.

    Where ``must_decide`` is set, an inconclusive comparison makes the gate inconclusive.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool


FAMILIES = (
    Family(("latency.low", "throughput.gap"), share=0.8, must_decide=True),
    Family(("latency.p50", "latency.p99"), share=0.2, must_decide=False),
)


def tolerance(policy: Policy, metric: str) -> float:
    """Return the allowed relative worsening of a metric."""
    return policy.tolerances.get(metric, DEFAULT_TOLERANCES.get(metric, 0.0))


def margin_for_unchanged(policy: Policy, metric: str) -> float:
    """Return the slowdown that must be excluded before a time metric is called unchanged."""
    return max(policy.ok_margin, tolerance(policy, metric))
