"""The rule for long stretches: the mean of a call and its stalls, by sign flips.

Both are compared quad by quad: a quad holds as many calls of either side, in an order
drawn by lot, so that for equal code each difference is as likely to be its negative,
however heavy the tail of the noise (``stats/sign_flips``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from scipy.special import ndtr, ndtri

from perfgate.catalogue.lookup import FAMILIES
from perfgate.catalogue.names import MEAN
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.message import Message, MessageValue
from perfgate.judging.gate.compare.comparison import JudgedNumber, paired
from perfgate.judging.gate.compare.rule import RERUN_SHARE, SHAPE, Errors
from perfgate.judging.gate.evidence.numbers import Number
from perfgate.judging.gate.evidence.quads import HALF
from perfgate.judging.gate.evidence.stretches import (
    FAMILY,
    LOOKS,
    StretchSample,
    StretchSide,
)
from perfgate.judging.gate.evidence.values import rounded, rounded_if_known
from perfgate.stats.error_control import nominal_level, sequential_p
from perfgate.stats.sign_flips import largest_not_excluded, p_positive

METRICS = FAMILIES[FAMILY].metrics
# A mean is worse if it is shown to be so by more than this many standard errors of that
# luck: it exceeds them in 0.016 %.
BEYOND_LUCK = 3.6
# A class of calls may just exceed the limit of a stall, or just miss it: stalls that
# move the mean by less are not a regression.
STALLS_MATTER = 0.01
# More stretches are measured if the mean, or the stalls, look worse with this much
# evidence.
LEANING_SHARE, LEANING_P, LEANING_STALLS_P = 0.5, 0.25, 0.1
# From this share of the time in stalls on they compute, below it they wait.
COMPUTES_SHARE = 0.5
# A slowdown that an interval does not bound is shown as at most this.
_MOST = 10.0


def p_of_alarm(name: str, sample: StretchSample) -> float:
    """The p-value of "not worse" that holds over all looks."""
    p = p_more_stalls(sample.base, sample.head)
    if name == MEAN:
        p = _p_of_mean(sample, 1)
    return _over_looks(p, sample.quads)


def judge_sample(judged: JudgedNumber, sample: StretchSample) -> Paired:
    """Judge the mean or the stalls of a sample."""
    if judged.number.metric == MEAN:
        return _judge_mean(judged, sample)
    return _judge_stalls(judged, sample)


def _compared(
    judged: JudgedNumber, sample: StretchSample, base: float, head: float
) -> Paired:
    return replace(
        paired(judged.number, base=rounded(base), head=rounded(head)),
        p_adjusted=rounded_if_known(judged.p_adjusted),
        pairs=sample.quads,
        starts=sample.starts,
        clock=sample.clock,
    )


def _over_looks(p: float, quads: int) -> float:
    return sequential_p(p, LOOKS, quads, shape=SHAPE)


# --- the mean


def _luck(sample: StretchSample) -> float:
    return sample.start_luck / math.sqrt(sample.starts)


def _p_of_mean(sample: StretchSample, sign: int) -> float:
    """The p-value of a mean that is worse, or better with ``sign`` -1, beyond luck,
    which is not evidence, however many quads share it.
    """
    change = sign * math.expm1(BEYOND_LUCK * _luck(sample))
    return min(1.0, _p_beyond(sample, change, sign) + float(ndtr(-BEYOND_LUCK)))


def _p_beyond(sample: StretchSample, change: float, sign: int) -> float:
    """The p-value of a mean that changed by less than this, in the direction of
    ``sign``.
    """
    return p_positive(sign * (sample.head.means / (1 + change) - sample.base.means))


class _Bounds(NamedTuple):
    """The interval of the change of the mean, missed on each side with probability
    ``level``.
    """

    low: float
    high: float
    level: float


def _bounds_of_mean(sample: StretchSample, errors: Errors) -> _Bounds:
    effect = sample.effect
    level = nominal_level(
        errors.unchanged * (1 - RERUN_SHARE), LOOKS, sample.quads, shape=SHAPE
    )
    reach = -float(ndtri(level)) * _luck(sample)
    low = largest_not_excluded(
        lambda change: _p_beyond(sample, change, 1), level, start=effect, most=-0.999
    )
    high = largest_not_excluded(
        lambda change: _p_beyond(sample, change, -1), level, start=effect, most=_MOST
    )
    return _Bounds(
        effect - math.hypot(effect - low, reach),
        effect + math.hypot(high - effect, reach),
        level,
    )


def _judge_mean(judged: JudgedNumber, sample: StretchSample) -> Paired:
    errors = judged.errors
    terms = judged.number.terms
    low, high, level = _bounds_of_mean(sample, errors)
    base = float(sample.base.means.mean())
    head = float(sample.head.means.mean())
    row = replace(
        _compared(judged, sample, base, head),
        interval=(rounded(low), rounded(high)),
        confidence=rounded(1 - 2 * level),
    )
    allowed = terms.tolerance
    sufficient = terms.margins[-1]
    if sample.effect > allowed and judged.is_alarm:
        return replace(row, outcome="regressed")
    if (
        sample.effect < -allowed
        and _over_looks(_p_of_mean(sample, -1), sample.quads) <= errors.alarm
    ):
        return replace(row, outcome="improved")
    if high <= sufficient:
        return replace(row, outcome="unchanged", excluded=sufficient)
    bound = Message(
        "gate.upper-bound", {"bound": rounded(high), "confidence": rounded(1 - level)}
    )
    reason = Message(
        "gate.slowdown-possible", {"size": rounded(sufficient), "shown": bound}
    )
    return replace(row, reason=reason)


# --- stalls


def p_more_stalls(less: StretchSide, more: StretchSide) -> float:
    """The p-value of "``more`` does not stall more often or for longer", at a single
    look.
    """
    often = p_positive(more.stall_shares - less.stall_shares)
    long = p_positive(more.stall_seconds - less.stall_seconds)
    return min(1.0, 2 * min(often, long))


def _judge_stalls(judged: JudgedNumber, sample: StretchSample) -> Paired:
    row = _compared(judged, sample, sample.base.stalls.share, sample.head.stalls.share)
    allowed = judged.number.terms.tolerance
    effect = _stall_effect(sample)
    if effect > allowed and judged.is_alarm and sample.effect > STALLS_MATTER:
        return replace(row, outcome="regressed", reason=rare_slow_calls(sample))
    # Fewer stalls, or an unclear difference, leave no verdict open: the mean bounds
    # what they can cost.
    informing = replace(row, gating=False)
    is_better = (
        effect < -allowed
        and _over_looks(p_more_stalls(sample.head, sample.base), sample.quads)
        <= judged.errors.alarm
    )
    if is_better and sample.effect < -STALLS_MATTER:
        return replace(informing, outcome="improved")
    return informing


def _stall_effect(sample: StretchSample) -> float:
    """By which share head stalls more often, or for longer in all if that is more; half
    a stall is added to both sides.
    """
    before = sample.base.stalls
    after = sample.head.stalls
    often = (after.stalled + HALF) / (before.stalled + HALF) - 1
    base = float(sample.base.stall_seconds.sum())
    head = float(sample.head.stall_seconds.sum())
    if base > 0:
        return max(often, head / base - 1)
    return often


def rare_slow_calls(sample: StretchSample) -> Message:
    """How often head's calls stall beyond base's, for how long, at which line, and
    whether they compute or wait.
    """
    base = sample.base.stalls
    head = sample.head.stalls
    long = head.typical / 2
    often = head.share_above(long) - base.share_above(long)
    if often < head.share_above(long) / 2:  # as often, and for longer
        often = head.share_above(long)
    how = Message("gate.stall-unknown")
    if head.computing is not None:
        how = Message("gate.stall-waiting")
        if head.computing >= COMPUTES_SHARE:
            how = Message("gate.stall-computing")
    values: dict[str, MessageValue] = {
        "every": round(1 / often),
        "seconds": rounded(head.typical),
        "how": how,
    }
    if sample.line is None:
        return Message("gate.rare-slow-calls", values)
    return Message("gate.rare-slow-calls-at", {**values, "line": sample.line})


# --- between two looks


def more_calls_would_help(
    numbers: Iterable[Number], comparisons: Sequence[Comparison]
) -> bool:
    """Whether mean or stalls look worse and are not yet shown to be, so that further
    stretches may show it.
    """
    for number in numbers:
        if number.metric == MEAN and isinstance(number.values, StretchSample):
            of_place = [
                row
                for row in comparisons
                if row.place == number.place and row.metric in METRICS
            ]
            if leans_slower(number.values, of_place):
                return True
    return False


def leans_slower(sample: StretchSample, comparisons: Sequence[Comparison]) -> bool:
    """Whether a sample that can grow and decide looks worse; ``comparisons`` judge its
    mean and stalls.
    """
    if sample.quads >= LOOKS[-1] or sample.waited:
        return False
    allowed = 0.0
    for comparison in comparisons:
        if comparison.outcome == "regressed":
            return False
        if isinstance(comparison, Paired) and comparison.metric == MEAN:
            allowed = max(allowed, comparison.tolerance or 0.0)
    if (
        sample.effect > LEANING_SHARE * allowed
        and _p_beyond(sample, 0.0, 1) <= LEANING_P
    ):
        return True
    p = p_more_stalls(sample.base, sample.head)
    return sample.effect > STALLS_MATTER and p <= LEANING_STALLS_P
