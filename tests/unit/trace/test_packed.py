"""Columns in few bytes: whatever the numbers are, they come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.trace.model.packed import NO_NUMBER, Packed, PackedReals, alike_rows, distinct_rows, joined_columns

_whole = st.sampled_from([NO_NUMBER, 0, -1, 254, 255, 256, 65_535, 1 << 32, (1 << 62), -(1 << 62)]) | st.integers(-9, 9)
_wholes = st.lists(_whole, max_size=9)
_reals = st.floats() | st.integers(-(10**9), 10**9).map(lambda whole: whole / 1000) | st.just(-0.0)


def packed(numbers: list[int]) -> Packed:
    return Packed.of(np.array(numbers, dtype=np.int64))


@settings(max_examples=300, deadline=None)
@given(_wholes, _wholes)
def test_packed__any_numbers__the_same_again(first: list[int], second: list[int]) -> None:
    numbers = [*first, *second]
    column = joined_columns([packed(first), packed(second)])

    assert column.unpacked().tolist() == packed(numbers).unpacked().tolist() == numbers
    assert column.distinct() == list(dict.fromkeys(numbers))
    assert column.select(np.arange(len(numbers))[::-1]).unpacked().tolist() == numbers[::-1]
    assert column.changed(lambda part: part // 2 * 2).unpacked().tolist() == [number // 2 * 2 for number in numbers]


@given(st.lists(st.integers(-1, 70_000), max_size=9))
def test_codes__positions_and_none__in_32_bits(codes: list[int]) -> None:
    column = packed(codes).codes()

    assert (column.dtype, column.tolist()) == (np.int32, codes)


@pytest.mark.parametrize(("high", "size"), [(254, 1), (255, 2), (65_534, 2), (65_535, 4), ((1 << 32) - 1, 8)])
def test_packed__range_of_the_numbers__as_few_bytes_as_it_takes(high: int, size: int) -> None:
    # One value is for what is not known.
    column = packed([1_764_000_000_000_000_000 + above for above in (0, high)])

    assert column.values.itemsize == size


def test_same__one_number_or_none__no_bytes_a_row() -> None:
    assert Packed.same(7, 1_000_000).values.strides == (0,)
    assert Packed.same(7, 3).unpacked().tolist() == [7, 7, 7]
    assert Packed.same(NO_NUMBER, 2).unpacked().tolist() == [NO_NUMBER, NO_NUMBER]
    assert joined_columns([Packed.same(7, 1), Packed.same(NO_NUMBER, 1)]).unpacked().tolist() == [7, NO_NUMBER]


@settings(max_examples=300, deadline=None)
@given(st.lists(_reals, max_size=9), st.lists(_reals, max_size=9))
def test_packed_reals__any_numbers__the_same_to_the_last_bit(first: list[float], second: list[float]) -> None:
    column = PackedReals(np.array(first, dtype=np.float64))
    column.append(np.array(second, dtype=np.float64))
    numbers = np.array([*first, *second], dtype=np.float64)

    # A zero may lose its sign.
    assert np.array_equal(column.unpacked(), numbers, equal_nan=True)
    assert np.array_equal(column.select(np.arange(len(first))).unpacked(), numbers[: len(first)], equal_nan=True)


@given(st.lists(st.tuples(_whole, _whole), max_size=9))
def test_distinct_rows__two_columns__first_of_each_pair_and_its_number(rows: list[tuple[int, int]]) -> None:
    columns = [packed(list(column)) for column in zip(*rows)] or [packed([])]
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

    alike = alike_rows(np.array(chosen, dtype=bool), packed(values))
    assert [own.tolist() for own in alike] == list(groups.values())
