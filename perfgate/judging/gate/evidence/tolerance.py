"""The tolerances and margins of a metric under the policy."""

from __future__ import annotations

from fnmatch import fnmatchcase

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.lookup import metric as entry_of
from perfgate.document.budget import OK_MARGIN, SOUGHT_OK_MARGIN, parse_place
from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace


def tolerance(
    policy: Policy, metric: str, place: ShapePlace, *, moved: bool = True
) -> float:
    """The allowed relative worsening of a metric at a place; ``moved`` is whether its
    memory layout moved.
    """
    configured = configured_tolerance(policy, metric, place)
    if configured is not None:
        return configured
    entry = entry_of(metric)
    if not moved and entry.gate.unmoved_tolerance is not None:
        return entry.gate.unmoved_tolerance
    return entry.gate.tolerance or 0.0


def configured_tolerance(
    policy: Policy, metric: str, place: ShapePlace
) -> float | None:
    """The tolerance that the policy sets; None if it sets none.

    Of several entries that match, the most specific counts: the exact metric before a
    pattern, then the longest.
    """

    def specificity(key: str) -> tuple[bool, int, str]:
        return (
            parse_place(key).metric == metric,
            sum(character not in "*?[]" for character in key),
            key,
        )

    keys = [key for key in policy.tolerances if key_matches(key, metric, place)]
    if not keys:
        return None
    return policy.tolerances[max(keys, key=specificity)]


def is_named(policy: Policy, metric: str, place: ShapePlace) -> bool:
    """Whether a tolerance names a metric of this place in full, not by a pattern."""
    for key in policy.tolerances:
        pattern = parse_place(key)
        if pattern.metric == metric and pattern.covers(*place):
            return True
    return False


def repeated_metrics(policy: Policy) -> tuple[str, ...]:
    """The metrics of the checklist that a tolerance names in full; a pattern names
    none, for it may cover a whole step.
    """
    metrics = set()
    for key in policy.tolerances:
        name = parse_place(key).metric
        if name in METRICS and METRICS[name].repeatable:
            metrics.add(name)
    return tuple(sorted(metrics))


def metrics_in_turns(policy: Policy) -> tuple[str, ...]:
    """The metrics that steps must repeat: the samples of the pairs supply the others."""
    return tuple(
        name for name in repeated_metrics(policy) if not METRICS[name].origin.sampled
    )


def margins_for_unchanged(
    policy: Policy, metric: str, place: ShapePlace, *, moved: bool
) -> tuple[float, float]:
    """The slowdowns that "unchanged" excludes: pairs are added until it is the first,
    but in the end the second is enough.
    """
    scale = entry_of(metric).gate.ok_margin_scale
    allowed = tolerance(policy, metric, place, moved=moved)
    if policy.ok_margin is None:
        sought = sufficient = scale * OK_MARGIN
        if moved and scale == 1:
            sought = SOUGHT_OK_MARGIN
    else:
        sought = sufficient = scale * policy.ok_margin
    return max(sought, allowed), max(sufficient, allowed)


def key_matches(key: str, metric: str, place: ShapePlace) -> bool:
    """Whether a key ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``,
    patterns or names, means this metric.
    """
    # An operator's metric may contain characters of a pattern or a place.
    if key == metric:
        return True
    pattern = parse_place(key)
    return fnmatchcase(metric, pattern.metric) and pattern.covers(*place)
