from __future__ import annotations

import pytest

from perfgate.conductor.workers.foresight import Foresight, foresee_pairs, foresee_steps


def test_foresee_steps__nothing_known_of_them__the_count_alone() -> None:
    assert foresee_steps({}, {}, [1, 4, 5]) == Foresight(number=1, count=3)
    assert foresee_steps({1: 3.0, 4: 1.0}, {1: 3.0}, [4, 5]) == Foresight(number=2, count=3)


def test_foresee_steps__as_long_as_before__an_interval_around_it() -> None:
    foresight = foresee_steps({1: 4.0, 4: 10.0, 5: 10.0}, {1: 4.0}, [4, 5])
    assert (foresight.number, foresight.count) == (2, 3)
    assert foresight.at_least == pytest.approx(14.0)
    assert foresight.at_most == pytest.approx(30.0)


def test_foresee_steps__this_time_three_times_as_slow__so_is_the_rest() -> None:
    foresight = foresee_steps({1: 4.0, 4: 10.0}, {1: 12.0}, [4])
    assert foresight.at_least == pytest.approx(21.0)
    assert foresight.at_most == pytest.approx(45.0)


def test_foresee_steps__hardly_anything_done__its_pace_says_nothing() -> None:
    assert foresee_steps({1: 0.1, 4: 10.0}, {1: 0.9}, [4]).at_most == pytest.approx(15.0)


def test_foresee_pairs__before_the_first__nothing() -> None:
    assert foresee_pairs([], 0, next_look=15, sure=23, most=71, budget_left=60.0) == Foresight()


def test_foresee_pairs__budget_longer_than_the_sure_pairs__the_budget_and_the_pair_that_it_cuts() -> None:
    foresight = foresee_pairs([1.0, 2.0], 2, next_look=15, sure=23, most=71, budget_left=57.0)
    assert (foresight.at_least, foresight.at_most) == (13.0, 59.0)


def test_foresee_pairs__slow_pairs__the_sure_ones_whatever_the_budget_is() -> None:
    foresight = foresee_pairs([5.0], 1, next_look=15, sure=23, most=71, budget_left=55.0)
    assert (foresight.at_least, foresight.at_most) == (70.0, 110.0)


def test_foresee_pairs__few_left__not_more_than_all_of_them_take() -> None:
    foresight = foresee_pairs([1.0], 69, next_look=71, sure=23, most=71, budget_left=50.0)
    assert (foresight.at_least, foresight.at_most) == (2.0, 2.0)
