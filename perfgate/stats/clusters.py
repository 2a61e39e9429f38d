"""The error of an estimate from clustered values: the starts of a server or a job
differ by luck.
"""

from __future__ import annotations

import math

import numpy as np

from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.summary import median

# The difference between two fresh starts of equal code, as the sd of a logarithm,
# beyond the spread within them; and the degrees of freedom of this prior. A few starts
# cannot estimate their variance: by chance, two starts may hardly differ. Servers of
# one model measured twelve starts: 0.8 to 2 % (benchmarks/jobs).
START_LUCK = 0.01
PRIOR_FREEDOM = 4.0
_LEAST_ERROR = 1e-9


def cluster_error(
    values: Floats, clusters: Ints, *, luck: float = START_LUCK
) -> tuple[float, float] | None:
    """The standard error of the mean of equally weighted clusters, and its degrees of
    freedom; None for fewer than two.

    The variance between clusters is pooled with its expectation, from the spread within
    and ``luck``, each weighed by its degrees of freedom (the moderated t of Smyth,
    Linear models and empirical Bayes methods, Statistical Applications in Genetics and
    Molecular Biology 3, 2004).
    """
    groups = [values[clusters == number] for number in np.unique(clusters)]
    count = len(groups)
    if count < 2:
        return None
    means = np.array([median(group) for group in groups])
    within = np.mean([_variance_of_median(group) for group in groups])
    expected = luck**2 + float(within)
    observed = float(means.var(ddof=1))
    freedom = PRIOR_FREEDOM + count - 1
    variance = (PRIOR_FREEDOM * expected + (count - 1) * observed) / freedom
    return max(_LEAST_ERROR, math.sqrt(variance / count)), freedom


def _variance_of_median(group: Floats) -> float:
    """pi / 2 times the variance of the mean, by the robust spread; 0 for a single
    value: its spread shows between clusters.
    """
    if group.size < 2:
        return 0.0
    deviation = 1.4826 * median(np.abs(group - median(group)))
    return math.pi / 2 * deviation**2 / group.size
