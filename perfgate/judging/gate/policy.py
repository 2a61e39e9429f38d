"""What the gate tolerates of a metric, and which time metrics are corrected for together."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from perfgate.document.budget import parse_place
from perfgate.document.decision import FAST_PATHS, Policy
from perfgate.document.tolerances import DEFAULT_TOLERANCES, OK_MARGIN, SOUGHT_OK_MARGIN, UNMOVED_TOLERANCES


class Family(NamedTuple):
    """Time metrics corrected for together; ``share`` is their part of the gate's alpha.

    Where ``must_decide`` is set, an inconclusive comparison makes the gate inconclusive.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool


# The error is shared out by what a metric needs: gaps hardly spread, and the tail is the hardest to tell.
FAMILIES = (
    Family(FAST_PATHS, share=0.6, must_decide=True),
    Family(("throughput.gap",), share=0.05, must_decide=True),
    Family(("latency.p99",), share=0.25, must_decide=False),
    Family(("latency.p50",), share=0.05, must_decide=False),
    Family(("throughput.turnaround", "hardware.instructions"), share=0.05, must_decide=False),
)
# What is compared beside what decides, and decides nothing.
INFORMING = Family(("latency.wall", "hardware.cycles", "hardware.cache_misses"), share=0.05, must_decide=False)
# A gap is known ten times better than a call, is held to more, and does not care where a workload lies.
_GAP, _GAP_OK_MARGIN, _GAP_OF_OK_MARGIN = "throughput.gap", 0.005, 0.25


def tolerance(policy: Policy, metric: str, workload: str, shape: str, *, moved: bool = True) -> float:
    """Return the allowed relative worsening of a metric of a workload's shape; ``moved`` is whether its layout moved.

    Of several entries that fit, the one that says most counts: the exact metric before a pattern, then the longest.
    """
    given = given_tolerance(policy, metric, workload, shape)
    if given is not None:
        return given
    by_default = DEFAULT_TOLERANCES.get(metric, 0.0)
    return by_default if moved else UNMOVED_TOLERANCES.get(metric, by_default)


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
    if metric == _GAP:
        margin = _GAP_OK_MARGIN if policy.ok_margin is None else policy.ok_margin * _GAP_OF_OK_MARGIN
        found = Margins(margin, margin)
    elif policy.ok_margin is not None:
        found = Margins(policy.ok_margin, policy.ok_margin)
    else:
        found = Margins(SOUGHT_OK_MARGIN if moved else OK_MARGIN, OK_MARGIN)
    allowed = tolerance(policy, metric, workload, shape, moved=moved)
    return Margins(max(found.sought, allowed), max(found.enough, allowed))


def fits(key: str, metric: str, workload: str, shape: str) -> bool:
    """Return whether ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``, patterns or names, means a metric here."""
    place = parse_place(key)
    if key == metric:  # that of an operator may hold what would else be read as a pattern or a place
        return True
    return fnmatchcase(metric, place.metric) and place.covers(workload, shape)


def _said(key: str) -> int:
    return sum(character not in "*?[]" for character in key)
