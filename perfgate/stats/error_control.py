"""Error rates under many looks and many tests: group-sequential boundaries, e-values,
Holm, and the false discovery rate.

Planned looks: Wang and Tsiatis, Approximately optimal one-parameter boundaries for
group sequential trials, Biometrics 43 (1987). The standardised statistic at information
fraction t is compared with C x t^(shape - 1/2); C is chosen so that a walk without
drift ever crosses with the probability alpha. The shape is 0 for O'Brien and Fleming's
boundary, by which early looks have hardly any weight, and 1/2 for Pocock's, by which
all looks weigh alike.

Unplanned looks (a job that is run again): an e-value, the capital of a bettor against
the null hypothesis in fair bets, so that it ever reaches 1/alpha with at most the
probability alpha, however often and for whichever reason one looks (Ville 1939; Ramdas
and others, Game-theoretic statistics and safe anytime-valid inference, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from perfgate.stats.arrays import Floats

# Nodes of a Gauss-Legendre rule for each standard deviation of the walk's next step:
# the crossing probability is then good to 1e-9. Looks at doubled numbers of pairs need
# 32 nodes, looks after every pair some hundreds. Where luck outweighs the noise of all
# pairs fifty times, the steps are too short for the most nodes, and a constant is good
# to 1e-4.
_NODES_PER_DEVIATION = 3.0
_FEWEST_NODES, _MOST_NODES = 32, 256
_REACH = 8.0  # standard deviations below 0 from which on a walk no longer matters
_PRECISION = 1e-9  # of the logarithm of a crossing probability
_MOST_STEPS = 60
# Shares of capital that the bettors stake on every difference; the e-value is their
# mean capital: small stakes find small effects late, large stakes find large effects
# early, and the mean is at worst a fifth of the best.
_STAKES = (0.1, 0.2, 0.4, 0.6, 0.8)


def nominal_level(
    alpha: float, looks: Sequence[float], count: float, *, shape: float
) -> float:
    """The one-sided level of a test after ``count`` of at most ``looks[-1]``
    observations, or their information.

    Tests at these levels at every look err together with probability ``alpha``. A count
    that was not planned (a pair failed, time ran out) gets the level of its fraction.
    """
    return float(
        ndtr(
            -_constant(alpha, tuple(looks), shape)
            * _fraction(looks, count) ** (shape - 0.5)
        )
    )


def sequential_p(
    p: float, looks: Sequence[float], count: float, *, shape: float
) -> float:
    """The smallest alpha with a boundary that a test with p-value ``p`` after ``count``
    observations reaches.

    It is a p-value that stays true over all looks, and can be corrected for other
    tests, by Holm for instance.
    """
    if p <= 0:
        return 0.0
    constant = -float(ndtri(p)) / _fraction(looks, count) ** (shape - 0.5)
    if constant <= 0:
        return 1.0
    return _crossing(constant, tuple(looks), shape)


def log_e_value(differences: Floats, margin: float, *, scale: float) -> float:
    """The logarithm of the evidence against "the differences lie symmetrically around
    at most ``margin``".

    A bettor with stake b multiplies its capital by 1 + b tanh((difference - margin) /
    scale), which is fair for differences symmetric around the margin, as tanh is odd,
    and bounded, so that a wild difference cannot decide. The result belongs to the mean
    capital. ``scale`` must not depend on these differences.
    """
    signs = np.tanh((np.asarray(differences, dtype=np.float64) - margin) / scale)
    capital = np.log1p(np.asarray(_STAKES)[:, None] * signs[None, :]).sum(axis=1)
    return float(logsumexp(capital) - math.log(len(_STAKES)))


def log_e_of_p(p: float) -> float:
    """The logarithm of the e-value that a p-value is worth: 1 / (2 sqrt p) (Vovk and
    Wang 2021, calibrators).
    """
    if p <= 0:
        return math.inf
    return -math.log(2.0) - math.log(p) / 2


def _fraction(looks: Sequence[float], count: float) -> float:
    return min(1.0, count / looks[-1])


@lru_cache(maxsize=256)
def _constant(alpha: float, looks: tuple[float, ...], shape: float) -> float:
    """The constant whose boundary is crossed with probability ``alpha``, by false
    position.

    The logarithm of the crossing probability is nearly straight, so the Illinois
    variant (Dowell and Jarratt, BIT 11, 1971) needs about seven integrals.
    ``scipy.optimize`` would take longer to import than it saves.
    """
    first, last = -float(ndtri(alpha)), -float(ndtri(alpha / len(looks)))
    of_first = _excess(first, alpha, looks, shape)
    of_last = _excess(last, alpha, looks, shape)
    for _ in range(_MOST_STEPS):
        if abs(of_last) <= _PRECISION or of_first == of_last:
            break
        constant = last - of_last * (last - first) / (of_last - of_first)
        excess = _excess(constant, alpha, looks, shape)
        if (excess > 0) == (of_last > 0):
            of_first /= 2
        else:
            first, of_first = last, of_last
        last, of_last = constant, excess
    return last


def _excess(
    constant: float, alpha: float, looks: tuple[float, ...], shape: float
) -> float:
    return math.log(_crossing(constant, looks, shape) / alpha)


@lru_cache(maxsize=4096)
def _crossing(constant: float, looks: tuple[float, ...], shape: float) -> float:
    """How probably a walk without drift crosses, by integrating look by look over the
    walks that have not yet.

    Armitage, McPherson and Rowe, Repeated significance tests on accumulating data, J.
    R. Stat. Soc. A 132 (1969).
    """
    times = np.asarray(looks, dtype=np.float64) / looks[-1]
    bounds = (
        constant * times**shape
    )  # of the walk itself: sqrt(t) times the standardised statistic
    starts, steps = -_REACH * np.sqrt(times), np.sqrt(np.diff(times))
    # How many nodes resolve every step of the walk, as a power of two so that few rules
    # serve all constants.
    lengths = bounds[:-1] - starts[:-1]
    needed = _NODES_PER_DEVIATION * float(np.max(lengths / steps, initial=0.0))
    count = _FEWEST_NODES
    while count < min(needed, _MOST_NODES):
        count *= 2
    rule = _gauss_legendre(count)
    grid, weights = _points(starts[0], bounds[0], rule)
    crossed = float(ndtr(-bounds[0] / math.sqrt(times[0])))
    density = np.exp(-(grid**2) / (2 * times[0])) / math.sqrt(2 * math.pi * times[0])
    for i, step in enumerate(steps, 1):
        mass = weights * density
        crossed += float(mass @ ndtr((grid - bounds[i]) / step))
        reached, weights = _points(starts[i], bounds[i], rule)
        kernel = np.exp(-(((reached[:, None] - grid[None, :]) / step) ** 2) / 2) / (
            math.sqrt(2 * math.pi) * step
        )
        grid, density = reached, kernel @ mass
    return min(1.0, crossed)


@cache
def _gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _points(
    start: float, end: float, rule: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """The nodes from far below 0 up to the boundary, and their weights."""
    nodes, weights = rule
    return start + (end - start) * nodes, (end - start) * weights


# --- many tests


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979), valid under any dependence: adjusted
    p-values, in the order given.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for position, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = running
    return adjusted


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """The Benjamini-Hochberg-adjusted p-values (1995), in the order given.

    Of those called at most q, a share of at most q is false on average, if the tests
    are independent or depend positively, as the operators of one call do.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__, reverse=True)
    adjusted = [1.0] * len(p_values)
    running = 1.0
    for position, index in enumerate(order):
        running = min(
            running, len(p_values) / (len(p_values) - position) * p_values[index]
        )
        adjusted[index] = running
    return adjusted
