"""The signed-rank test against hand counts, scipy and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.stats.error_control import holm
from perfgate.stats.signed_rank import (
    detectable_shift,
    estimate,
    lower_bound,
    p_above,
    p_below,
    power,
    upper_bound,
    walsh_averages,
)


def test_walsh_averages__three_values__six_sorted_means() -> None:
    assert walsh_averages(np.array([3.0, 1.0, 2.0]), weights=None).tolist() == [1.0, 1.5, 2.0, 2.0, 2.5, 3.0]


def test_estimate__one_wild_pair__stays_at_the_rest() -> None:
    assert estimate(np.array([0.01, 0.01, 0.01, 0.01, 0.01, 5.0])) == pytest.approx(0.01)


def test_p_above__all_eight_pairs_positive__one_in_256() -> None:
    assert p_above(np.full(8, 0.05), 0.0) == pytest.approx(1 / 256)


def test_p_above__all_pairs_below_margin__one() -> None:
    assert p_above(np.full(8, 0.005), 0.01) == 1.0


def _of_scipy(differences: np.ndarray) -> float:
    from scipy.stats import wilcoxon  # takes half a second

    return float(wilcoxon(differences, alternative="greater", method="exact").pvalue)


@pytest.mark.parametrize("n", [5, 9, 14, 25])
def test_p_above__random_pairs__equals_scipy_exact(n: int) -> None:
    generator = np.random.default_rng(n)
    differences = generator.normal(0.3, 1.0, n)
    expected = _of_scipy(differences)
    assert p_above(differences, 0.0) == pytest.approx(expected, rel=1e-12)
    assert p_below(-differences, 0.0) == pytest.approx(expected, rel=1e-12)


def test_p_above__sixty_pairs__normal_approximation_near_scipy() -> None:
    differences = np.random.default_rng(1).normal(0.2, 1.0, 60)
    expected = _of_scipy(differences)
    assert p_above(differences, 0.0) == pytest.approx(expected, rel=0.05)


def test_lower_bound__too_few_pairs__minus_infinity() -> None:
    # Six pairs reach 1/64 at best, which is above 0.01.
    assert lower_bound(np.arange(1.0, 7.0), 0.01) == float("-inf")


def test_bounds__seven_pairs_at_one_percent__extreme_walsh_averages() -> None:
    differences = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert lower_bound(differences, 0.01) == 1.0
    assert upper_bound(differences, 0.01) == 7.0


def test_lower_bound__agrees_with_p_value__bound_is_where_the_test_turns() -> None:
    differences = np.random.default_rng(7).normal(0.02, 0.01, 14)
    bound = lower_bound(differences, 0.01)
    assert p_above(differences, bound - 1e-9) <= 0.01 < p_above(differences, bound + 1e-9)


def test_lower_bound__cauchy_noise__covers_as_announced() -> None:
    generator = np.random.default_rng(3)
    misses = sum(lower_bound(generator.standard_cauchy(12), 0.05) > 0 for _ in range(2000))
    assert misses / 2000 <= 0.06


def test_holm__three_p_values__steps_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_holm__nothing__nothing() -> None:
    assert holm([]) == []


@pytest.mark.parametrize("n", [10, 16, 32, 64])
@pytest.mark.parametrize("shift", [0.3, 0.7, 1.2])
def test_power__simulated_normal_differences__within_three_points(n: int, shift: float) -> None:
    draws = np.random.default_rng(n).normal(shift, 1.0, size=(1500, n))
    shown = np.mean([p_above(draw, 0.0) <= 0.005 for draw in draws])
    assert power(n, 0.005, shift) == pytest.approx(shown, abs=0.03)


def test_power__no_effect__about_the_level() -> None:
    assert power(30, 0.01, 0.0) == pytest.approx(0.01, abs=0.004)


def test_shift_shown__eight_differences_at_one_in_a_thousand__none() -> None:
    # Eight signs reach 1/256 at best.
    assert detectable_shift(8, 0.001, 0.95) is None
    assert power(8, 0.001, 5.0) == 0.0


def test_shift_shown__more_differences_or_less_power__smaller() -> None:
    assert detectable_shift(32, 0.005, 0.95) > detectable_shift(64, 0.005, 0.95)
    assert detectable_shift(32, 0.005, 0.95) > detectable_shift(32, 0.005, 0.80)
