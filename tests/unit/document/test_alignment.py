"""Alignment: which operator of head is which of base."""

from __future__ import annotations

import pytest

from perfgate.document.alignment import AlignedRow, TimedRow, align


def _by_op(pairs: list[AlignedRow]) -> dict[str, AlignedRow]:
    return {pair.row.op: pair for pair in pairs}


def test_align__same_rows__pairs_of_no_change() -> None:
    rows = [TimedRow("aten::mm", 2.0, 1, "[8, 8]", "a.py:3"), TimedRow("aten::relu", 1.0, 2)]
    assert [(pair.base, pair.head, pair.change()) for pair in align(rows, reversed(rows))] == [
        (rows[0], rows[0], "same"),
        (rows[1], rows[1], "same"),
    ]


def test_align__one_side_only__added_and_removed_with_all_their_time() -> None:
    pairs = _by_op(align([TimedRow("gone", 2.0, 4)], [TimedRow("new", 3.0, 1)]))
    assert (pairs["gone"].change(), pairs["gone"].delta, pairs["gone"].by_count) == ("removed", -2.0, -2.0)
    assert (pairs["new"].change(), pairs["new"].delta, pairs["new"].by_speed) == ("added", 3.0, 0.0)


def test_align__more_often_and_slower__time_is_split_and_adds_up() -> None:
    (pair,) = align([TimedRow("aten::add", 4.0, 2)], [TimedRow("aten::add", 9.0, 3)])
    assert pair.change() == "more"
    assert (pair.by_count, pair.by_speed, pair.delta) == (2.0, 3.0, 5.0)


def test_align__time_within_tolerance__same() -> None:
    (pair,) = align([TimedRow("aten::add", 100.0, 2)], [TimedRow("aten::add", 104.0, 2)])
    assert (pair.change(tolerance=0.05), pair.change(tolerance=0.01)) == ("same", "slower")
    (pair,) = align([TimedRow("aten::add", 104.0, 2)], [TimedRow("aten::add", 100.0, 2)])
    assert (pair.change(tolerance=0.05), pair.change(tolerance=0.01)) == ("same", "faster")


def test_align__a_line_added_above__lines_move_and_the_new_one_is_named() -> None:
    base = [TimedRow("aten::clone", 1.0, 6, "[8, 8]", "model.py:20"), TimedRow("aten::mm", 1.0, 1, None, "model.py:21")]
    head = [
        TimedRow("aten::clone", 1.0, 6, "[8, 8]", "model.py:15"),
        TimedRow("aten::clone", 1.0, 6, "[8, 8]", "model.py:21"),
        TimedRow("aten::mm", 1.0, 1, None, "model.py:22"),
    ]
    pairs = align(base, head)
    assert [(pair.row.line, pair.change()) for pair in pairs if pair.change() != "same"] == [("model.py:15", "added")]


def test_align__code_of_the_line__wins_over_the_nearer_line() -> None:
    base = [TimedRow("aten::clone", 1.0, 6, None, "model.py:20", "x = x.contiguous()")]
    head = [
        TimedRow("aten::clone", 1.0, 6, None, "model.py:20", "y = y.clone()"),
        TimedRow("aten::clone", 1.0, 6, None, "model.py:40", "x = x.contiguous()"),
    ]
    pairs = align(base, head)
    assert [pair.row.line for pair in pairs if pair.change() == "added"] == ["model.py:20"]


def test_align__another_shape_on_the_same_line__is_the_same_operator() -> None:
    base = [TimedRow("aten::addmm", 1.0, 1, "[8, 64]", "m.py:3"), TimedRow("aten::addmm", 1.0, 1, "[8, 8]", "m.py:9")]
    head = [TimedRow("aten::addmm", 1.5, 1, "[8, 96]", "m.py:3"), TimedRow("aten::addmm", 1.0, 1, "[8, 8]", "m.py:9")]
    first, second = align(base, head)
    assert (first.base, first.head, first.change()) == (base[0], head[0], "slower")
    assert (second.base, second.head) == (base[1], head[1])


def test_align__kernel_and_host_operator_of_one_name__are_two() -> None:
    (first, second) = align([TimedRow("Cast", 1.0, 1, kind="compute")], [TimedRow("Cast", 1.0, 1, kind="host")])
    assert {first.change(), second.change()} == {"added", "removed"}


@pytest.mark.parametrize("size", [3, 500])
def test_align__any_order_and_size__every_row_once_and_the_same_result(size: int) -> None:
    base = [TimedRow("op", float(number), 1, None, f"a.py:{number}") for number in range(size)]
    head = [TimedRow("op", float(number) + 1, 1, None, f"b.py:{number}") for number in range(size + 2)]
    pairs = align(base, head)
    assert pairs == align(reversed(base), reversed(head))
    assert sorted(pair.base.time for pair in pairs if pair.base) == [row.time for row in base]
    assert sorted(pair.head.time for pair in pairs if pair.head) == [row.time for row in head]
    assert sum(pair.delta for pair in pairs) == sum(row.time for row in head) - sum(row.time for row in base)
