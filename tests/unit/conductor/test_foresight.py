from __future__ import annotations

import pytest

from perfgate.conductor.workers.foresight import Foresight, foresee_pairs, foresee_steps


def test_foresee_steps__nothing_known_of_them__the_count_alone() -> None:
    assert foresee_steps({}, {}, [1, 4, 5]) == Foresight(number=1, count=3)
    assert foresee_steps({1: 3.0, 4: 1.0}, {1: 3.0}, [4, 5]) == Foresight(number=2, count=3)


def test_foresee_steps__as_long_as_before__those_seconds() -> None:
    assert foresee_steps({1: 4.0, 4: 10.0, 5: 10.0}, {1: 4.0}, [4, 5]) == Foresight(number=2, count=3, left=20.0)


def test_foresee_steps__this_time_three_times_as_slow__so_is_the_rest() -> None:
    assert foresee_steps({1: 4.0, 4: 10.0}, {1: 12.0}, [4]).left == pytest.approx(30.0)


def test_foresee_steps__hardly_anything_done__its_pace_says_nothing() -> None:
    assert foresee_steps({1: 0.1, 4: 10.0}, {1: 0.9}, [4]).left == pytest.approx(10.0)


def test_foresee_pairs__before_the_first__the_number_alone() -> None:
    assert foresee_pairs(None, 0, next_look=15) == Foresight(number=1, goal=15)


def test_foresee_pairs__some_taken__the_others_of_the_look_take_as_long() -> None:
    assert foresee_pairs(1.5, 2, next_look=15) == Foresight(number=3, goal=15, left=19.5)
