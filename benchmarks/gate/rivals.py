"""The documented decision rules of other tools, written anew from their documentation
and source.

A rule is ``decide(base, head, ctx)``; the interface is told in yardstick.py. None of
these looks at ``ctx["paired"]``: they compare two samples. Where a tool has two
answers, "not worse" is "ok", which is what a green CI job says. What a tool calls one
measurement decides what a rule counts: a run (one process), a block (some 25 ms of
calls) or a call.
"""

# ruff: noqa: ARG001 - every rule has the one signature, whether it looks at ctx or not
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]
Run = Sequence[Floats]
Answer = dict[str, Any]
Decide = Callable[[Sequence[Run], Sequence[Run], dict[str, Any]], Answer]


class Rule(NamedTuple):
    """A decision rule; ``looks`` are the numbers of pairs at which it may answer
    "undecided" and be given more.

    Without looks it is asked once, with all pairs that the budget buys; with looks,
    with no more than the last of them.

    A tool that judges tails or gaps as metrics of their own has ``others``: its rule
    for "p99" or "gap".
    """

    name: str
    decide: Decide
    looks: tuple[int, ...] = ()
    others: dict[str, Decide] | None = None

    def decide_on(self, scenario: str) -> Decide:
        """Return the rule for a scenario."""
        return (self.others or {}).get(scenario, self.decide)


class Summary(NamedTuple):
    """What the rules need of one run: all its calls, and the mean of each block."""

    calls: Floats
    blocks: Floats
    mean: float
    variance: float
    median: float
    minimum: float


_SUMMARIES: dict[int, tuple[Run, Summary]] = {}


def summary(run: Run) -> Summary:
    """Return the run's summary; a resampled run comes thousands of times and is
    summarised once.
    """
    known = _SUMMARIES.get(id(run))
    if known is None or known[0] is not run:
        calls = np.concatenate(run)
        variance = float(calls.var(ddof=1)) if calls.size > 1 else 0.0
        blocks = np.array([block.mean() for block in run])
        made = Summary(
            calls,
            blocks,
            float(calls.mean()),
            variance,
            float(np.median(calls)),
            float(calls.min()),
        )
        if len(_SUMMARIES) >= 8192:
            _SUMMARIES.clear()
        known = _SUMMARIES[id(run)] = (
            run,
            made,
        )  # kept with its run, so that the id is not given to another
    return known[1]


