import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.trace.model.arithmetic import (
    Intervals,
    counts_by_name,
    gaps,
    last_rows,
    last_until,
    overlap_length,
    self_times,
    totals_by_name,
    union,
    union_length,
)


def column(*values):
    return np.array(values, dtype=np.int64)


def spans(*pairs):
    return Intervals(column(*(start for start, _ in pairs)), column(*(end for _, end in pairs)))


def pairs(intervals):
    return list(zip(intervals.start.tolist(), intervals.end.tolist()))


def test_union__overlapping_touching_nested_apart__merged_and_sorted() -> None:
    given = spans((50, 60), (0, 10), (5, 20), (20, 30), (22, 25), (40, 41))

    assert pairs(union(given)) == [(0, 30), (40, 41), (50, 60)]
    assert union_length(given) == 41


def test_union__long_one_first_hides_later_ones__one_piece() -> None:
    assert pairs(union(spans((0, 100), (10, 20), (30, 40), (99, 101)))) == [(0, 101)]


def test_union__empty_and_zero_length__covers_nothing() -> None:
    assert union_length(spans()) == 0
    assert pairs(union(spans((5, 5)))) == []


def test_union__times_of_today_in_nanoseconds__exact() -> None:
    # As float64 these would collapse: its step at 1.79e18 is 256.
    start = 1_790_857_026_000_000_001

    assert union_length(spans((start, start + 3), (start + 2, start + 5), (start + 7, start + 8))) == 6


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((0, 100), [(0, 10), (30, 50), (60, 100)]),
        ((10, 60), [(30, 50)]),
        ((15, 40), [(30, 40)]),
        ((12, 28), []),
        ((70, 80), [(70, 80)]),
    ],
)
def test_gaps__window_over_two_pieces__what_is_not_covered(
    window: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert pairs(gaps(spans((10, 20), (20, 30), (50, 60)), window)) == expected


def test_gaps__no_events__the_whole_window() -> None:
    assert pairs(gaps(spans(), (3, 9))) == [(3, 9)]


def test_overlap__copy_partly_under_compute__common_part() -> None:
    copy = spans((0, 30), (50, 60))
    compute = spans((20, 40), (25, 55))

    # Common: 20..30 and 50..55.
    assert overlap_length(copy, compute) == 15


def test_totals_by_name__sums_beyond_float64__exact() -> None:
    large = 2**60 + 1

    assert totals_by_name(column(0, 2, 2), column(5, large, 1), 4).tolist() == [5, 0, 2**60 + 2, 0]
    assert counts_by_name(column(0, 2, 2), 4).tolist() == [1, 0, 2, 0]


def test_self_times__three_levels_on_one_track__minus_direct_children() -> None:
    # outer 0..100 holds a 10..60 and b 70..90; a holds c 20..30 and d 30..60.
    start = column(0, 10, 20, 30, 70)
    duration = column(100, 50, 10, 30, 20)

    assert self_times(start, duration, column(1, 1, 1, 1, 1)).tolist() == [30, 10, 10, 30, 20]


def test_self_times__order_of_file_and_tracks_mixed__tracks_apart() -> None:
    # Track 1: 0..10 holds 2..5. Track 2: 1..4 stands alone.
    start = column(2, 1, 0)
    duration = column(3, 3, 10)

    assert self_times(start, duration, column(1, 2, 1)).tolist() == [3, 3, 7]


def test_self_times__child_as_long_as_parent__parent_has_nothing_left() -> None:
    # Same start and end: the one that comes first in the file is the outer one.
    assert self_times(column(0, 0), column(8, 8), column(0, 0)).tolist() == [0, 8]


def test_self_times__zero_length_and_outlasting_child__never_negative() -> None:
    # 0..10 holds a mark at 5, and 8..14 begins in it and ends after it.
    assert self_times(column(0, 5, 8), column(10, 0, 6), column(0, 0, 0)).tolist() == [8, 0, 6]


def test_self_times__siblings_that_touch__both_children_of_the_same() -> None:
    assert self_times(column(0, 0, 5), column(10, 5, 5), column(0, 0, 0)).tolist() == [0, 5, 5]


def test_self_times__random_nesting__adds_up_to_the_union() -> None:
    random = np.random.default_rng(7)
    edges = np.sort(random.choice(10_000, size=200, replace=False))
    stack, start, end = [], [], []
    for edge in edges.tolist():
        if stack and random.random() < 0.5:
            start.append(stack.pop())
            end.append(edge)
        else:
            stack.append(edge)
    intervals = Intervals(column(*start), column(*end))

    own = self_times(intervals.start, intervals.end - intervals.start, np.zeros(len(start), dtype=np.int64))

    assert int(own.sum()) == union_length(intervals)
    assert int(own.min()) > 0


def test_self_times__nothing__nothing() -> None:
    assert self_times(column(), column(), column()).tolist() == []


@settings(max_examples=300)
@given(end=st.lists(st.integers(0, 9), max_size=40), asked=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10))))
def test_last_until__any_spans__the_last_of_the_first_that_lasts_so_long(
    end: list[int], asked: list[tuple[int, int]]
) -> None:
    begun, times = ([row[part] for row in asked] for part in (0, 1))
    begun = [min(number, len(end)) for number in begun]
    expected = [
        max((place for place in range(number) if end[place] >= time), default=-1) for number, time in zip(begun, times)
    ]

    assert last_until(column(*end), column(*begun), column(*times)).tolist() == expected


@given(st.lists(st.integers(-3, 3)), st.lists(st.integers(-4, 4)))
def test_last_rows__any_values__where_each_stands_last(values: list[int], asked: list[int]) -> None:
    expected = [max((place for place, value in enumerate(values) if value == one), default=-1) for one in asked]

    assert last_rows(column(*values), column(*asked)).tolist() == expected
