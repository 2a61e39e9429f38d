"""The rule for one metric: paired differences in, evidence and bounds out.

Every claim of the gate about time is made here.

The differences are logarithms of second over first, one a process pair, in the order of
measuring. They may be examined after planned numbers of them (a group-sequential test),
in one job or in several. Those beyond the last planned number count as bets of an
e-value, which stays valid however often a job is run again and adds more. A tenth of
each error is reserved for those, so that both together stay within the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from perfgate.judging.gate.evidence.effect import Differences
from perfgate.stats.clusters import cluster_error
from perfgate.stats.error_control import (
    log_e_of_p,
    log_e_value,
    nominal_level,
    sequential_p,
)
from perfgate.stats.signed_rank import (
    detectable_shift,
    lower_bound,
    p_above,
    p_below,
    upper_bound,
)
from perfgate.stats.summary import error_factor, median, neighbour_correlation

# All looks weigh alike (Pocock). Boundaries that are stricter early gain a little if
# all pairs can be had, and lose much if a slow workload or a busy machine gives only a
# dozen pairs in the time.
SHAPE = 0.5
RERUN_SHARE = 0.1
POWER = 0.95
Z_POWER = 1.645  # of 95 %
# The rule demands more of n independent pairs than their error, by 1 + this / n^1.5:
# some look correlated, and their spread is itself an estimate. Found by simulation
# (test_rule.py).
WIDENED = 74.0
Z_DECIDES = 3.01  # of a look's share of 5 % and of 80 % power
MOST_PAIRS = 10_000
# The share of the tolerance from which an estimate leans towards a regression, and the
# pairs up to which that is worth more of them: further pairs take as long again and
# find few of the slowdowns that these miss (benchmarks/gate/looks.py).
LEANING = 0.5
LEANING_PAIRS = 64
# Fewer pairs reach no level in use (8 pairs at best 1/256; the level of a look is
# 0.0016).
FEWEST_TO_ALARM = 10
# Successive pairs may be correlated, by their server or by other processes. Fewer than
# a dozen are too few to estimate the correlation, so neighbours are assumed to be
# correlated by this much. More is never assumed for "unchanged" with its larger error:
# the gate would never decide then.
ASSUMED_ALIKE = 0.65
FEWEST_TO_TELL = 12
MOST_ALIKE = 0.75
# An alarm takes the correlation for this number of standard errors above the estimate,
# and assumes more of few pairs. If more pairs can be had it can afford many. At the end
# it takes fewer, and all of them only if the pairs look correlated. Unchanged code with
# a correlation of 0.8 between neighbours fails in one gate of a hundred, and in ten
# without (test_rule.py). If 0.8 were assumed of fewer than a dozen pairs, two of a
# hundred would fail: ten pairs underestimate their own spread.
ASSUMED_ALIKE_OF_ALARMS = 0.88
INTERIM_MARGIN = 3.0
FINAL_MARGIN = 1.5
LOOKS_CORRELATED = 0.25
MOST_ALIKE_OF_ALARMS = 0.95
SINGLE_CONFIDENCE = 0.95
_LEAST_SCALE = 1e-4
_NO_SPREAD = 1e-9


class Limits(NamedTuple):
    """The bounds of one metric, as logarithms: the tolerated slowdown and the slowdown
    that "unchanged" excludes.
    """

    tolerated: float
    excluded: float


class Errors(NamedTuple):
    """Error probabilities of the rule: of an alarm, and of an "unchanged"; spent over
    the numbers of pairs ``looks``.
    """

    alarm: float
    unchanged: float
    looks: tuple[int, ...]

    @property
    def alarm_looks(self) -> tuple[int, ...]:
        return alarm_looks(self.looks)


Answer = Literal["regressed", "improved", "unchanged", "inconclusive"]


class Interval(NamedTuple):
    """Bounds of the effect, as logarithms, each missed with probability (1 -
    confidence) / 2.
    """

    low: float
    high: float
    confidence: float


def leans_slower(worsening: float, tolerated: float, *, pairs: int) -> bool:
    """Whether a worsening that is "unchanged" after these pairs is near enough to the
    tolerance that more pairs are worth it.

    Without waiting for these pairs a slowdown of the tolerance is found in 18 % of
    gates, with them in 52 %, and unchanged code takes 16 pairs instead of 15
    (benchmarks/gate/power.py).
    """
    return pairs < LEANING_PAIRS and worsening > LEANING * tolerated


def alarm_looks(looks: Sequence[int]) -> tuple[int, ...]:
    """The looks that can alarm; looks at fewer pairs would waste error."""
    return tuple(pairs for pairs in looks if pairs >= FEWEST_TO_ALARM) or tuple(looks)


def looks_left(looks: Sequence[int], measured: int) -> list[int]:
    """The further pairs after which a job that adds to ``measured`` pairs looks: at the
    planned numbers only.

    Once they are used up, after as many again: those count as bets, which stay valid
    however often one looks.
    """
    return [pairs - measured for pairs in looks if pairs > measured] or list(looks)


def answer(
    differences: Differences,
    limits: Limits,
    errors: Errors,
    *,
    p_adjusted: float | None = None,
) -> Answer:
    """Answer one of four ways; ``p_adjusted`` is ``p_slower``, corrected for all other
    tests.

    A regression is shown beyond chance and estimated beyond the tolerance. To demand
    evidence of the tolerance itself would miss half of the slowdowns twice as large
    (benchmarks/gate): the tolerance decides which changes matter, the test which are
    real.
    """
    p = p_adjusted
    if p is None:
        alike_margin = alarm_margin(differences.size, errors.looks, interim=False)
        p = p_slower(differences, 0.0, errors.alarm_looks, alike_margin=alike_margin)
    if differences.estimate > limits.tolerated and p <= errors.alarm:
        return "regressed"
    if (
        differences.estimate < -limits.tolerated
        and p_slower(-differences, 0.0, errors.alarm_looks) <= errors.alarm
    ):
        return "improved"
    if excludes(differences, limits.excluded, errors):
        return "unchanged"
    return "inconclusive"


# Standard errors added to the estimated correlation of neighbours, and the correlation
# from which all are added.
AlikeMargin = tuple[float, float]


def alarm_margin(pairs: int, looks: Sequence[int], *, interim: bool) -> AlikeMargin:
    """The margin of an alarm after these pairs, if more can be had (``interim``) or
    not.
    """
    if interim and pairs < looks[-1]:
        return INTERIM_MARGIN, 0.0
    return FINAL_MARGIN, LOOKS_CORRELATED


def p_slower(
    differences: Differences,
    margin: float,
    looks: Sequence[int],
    *,
    alike_margin: AlikeMargin | None = None,
) -> float:
    """A p-value of "second is slower by at most ``margin``" that holds over all looks
    and reruns.

    It allows for correlation between successive pairs (``alike_margin`` as of
    ``correlated_error``), and if pairs share starts for their luck: a single start is
    not evidence. And it allows for the luck of code, however many the pairs are.
    """
    p = _p_of_noise(differences, margin, looks, alike_margin)
    if differences.luck:
        p = max(p, _p_with_luck(differences, margin, looks, alike_margin))
    return p


def _p_of_noise(
    differences: Differences,
    margin: float,
    looks: Sequence[int],
    alike_margin: AlikeMargin | None,
) -> float:
    planned = differences[: looks[-1]]
    further = differences[looks[-1] :]
    p_alike = float(
        ndtr((margin - planned.estimate) / correlated_error(planned, alike_margin))
    )
    p_last = max(
        p_above(planned.values, margin, planned.weights),
        p_alike,
        _p_of_starts(planned, margin),
    )
    p_planned = sequential_p(p_last, looks, planned.size, shape=SHAPE)
    p = p_planned / (1 - RERUN_SHARE)
    if further.size:
        scale = max(_LEAST_SCALE, spread(planned))
        evidence = log_e_of_p(p_planned) + log_e_value(
            further.values, margin, scale=scale
        )
        p = min(p, math.exp(-max(0.0, evidence)) / RERUN_SHARE)
    return min(1.0, p)


def _p_with_luck(
    differences: Differences,
    margin: float,
    looks: Sequence[int],
    alike_margin: AlikeMargin | None,
) -> float:
    error = correlated_error(differences, alike_margin)
    p_last = float(
        ndtr((margin - differences.estimate) / math.hypot(error, differences.luck))
    )
    information = _information(differences, error, looks)
    return sequential_p(p_last, information[:-1], information[-1], shape=SHAPE)


def _information(
    differences: Differences, error: float, looks: Sequence[int]
) -> tuple[float, ...]:
    """The information on an effect with luck, at these numbers of pairs and, last, at
    the number measured.

    It is the inverse of the variance of the estimate, luck included: the estimates of
    the looks are then a walk with independent steps, as they are without luck, and
    looks at more pairs add little (Jennison and Turnbull, Group sequential methods,
    2000, chapter 11).
    """
    of_a_pair = error**2 * differences.size
    pairs = np.array([*looks, min(differences.size, looks[-1])])
    return tuple(
        (pairs / (of_a_pair + pairs * differences.luck**2) * of_a_pair).tolist()
    )


def _p_of_starts(differences: Differences, margin: float) -> float:
    """A p-value with the start, not the pair, as the unit of evidence; 0 if every pair
    is a fresh start.
    """
    if differences.starts is None:
        return 0.0
    of_starts = cluster_error(
        differences.values, differences.starts, luck=differences.start_luck
    )
    if of_starts is None:
        return 1.0
    error, freedom = of_starts
    return float(stdtr(freedom, (margin - differences.estimate) / error))


def excludes(differences: Differences, slowdown: float, errors: Errors) -> bool:
    """Whether a slowdown this large or larger is excluded, with an error of at most
    ``errors.unchanged``.
    """
    return p_slower(-differences, -slowdown, errors.looks) <= errors.unchanged


def correlated_error(
    differences: Differences, alike_margin: AlikeMargin | None = None
) -> float:
    """The standard error of the estimate for pairs that resemble their predecessor (an
    AR(1) series).

    The correlation r observed in n pairs is too small by (1 + 3 r) / n (Marriott and
    Pope, Bias in the estimation of autocorrelations, Biometrika 41, 1954). The
    autocorrelations of ``alike_margin`` are added, sqrt((1 - r^2) / n) each (Bartlett,
    On the theoretical specification of sampling properties of autocorrelated time
    series, 1946).
    """
    pairs = differences.size
    alike = ASSUMED_ALIKE if alike_margin is None else ASSUMED_ALIKE_OF_ALARMS
    if pairs >= FEWEST_TO_TELL:
        correlation = neighbour_correlation(differences.values - differences.estimate)
        corrected = correlation + (1 + 3 * correlation) / pairs
        most = MOST_ALIKE
        if alike_margin is not None:
            errors, full_from = alike_margin
            share = min(1.0, max(0.0, corrected) / full_from) if full_from else 1.0
            corrected += (
                share * errors * math.sqrt(max(0.0, 1 - correlation**2) / pairs)
            )
            most = MOST_ALIKE_OF_ALARMS
        alike = min(most, max(0.0, corrected))
    return (
        max(_NO_SPREAD, spread(differences))
        * math.sqrt(math.pi / 3 / pairs)
        * error_factor(alike)
    )


def spread(differences: Differences, around: float | None = None) -> float:
    """1.4826 x the median absolute deviation from the estimate, or from another centre.

    It is the sd of a normal sample, and insensitive to outliers.
    """
    centre = differences.estimate if around is None else around
    return 1.4826 * median(np.abs(differences.values - centre))


def interval(differences: Differences, errors: Errors) -> Interval | None:
    """The interval behind the answer "unchanged" at a planned look; None while pairs
    are too few for one.
    """
    planned = differences[: errors.looks[-1]]
    error = errors.unchanged * (1 - RERUN_SHARE)
    level = nominal_level(error, errors.looks, differences.size, shape=SHAPE)
    bounds = _interval(differences, level, planned)
    if bounds is None or not differences.luck:
        return bounds
    reach = _reach_with_luck(differences, errors.unchanged, errors.looks)
    low = min(bounds.low, differences.estimate - reach)
    high = max(bounds.high, differences.estimate + reach)
    return Interval(low, high, bounds.confidence)


def _reach_with_luck(
    differences: Differences,
    error: float,
    looks: Sequence[int],
    alike_margin: AlikeMargin | None = None,
) -> float:
    """How far the estimate lies from a margin that is excluded just so with this error,
    by ``_p_with_luck``.
    """
    of_pairs = correlated_error(differences, alike_margin)
    information = _information(differences, of_pairs, looks)
    level = nominal_level(error, information[:-1], information[-1], shape=SHAPE)
    return -float(ndtri(level)) * math.hypot(of_pairs, differences.luck)


def single_interval(differences: Differences) -> Interval | None:
    """The interval at 95 % of differences without interim looks; None of fewer than
    six.
    """
    return _interval(differences, (1 - SINGLE_CONFIDENCE) / 2, differences)


def _interval(
    differences: Differences, level: float, planned: Differences
) -> Interval | None:
    low = lower_bound(differences.values, level, differences.weights)
    high = upper_bound(differences.values, level, differences.weights)
    reach = -float(ndtri(level)) * correlated_error(planned)
    if differences.starts is not None:
        of_starts = cluster_error(
            differences.values, differences.starts, luck=differences.start_luck
        )
        error, freedom = of_starts or (math.inf, 1.0)
        reach = max(reach, -float(stdtrit(freedom, level)) * error)
    low = min(low, differences.estimate - reach)
    high = max(high, differences.estimate + reach)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    return Interval(low, high, 1 - 2 * level)


def detectable(
    differences: Differences, tolerated: float, errors: Errors, *, tests: int
) -> float | None:
    """The slowdown that as many pairs of this spread show in 95 of 100 jobs, as a
    share; None if none would.

    The slowdown must be shown beyond chance, at the level that the boundary leaves this
    look and ``tests`` comparisons share, and estimated beyond the tolerance. The larger
    of the two counts. For normal pairs the Hodges-Lehmann estimate has the standard
    error spread x sqrt(pi / 3 / pairs) (Hollander, Wolfe and Chicken, 3.2), which the
    rule widens if pairs look correlated. Pairs beyond the last look are left out: they
    add little as bets. The slowdown is of this pair of builds, with the luck of their
    code; the alarm allows for that.
    """
    pairs = min(differences.size, errors.looks[-1])
    alarm = errors.alarm * (1 - RERUN_SHARE) / tests
    level = nominal_level(alarm, errors.alarm_looks, pairs, shape=SHAPE)
    shift = detectable_shift(pairs, level, POWER)
    if shift is None:
        return None
    pair_spread = spread(differences)
    error = pair_spread * math.sqrt(math.pi / 3 / pairs)
    widened = (Z_POWER - float(ndtri(level))) * (1 + WIDENED / pairs**1.5) * error
    if differences.luck:
        margin = alarm_margin(pairs, errors.looks, interim=False)
        of_alarm = _reach_with_luck(
            differences, errors.alarm / tests, errors.alarm_looks, margin
        )
        widened = max(widened, of_alarm + Z_POWER * error)
    return math.expm1(max(shift * pair_spread, widened, tolerated + Z_POWER * error))


def pairs_to_decide(differences: Differences, *, excluded: float) -> int:
    """About how many pairs of this spread would decide.

    That is n with 3.01 x spread / sqrt(n) equal to the larger of two distances: from
    the effect to the change that "unchanged" excludes, or to no change at all. If both
    are zero, no number would.
    """
    effect = differences.estimate
    distance = max(excluded - effect, effect)
    if distance <= 0:
        return MOST_PAIRS
    needed = math.ceil((Z_DECIDES * spread(differences) / distance) ** 2)
    return min(MOST_PAIRS, max(differences.size + 1, needed))


def differs(differences: Differences, margin: float, *, alpha: float) -> bool:
    """Whether the pairs lie on one side, beyond ``margin`` on the whole: base against
    base must not.

    Pairs of one start share its luck, so a single start shows no difference.
    """
    values = differences.values
    weights = differences.weights
    if min(_p_of_starts(differences, 0.0), _p_of_starts(-differences, 0.0)) > alpha:
        return False
    return (
        abs(differences.estimate) > margin
        and min(p_above(values, 0.0, weights), p_below(values, 0.0, weights)) <= alpha
    )
