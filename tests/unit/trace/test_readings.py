"""Counters over time: what was in force during an interval, the mean of rates in a window, sums over sources."""

import numpy as np
import pytest

from perfgate.trace.model.arithmetic import Intervals
from perfgate.trace.model.readings import Readings


def intervals(*pairs):
    starts, ends = zip(*pairs)
    return Intervals(np.array(starts), np.array(ends))


def test_lowest_during__readings_hold_until_the_next__the_lowest_in_force() -> None:
    clock = Readings.of([100, 200, 300], [1800.0, 800.0, 1800.0])

    lowest = clock.lowest_during(
        intervals((0, 50), (110, 190), (150, 250), (200, 210), (250, 400), (300, 400), (90, 500))
    )

    assert lowest.tolist() == [1800, 1800, 800, 800, 800, 1800, 800]


def test_lowest_during__interval_that_ends_with_a_reading__its_own_alone() -> None:
    clock = Readings.of([100, 200], [1800.0, 800.0])

    assert clock.lowest_during(intervals((150, 200))).tolist() == [1800]
    assert clock.lowest_during(Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))).tolist() == []


def test_mean_within__rates_since_the_reading_before__weighted_by_what_lies_inside() -> None:
    # The first says nothing: of what time it is the mean is not known.
    rates = Readings.of([0, 20, 40, 60], [9.0, 1.0, 3.0, 5.0])

    assert rates.mean_within(10, 50) == (pytest.approx((10 * 1 + 20 * 3 + 10 * 5) / 40), 5.0, 3)
    assert rates.mean_within(20, 40) == (3.0, 3.0, 1)


@pytest.mark.parametrize("window", [(21, 39), (25, 55), (100, 200), (-10, 10)])
def test_mean_within__no_reading_whole_inside__none(window: tuple[int, int]) -> None:
    assert Readings.of([0, 20, 40, 60], [9.0, 1.0, 3.0, 5.0]).mean_within(*window) is None
    assert Readings.of([30], [1.0]).mean_within(0, 100) is None


def test_of__readings_in_any_order__by_time() -> None:
    readings = Readings.of([30, 10, 20], [3.0, 1.0, 2.0])

    assert (readings.time.tolist(), readings.value.tolist()) == ([10, 20, 30], [1.0, 2.0, 3.0])


def test_summed__a_source_missing_at_one_time__that_time_left_out() -> None:
    readings = Readings.summed(
        np.array([10, 10, 20, 30, 30]), np.array([1.0, 2, 4, 8, 16]), np.array([0, 1, 0, 1, 0]), unit=""
    )

    assert (readings.time.tolist(), readings.value.tolist()) == ([10, 30], [3.0, 24.0])


def test_risen_within__running_total__from_the_reading_before_and_on_after_a_reset() -> None:
    lost = Readings.of([0, 20, 40, 60, 80], [5.0, 5.0, 8.0, 1.0, 3.0])

    assert lost.risen_within(10, 45) == 3.0
    assert lost.risen_within(45, 100) == 2.0
    assert lost.risen_within(85, 100) is None


def test_total__counters_read_together__their_sum_in_their_unit() -> None:
    parts = [Readings.of([10, 20], [1.0, 2.0], "B/s"), Readings.of([20, 10], [4.0, 8.0], "B/s")]

    total = Readings.total(parts)
    assert (total.time.tolist(), total.value.tolist(), total.unit) == ([10, 20], [9.0, 6.0], "B/s")
    assert total.within(11, 20).tolist() == [6.0]
