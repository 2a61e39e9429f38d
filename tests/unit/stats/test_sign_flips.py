from __future__ import annotations

import itertools

import numpy as np
import pytest

from perfgate.stats.sign_flips import largest_not_excluded, p_positive


def test_p_positive__few_differences__the_share_of_all_choices_of_signs() -> None:
    differences = np.array([3.0, 1.0, -2.0, 4.0, 0.5])
    sums = [np.abs(differences) @ np.array(signs) for signs in itertools.product((-1, 1), repeat=5)]
    expected = np.mean([total >= differences.sum() for total in sums])
    assert p_positive(differences) == pytest.approx(expected)


def test_p_positive__ties_and_zeros__zeros_tell_nothing() -> None:
    assert p_positive([1, 0, 1, 0, 1]) == pytest.approx(1 / 8)
    assert p_positive([0.0, 0.0]) == 1.0
    assert p_positive([]) == 1.0


def test_p_positive__one_difference_outweighs_all__it_proves_nothing_alone() -> None:
    assert p_positive([1000.0, *[-1.0] * 15]) == pytest.approx(0.5)


def test_p_positive__equal_sides_with_a_heavy_tail__seldom_small() -> None:
    lot = np.random.default_rng(5)
    small = 0
    for _ in range(2000):
        base, head = lot.pareto(1.2, (2, 16))
        small += p_positive(head - base) <= 0.01
    assert small <= 34  # 20 are expected; three standard errors more


def test_largest_not_excluded__shifted_differences__keeps_the_effect_and_excludes_far_ones() -> None:
    lot = np.random.default_rng(6)
    differences = 0.2 + 0.1 * lot.standard_normal(20)
    end = largest_not_excluded(lambda shift: p_positive(shift - differences), 0.01, start=0.2, most=5.0)
    assert 0.22 < end < 0.32
