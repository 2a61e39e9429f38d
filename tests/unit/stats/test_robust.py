import math

import numpy as np
import pytest

from perfgate.stats.robust import CENTER_ERROR, center, shift, theil_sen, transfer_line

SIZES = 1024.0 * 4.0 ** np.arange(8)


def test_theil_sen__a_straight_line__its_slope_and_no_doubt() -> None:
    assert theil_sen(np.arange(50) * 3.0 + 7.0) == (3.0, 3.0, 3.0, 50)


def test_theil_sen__a_level_with_wild_entries__interval_around_zero() -> None:
    series = np.random.default_rng(3).normal(0.0, 1.0, 60)
    series[[5, 30, 55]] = 1e6
    found = theil_sen(series)

    assert found.low < 0 < found.high
    assert abs(found.value) < 0.02


def test_theil_sen__noise_around_a_slope__covers_it_as_often_as_promised() -> None:
    chance = np.random.default_rng(7)
    found = [theil_sen(0.5 * np.arange(50) + chance.normal(0.0, 5.0, 50)) for _ in range(400)]

    covered = np.mean([one.low <= 0.5 <= one.high for one in found])
    assert 0.92 <= covered <= 0.98


def test_theil_sen__one_entry__refused() -> None:
    with pytest.raises(ValueError, match="two entries"):
        theil_sen(np.array([1.0]))


def test_transfer_line__start_up_and_bandwidth__found() -> None:
    line = transfer_line(SIZES, 20e-6 + SIZES / 5e9)

    assert line.start_up == pytest.approx(20e-6)
    assert line.bandwidth == pytest.approx(5e9)
    assert line.r2 == pytest.approx(1.0)
    assert line.residual == pytest.approx(0.0, abs=1e-9)


def test_transfer_line__a_wild_point_and_noise__hardly_moved() -> None:
    seconds = (20e-6 + SIZES / 5e9) * np.random.default_rng(1).normal(1.0, 0.02, SIZES.size)
    seconds[3] *= 10
    line = transfer_line(SIZES, seconds)

    assert line.start_up == pytest.approx(20e-6, rel=0.1)
    assert line.bandwidth == pytest.approx(5e9, rel=0.1)
    assert line.residual < 0.05
    assert line.r2 < 0.95


def test_transfer_line__size_costs_nothing__bandwidth_without_end() -> None:
    line = transfer_line(SIZES, np.full(SIZES.size, 1e-3))

    assert line.start_up == pytest.approx(1e-3)
    assert line.bandwidth == math.inf


def test_transfer_line__two_sizes__refused() -> None:
    with pytest.raises(ValueError, match="three sizes"):
        transfer_line(SIZES[:2], SIZES[:2])


def test_shift__second_lies_higher__by_how_much() -> None:
    first = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = shift(first, first + 10.0)

    assert found.value == 10.0
    assert 5.0 < found.low < 10.0 < found.high < 15.0


def test_shift__samples_of_one_kind__covers_zero_as_often_as_promised() -> None:
    chance = np.random.default_rng(5)
    found = [shift(chance.normal(size=6), chance.normal(size=8)) for _ in range(1000)]

    covered = np.mean([one.low <= 0.0 <= one.high for one in found])
    assert 0.94 <= covered <= 0.98


def test_shift__too_few_entries__no_interval() -> None:
    assert shift(np.array([1.0]), np.array([3.0])) == (2.0, None, None, 2)


def test_shift__empty__refused() -> None:
    with pytest.raises(ValueError, match="not empty"):
        shift(np.array([]), np.array([1.0]))


def test_center__symmetric_values__their_middle() -> None:
    assert center(np.array([1.0, 2.0, 3.0]), 1.0) == pytest.approx(2.0)


def test_center__wild_value__hardly_moves_it() -> None:
    values = np.array([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 50.0])
    assert center(values, 0.07) == pytest.approx(1.0, abs=0.03)


def test_center__many_normal_samples__error_as_said() -> None:
    samples = np.random.default_rng(1).normal(0, 1, (4000, 12))
    centers = [center(sample, 1.0) for sample in samples]
    assert np.std(centers) == pytest.approx(CENTER_ERROR / np.sqrt(12), rel=0.05)
