"""Order-statistic intervals: exact ranks, the floors below which there is no bound, and coverage."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr

from perfgate.stats.summary import (
    P99_FLOOR,
    interval_ranks,
    linear_quantile,
    low_location,
    median,
    median_deviation,
    quantile,
    slowest_tenth,
    standard_deviation,
)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21, 100, 2048, 2049])
def test_linear_quantile__any_count__that_of_numpy_to_the_last_bit(count: int) -> None:
    values = np.random.default_rng(count).lognormal(-7.0, 0.3, count)
    for probability in (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 0.99, 1.0):
        assert linear_quantile(values, probability) == np.quantile(values, probability)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21, 100, 2048, 2049])
def test_median__any_count__that_of_numpy_to_the_last_bit(count: int) -> None:
    values = np.random.default_rng(count).lognormal(-7.0, 0.3, count)
    assert median(values) == median(values.tolist()) == np.median(values)


def test_median__of_none_or_with_nan__nan() -> None:
    assert math.isnan(median([]))
    assert math.isnan(median([1.0, math.nan, 2.0]))
    assert math.isnan(median([math.inf, math.nan, -math.inf, 0.0]))


def test_p99_floor__the_second_largest_lies_above_the_true_p99_in_99_of_100_cases() -> None:
    # LoadGen's second floor: of fewer samples that cannot be said.
    assert bdtr(1, P99_FLOOR, 0.01) <= 0.01 < bdtr(1, P99_FLOOR - 1, 0.01)


@pytest.mark.parametrize(
    ("count", "probability", "ranks"),
    [
        (5, 0.5, (None, None)),  # 2 * 0.5^5 > 0.05
        (6, 0.5, (1, 6)),
        (100, 0.5, (40, 61)),  # the textbook interval of the median of 100
        (200, 0.99, (195, None)),
        (367, 0.99, (359, None)),
        (368, 0.99, (360, 368)),
        (662, 0.99, (650, 661)),
        (1, 0.5, (None, None)),
    ],
)
def test_interval_ranks__counts__exact_ranks_or_none(
    count: int, probability: float, ranks: tuple[object, object]
) -> None:
    assert interval_ranks(count, probability) == ranks


def _below(rank: int, count: int, probability: Fraction) -> Fraction:
    """Return P(B < rank) for B binomial(count, probability), in exact arithmetic."""
    terms = (comb(count, k) * probability**k * (1 - probability) ** (count - k) for k in range(rank))
    return sum(terms, Fraction(0))


@settings(deadline=None, max_examples=60)
@given(count=st.integers(1, 80), percent=st.integers(1, 99))
def test_interval_ranks__any_count__misses_at_most_each_tail_and_is_tight(count: int, percent: int) -> None:
    probability, tail = Fraction(percent, 100), Fraction(1, 40)
    lower, upper = interval_ranks(count, percent / 100)
    missed_below = _below(lower, count, probability) if lower else Fraction(0)
    assert missed_below <= tail
    assert _below((lower or 0) + 1, count, probability) > tail or lower == count
    if upper is None:
        assert 1 - _below(count, count, probability) > tail
    else:
        assert 1 - _below(upper, count, probability) <= tail
        assert upper == 1 or 1 - _below(upper - 1, count, probability) > tail


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 99))
def test_quantile__any_samples__value_is_a_sample_inside_its_interval(samples: list[int], percent: int) -> None:
    found = quantile(np.asarray(samples), percent / 100)
    assert found.value in samples
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high
    assert sum(sample <= found.value for sample in samples) * 100 >= percent * len(samples)


@pytest.mark.parametrize(("probability", "true"), [(0.5, 0.5), (0.9, 0.9), (0.99, 0.99)])
def test_quantile__uniform_samples__covers_the_truth_in_95_percent(probability: float, true: float) -> None:
    random = np.random.default_rng(20201120)
    found = [quantile(random.random(700), probability) for _ in range(1000)]
    covered = sum(q.low is not None and q.high is not None and q.low <= true <= q.high for q in found)
    assert 940 <= covered <= 990  # at least 95 % but for chance; more, because ranks are whole numbers


def test_quantile__hundred_samples__nearest_rank_and_interval() -> None:
    found = quantile(np.arange(100, 0, -1), 0.5)
    assert found == (50.0, 40.0, 61.0, 100)
    assert found.interval == (40.0, 61.0)


def test_quantile__rank_a_hair_above_a_whole_number__is_that_number() -> None:
    assert quantile(np.arange(1, 101), 0.07).value == 7.0


def test_quantile__one_outlier__is_kept_in_the_tail() -> None:
    assert quantile(np.asarray([1.0] * 99 + [1000.0]), 1.0).value == 1000.0


def test_quantile__no_samples__refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        quantile(np.asarray([]), 0.5)


def test_low_location__one_to_hundred__geometric_mean_of_five_percentiles() -> None:
    assert low_location(np.arange(1, 101)) == pytest.approx(5.21034, rel=1e-5)  # (2 * 4 * 6 * 8 * 10) ** (1 / 5)


def test_low_location__no_samples__refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        low_location(np.asarray([]))


def test_median_deviation__one_outlier__ignores_it() -> None:
    assert median_deviation(np.asarray([1, 2, 3, 4, 1000])) == 1.0


def wild_tail(random: np.random.Generator, count: int) -> np.ndarray:
    """Calls of one second with 1 % of noise, of which 2 % take longer by an exponential second."""
    late = (random.random(count) < 0.02) * random.exponential(1, count)
    return 1 + 0.01 * random.normal(0, 1, count) + late


@pytest.mark.parametrize(
    ("draw", "true", "least"),
    [
        (lambda random: random.normal(10, 1, 700), 1.0, 0.93),
        (lambda random: random.lognormal(0, 0.3, 700), 0.3142, 0.93),
        (lambda random: wild_tail(random, 700), 0.1992, 0.80),
        (lambda random: wild_tail(random, 3000), 0.1992, 0.88),
    ],
    ids=["normal", "skewed", "wild tail", "wild tail of 3000"],
)
def test_standard_deviation__interval__holds_the_true_one_as_often_as_documented(
    draw: Any, true: float, least: float
) -> None:
    random = np.random.default_rng(11)
    intervals = [standard_deviation(draw(random)).interval for _ in range(500)]
    assert np.mean([None not in ends and ends[0] <= true <= ends[1] for ends in intervals]) >= least


def test_standard_deviation__known_samples__value_of_the_textbook() -> None:
    assert standard_deviation(np.array([2, 4, 4, 4, 5, 5, 7, 9])).value == pytest.approx(2.138, abs=0.001)


def test_slowest_tenth__known_samples__their_mean_and_interval() -> None:
    found = slowest_tenth(np.arange(1, 201, dtype=float))
    # The largest twenty of 200 are 181 to 200: mean 190.5, variance 35, and 10.5 above the largest of the others.
    assert (found.value, found.size) == (190.5, 200)
    half = 1.96 * ((35 + 0.9 * 10.5**2) / 20) ** 0.5
    assert found.interval == (pytest.approx(190.5 - half, abs=0.01), pytest.approx(190.5 + half, abs=0.01))
    with pytest.raises(ValueError, match="100 samples"):
        slowest_tenth(np.arange(99))


def test_slowest_tenth__log_normal_samples__interval_holds_the_true_one_and_the_error_is_half_that_of_a_p99() -> None:
    random = np.random.default_rng(5)
    true = math.exp(0.02) * (1 - 0.8602) / 0.1  # exp(s²/2) · P(Z > 1.2816 - s) / 0.1, with s = 0.2
    rounds = [random.lognormal(0, 0.2, 700) for _ in range(500)]
    tenths = [slowest_tenth(samples) for samples in rounds]
    held = np.mean([found.low <= true <= found.high for found in tenths])  # type: ignore[operator]
    assert 0.92 <= held <= 0.98
    spread_of_tenth = np.std([math.log(found.value) for found in tenths])
    spread_of_p99 = np.std([math.log(quantile(samples, 0.99).value) for samples in rounds])
    assert spread_of_tenth < 0.6 * spread_of_p99


def test_standard_deviation__equal_or_four_samples__no_interval() -> None:
    assert standard_deviation(np.full(50, 3.0)) == (0.0, None, None, 50)
    assert standard_deviation(np.array([1.0, 2.0, 3.0, 4.0])).interval == (None, None)
    with pytest.raises(ValueError, match="at least two"):
        standard_deviation(np.array([1.0]))
