"""The shipped decision, as a rule of the yardstick: the locations, the test, the limits
and the looks are the gate's own code.

A recording holds one metric of one workload, so each rule gets the error that the gate
gives that metric: ``decide`` the fast path, ``decide_p99`` and ``decide_gap`` the tail
and the gap between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import FAMILIES, METRICS
from perfgate.document.decision import Policy
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.rule import (
    Errors,
    Limits,
    alarm_margin,
    answer,
    interval,
    leans_slower,
    p_slower,
)
from perfgate.judging.gate.evidence.effect import Differences
from perfgate.judging.gate.evidence.pairs import pool_pairs
from perfgate.judging.gate.evidence.process import (
    GAP_QUANTILE,
    ProcessFastPath,
    compare_fast_paths,
    fast_path,
)
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged, tolerance

# A recording is of one workload and shape, whose names no tolerance of the default
# policy mentions.
_PLACE = ShapePlace("recording", "default")
_DECISIONS = {
    "regressed": "regressed",
    "unchanged": "ok",
    "improved": "ok",
    "inconclusive": "undecided",
}

Block = npt.NDArray[np.float64]
Run = Sequence[Block]
Decision = dict[str, str | float | tuple[float, float] | None]


def decide(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Decision:
    """Judge head against base, both lists of runs of blocks of seconds a call; effects
    are shares.

    Two blocks of a run in a row are its share of a quad. Runs that were not measured in
    pairs only inform: nothing is decided.
    """
    return decide_effects("latency.low", differences_of(base, head), ctx)


def differences_of(base: Sequence[Run], head: Sequence[Run]) -> Differences:
    """Return the effects of pairs on the fast path."""
    compared = [
        compare_fast_paths(_located(first), _located(second))
        for first, second in zip(base, head)
    ]
    return Differences(*np.array(compared).T)


def decide_p99(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Decision:
    """Judge the tail of device or CPU time."""
    groups = pool_pairs(
        [
            (np.concatenate(first), np.concatenate(second))
            for first, second in zip(base, head)
        ]
    )
    return decide_effects("latency.p99", _log_ratios(groups, 0.99), ctx)


def decide_gap(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Decision:
    """Judge the gap between calls, given as blocks of one value, an undisturbed call
    and the gap after it.
    """
    pairs = [
        (np.concatenate(first), np.concatenate(second))
        for first, second in zip(base, head)
    ]
    return decide_effects("throughput.gap", _log_ratios(pairs, GAP_QUANTILE), ctx)


def _log_ratios(
    pairs: Sequence[tuple[Block, Block]], probability: float
) -> Differences:
    return Differences.of(
        [
            math.log(np.quantile(b, probability) / np.quantile(a, probability))
            for a, b in pairs
        ]
    )


def _located(run: Run) -> ProcessFastPath:
    return _located_once(_Run(run))


class _Run:
    """A run that is found again by being the same object: a yardstick offers the same
    recordings many times.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def __hash__(self) -> int:
        return id(self.run)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Run) and other.run is self.run


@lru_cache(maxsize=10_000)
def _located_once(key: _Run) -> ProcessFastPath:
    blocks = key.run
    return fast_path(
        [
            np.concatenate(blocks[start : start + 2])
            for start in range(0, len(blocks), 2)
        ]
    )


def decide_effects(
    metric: str, differences: Differences, ctx: dict[str, Any]
) -> Decision:
    if not differences.size:
        return {"decision": "undecided", "effect": 0.0, "ci": None}
    entry = METRICS[metric]
    differences = differences.with_luck(
        entry.gate.luck if ctx.get("moved") else entry.gate.unmoved_luck
    )
    effect = math.expm1(differences.estimate)
    if not ctx.get("paired"):
        return {"decision": "undecided", "effect": effect, "ci": None}
    policy = Policy()
    moved = bool(ctx.get("moved"))
    tolerated = tolerance(policy, metric, _PLACE, moved=moved)
    sought, sufficient = margins_for_unchanged(policy, metric, _PLACE, moved=moved)
    # While the gate may still measure it seeks the smaller margin and is surer of an
    # alarm; at the end the larger is enough.
    is_last = bool(ctx.get("last"))
    margin = sufficient if is_last else sought
    limits = Limits(math.log1p(tolerated), math.log1p(margin))
    errors = Errors(policy.alpha * _share(metric), policy.alpha_ok, tuple(policy.looks))
    bounds = interval(differences, errors)
    ci: tuple[float, float] | None = (
        (math.expm1(bounds.low), math.expm1(bounds.high)) if bounds else None
    )
    alike_margin = alarm_margin(differences.size, errors.looks, interim=not is_last)
    p = p_slower(differences, 0.0, errors.alarm_looks, alike_margin=alike_margin)
    decision = _DECISIONS[answer(differences, limits, errors, p_adjusted=p)]
    if (
        decision == "ok"
        and not is_last
        and leans_slower(effect, tolerated, pairs=differences.size)
    ):
        decision = "undecided"
    return {"decision": decision, "effect": effect, "ci": ci}


def _share(metric: str) -> float:
    """Return the part of the gate's error that a metric gets at worst, where its family
    has other members.
    """
    family = FAMILIES[METRICS[metric].gate.family]
    return family.share / len(family.metrics)
