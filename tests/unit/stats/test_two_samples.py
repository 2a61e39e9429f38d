import math

import numpy as np
import pytest

from perfgate.stats.two_samples import shift


def test_shift__second_lies_higher__by_how_much():
    first = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = shift(first, first + 10.0)

    assert found.value == 10.0
    assert 5.0 < found.low < 10.0 < found.high < 15.0


def test_shift__samples_of_one_kind__covers_zero_as_often_as_promised():
    chance = np.random.default_rng(5)
    found = [shift(chance.normal(size=6), chance.normal(size=8)) for _ in range(1000)]

    covered = np.mean([one.low <= 0.0 <= one.high for one in found])
    assert 0.94 <= covered <= 0.98


def test_shift__too_few_entries__no_interval():
    assert shift(np.array([1.0]), np.array([3.0])) == (2.0, -math.inf, math.inf)


def test_shift__empty__refused():
    with pytest.raises(ValueError, match="not empty"):
        shift(np.array([]), np.array([1.0]))
