"""Rows of columns with any numbers, NO_NUMBER among them, that agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfgate.trace.model.arithmetic import NO_NUMBER, IntColumn, alike_rows, distinct, distinct_rows

_whole = st.sampled_from([NO_NUMBER, 0, -1, 254, 255, 256, 65_535, 1 << 32, (1 << 62), -(1 << 62)]) | st.integers(-9, 9)


def column(numbers: list[int]) -> IntColumn:
    return np.array(numbers, dtype=np.int64)


@given(st.lists(_whole, max_size=9))
def test_distinct__any_numbers__each_once_in_the_order_of_the_rows(numbers: list[int]) -> None:
    assert distinct(column(numbers)) == list(dict.fromkeys(numbers))


@given(st.lists(st.tuples(_whole, _whole), max_size=9))
def test_distinct_rows__two_columns__first_of_each_pair_and_its_number(rows: list[tuple[int, int]]) -> None:
    columns = [column(list(values)) for values in zip(*rows)] or [column([])]
    first, number = distinct_rows(columns)
    pairs = list(dict.fromkeys(rows))

    assert first.tolist() == [rows.index(pair) for pair in pairs]
    assert number.tolist() == [pairs.index(pair) for pair in rows]


@given(st.lists(st.tuples(st.booleans(), _whole), max_size=9))
def test_alike_rows__some_rows__by_value_in_the_order_of_the_first(rows: list[tuple[bool, int]]) -> None:
    chosen, values = ([row[part] for row in rows] for part in (0, 1))
    groups: dict[int, list[int]] = {}
    for place, (is_chosen, value) in enumerate(rows):
        if is_chosen:
            groups.setdefault(value, []).append(place)

    alike = alike_rows(np.array(chosen, dtype=bool), column(values))
    assert [own.tolist() for own in alike] == list(groups.values())
