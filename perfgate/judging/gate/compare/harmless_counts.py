"""Counts that grew although calls are shown not to be slower: they warn, unless the count is a fault by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import LOW_PRECISION_OPS
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.tolerance import configured_tolerance


def fails_alone(comparison: Comparison, policy: Policy) -> bool:
    """Whether a regression fails the gate regardless of all other results: no time can excuse it."""
    return (
        not isinstance(comparison, Exact)
        or policy.strict
        or comparison.metric not in METRICS
        or METRICS[comparison.metric].gate.fails_alone
        or configured_tolerance(policy, comparison.metric, comparison.place) is not None
    )


def with_costless(
    comparisons: Iterable[Comparison], policy: Policy
) -> list[Comparison]:
    """The comparisons; counts no longer gate if every time that must decide is shown not to be worse.

    Full precision instead of low may be the reason that calls are faster: it gates unless one of these times is shown to be
    better.
    """
    listed = list(comparisons)
    faster = set()
    not_slower = set()
    undecided = set()
    for time in listed:
        if (
            not isinstance(time, Paired)
            or not time.must_decide
            or time.evidence == "turn"
        ):
            continue
        if time.outcome == "improved":
            faster.add(time.place)
        if time.outcome in ("unchanged", "improved"):
            not_slower.add(time.place)
        else:
            undecided.add(time.place)
    return [
        _excused(comparison, policy, faster, not_slower - undecided)
        for comparison in listed
    ]


def _excused(
    comparison: Comparison,
    policy: Policy,
    faster: Collection[ShapePlace],
    not_slower: Collection[ShapePlace],
) -> Comparison:
    """The comparison, no longer gating if the times of its place excuse it."""
    if not comparison.gating or comparison.outcome != "regressed":
        return comparison
    if comparison.metric == LOW_PRECISION_OPS and comparison.place in faster:
        return replace(comparison, gating=False)
    if (
        not isinstance(comparison, Exact)
        or comparison.place not in not_slower
        or fails_alone(comparison, policy)
    ):
        return comparison
    return replace(comparison, gating=False, costless=True)
