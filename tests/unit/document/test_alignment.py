"""Alignment: which operator of head is which of base."""

from __future__ import annotations

import pytest

from perfgate.document.alignment import AlignedWork, Work, align


def _by_op(pairs: list[AlignedWork]) -> dict[str, AlignedWork]:
    return {pair.row.operator: pair for pair in pairs}


def test_align__same_rows__pairs_of_no_change() -> None:
    rows = [Work("aten::mm", 2.0, 1, "[8, 8]", "a.py:3"), Work("aten::relu", 1.0, 2)]
    assert [(pair.base, pair.head, pair.change()) for pair in align(rows, reversed(rows))] == [
        (rows[0], rows[0], "same"),
        (rows[1], rows[1], "same"),
    ]


def test_align__one_side_only__added_and_removed_with_all_their_time() -> None:
    pairs = _by_op(align([Work("gone", 2.0, 4)], [Work("new", 3.0, 1)]))
    assert (pairs["gone"].change(), pairs["gone"].delta, pairs["gone"].by_count) == ("removed", -2.0, -2.0)
    assert (pairs["new"].change(), pairs["new"].delta, pairs["new"].by_speed) == ("added", 3.0, 0.0)


def test_align__more_often_and_slower__time_is_split_and_adds_up() -> None:
    (pair,) = align([Work("aten::add", 4.0, 2)], [Work("aten::add", 9.0, 3)])
    assert pair.change() == "more"
    assert (pair.by_count, pair.by_speed, pair.delta) == (2.0, 3.0, 5.0)


def test_align__time_within_tolerance__same() -> None:
    (pair,) = align([Work("aten::add", 100.0, 2)], [Work("aten::add", 104.0, 2)])
    assert (pair.change(tolerance=0.05), pair.change(tolerance=0.01)) == ("same", "slower")
    (pair,) = align([Work("aten::add", 104.0, 2)], [Work("aten::add", 100.0, 2)])
    assert (pair.change(tolerance=0.05), pair.change(tolerance=0.01)) == ("same", "faster")


def test_align__a_line_added_above__lines_move_and_the_new_one_is_named() -> None:
    base = [Work("aten::clone", 1.0, 6, "[8, 8]", "model.py:20"), Work("aten::mm", 1.0, 1, None, "model.py:21")]
    head = [
        Work("aten::clone", 1.0, 6, "[8, 8]", "model.py:15"),
        Work("aten::clone", 1.0, 6, "[8, 8]", "model.py:21"),
        Work("aten::mm", 1.0, 1, None, "model.py:22"),
    ]
    pairs = align(base, head)
    assert [(pair.row.line, pair.change()) for pair in pairs if pair.change() != "same"] == [("model.py:15", "added")]


def test_align__code_of_the_line__wins_over_the_nearer_line() -> None:
    base = [Work("aten::clone", 1.0, 6, None, "model.py:20", "x = x.contiguous()")]
    head = [
        Work("aten::clone", 1.0, 6, None, "model.py:20", "y = y.clone()"),
        Work("aten::clone", 1.0, 6, None, "model.py:40", "x = x.contiguous()"),
    ]
    pairs = align(base, head)
    assert [pair.row.line for pair in pairs if pair.change() == "added"] == ["model.py:20"]


def test_align__another_shape_on_the_same_line__is_the_same_operator() -> None:
    base = [Work("aten::addmm", 1.0, 1, "[8, 64]", "m.py:3"), Work("aten::addmm", 1.0, 1, "[8, 8]", "m.py:9")]
    head = [Work("aten::addmm", 1.5, 1, "[8, 96]", "m.py:3"), Work("aten::addmm", 1.0, 1, "[8, 8]", "m.py:9")]
    first, second = align(base, head)
    assert (first.base, first.head, first.change()) == (base[0], head[0], "slower")
    assert (second.base, second.head) == (base[1], head[1])


def test_align__kernel_and_host_operator_of_one_name__are_two() -> None:
    (first, second) = align([Work("Cast", 1.0, 1, kind="compute")], [Work("Cast", 1.0, 1, kind="host")])
    assert {first.change(), second.change()} == {"added", "removed"}


@pytest.mark.parametrize("size", [3, 500])
def test_align__any_order_and_size__every_row_once_and_the_same_result(size: int) -> None:
    base = [Work("op", float(number), 1, None, f"a.py:{number}") for number in range(size)]
    head = [Work("op", float(number) + 1, 1, None, f"b.py:{number}") for number in range(size + 2)]
    pairs = align(base, head)
    assert pairs == align(reversed(base), reversed(head))
    assert sorted(pair.base.amount for pair in pairs if pair.base) == [row.amount for row in base]
    assert sorted(pair.head.amount for pair in pairs if pair.head) == [row.amount for row in head]
    assert sum(pair.delta for pair in pairs) == sum(row.amount for row in head) - sum(row.amount for row in base)
