"""Rows that are alike: by the compiled loop and without it, for columns of any width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfgate.trace import loops
from perfgate.trace.model.arithmetic import Codes, IntColumn, count_among, group_rows, in_order
from tests.unit.trace.test_launches import needs_library

DTYPES = (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64)


@st.composite
def columns(draw: st.DrawFn) -> list[Codes]:
    rows = draw(st.integers(0, 40))
    kinds = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3))
    low = draw(st.sampled_from([-1, 0, 100]))
    values = {kind: st.booleans() if kind is np.bool_ else st.integers(max(low, 0), low + 5) for kind in DTYPES}
    values.update({kind: st.integers(low, low + 5) for kind in DTYPES if np.issubdtype(kind, np.signedinteger)})
    return [draw(arrays(kind, rows, elements=values[kind])) for kind in kinds]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_library)])
@given(columns())
def test_group_rows__any_columns__numbered_in_the_order_of_their_values(compiled: bool, table: list[Codes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(loops, "load", lambda: None)
        first, group = group_rows(*table)
    rows = list(zip(*(column.tolist() for column in table)))
    distinct = sorted(set(rows))
    assert group.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in distinct]
    assert (first.dtype, group.dtype) == (np.intp, np.int32)


numbers = arrays(np.int64, st.integers(0, 40), elements=st.integers(-5, 5))


@given(numbers)
def test_in_order__any_column__each_number_once(column: IntColumn) -> None:
    assert in_order(column).tolist() == sorted(set(column.tolist()))


@given(numbers, numbers)
def test_count_among__any_columns__those_that_are_also_there(column: IntColumn, others: IntColumn) -> None:
    known = set(others.tolist())
    assert count_among(column, others) == sum(number in known for number in column.tolist())


def test_group_rows__more_combinations_than_a_table_holds__numbered_all_the_same() -> None:
    wide = np.array([2**40, 0, 2**40], dtype=np.int64)

    first, group = group_rows(wide, wide)

    assert (first.tolist(), group.tolist()) == ([1, 0], [1, 0, 1])
