"""One comparison of a decision: how its numbers are rounded, its tolerance under the policy, and accepted regressions.

Logarithms may differ in the last bit between CPUs; nine significant digits hide that, so that a decision judged again on
another machine is the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS, metric
from perfgate.document.budget import OK_MARGIN, SOUGHT_OK_MARGIN, parse_place
from perfgate.document.comparison import Checked, Comparison, Exact, Outcome, Paired
from perfgate.document.decision import Policy
from perfgate.document.explanation import Part
from perfgate.document.history import Acceptance
from perfgate.document.message import Message
from perfgate.document.run import RunDocument, Source

# The logarithm of about the largest float.
_LARGEST_LOGARITHM = 700.0


class ShapePlace(NamedTuple):
    """A shape of a workload; an empty shape stands for all shapes."""

    workload: str
    shape: str


def places(run: RunDocument) -> list[ShapePlace]:
    return [ShapePlace(workload.name, shape) for workload in run.workloads for shape in workload.shapes]


def change_of(logarithm: float) -> float:
    """The relative change of a ratio, from its logarithm, limited to the largest float."""
    return math.expm1(min(logarithm, _LARGEST_LOGARITHM))


def rounded(value: float) -> float:
    return float(f"{value:.9g}")


def relative_change(base: float | None, head: float | None) -> float | None:
    """head/base - 1, None if the base is 0 or a side has no value."""
    return rounded(head / base - 1) if base and head is not None else None


def zero_of(name: str) -> float:
    """The offset added to a number before its ratio is taken: for a relative change, 0 is as good as any other value."""
    return 1.0 if name in METRICS and METRICS[name].change else 0.0


def exact(
    place: ShapePlace,
    name: str,
    outcome: Outcome,
    *,
    gating: bool,
    base: float | None = None,
    head: float | None = None,
    allowed: float | None = None,
    reason: Message | None = None,
    parts: Sequence[Part] = (),
) -> Exact:
    """The comparison of a count, of which a growth by the share ``allowed`` is tolerated."""
    entry = metric(name)
    return Exact(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome=outcome,
        gating=gating,
        base=base,
        head=head,
        delta=relative_change(base, head),
        tolerance=allowed,
        reason=reason,
        parts=list(parts),
    )


def informing(place: ShapePlace, name: str, base: float, head: float) -> Paired:
    """A number of a job on both sides that no test compares."""
    entry = metric(name)
    return Paired(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        evidence="quad",
        outcome="informs",
        gating=False,
        base=rounded(base),
        head=rounded(head),
    )


def differing_output(place: ShapePlace, name: str, reason: Message) -> Checked:
    """A check that fails because the output, or the work, of head is not that of base."""
    entry = metric(name)
    return Checked(
        workload=place.workload,
        shape=place.shape,
        metric=name,
        unit=entry.unit,
        better=entry.better,
        outcome="regressed",
        gating=True,
        base=1.0,
        head=0.0,
        reason=reason,
    )


def tolerance(policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True) -> float:
    """The allowed relative worsening of a metric of a workload's shape; ``moved`` is whether its memory layout moved."""
    configured = configured_tolerance(policy, metric, workload, shape)
    if configured is not None:
        return configured
    entry = METRICS.get(metric)
    if entry is None:
        return 0.0
    if not moved and entry.unmoved_tolerance is not None:
        return entry.unmoved_tolerance
    return entry.tolerance or 0.0


def configured_tolerance(policy: Policy, metric: str, workload: str, shape: str) -> float | None:
    """The tolerance that the policy sets; None if it sets none.

    Of several entries that match, the most specific counts: the exact metric before a pattern, then the longest.
    """

    def specificity(key: str) -> tuple[bool, int, str]:
        return parse_place(key).metric == metric, sum(character not in "*?[]" for character in key), key

    keys = [key for key in policy.tolerances if key_matches(key, metric, workload, shape)]
    return policy.tolerances[max(keys, key=specificity)] if keys else None


def margins_for_unchanged(
    policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True
) -> tuple[float, float]:
    """The slowdowns that "unchanged" excludes: pairs are added until it is the first, but in the end the second is enough."""
    scale = METRICS[metric].ok_margin_scale if metric in METRICS else 1.0
    sufficient = scale * (OK_MARGIN if policy.ok_margin is None else policy.ok_margin)
    seeks_less = policy.ok_margin is None and moved and scale == 1
    allowed = tolerance(policy, metric, workload, shape, moved=moved)
    return (max(SOUGHT_OK_MARGIN if seeks_less else sufficient, allowed), max(sufficient, allowed))


def key_matches(key: str, metric: str, workload: str, shape: str) -> bool:
    """Whether a key ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``, patterns or names, means this metric."""
    place = parse_place(key)
    if key == metric:  # an operator's metric may contain characters of a pattern or a place
        return True
    return fnmatchcase(metric, place.metric) and place.covers(workload, shape)


def with_accepted(
    comparisons: Iterable[Comparison], head: Source, acceptances: Sequence[Acceptance]
) -> list[Comparison]:
    """The comparisons, with those accepted for this very commit no longer gating.

    A wrong output cannot be an intended regression, and an acceptance does not cover uncommitted changes.
    """
    of_commit = [] if head.dirty else [acceptance for acceptance in acceptances if acceptance.commit == head.commit]
    return [_accepted(comparison, of_commit) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    is_costless = isinstance(comparison, Exact) and comparison.costless
    judged = comparison.gating or is_costless
    if not judged or comparison.outcome != "regressed" or isinstance(comparison, Checked):
        return comparison
    for acceptance in acceptances:
        if not key_matches(acceptance.metric, comparison.metric, comparison.workload, comparison.shape):
            continue
        accepted = f"{acceptance.accepted_by}: {acceptance.reason}"
        if isinstance(comparison, Exact):
            return msgspec.structs.replace(comparison, gating=False, costless=False, accepted=accepted)
        return msgspec.structs.replace(comparison, gating=False, accepted=accepted)
    return comparison
