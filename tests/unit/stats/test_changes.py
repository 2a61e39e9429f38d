from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfgate.stats.changes import ENOUGH_VALUES, noise, shift_at, shifts, steps

SERIES = 60


def quiet(seed: int, count: int = 100, sd: float = 0.02) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sd, count)


def stepped(seed: int, at: int, size: float, count: int = 100, sd: float = 0.02) -> np.ndarray:
    series = quiet(seed, count, sd)
    series[at:] += size
    return series


def test_shifts__one_step__its_place_size_and_interval() -> None:
    (found,) = shifts(stepped(1, 60, 0.10))
    assert found.at == 60
    assert found.low < 0.10 < found.high
    assert found.effect == pytest.approx(0.10, abs=0.015)
    assert found.after - found.before == pytest.approx(found.effect)


def test_shifts__staircase__every_step_and_its_direction() -> None:
    series = quiet(2, 120, 0.01)
    series[40:] += 0.08
    series[80:] -= 0.12
    assert [(found.at, found.effect > 0) for found in shifts(series)] == [(40, True), (80, False)]


@pytest.mark.parametrize("size", [0.03, 0.05, 0.10])
def test_shifts__steps_in_noise_of_one_percent__found_within_two_versions(size: float) -> None:
    delays = []
    for seed in range(20):
        series = stepped(seed, 50, size, sd=0.01)
        delays.append(
            next((end - 50 for end in range(51, 90) if any(abs(s.at - 50) <= 2 for s in shifts(series[:end]))), 99)
        )
    allowed = {0.03: 8, 0.05: 3, 0.10: 2}[size]
    assert float(np.median(delays)) <= allowed


@pytest.mark.parametrize(
    "kind",
    ["white", "heavy tails", "spikes", "two modes", "rounded", "uniform"],
    ids=lambda kind: kind.replace(" ", "-"),
)
def test_shifts__noise_without_a_step__next_to_no_alarm(kind: str) -> None:
    made = {
        "white": lambda r, n: r.normal(0, 0.02, n),
        "heavy tails": lambda r, n: r.standard_t(3, n) * 0.02,
        "spikes": lambda r, n: r.normal(0, 0.01, n) + (r.random(n) < 0.1) * r.exponential(0.3, n),
        "two modes": lambda r, n: r.normal(0, 0.005, n) + 0.1 * (r.random(n) < 0.3),
        "rounded": lambda r, n: np.round(r.normal(0, 0.4, n)) * 0.012,
        "uniform": lambda r, n: r.uniform(-0.03, 0.03, n),
    }[kind]
    random = np.random.default_rng(11)
    alarms = sum(found.effect > 0 for _ in range(SERIES) for found in shifts(made(random, 100)))
    assert 100 * alarms / (SERIES * 100) <= 0.1


def test_shifts__neighbours_that_are_alike__few_alarms() -> None:
    """What wanders for longer (autocorrelation of 0.8) is told from levels by no more than most (benchmarks/trend/noise.py)."""
    random = np.random.default_rng(12)
    alarms = 0
    for _ in range(SERIES):
        series, drawn = np.zeros(100), random.normal(0, 0.01, 100)
        for index in range(1, 100):
            series[index] = 0.5 * series[index - 1] + drawn[index]
        alarms += sum(found.effect > 0 for found in shifts(series))
    assert 100 * alarms / (SERIES * 100) <= 0.05


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_shifts__excursion_that_went_away__no_shift(width: int) -> None:
    series = quiet(5)
    series[50 : 50 + width] += 0.3
    assert shifts(series) == []


def test_shifts__one_wild_value_at_the_end__not_yet_a_shift() -> None:
    series = quiet(6)
    series[-1] += 5.0
    assert shifts(series) == []
    series[-2] += 5.0
    assert [found.at for found in shifts(series)] == [98]


def test_shifts__drift_of_less_than_the_noise__no_shift() -> None:
    assert shifts(quiet(7) + np.linspace(0, 0.015, 100)) == []


def test_shifts__drift_of_many_times_the_noise__told_as_steps_of_one_direction() -> None:
    found = shifts(quiet(8, 200, 0.005) + np.linspace(0, 0.3, 200))
    assert found
    assert all(shift.effect > 0 for shift in found)


def test_shifts__drift_that_is_steeper_than_the_noise__told() -> None:
    """A percent a version, and noise of three in a thousand: neighbours are alike by the drift alone."""
    assert shifts(quiet(10, 60, 0.003) + 0.01 * np.arange(60))


def test_shifts__smaller_than_what_matters__none() -> None:
    assert shifts(stepped(9, 100, 0.005, 200, sd=0.0005)) == []


