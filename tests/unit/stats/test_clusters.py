"""The error of clustered values holds what it says, for many starts and for few."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtr

from perfgate.stats.clusters import START_LUCK, cluster_error


def test_cluster_error__one_cluster__shows_nothing() -> None:
    assert cluster_error(np.array([0.1, 0.2, 0.3]), np.array([4, 4, 4])) is None


def test_cluster_error__equal_values__the_luck_that_is_expected_remains() -> None:
    assert cluster_error(np.zeros(8), np.arange(8) // 4) == (pytest.approx(START_LUCK * (4 / 5 / 2) ** 0.5), 5)


@pytest.mark.parametrize("starts", [2, 4, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("luck", [0.0, 0.01, 0.02])
def test_cluster_error__simulated_starts__the_test_alarms_about_as_often_as_it_may(starts: int, luck: float) -> None:
    """Twice the expected luck makes two starts alarm in up to 4 % where 1 % is meant; many starts show it themselves."""
    generator = np.random.default_rng(1)
    alarms = []
    for _ in range(4000):
        clusters = np.repeat(np.arange(starts), 16)
        values = np.repeat(generator.normal(0, luck, starts), 16) + generator.normal(0, 0.05, starts * 16)
        found = cluster_error(values, clusters)
        assert found is not None
        error, freedom = found
        alarms.append(stdtr(freedom, -np.median(values) / error) <= 0.01)
    assert np.mean(alarms) <= (0.012 if luck <= START_LUCK else 0.04)
