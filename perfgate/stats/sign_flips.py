"""A sign-flip test of a mean of paired differences: exact whatever their distribution,
if each is as likely to be its negative.

Differences of two sides that took turns in random order are, for equal code: what
disturbs a turn may as well have hit the other side. The test compares the sum of the
differences with that under all 2^n choices of signs (Fisher, The Design of Experiments,
1935, section 21), so that rare large values keep their weight in the mean, and one of
them alone is not evidence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

# Resolution of the sum's distribution: differences are rounded to this share of the sum
# of their sizes.
_STEPS = 4096
_BISECTIONS = 40


def p_positive(differences: npt.ArrayLike) -> float:
    """The probability of a sum this large or larger if the sign of every difference is
    a coin's; 1 without any difference.
    """
    values = np.asarray(differences, dtype=np.float64)
    sizes = np.abs(values)
    total = float(sizes.sum())
    if total <= 0:
        return 1.0
    steps = np.rint(sizes / total * _STEPS).astype(np.int64)
    observed = int(steps[values > 0].sum())
    # The distribution of the sum of the positive differences: each is positive with
    # probability 1/2.
    chances = np.zeros(int(steps.sum()) + 1)
    chances[0] = 1.0
    for size in steps:
        positive = np.zeros_like(chances)
        positive[size:] = chances[: chances.size - size]
        chances = (chances + positive) / 2
    return min(1.0, float(chances[observed:].sum()))


def largest_not_excluded(
    p_at: Callable[[float], float], level: float, *, start: float, most: float
) -> float:
    """The end of the interval from ``start`` towards ``most``: the last value that a
    test with p-value ``p_at`` keeps.
    """
    if p_at(most) > level:
        return most
    inside, excluded = start, most
    for _ in range(_BISECTIONS):
        middle = (inside + excluded) / 2
        if p_at(middle) > level:
            inside = middle
        else:
            excluded = middle
    return inside
