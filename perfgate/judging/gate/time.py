"""Time, second: each metric of each shape tested over process pairs, all of them corrected for together."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from perfgate.document.decision import Comparison, NoiseFloor, Outcome, Policy
from perfgate.document.metric import metric
from perfgate.document.run import RunDocument
from perfgate.judging.gate.pairs import Effects, paired_effects
from perfgate.judging.gate.policy import FAMILIES, Family, margin_for_unchanged, tolerance
from perfgate.judging.gate.rounding import rounded
from perfgate.stats.multiple import holm
from perfgate.stats.signed_rank import estimate, lower_bound, p_above, p_below, upper_bound

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile


class _Cell(NamedTuple):
    workload: str
    shape: str
    metric: str
    effects: Effects


def compare_time(base: RunDocument, head: RunDocument, policy: Policy) -> list[Comparison]:
    """Compare every time metric that the pairs give."""
    cells = [
        _Cell(workload, shape, name, effects)
        for workload, shape in _shapes(head)
        for name, effects in paired_effects(
            base.replicates, head.replicates, workload=workload, shape=shape, arm="ab"
        ).items()
    ]
    return [comparison for family in FAMILIES for comparison in _compare_family(cells, family, policy)]


def noise_floors(base: RunDocument, policy: Policy, *, pairs: int) -> list[NoiseFloor]:
    """Return what base against base shows, as the half width that ``pairs`` pairs of it would have.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median absolute value (its centre is known
    to be 0). ``differs`` needs all evidence on one side and beyond the tolerance.
    """
    floors = []
    for workload, shape in _shapes(base):
        effects = paired_effects(base.replicates, base.replicates, workload=workload, shape=shape, arm="aa")
        for name, effect in effects.items():
            floors.append(
                NoiseFloor(
                    workload=workload,
                    shape=shape,
                    metric=name,
                    floor=rounded(FLOOR_QUANTILE * _robust_sd(effect.differences) / math.sqrt(max(pairs, 1))),
                    pairs=int(effect.differences.size),
                    differs=_differs(effect.differences, math.log1p(tolerance(policy, name))),
                )
            )
    return floors


def _differs(differences: npt.NDArray[np.float64], margin: float) -> bool:
    return min(p_above(differences, margin), p_below(differences, -margin)) <= AA_ALPHA


def _shapes(run: RunDocument) -> list[tuple[str, str]]:
    return [(workload.name, shape) for workload in run.workloads for shape in workload.shapes]


def _compare_family(cells: list[_Cell], family: Family, policy: Policy) -> list[Comparison]:
    members = [cell for cell in cells if cell.metric in family.metrics]
    p_values = [p_above(cell.effects.differences, math.log1p(tolerance(policy, cell.metric))) for cell in members]
    alpha = policy.alpha * family.share / policy.looks
    return [
        _compare_cell(cell, policy, alpha=alpha, p=p, p_adjusted=adjusted)
        for cell, p, adjusted in zip(members, p_values, holm(p_values))
    ]


def _compare_cell(cell: _Cell, policy: Policy, *, alpha: float, p: float, p_adjusted: float) -> Comparison:
    differences = cell.effects.differences
    effect = estimate(differences)
    outcome = _outcome(cell, policy, alpha=alpha, p_adjusted=p_adjusted)
    described = metric(cell.metric)
    # The interval shown has the gate's alpha of one look on each side; each outcome has its own, stricter or looser bound.
    shown = policy.alpha / policy.looks
    low, high = lower_bound(differences, shown), upper_bound(differences, shown)
    has_interval = math.isfinite(low) and math.isfinite(high)
    return Comparison(
        workload=cell.workload,
        shape=cell.shape,
        metric=cell.metric,
        unit=described.unit,
        better=described.better,
        method="paired",
        outcome=outcome,
        gating=True,
        base=rounded(cell.effects.level),
        head=rounded(_head_level(cell, effect)),
        delta=rounded(math.expm1(effect)),
        interval=(rounded(math.expm1(low)), rounded(math.expm1(high))) if has_interval else None,
        confidence=rounded(1 - 2 * shown) if has_interval else None,
        p=rounded(p),
        p_adjusted=rounded(p_adjusted),
        tolerance=tolerance(policy, cell.metric),
        pairs=int(differences.size),
        pairs_needed=_pairs_needed(cell, policy) if outcome == "inconclusive" else None,
        reason=_why_inconclusive(cell, policy) if outcome == "inconclusive" else None,
    )


def _head_level(cell: _Cell, effect: float) -> float:
    if cell.metric == "throughput.gap":
        # The gap's effect is a share of one call, so the head's gap is the base's plus that share of the call.
        return cell.effects.level + math.expm1(effect) * cell.effects.call_level
    return cell.effects.level * math.exp(effect)


def _outcome(cell: _Cell, policy: Policy, *, alpha: float, p_adjusted: float) -> Outcome:
    differences = cell.effects.differences
    if p_adjusted <= alpha:
        return "regressed"
    if p_below(differences, -math.log1p(tolerance(policy, cell.metric))) <= alpha:
        return "improved"
    if upper_bound(differences, policy.alpha_ok / policy.looks) < math.log1p(margin_for_unchanged(policy, cell.metric)):
        return "unchanged"
    return "inconclusive"


def _why_inconclusive(cell: _Cell, policy: Policy) -> str:
    margin = margin_for_unchanged(policy, cell.metric)
    alpha = policy.alpha_ok / policy.looks
    upper = math.expm1(upper_bound(cell.effects.differences, alpha))
    return f"a slowdown of {margin:.0%} is not excluded (at most {upper:.1%} with {1 - alpha:.1%} confidence)"


def _pairs_needed(cell: _Cell, policy: Policy) -> Optional[int]:
    """Return how many pairs would decide: n with 1.645 sd / sqrt(n) equal to the distance that is to be excluded."""
    differences = cell.effects.differences
    effect = estimate(differences)
    distance = math.log1p(margin_for_unchanged(policy, cell.metric)) - effect
    if distance <= 0:
        # Slower than the margin, yet not shown to be: the distance to the tolerance decides.
        distance = effect - math.log1p(tolerance(policy, cell.metric))
    if distance <= 0:
        return None
    spread = _robust_sd(differences - effect)
    return min(10_000, max(int(differences.size) + 1, math.ceil((1.645 * spread / distance) ** 2)))


def _robust_sd(differences: npt.NDArray[np.float64]) -> float:
    """Return 1.4826 x the median absolute value, the sd of a normal sample centred at 0."""
    return 1.4826 * float(np.median(np.abs(differences)))