def test_shifts__level_of_four_values_before_the_last_one__begins_where_they_do() -> None:
    series = quiet(3, 80, sd=0.005)
    series[60:64] += 0.185
    series[64:] += 0.2
    assert [shift.at for shift in shifts(series)] == [60]


def test_shifts__constant_series_with_one_step__found_exactly() -> None:
    series = np.r_[np.full(20, math.log(3.0)), np.full(20, math.log(3.3))]
    (found,) = shifts(series)
    assert found.at == 20
    assert math.expm1(found.effect) == pytest.approx(0.1)


@pytest.mark.parametrize("count", [0, 1, 2, ENOUGH_VALUES - 1])
def test_shifts__too_few_values__none(count: int) -> None:
    assert shifts(np.r_[np.zeros(count // 2), np.ones(count - count // 2)]) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_shifts__value_that_is_no_number__refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        shifts(np.array([1.0, value, 2.0]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=ENOUGH_VALUES, max_size=60), st.floats(-3, 3), st.floats(0.5, 20))
def test_shifts__series_moved_or_stretched__found_at_the_same_places(
    values: list[float], by: float, times: float
) -> None:
    # Rounded, so that moving and stretching lose nothing that the noise is made of.
    series = np.round(np.array(values), 2)
    find = partial(shifts, min_effect=1e-9)
    places = [found.at for found in find(series)]
    assert [found.at for found in find(series + round(by, 2))] == places
    stretched = [found.at for found in find(series * times)]
    assert stretched == places


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=ENOUGH_VALUES, max_size=80))
@example([1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3e-186, 0.0])
@example([1.0, 2.0, *[3e-186, 4e-186] * ENOUGH_VALUES])
def test_shifts__any_numbers__shifts_in_order_that_last_and_lie_inside(values: list[float]) -> None:
    places = [found.at for found in shifts(np.array(values))]
    edges = [0, *places, len(values)]
    assert places == sorted(set(places))
    assert all(after - before >= 2 for before, after in itertools.pairwise(edges))


@pytest.mark.parametrize("seed", range(5))
def test_shifts__level_equal_to_the_bit_then_one_with_noise__found_once(seed: int) -> None:
    after = 0.2 + 0.01 * np.random.default_rng(seed).standard_normal(20)
    assert [found.at for found in shifts(np.concatenate([np.zeros(60), after]))] == [60]


def test_shifts__many_levels_without_noise__all_found() -> None:
    series = np.repeat([1.0, 2.0, 3.0, 2.0, 4.0, 5.0, 4.0, 3.0], 10)
    assert [found.at for found in shifts(series)] == [10, 20, 30, 40, 50, 60, 70]


def test_noise__steps_and_outliers__that_of_the_values_alone() -> None:
    series = stepped(10, 50, 3.0, 400, sd=0.02)
    series[::17] += 1.0
    assert noise(series) == pytest.approx(0.02, rel=0.35)


def test_noise__two_values__refused() -> None:
    with pytest.raises(ValueError, match="at least three"):
        noise(np.zeros(2))


@pytest.mark.parametrize(
    ("counts", "places"),
    [
        ([], []),
        ([4.0], []),
        ([4, 4, 4], []),
        ([4, 4, 5], [2]),
        ([4, 4, 5, 5, 5, 4, 4], [2, 5]),
        ([4, 4, 9, 4, 4], []),
        ([4, 9, 9, 4, 9, 9], [1]),
        ([0, 0, 1, 2], [2, 3]),
    ],
)
def test_steps__counts__where_they_change_for_good(counts: list[float], places: list[int]) -> None:
    assert steps(np.array(counts, dtype=np.float64)) == places


def test_shift_at__known_place__between_the_levels_beside_it() -> None:
    series = np.r_[np.zeros(10), np.ones(10), np.full(10, 3.0)] + np.random.default_rng(0).normal(0, 0.05, 30)

    shift = shift_at(series, 10, [20])

    assert (shift.before, shift.after) == (pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.1))
    assert shift.z > 20


@pytest.mark.parametrize("at", [0, 30])
def test_shift_at__place_at_an_end__refused(at: int) -> None:
    with pytest.raises(ValueError, match="values on both sides"):
        shift_at(np.arange(30.0), at, others=())


@pytest.mark.parametrize("count", [8, 14, 30, 100])
def test_noise__of_normal_values__their_standard_deviation(count: int) -> None:
    random = np.random.default_rng(count)
    assert np.median([noise(random.normal(0, 1, count)) for _ in range(2000)]) == pytest.approx(1, abs=0.05)
