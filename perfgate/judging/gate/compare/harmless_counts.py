"""Counts that grew although calls are shown not to be slower: they warn, unless the count is a fault by itself."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import LOW_PRECISION_OPS
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import Policy
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.tolerance import configured_tolerance


def fails_alone(comparison: Comparison, policy: Policy) -> bool:
    """Whether a regression fails the gate regardless of all other results: no time can excuse it."""
    return (
        not isinstance(comparison, Exact)
        or policy.strict
        or comparison.metric not in METRICS
        or METRICS[comparison.metric].fails_alone
        or configured_tolerance(policy, comparison.metric, comparison.workload, comparison.shape) is not None
    )


def with_costless(comparisons: Iterable[Comparison], policy: Policy) -> list[Comparison]:
    """The comparisons; counts no longer gate if every time that must decide is shown not to be worse.

    Full precision instead of low may be the reason that calls are faster: it gates unless one of these times is shown to be
    better.
    """
    listed = list(comparisons)
    times = [c for c in listed if isinstance(c, Paired) and c.must_decide and c.evidence != "turn"]
    faster = {_place(c) for c in times if c.outcome == "improved"}
    not_slower = {_place(c) for c in times} - {_place(c) for c in times if c.outcome not in ("unchanged", "improved")}

    def judged(comparison: Comparison) -> Comparison:
        if not comparison.gating or comparison.outcome != "regressed":
            return comparison
        if comparison.metric == LOW_PRECISION_OPS and _place(comparison) in faster:
            return msgspec.structs.replace(comparison, gating=False)
        excusable = isinstance(comparison, Exact) and not fails_alone(comparison, policy)
        if excusable and _place(comparison) in not_slower:
            return msgspec.structs.replace(comparison, gating=False, costless=True)
        return comparison

    return [judged(comparison) for comparison in listed]


def _place(comparison: Comparison) -> ShapePlace:
    return ShapePlace(comparison.workload, comparison.shape)
