"""One judge for everything measured side by side: pairs of processes, turns of a step, quads of a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import FAST_PATHS, metric
from perfgate.catalogue.terms import Better
from perfgate.document.comparison import Paired
from perfgate.document.decision import NoiseFloor
from perfgate.document.message import Message
from perfgate.judging.gate.compare.rule import (
    MOST_PAIRS,
    Errors,
    Interval,
    Limits,
    alarm_margin,
    answer,
    detectable,
    interval,
    p_slower,
    pairs_to_decide,
)
from perfgate.judging.gate.evidence.differences import Differences
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import change_of, rounded
from perfgate.stats.error_control import holm
from perfgate.stats.signed_rank import p_above

# The robust sd of n normal values around a known centre exceeds the true one in 5 of 100 cases by 1 + this / sqrt(n)
# (simulated: 1.95 of 5, 1.79 of 7, 1.54 of 14).
FLOOR_DOUBT = 2.1


class Tested(NamedTuple):
    """The effect on one number of a place, with its limits.

    A worsening by ``tolerance`` is allowed; "unchanged" excludes the first of ``margins`` that it can. ``floor`` is the noise
    floor from base against base, and ``luck`` what other code of equal speed differs by (``rule.Differences``).
    """

    place: ShapePlace
    metric: str
    effect: PairedEffect
    tolerance: float
    margins: Sequence[float]
    better: Better = "lower"
    gating: bool = True
    floor: NoiseFloor | None = None
    luck: float = 0.0

    @property
    def worse(self) -> Differences:
        """The differences, with larger ones worse."""
        differences = self.effect.differences.with_luck(self.luck)
        return -differences if self.better == "higher" else differences


def judge_together(members: Sequence[Tested], errors: Errors, *, interim: bool = False) -> list[Paired]:
    """Judge numbers that share ``errors``. At an ``interim`` look an alarm needs more evidence than at the end."""
    adjusted = holm([_p_of_alarm(member, errors, interim=interim) for member in members])
    return [
        judge(member, errors, p_adjusted=p_adjusted, tests=len(members))
        for member, p_adjusted in zip(members, adjusted)
    ]


def _p_of_alarm(tested: Tested, errors: Errors, *, interim: bool) -> float:
    if not tested.effect.fair:
        return 1.0
    alike_margin = alarm_margin(tested.effect.differences.size, errors.looks, interim=interim)
    return p_slower(tested.worse, 0.0, errors.alarm_looks, alike_margin=alike_margin)


def judge(tested: Tested, errors: Errors, *, p_adjusted: float | None, tests: int) -> Paired:
    """Judge one of ``tests`` numbers, with its corrected p-value; without ``p_adjusted`` it is tested alone."""
    worse, effect = tested.worse, tested.effect
    pairs = effect.size
    compared = Paired(
        workload=tested.place.workload,
        shape=tested.place.shape,
        metric=tested.metric,
        unit=metric(tested.metric).unit,
        better=tested.better,
        evidence=effect.evidence,
        outcome="inconclusive",
        gating=tested.gating,
        base=rounded(effect.base),
        head=rounded(effect.head),
        tolerance=tested.tolerance,
        pairs=pairs,
        clock=effect.clock,
    )
    if not effect.fair:
        code = "gate.cpu-not-alike" if effect.clock == "cpu" else "gate.no-fair-clock"
        return msgspec.structs.replace(compared, reason=Message(code))
    bounds = interval(worse, errors)
    tolerated = math.log1p(tested.tolerance)
    # The few pairs of base against base are a rough estimate of their spread.
    floor_doubt = 1 + FLOOR_DOUBT / math.sqrt(max(1, tested.floor.pairs)) if tested.floor else 1.0
    # Answered for the margin ``sought`` or, if that is inconclusive, for the sufficient one.
    for margin in tested.margins:
        outcome = answer(worse, Limits(tolerated, math.log1p(margin)), errors, p_adjusted=p_adjusted)
        needed, reason = None, None
        if outcome == "inconclusive":
            needed = math.ceil(pairs_to_decide(worse, excluded=math.log1p(margin)) * pairs / worse.size)
            reason = _undecided_because(bounds, margin, pairs=pairs)
        elif outcome == "unchanged" and tested.floor and tested.floor.floor > margin * floor_doubt:
            # A limit below the noise floor is not a limit this job can judge by.
            outcome, floor = "inconclusive", tested.floor.floor
            needed = min(MOST_PAIRS, math.ceil(pairs * (floor / margin) ** 2)) if margin > 0 else MOST_PAIRS
            reason = Message("gate.limit-below-floor", {"limit": rounded(margin), "floor": floor})
        if outcome != "inconclusive":
            break
    sign = -1.0 if tested.better == "higher" else 1.0
    ends = sorted(rounded(change_of(sign * end)) for end in (bounds.low, bounds.high)) if bounds else None
    visible = detectable(worse, tolerated, errors, tests=tests)
    return msgspec.structs.replace(
        compared,
        outcome=outcome,
        delta=rounded(change_of(effect.differences.estimate)),
        interval=(ends[0], ends[1]) if ends else None,
        confidence=rounded(bounds.confidence) if bounds else None,
        p=rounded(p_above(worse.values, 0.0, worse.weights)) if effect.evidence == "pair" else None,
        p_adjusted=None if p_adjusted is None else rounded(p_adjusted),
        pairs_needed=needed,
        detectable=None if visible is None else rounded(visible),
        excluded=margin if outcome == "unchanged" else None,
        effects=shown_effects(tested.metric, effect.differences),
        reason=reason,
    )


def shown_effects(name: str, differences: Differences) -> list[float]:
    """The differences that a decision keeps: only those of the fast paths, as one per pair and metric would be too many."""
    return [rounded(change_of(value)) for value in differences.values] if name in FAST_PATHS else []


def _undecided_because(bounds: Interval | None, margin: float, *, pairs: int) -> Message:
    """Name the slowdown that the pairs do not exclude, and the bound that they show instead."""
    shown = Message("gate.too-few-pairs", {"pairs": pairs})
    if bounds:
        values = {"bound": rounded(change_of(bounds.high)), "confidence": rounded((1 + bounds.confidence) / 2)}
        shown = Message("gate.upper-bound", values)
    return Message("gate.slowdown-possible", {"size": rounded(margin), "shown": shown})
