"""Looks at growing data: against published boundaries, exact integrals and simulated walks; many tests: by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from perfgate.stats import error_control
from perfgate.stats.error_control import false_discovery, holm, log_e_of_p, log_e_value, nominal_level, sequential_p

LOOKS = (8, 12, 16, 24, 32, 44)
EQUAL = (10, 20, 30, 40, 50)


@pytest.mark.parametrize(
    ("alpha", "shape", "constant"),
    [
        # Jennison and Turnbull, Group Sequential Methods (2000), tables 2.1 (Pocock) and 2.3 (O'Brien-Fleming): five equal
        # groups, two-sided 5 % and 1 %. One-sided here, so half of each; the other side is too rare to show in these digits.
        (0.025, 0.5, 2.413),
        (0.005, 0.5, 2.986),
        (0.025, 0.0, 2.040),
    ],
)
def test_nominal_level__five_equal_groups__published_constants(alpha: float, shape: float, constant: float) -> None:
    last = -float(ndtri(nominal_level(alpha, EQUAL, 50, shape=shape)))
    assert last == pytest.approx(constant, abs=0.003)


@pytest.mark.parametrize("looks", [(8, 16, 32, 64, 128), LOOKS, tuple(range(8, 41, 4))])
def test_nominal_level__half_as_many_nodes__the_same(looks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The integrals have converged: of fewer nodes a level differs by less than any decision shows."""
    levels = [nominal_level(alpha, looks, looks[1], shape=0.5) for alpha in (1e-6, 0.006, 0.05)]
    monkeypatch.setattr(error_control, "_NODES_PER_DEVIATION", error_control._NODES_PER_DEVIATION / 2)
    monkeypatch.setattr(error_control, "_FEWEST_NODES", error_control._FEWEST_NODES // 2)
    for cached in (error_control._crossing, error_control._constant):
        cached.cache_clear()
    fewer = [nominal_level(alpha, looks, looks[1], shape=0.5) for alpha in (1e-6, 0.006, 0.05)]
    for cached in (error_control._crossing, error_control._constant):
        cached.cache_clear()
    assert fewer == pytest.approx(levels, rel=1e-6)


def test_nominal_level__one_look__alpha_itself() -> None:
    assert nominal_level(0.01, (12,), 12, shape=0.5) == pytest.approx(0.01, rel=1e-6)


def test_nominal_level__unplanned_counts__between_their_neighbours_and_never_above_the_last() -> None:
    levels = [nominal_level(0.05, LOOKS, count, shape=0.25) for count in (8, 10, 12, 44, 100)]
    assert levels[:4] == sorted(levels[:4])
    assert levels[4] == levels[3]


@pytest.mark.parametrize("shape", [0.25, 0.5])
def test_nominal_level__simulated_walks__cross_as_often_as_promised(shape: float) -> None:
    walks = np.random.default_rng(3).standard_normal((100_000, LOOKS[-1])).cumsum(axis=1)
    crossed = np.zeros(len(walks), dtype=bool)
    for count in LOOKS:
        bound = -float(ndtri(nominal_level(0.05, LOOKS, count, shape=shape)))
        crossed |= walks[:, count - 1] / math.sqrt(count) > bound
    assert crossed.mean() == pytest.approx(0.05, abs=0.003)  # four standard errors of 100,000 walks


def test_sequential_p__at_a_nominal_level__is_the_alpha_it_belongs_to() -> None:
    for alpha in (0.001, 0.01, 0.2):
        level = nominal_level(alpha, LOOKS, 16, shape=0.5)
        assert sequential_p(level, LOOKS, 16, shape=0.5) == pytest.approx(alpha, rel=1e-4)


def test_sequential_p__extremes__stay_probabilities() -> None:
    assert sequential_p(0.0, LOOKS, 8, shape=0.5) == 0.0
    assert sequential_p(1.0, LOOKS, 8, shape=0.5) == 1.0
    assert 0 < sequential_p(1e-300, LOOKS, 44, shape=0.5) < 1e-200 or sequential_p(1e-300, LOOKS, 44, shape=0.5) == 0.0


@pytest.mark.slow
def test_log_e_value__unchanged_with_wild_pairs__passes_100_in_fewer_than_one_run_of_100() -> None:
    """Ville's inequality over 40 looks of 2,000 runs, one difference in eight twenty times as wild."""
    runs = np.random.default_rng(5).standard_normal((2_000, 40))
    runs[:, ::8] *= 20
    highest = [max(log_e_value(run[:count], 0.0, scale=1.0) for count in range(1, 41)) for run in runs]
    assert np.mean(np.exp(highest) >= 100) <= 0.01
    assert np.mean(np.exp(highest) >= 20) <= 0.05


def test_log_e_value__mean_over_coin_flips__is_one() -> None:
    """All 2^10 sign patterns of ten differences are equally likely: the capital is fair, so its mean is exactly 1."""
    sizes = np.linspace(0.2, 3.0, 10)
    signs = np.array([[1 if pattern >> bit & 1 else -1 for bit in range(10)] for pattern in range(1024)])
    capital = [math.exp(log_e_value(row * sizes, 0.0, scale=1.0)) for row in signs]
    assert np.mean(capital) == pytest.approx(1.0, rel=1e-12)


def test_log_e_value__below_the_margin__less_than_at_it() -> None:
    differences = np.array([0.5, -0.2, 0.9, 0.1])
    assert log_e_value(differences - 0.3, 0.0, scale=1.0) < log_e_value(differences, 0.0, scale=1.0)


def test_log_e_value__a_real_slowdown__grows_without_end() -> None:
    slower = np.random.default_rng(7).normal(1.0, 1.0, 200)
    assert log_e_value(slower, 0.0, scale=1.0) > math.log(1e6)


def test_log_e_of_p__uniform_p__mean_e_is_one() -> None:
    p = (np.arange(20_000) + 0.5) / 20_000
    assert np.mean([math.exp(log_e_of_p(value)) for value in p]) == pytest.approx(1.0, abs=0.01)
    assert log_e_of_p(0.0) == math.inf


def test_nominal_level__last_look_of_obrien_fleming__close_to_alpha() -> None:
    assert nominal_level(0.025, EQUAL, 50, shape=0.0) == pytest.approx(float(ndtr(-2.040)), rel=0.01)


def test_holm__four_p_values__stepped_down_and_monotone() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm__large_p_values__never_above_one() -> None:
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_false_discovery__four_p_values__stepped_up_and_monotone() -> None:
    # 0.005 x 4/1, 0.01 x 4/2, 0.03 x 4/3 and 0.04 x 4/4; no smaller rank may end above a larger one.
    assert false_discovery([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])


@pytest.mark.parametrize("correct", [holm, false_discovery])
def test_correction__one_or_none__unchanged(correct: Callable[[list[float]], list[float]]) -> None:
    assert correct([0.2]) == [0.2]
    assert correct([]) == []
