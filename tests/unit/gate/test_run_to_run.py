"""The numbers of stored runs beside main's level: a place, and never a difference."""

from __future__ import annotations

import pytest

from perfgate.document.site import BesideLevel
from perfgate.judging.gate.compare.stored import beside_level, run_to_run
from tests.fakes.trends import make_series

LEVEL = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
TIME = make_series()
COUNT = make_series(metric="counters.copies", unit="1", kind="exact")


@pytest.mark.parametrize(("value", "position"), [(1.0, "inside"), (1.2, "above"), (0.8, "below")])
def test_beside_level__value__its_place_in_the_interval_for_one_more_version(value: float, position: str) -> None:
    placed = beside_level(TIME, value, LEVEL)
    assert placed.position == position
    assert placed.confidence == 0.98
    assert placed.typical == 1.0
    # 1.000 ± 3.365 * 0.0141 * sqrt(1 + 1/6), of logarithms: t(0.99, 5) = 3.365
    assert placed.interval == pytest.approx((0.95, 1.053), abs=0.002)


@pytest.mark.parametrize(("level", "position"), [([], "unknown"), ([1.0, 1.1], "unknown"), ([1.0] * 4, "no_spread")])
def test_beside_level__too_little_known__no_interval_and_no_place(level: list[float], position: str) -> None:
    assert (beside_level(TIME, 5.0, level).interval, beside_level(TIME, 5.0, level).position) == (None, position)


@pytest.mark.parametrize(("before", "value", "position"), [(2.0, 2.0, "same"), (2.0, 3.0, "differs"), (None, 3.0, "unknown"),
                                                           (2.0, None, "unknown")])  # fmt: skip
def test_run_to_run__exact_count__the_same_or_another(before: float | None, value: float | None, position: str) -> None:
    assert run_to_run(COUNT, before, value, [2.0, 2.0, 2.0]).position == position


def test_run_to_run__two_testbeds__nothing_is_compared() -> None:
    assert run_to_run(COUNT, 2.0, 3.0, []).position == "unknown"
    assert run_to_run(TIME, 1.0, 2.0, []).position == "unknown"


def test_run_to_run__time_that_a_side_lacks__no_place() -> None:
    assert run_to_run(TIME, None, 1.2, LEVEL).position == "unknown"


def test_beside_level__no_field_is_a_difference() -> None:
    assert not {"delta", "change", "difference", "outcome"} & set(BesideLevel.__struct_fields__)
