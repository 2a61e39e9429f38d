"""The judgement of one paired effect by the rule: pairs of processes, turns of a step,
quads of a job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.lookup import FAMILIES, FAST_PATHS, is_known, metric
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Invalid, NoiseFloor
from perfgate.document.doctor import Resolution
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import JudgedNumber, paired
from perfgate.judging.gate.compare.rule import (
    MOST_PAIRS,
    Errors,
    Interval,
    Limits,
    alarm_margin,
    answer,
    detectable,
    differs,
    interval,
    p_slower,
    pairs_to_decide,
    spread,
)
from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.judging.gate.evidence.numbers import JOB, Number, Twins
from perfgate.judging.gate.evidence.values import change_of, rounded, rounded_if_known

# The robust sd of n normal values around a known centre exceeds the true one in 5 of
# 100 cases by 1 + this / sqrt(n) (simulated: 1.95 of 5, 1.79 of 7, 1.54 of 14).
FLOOR_DOUBT = 2.1


def p_of_alarm(
    number: Number, effect: PairedEffect, errors: Errors, *, interim: bool
) -> float:
    """At an ``interim`` look an alarm of pairs or turns needs more evidence than at the
    end.
    """
    if not effect.fair:
        return 1.0
    alike_margin = None
    if effect.evidence != "quad":
        alike_margin = alarm_margin(
            effect.differences.size, errors.looks, interim=interim
        )
    return p_slower(
        _worse(number, effect), 0.0, errors.alarm_looks, alike_margin=alike_margin
    )


def _worse(number: Number, effect: PairedEffect) -> Differences:
    """The differences; larger is worse."""
    differences = effect.differences.with_luck(number.terms.luck)
    if number.better == "higher":
        return -differences
    return differences


def judge_effect(judged: JudgedNumber, effect: PairedEffect) -> Paired:
    number = judged.number
    row = replace(
        paired(number),
        evidence=effect.evidence,
        base=rounded(effect.base),
        head=rounded(effect.head),
        pairs=effect.size,
        clock=effect.clock,
    )
    if number.family == JOB:
        starts = effect.size
        if effect.differences.starts is not None:
            starts = int(np.unique(effect.differences.starts).size)
        row = replace(row, starts=starts)
    if not effect.fair:
        code = "gate.cpu-not-alike" if effect.clock == "cpu" else "gate.no-fair-clock"
        return replace(row, reason=Message(code))
    worse = _worse(number, effect)
    visible = detectable(
        worse, math.log1p(number.terms.tolerance), judged.errors, tests=judged.tests
    )
    row = replace(
        row,
        delta=rounded(change_of(effect.differences.estimate)),
        p_adjusted=rounded_if_known(judged.p_adjusted),
        detectable=rounded_if_known(visible),
        effects=shown_effects(number.metric, effect.differences),
    )
    bounds = interval(worse, judged.errors)
    if bounds is not None:
        sign = -1.0 if row.better == "higher" else 1.0
        low, high = sorted(
            [
                rounded(change_of(sign * bounds.low)),
                rounded(change_of(sign * bounds.high)),
            ]
        )
        row = replace(row, interval=(low, high), confidence=rounded(bounds.confidence))
    return _with_doubts(_concluded(row, judged, worse, bounds), judged, worse)


def _concluded(
    row: Paired, judged: JudgedNumber, worse: Differences, bounds: Interval | None
) -> Paired:
    """Answer for the first margin or, if that is inconclusive, for the next.

    A limit below the noise floor is not a limit that this job can judge by.
    """
    pairs = row.pairs or 0
    # The bound that the pairs show, next to the slowdown that they do not exclude.
    shown = Message("gate.too-few-pairs", {"pairs": pairs})
    if bounds is not None:
        values = {
            "bound": rounded(change_of(bounds.high)),
            "confidence": rounded((1 + bounds.confidence) / 2),
        }
        shown = Message("gate.upper-bound", values)
    terms = judged.number.terms
    for margin in terms.margins:
        limits = Limits(math.log1p(terms.tolerance), math.log1p(margin))
        outcome = answer(worse, limits, judged.errors, p_adjusted=judged.p_adjusted)
        if outcome in ("regressed", "improved"):
            return replace(row, outcome=outcome, pairs_needed=None, reason=None)
        size = rounded(margin)
        if outcome == "inconclusive":
            needed = pairs_to_decide(worse, excluded=limits.excluded)
            needed = math.ceil(needed * pairs / worse.size)
            reason = Message("gate.slowdown-possible", {"size": size, "shown": shown})
        elif judged.floor is not None and _is_below(margin, judged.floor):
            floor = judged.floor.floor
            needed = MOST_PAIRS
            if margin > 0:
                needed = min(MOST_PAIRS, math.ceil(pairs * (floor / margin) ** 2))
            reason = Message("gate.limit-below-floor", {"limit": size, "floor": floor})
        else:
            return replace(
                row,
                outcome=outcome,
                pairs_needed=None,
                reason=None,
                excluded=margin,
            )
        row = replace(row, pairs_needed=needed, reason=reason)
    return row


def _is_below(margin: float, floor: NoiseFloor) -> bool:
    """Whether a limit is below the noise floor; the few pairs of base against base are
    a rough estimate of their spread.
    """
    doubt = 1 + FLOOR_DOUBT / math.sqrt(max(1, floor.pairs))
    return floor.floor > margin * doubt


def _with_doubts(row: Paired, judged: JudgedNumber, worse: Differences) -> Paired:
    """The comparison, undecided if its metric or its direction is not known, and open
    only if it may do more than fail.
    """
    number = judged.number
    if number.only_worse and row.outcome != "regressed":
        return replace(row, gating=False, pairs_needed=None)
    reason = Message("gate.unknown-metric")
    if is_known(number.metric):
        if number.directed or row.outcome not in ("improved", "unchanged"):
            return row
        limits = Limits(
            math.log1p(number.terms.tolerance), math.log1p(number.terms.margins[0])
        )
        if answer(-worse, limits, judged.errors) == "unchanged":
            return row
        reason = Message("gate.direction-unknown", {"job": number.place.workload})
    return replace(
        row, outcome="inconclusive", reason=reason, pairs_needed=None, excluded=None
    )


def shown_effects(name: str, differences: Differences) -> list[float]:
    """The differences that a decision keeps: only of the fast paths, as one per pair
    and metric would be too many.
    """
    if name not in FAST_PATHS:
        return []
    return [rounded(change_of(value)) for value in differences.values]


# --- base against base

AA_ALPHA = 0.01  # one-sided; 7 pairs are the fewest that can reach it
FLOOR_QUANTILE = 2.326  # 99 % one-sided normal quantile


def noise_floor(twins: Twins) -> NoiseFloor:
    """The noise of base against base, as the half width for as many of its pairs as the
    workload has pairs with head.

    floor = 2.326 x robust sd of the A/A effects / sqrt(pairs), the sd from the median
    absolute value, as their centre is 0. ``differs`` needs all evidence on one side and
    more than the job would call unchanged: the second is a twin in other code, which
    luck of layout alone may make 1 % faster or slower.
    """
    differences = twins.effect.differences
    is_gating = FAMILIES[metric(twins.metric).gate.family].gating
    return NoiseFloor(
        workload=twins.place.workload,
        shape=twins.place.shape,
        metric=twins.metric,
        floor=rounded(
            FLOOR_QUANTILE
            * spread(differences, around=0.0)
            / math.sqrt(max(twins.pairs, 1))
        ),
        pairs=differences.size,
        clock=twins.effect.clock,
        effects=shown_effects(twins.metric, differences),
        differs=is_gating
        and differs(differences, math.log1p(twins.margin), alpha=AA_ALPHA),
    )


def base_differs(floors: Iterable[NoiseFloor]) -> list[Invalid]:
    """If the base differs from itself, a difference of the head is not evidence."""
    entries: dict[ShapePlace, Invalid] = {}
    for floor in floors:
        if floor.differs:
            entry = Invalid(
                workload=floor.workload,
                shape=floor.shape,
                kind="aa_differs",
                message=Message("gate.aa-differs", {"metric": floor.metric}),
            )
            entries.setdefault(floor.place, entry)
    return list(entries.values())


# --- the resolution of a machine: the smallest slowdown that its pairs would have shown


def resolutions(
    numbers: Iterable[Number],
    timed_seconds: Mapping[str, float],
    decision: DecisionDocument,
) -> Iterator[Resolution]:
    """Yield the smallest slowdown that each paired comparison of unchanged code would
    have shown.

    The spread is around its effect.
    """
    effects = {(number.place, number.metric): number.values for number in numbers}
    for compared in decision.comparisons:
        effect = effects.get((compared.place, compared.metric))
        if (
            not isinstance(compared, Paired)
            or not compared.is_of_call
            or not isinstance(effect, PairedEffect)
        ):
            continue
        yield Resolution(
            workload=compared.workload,
            shape=compared.shape,
            metric=compared.metric,
            pairs=effect.differences.size,
            spread=rounded(math.expm1(spread(effect.differences))),
            smallest=compared.detectable,
            seconds=decision.measured.duration,
            timed=rounded(timed_seconds[compared.workload]),
        )
