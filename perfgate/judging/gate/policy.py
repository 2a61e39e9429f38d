"""What the gate tolerates of a metric, and which regressions somebody accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.document.budget import parse_place
from perfgate.document.decision import Comparison, Policy
from perfgate.document.history import Acceptance
from perfgate.document.run import Source
from perfgate.document.tolerances import OK_MARGIN, SOUGHT_OK_MARGIN


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
    """The tolerance that the policy sets; None where it sets none.

    Of several entries that match, the most specific counts: the exact metric before a pattern, then the longest.
    """

    def specificity(key: str) -> tuple[bool, int, str]:
        return parse_place(key).metric == metric, sum(character not in "*?[]" for character in key), key

    keys = [key for key in policy.tolerances if key_matches(key, metric, workload, shape)]
    return policy.tolerances[max(keys, key=specificity)] if keys else None


class Margins(NamedTuple):
    """The slowdown that "unchanged" excludes: pairs are added until it is ``sought``, and in the end the other suffices."""

    sought: float
    sufficient: float


def margins_for_unchanged(policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True) -> Margins:
    scale = METRICS[metric].ok_margin_scale if metric in METRICS else 1.0
    sufficient = scale * (OK_MARGIN if policy.ok_margin is None else policy.ok_margin)
    seeks_less = policy.ok_margin is None and moved and scale == 1
    allowed = tolerance(policy, metric, workload, shape, moved=moved)
    return Margins(max(SOUGHT_OK_MARGIN if seeks_less else sufficient, allowed), max(sufficient, allowed))


def key_matches(key: str, metric: str, workload: str, shape: str) -> bool:
    """Whether a key ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``, patterns or names, means this metric."""
    place = parse_place(key)
    if key == metric:  # an operator's metric may contain what would else be read as a pattern or a place
        return True
    return fnmatchcase(metric, place.metric) and place.covers(workload, shape)


def with_accepted(
    comparisons: Iterable[Comparison], head: Source, acceptances: Sequence[Acceptance]
) -> list[Comparison]:
    """The comparisons, those that were accepted for this very commit no longer gating.

    A wrong output is no regression that could be meant, and uncommitted changes are not what was accepted.
    """
    of_commit = [] if head.dirty else [acceptance for acceptance in acceptances if acceptance.commit == head.commit]
    return [_accepted(comparison, of_commit) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    if not comparison.gating or comparison.outcome != "regressed" or comparison.method == "check":
        return comparison
    for acceptance in acceptances:
        if key_matches(acceptance.metric, comparison.metric, comparison.workload, comparison.shape):
            accepted = f"{acceptance.accepted_by}: {acceptance.reason}"
            return msgspec.structs.replace(comparison, gating=False, accepted=accepted)
    return comparison
