"""What the gate tolerates of a metric, and which time metrics are corrected for together."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from perfgate.document.budget import parse_place
from perfgate.document.decision import Policy
from perfgate.document.tolerances import DEFAULT_TOLERANCES


class Family(NamedTuple):
    """Time metrics corrected for together; ``share`` is their part of the gate's alpha.

    Where ``must_decide`` is set, an inconclusive comparison makes the gate inconclusive.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool


# The error is shared out by what a metric needs: gaps hardly spread, and the tail is the hardest to tell.
FAMILIES = (
    Family(("latency.low", "preprocess.low"), share=0.6, must_decide=True),
    Family(("throughput.gap",), share=0.05, must_decide=True),
    Family(("latency.p99",), share=0.25, must_decide=False),
    Family(("latency.p50",), share=0.05, must_decide=False),
    Family(("throughput.turnaround",), share=0.05, must_decide=False),
)
# What is compared beside the clock that decides, and decides nothing.
INFORMING = Family(("latency.wall",), share=0.05, must_decide=False)
# Of the slowdown that "unchanged" excludes: a gap is known ten times better than a call, and is held to more.
_OF_OK_MARGIN = {"throughput.gap": 0.25}


def tolerance(policy: Policy, metric: str, workload: str, shape: str) -> float:
    """Return the allowed relative worsening of a metric of a workload's shape.

    Of several entries that fit, the one that says most counts: the exact metric before a pattern, then the longest.
    """
    given = given_tolerance(policy, metric, workload, shape)
    return DEFAULT_TOLERANCES.get(metric, 0.0) if given is None else given


def given_tolerance(policy: Policy, metric: str, workload: str, shape: str) -> float | None:
    """Return what the policy says of a metric of a workload's shape, as ``tolerance`` does; None where it says nothing."""
    fitting = [key for key in policy.tolerances if fits(key, metric, workload, shape)]
    best = max(fitting, key=lambda key: (parse_place(key).metric == metric, _said(key), key), default=None)
    return None if best is None else policy.tolerances[best]


def margin_for_unchanged(policy: Policy, metric: str, workload: str, shape: str) -> float:
    """Return the slowdown that must be excluded before a time metric is called unchanged."""
    return max(policy.ok_margin * _OF_OK_MARGIN.get(metric, 1.0), tolerance(policy, metric, workload, shape))


def fits(key: str, metric: str, workload: str, shape: str) -> bool:
    """Return whether ``METRIC``, ``METRIC@WORKLOAD`` or ``METRIC@WORKLOAD/SHAPE``, patterns or names, means a metric here."""
    place = parse_place(key)
    if key == metric:  # that of an operator may hold what would else be read as a pattern or a place
        return True
    return fnmatchcase(metric, place.metric) and place.covers(workload, shape)


def _said(key: str) -> int:
    return sum(character not in "*?[]" for character in key)
