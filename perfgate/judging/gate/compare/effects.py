"""The judgement of one paired effect by the rule: pairs of processes, turns of a step, quads of a job."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.catalogue.lookup import FAST_PATHS, is_known
from perfgate.document.comparison import Outcome, Paired
from perfgate.document.decision import NoiseFloor
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import compared
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
from perfgate.judging.gate.evidence.numbers import JOB, Number
from perfgate.judging.gate.evidence.values import change_of, rounded, rounded_if_known
from perfgate.stats.signed_rank import p_above

# The robust sd of n normal values around a known centre exceeds the true one in 5 of 100 cases by 1 + this / sqrt(n)
# (simulated: 1.95 of 5, 1.79 of 7, 1.54 of 14).
FLOOR_DOUBT = 2.1


def p_of_alarm(number: Number, effect: PairedEffect, errors: Errors, *, interim: bool) -> float:
    """At an ``interim`` look an alarm of pairs or turns needs more evidence than at the end."""
    if not effect.fair:
        return 1.0
    alike_margin = None
    if effect.evidence != "quad":
        alike_margin = alarm_margin(effect.differences.size, errors.looks, interim=interim)
    return p_slower(_worse(number, effect), 0.0, errors.alarm_looks, alike_margin=alike_margin)


def _worse(number: Number, effect: PairedEffect) -> Differences:
    """The differences, with larger ones worse."""
    differences = effect.differences.with_luck(number.terms.luck)
    return -differences if number.better == "higher" else differences


def judge_effect(
    number: Number,
    effect: PairedEffect,
    errors: Errors,
    *,
    p_adjusted: float | None,
    tests: int,
    floor: NoiseFloor | None = None,
) -> Paired:
    """Judge one of ``tests`` numbers, with its corrected p-value; without ``p_adjusted`` it is tested alone.

    ``floor`` is the noise floor from base against base.
    """
    row = replace(
        compared(Paired, number.place, number.metric, gating=number.gating, allowed=number.terms.tolerance),
        unit=number.unit,
        better=number.better,
        evidence=effect.evidence,
        base=rounded(effect.base),
        head=rounded(effect.head),
        pairs=effect.size,
        starts=_starts(number, effect),
        clock=effect.clock,
    )
    if not effect.fair:
        code = "gate.cpu-not-alike" if effect.clock == "cpu" else "gate.no-fair-clock"
        return replace(row, reason=Message(code))
    worse = _worse(number, effect)
    bounds = interval(worse, errors)
    conclusion = _conclusion(number, effect, errors, bounds, p_adjusted, floor)
    visible = detectable(worse, math.log1p(number.terms.tolerance), errors, tests=tests)
    is_of_processes = effect.evidence == "pair"
    judged = replace(
        row,
        outcome=conclusion.outcome,
        delta=rounded(change_of(effect.differences.estimate)),
        p=rounded(p_above(worse.values, 0.0, worse.weights)) if is_of_processes else None,
        p_adjusted=rounded_if_known(p_adjusted),
        pairs_needed=conclusion.pairs_needed,
        detectable=rounded_if_known(visible),
        excluded=conclusion.excluded,
        effects=shown_effects(number.metric, effect.differences),
        reason=conclusion.reason,
    )
    if bounds is not None:
        judged = _with_interval(judged, bounds)
    return _with_doubts(judged, number, worse, errors)


def _starts(number: Number, effect: PairedEffect) -> int | None:
    """The starts of the quads of a job."""
    if number.family != JOB:
        return None
    starts = effect.differences.starts
    return effect.size if starts is None else int(np.unique(starts).size)


def _with_interval(compared: Paired, bounds: Interval) -> Paired:
    sign = -1.0 if compared.better == "higher" else 1.0
    low, high = sorted([rounded(change_of(sign * bounds.low)), rounded(change_of(sign * bounds.high))])
    return replace(compared, interval=(low, high), confidence=rounded(bounds.confidence))


class _Conclusion(NamedTuple):
    outcome: Outcome
    pairs_needed: int | None = None
    reason: Message | None = None
    excluded: float | None = None


def _conclusion(
    number: Number,
    effect: PairedEffect,
    errors: Errors,
    bounds: Interval | None,
    p_adjusted: float | None,
    floor: NoiseFloor | None,
) -> _Conclusion:
    """Answer for the first margin or, if that is inconclusive, for the next."""
    worse, pairs = _worse(number, effect), effect.size
    tolerated = math.log1p(number.terms.tolerance)
    conclusion = _Conclusion("inconclusive")
    for margin in number.terms.margins:
        excluded = math.log1p(margin)
        outcome = answer(worse, Limits(tolerated, excluded), errors, p_adjusted=p_adjusted)
        if outcome in ("regressed", "improved"):
            return _Conclusion(outcome)
        if outcome == "inconclusive":
            needed = math.ceil(pairs_to_decide(worse, excluded=excluded) * pairs / worse.size)
            conclusion = _Conclusion(outcome, needed, _undecided_because(bounds, margin, pairs=pairs))
        elif floor is None or not _is_below(margin, floor):
            return _Conclusion(outcome, excluded=margin)
        else:
            conclusion = _below_floor(margin, floor.floor, pairs)
    return conclusion


def _is_below(margin: float, floor: NoiseFloor) -> bool:
    """Whether a limit is below the noise floor; the few pairs of base against base are a rough estimate of their spread."""
    doubt = 1 + FLOOR_DOUBT / math.sqrt(max(1, floor.pairs))
    return floor.floor > margin * doubt


def _below_floor(margin: float, floor: float, pairs: int) -> _Conclusion:
    """A limit below the noise floor is not a limit that this job can judge by."""
    needed = MOST_PAIRS
    if margin > 0:
        needed = min(MOST_PAIRS, math.ceil(pairs * (floor / margin) ** 2))
    reason = Message("gate.limit-below-floor", {"limit": rounded(margin), "floor": floor})
    return _Conclusion("inconclusive", needed, reason)


def _undecided_because(bounds: Interval | None, margin: float, *, pairs: int) -> Message:
    """Name the slowdown that the pairs do not exclude, and the bound that they show instead."""
    shown = Message("gate.too-few-pairs", {"pairs": pairs})
    if bounds:
        values = {"bound": rounded(change_of(bounds.high)), "confidence": rounded((1 + bounds.confidence) / 2)}
        shown = Message("gate.upper-bound", values)
    return Message("gate.slowdown-possible", {"size": rounded(margin), "shown": shown})


def _with_doubts(compared: Paired, number: Number, worse: Differences, errors: Errors) -> Paired:
    """The comparison, undecided if its metric or its direction is not known, and open only if it may do more than fail."""
    if number.only_worse and compared.outcome != "regressed":
        return replace(compared, gating=False, pairs_needed=None)
    if not is_known(number.metric):
        return _undecided(compared, Message("gate.unknown-metric"))
    if number.directed or compared.outcome not in ("improved", "unchanged"):
        return compared
    limits = Limits(math.log1p(number.terms.tolerance), math.log1p(number.terms.margins[0]))
    if answer(-worse, limits, errors) == "unchanged":
        return compared
    return _undecided(compared, Message("gate.direction-unknown", {"job": number.place.workload}))


def _undecided(compared: Paired, reason: Message) -> Paired:
    return replace(compared, outcome="inconclusive", reason=reason, pairs_needed=None, excluded=None)


def shown_effects(name: str, differences: Differences) -> list[float]:
    """The differences that a decision keeps: only of the fast paths, as one per pair and metric would be too many."""
    if name not in FAST_PATHS:
        return []
    return [rounded(change_of(value)) for value in differences.values]
