"""What the gate tolerates of a metric."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.document.budget import parse_place
from perfgate.document.decision import Policy
from perfgate.document.tolerances import OK_MARGIN, SOUGHT_OK_MARGIN


def tolerance(policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True) -> float:
    """Return the allowed relative worsening of a metric of a workload's shape; ``moved`` is whether its layout moved.

    Of several entries that fit, the one that says most counts: the exact metric before a pattern, then the longest.
    """
    given = given_tolerance(policy, metric, workload, shape)
    if given is not None:
        return given
    entry = METRICS.get(metric)
    if entry is None:
        return 0.0
    if not moved and entry.unmoved_tolerance is not None:
        return entry.unmoved_tolerance
    return entry.tolerance or 0.0


def given_tolerance(policy: Policy, metric: str, workload: str, shape: str) -> float | None:
    """Return what the policy says of a metric of a workload's shape, as ``tolerance`` does; None where it says nothing."""
    fitting = [key for key in policy.tolerances if fits(key, metric, workload, shape)]
    best = max(fitting, key=lambda key: (parse_place(key).metric == metric, _said(key), key), default=None)
    return None if best is None else policy.tolerances[best]


class Margins(NamedTuple):
    """Slowdowns to exclude before a metric is called unchanged: pairs are measured for ``sought``, ``enough`` is in the end."""

    sought: float
    enough: float


def margins_for_unchanged(policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True) -> Margins:
    """Return what must be excluded; ``moved`` is whether the layout of the workload moved before every quad."""
    scale = METRICS[metric].ok_margin_scale if metric in METRICS else 1.0
    enough = scale * (OK_MARGIN if policy.ok_margin is None else policy.ok_margin)
    seeks_less = policy.ok_margin is None and moved and scale == 1
    allowed = tolerance(policy, metric, workload, shape, moved=moved)
    return Margins(max(SOUGHT_OK_MARGIN if seeks_less else enough, allowed), max(enough, allowed))


def fits(key: str, metric: str, workload: str, shape: str) -> bool:
    """Return whether ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``, patterns or names, means a metric here."""
    place = parse_place(key)
    if key == metric:  # that of an operator may hold what would else be read as a pattern or a place
        return True
    return fnmatchcase(metric, place.metric) and place.covers(workload, shape)


def _said(key: str) -> int:
    return sum(character not in "*?[]" for character in key)