def checklist_p99(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when P99 of all head calls is more than 5 % above base's: step 20 of the
    checklist, as first written.
    """
    effect = _ratio(*(float(np.quantile(_calls(side), 0.99)) for side in (base, head)))
    return _two_valued(effect > 0.05, effect)


def github_action_benchmark(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm at twice the previous value: benchmark-action/github-action-benchmark,
    action.yml, alert-threshold 200 %.
    """
    effect = _ratio(_mean_of_calls(base), _mean_of_calls(head))
    return _two_valued(1 + effect > 2.0, effect)


def pytest_benchmark_mean(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when the mean rose by more than 5 %: pytest-benchmark's
    --benchmark-compare-fail=mean:5%.

    The percentage is the user's; 5 % is the one its documentation shows (utils.py,
    PercentageRegressionCheck).
    """
    effect = _ratio(_mean_of_calls(base), _mean_of_calls(head))
    return _two_valued(effect > 0.05, effect)


def pytest_benchmark_min(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when the minimum rose by more than 5 %: --benchmark-compare-fail=min:5%.

    The ratio of minima beyond 5 % is also the rule of Julia's BenchmarkTools (Chen &
    Revels 2016, arXiv 1608.04295).
    """
    effect = _ratio(
        *(min(summary(run).minimum for run in side) for side in (base, head))
    )
    return _two_valued(effect > 0.05, effect)


def benchstat(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Alarm when a Mann-Whitney U test at .05 finds run means different and the median
    rose.

    golang/perf, benchmath/anone.go (AssumeNothing: medians and the U test) and
    sample.go (CompareAlpha .05).
    """
    before, after = _means(base), _means(head)
    effect = _ratio(float(np.median(before)), float(np.median(after)))
    return _two_valued(effect > 0 and mann_whitney(before, after) < 0.05, effect)


def asv_continuous(factor: float) -> Decide:
    """Return asv's rule: samples that a conservative U test tells apart at .002,
    medians further apart than the factor.

    airspeed-velocity/asv: _stats.py is_different and mann_whitney_u (ties count for "no
    difference", normal above 20 samples), commands/compare.py; --factor is 1.1 unless
    set. An asv sample is the mean of calls lasting some 10 ms (sample_time), which a
    block is nearest to; samples of all processes are pooled.
    """

    def decide(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
        before, after = _blocks(base), _blocks(head)
        effect = _ratio(float(np.median(before)), float(np.median(after)))
        return _two_valued(
            1 + effect > factor
            and mann_whitney(before, after, ties_conservative=True) < 0.002,
            effect,
        )

    return decide


def bencher_t_test(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when head's mean is above mean + t(.99, n - 1) x sd of the last 64 stored
    values.

    bencherdev/bencher: lib/bencher_boundary/src/limits, and "Thresholds & Alerts"
    (t_test, upper boundary 0.99, sample of at most 64). A stored value is the mean of
    one run.
    """
    stored = _means(base)[-64:]
    limit = stored.mean() + special.stdtrit(stored.size - 1, 0.99) * stored.std(ddof=1)
    value = float(_means(head).mean())
    return _two_valued(value > limit, _ratio(float(stored.mean()), value))


def bencher_iqr(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when head's mean is above q2 + 3 (q3 - q1) of the last 64 stored values
    (bencher_boundary/src/quartiles.rs).
    """
    q1, q2, q3 = np.quantile(_means(base)[-64:], [0.25, 0.5, 0.75])
    value = float(_means(head).mean())
    return _two_valued(value > q2 + 3.0 * (q3 - q1), _ratio(float(q2), value))


def pinpoint(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Compare run means by the U and the Kolmogorov-Smirnov test: p <= .01 different,
    above the high threshold the same.

    catapult-project/catapult, dashboard/pinpoint/models/compare: compare.py,
    thresholds.py (low .01; high by the number of attempts, for a difference of one
    interquartile range). In between it asks for more attempts.
    """
    before, after = _means(base), _means(head)
    effect = _ratio(float(np.median(before)), float(np.median(after)))
    p = min(_normal_p(before, after), kolmogorov_smirnov(before, after))
    if p <= 0.01:
        return _answer("regressed" if effect > 0 else "ok", effect)
    return _answer(
        "ok"
        if p > pinpoint_high_threshold(min(before.size, after.size))
        else "undecided",
        effect,
    )


def perfherder(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Alarm when t > 7 between the last 24 base and the first 12 head values and the
    means differ by 2 %.

    mozilla/treeherder, perfalert/__init__.py (analyze with linear weights, nearest
    values most; calc_t; windows 12, up to 24 back, 12 fore; t_threshold 7) and its
    alert threshold of 2 %. A value is the median of one run's calls.
    """
    back = np.array([summary(run).median for run in base])[::-1][:24]
    fore = np.array([summary(run).median for run in head])[:12]
    (before, before_variance), (after, after_variance) = (
        _linearly_weighted(back),
        _linearly_weighted(fore),
    )
    effect = _ratio(before, after)
    if min(back.size, fore.size) < 12:
        return _two_valued(False, effect)
    error = np.sqrt(before_variance / back.size + after_variance / fore.size)
    return _two_valued(effect >= 0.02 and after - before > 7 * error, effect)


def kalibera_jones(
    base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]
) -> Answer:
    """Alarm when Fieller's 99 % interval of the ratio of run means lies above 1.

    Kalibera & Jones, Quantifying performance changes with effect size confidence
    intervals (arXiv 2007.10899), section 4: the process is the highest level of
    repetition, so its means carry all of the variance.
    """
    before, after = _means(base), _means(head)
    degrees = before.size + after.size - 2
    t = float(special.stdtrit(degrees, 0.995)) if degrees > 0 else np.inf
    a, b = before.mean(), after.mean()
    half_a, half_b = (
        t * x.std(ddof=1) / np.sqrt(x.size) if x.size > 1 else np.inf
        for x in (before, after)
    )
    effect = _ratio(float(a), float(b))
    if not half_a < a:  # the interval of the ratio is unbounded
        return _two_valued(False, effect)
    root = np.sqrt((a * b) ** 2 - (a**2 - half_a**2) * (b**2 - half_b**2))
    low, high = ((a * b + sign * root) / (a**2 - half_a**2) - 1 for sign in (-1, 1))
    return {**_two_valued(low > 0, effect), "ci": (float(low), float(high))}


def criterion(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Alarm when a t-test of sample means has p < .05 and the 95 % interval of the
    change lies above 1 %.

    bheisler/criterion.rs: analysis/compare.rs and its book ("Comparing with previous
    sample"; significance level .05, noise threshold .01, confidence .95). A criterion
    sample is the mean of an iteration batch, here a block. Its bootstraps are replaced
    by their normal limit, which at these hundreds of samples is the same.
    """
    before, after = _blocks(base), _blocks(head)
    a, b = before.mean(), after.mean()
    error_a, error_b = (x.std(ddof=1) / np.sqrt(x.size) for x in (before, after))
    t = (b - a) / np.hypot(error_a, error_b)
    effect = _ratio(float(a), float(b))
    half = 1.959964 * (b / a) * np.hypot(error_a / a, error_b / b)
    worse = 2 * special.ndtr(-abs(t)) < 0.05 and effect - half > 0.01
    return {
        **_two_valued(bool(worse), effect),
        "ci": (float(effect - half), float(effect + half)),
    }


def diy_median(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Alarm when the median of all calls rose by more than 3 %: the script most
    repositories start with.
    """
    effect = _ratio(*(float(np.median(_calls(side))) for side in (base, head)))
    return _two_valued(effect > 0.03, effect)


def diy_t_test(base: Sequence[Run], head: Sequence[Run], ctx: dict[str, Any]) -> Answer:
    """Alarm when Welch's t-test over all calls has p < .05 and the mean rose: it takes
    calls for independent.
    """
    (n, a, variance_a), (m, b, variance_b) = (_moments(side) for side in (base, head))
    share_a, share_b = variance_a / n, variance_b / m
    degrees = (share_a + share_b) ** 2 / (share_a**2 / (n - 1) + share_b**2 / (m - 1))
    p = 2 * special.stdtr(degrees, -abs(b - a) / np.sqrt(share_a + share_b))
    return _two_valued(bool(b > a and p < 0.05), _ratio(a, b))


def mann_whitney(
    before: Floats, after: Floats, *, ties_conservative: bool = False
) -> float:
    """Return the two-sided p-value of the U test: exact without ties up to 20 a side,
    else the normal limit.
    """
    u, ties = _u_statistic(before, after)
    if ties == 0 and max(before.size, after.size) <= 20:
        return _u_test_p(before, after, "exact")
    if not ties_conservative:
        return _u_test_p(before, after, "asymptotic")
    # asv breaks ties in the least significant way, and has neither a continuity nor a
    # tie correction
    half = before.size * after.size / 2
    distance = max(0.0, abs(u - half) - ties / 2)
    return float(2 * special.ndtr(-distance / _u_deviation(before.size, after.size)))


def kolmogorov_smirnov(before: Floats, after: Floats) -> float:
    """Return the two-sided p-value of the two-sample test by the limit law with
    Stephens' small-sample factor.
    """
    points = np.concatenate([before, after])
    below = [
        np.searchsorted(np.sort(x), points, side="right") / x.size
        for x in (before, after)
    ]
    size = np.sqrt(before.size * after.size / points.size)
    return float(
        special.kolmogorov(
            (size + 0.12 + 0.11 / size) * np.abs(below[0] - below[1]).max()
        )
    )


def pinpoint_high_threshold(attempts: int) -> float:
    """Return the p-value above which Pinpoint takes two samples for the same.

    By its own recipe (thresholds_performance.py): the 99th percentile of p-values when
    the truth is a shift of one interquartile range of a normal law, for up to 35
    attempts; its table has a million simulations, here are 20,000.
    """
    return pinpoint_thresholds()[min(attempts, 35) - 1]


@lru_cache(maxsize=1)
def pinpoint_thresholds() -> tuple[float, ...]:
    """Return the simulated thresholds for 1 to 35 attempts."""
    rng = np.random.default_rng(1)
    shift = 2 * special.ndtri(0.75)
    before, after = (
        rng.standard_normal((35, 20_000)),
        rng.standard_normal((35, 20_000)) + shift,
    )
    u = np.zeros(20_000)
    thresholds = []
    for n in range(35):
        u += (before[n] > after[:n]).sum(axis=0) + (before[: n + 1] > after[n]).sum(
            axis=0
        )
        distance = np.abs(u - (n + 1) ** 2 / 2) - 0.5
        p = np.minimum(1.0, 2 * special.ndtr(-distance / _u_deviation(n + 1, n + 1)))
        thresholds.append(float(np.quantile(p, 0.99)))
    return tuple(thresholds)


RIVALS = (
    Rule("checklist P99 +5 %", checklist_p99),
    Rule("github-action-benchmark 200 %", github_action_benchmark),
    Rule("pytest-benchmark mean:5%", pytest_benchmark_mean),
    Rule("pytest-benchmark min:5%", pytest_benchmark_min),
    Rule("benchstat U .05", benchstat),
    Rule("asv factor 1.1", asv_continuous(1.1)),
    Rule("asv factor 1.01", asv_continuous(1.01)),
    Rule("Bencher t .99", bencher_t_test),
    Rule("Bencher IQR 3", bencher_iqr),
    Rule("Pinpoint", pinpoint, looks=(8, 12, 16, 24, 32, 44, 60, 80, 108, 144)),
    Rule("Perfherder t 7, 2 %", perfherder),
    Rule("Kalibera-Jones 99 %", kalibera_jones),
    Rule("criterion.rs .05, noise 1 %", criterion),
    Rule("DIY median +3 %", diy_median),
    Rule("DIY t-test on calls", diy_t_test),
)


def _answer(decision: str, effect: float) -> Answer:
    return {"decision": decision, "effect": effect, "ci": None}


def _two_valued(worse: bool, effect: float) -> Answer:
    return _answer("regressed" if worse else "ok", effect)


def _ratio(before: float, after: float) -> float:
    return after / before - 1


def _calls(side: Sequence[Run]) -> Floats:
    return np.concatenate([summary(run).calls for run in side])


def _blocks(side: Sequence[Run]) -> Floats:
    return np.concatenate([summary(run).blocks for run in side])


def _means(side: Sequence[Run]) -> Floats:
    return np.array([summary(run).mean for run in side])


def _mean_of_calls(side: Sequence[Run]) -> float:
    return _moments(side)[1]


def _moments(side: Sequence[Run]) -> tuple[int, float, float]:
    """Return number, mean and variance of all calls of a side, put together from those
    of its runs.
    """
    runs = [summary(run) for run in side]
    sizes = np.array([run.calls.size for run in runs])
    means = np.array([run.mean for run in runs])
    n = int(sizes.sum())
    mean = float(sizes @ means / n)
    squares = (sizes - 1) @ np.array([run.variance for run in runs]) + sizes @ (
        means - mean
    ) ** 2
    return n, mean, float(squares / (n - 1))


def _linearly_weighted(values: Floats) -> tuple[float, float]:
    """Return Perfherder's mean with weights n, n - 1, … 1 and the variance around it."""
    weights = np.arange(values.size, 0, -1)
    mean = float(weights @ values / weights.sum())
    return mean, float(((values - mean) ** 2).sum() / max(1, values.size - 1))


def _u_statistic(before: Floats, after: Floats) -> tuple[int, int]:
    """Return how many pairs of values have after above before, and how many are ties."""
    ordered = np.sort(before)
    below, not_above = (
        np.searchsorted(ordered, after, side=side) for side in ("left", "right")
    )
    return int(below.sum()), int((not_above - below).sum())


def _u_deviation(n: int, m: int) -> float:
    return float(np.sqrt(n * m * (n + m + 1) / 12))


def _normal_p(before: Floats, after: Floats) -> float:
    """Return the two-sided U-test p-value by the normal limit with continuity
    correction, as Pinpoint computes it.
    """
    return _u_test_p(before, after, "asymptotic")


def _u_test_p(before: Floats, after: Floats, method: str) -> float:
    from scipy.stats import mannwhitneyu  # half a second to import

    return float(mannwhitneyu(before, after, method=method).pvalue)
