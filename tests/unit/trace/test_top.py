"""Rows of `perfgate trace top`, on made-up nanoseconds."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.errors import UsageError
from perfgate.trace.analysis.rows import TopOperator, top
from perfgate.trace.model.events import EventTable, EventTableBuilder
from perfgate.trace.model.recording import Kernel, NamedTotal, Tensors, Timeline, Totals


def table(*events: dict[str, Any]) -> EventTable:
    builder = EventTableBuilder()
    for event in events:
        given = {"track": ("p", "t"), "correlation": -1, **event}
        builder.add(given.pop("start"), given.pop("duration"), **given)
    return builder.table()


DEVICE = table(
    {"name": "MatMulV2_1", "group": "MatMulV2", "kind": "compute", "start": 0, "duration": 30, "shape": "[[4, 4]]"},
    {"name": "MatMulV2_2", "group": "MatMulV2", "kind": "compute", "start": 40, "duration": 10, "shape": "[[2, 2]]"},
    {"name": "hcom_1", "group": "hcom_allReduce_", "kind": "comm", "start": 20, "duration": 20, "track": ("p", "u")},
    {"name": "Memcpy", "kind": "copy", "start": 60, "duration": 5},
    {"name": "aten::linear", "kind": "host_op", "start": 0, "duration": 50, "track": ("h", "1"), "shape": "[[4, 4]]"},
    {"name": "aten::mm", "kind": "host_op", "start": 10, "duration": 30, "track": ("h", "1")},
)


def test_top__by_type__sums_by_type_and_busy_time_over_all_streams() -> None:
    found = top(Timeline(0, 0, DEVICE), by="type", host=False)

    assert (found.side, found.base_ns) == ("device", 55)
    assert found.rows == (
        TopOperator("MatMulV2", "compute", 2, 40),
        TopOperator("hcom_allReduce_", "comm", 1, 20),
        TopOperator("Memcpy", "copy", 1, 5),
    )


def test_top__by_name__one_row_a_name() -> None:
    found = top(Timeline(0, 0, DEVICE), by="name", host=False)

    assert [row.name for row in found.rows] == ["MatMulV2_1", "hcom_1", "MatMulV2_2", "Memcpy"]


def test_top__by_shape__types_apart_by_shapes() -> None:
    found = top(Timeline(0, 0, DEVICE), by="shape", host=False)

    assert [(row.name, row.shapes, row.total_ns) for row in found.rows] == [
        ("MatMulV2", "[[4, 4]]", 30), ("hcom_allReduce_", None, 20), ("MatMulV2", "[[2, 2]]", 10), ("Memcpy", None, 5),
    ]  # fmt: skip


def test_top__host_of_a_trace_with_a_device__self_time() -> None:
    found = top(Timeline(0, 0, DEVICE), by="type", host=True)

    assert (found.side, found.base_ns) == ("host", 50)
    assert found.rows == (TopOperator("aten::mm", "host", 1, 30), TopOperator("aten::linear", "host", 1, 20))


def test_top__longer__only_single_runs_that_took_longer_and_shares_of_all_time() -> None:
    found = top(Timeline(0, 0, DEVICE), by="type", host=False, longer_ns=10)

    assert found.base_ns == 55
    assert found.rows == (TopOperator("MatMulV2", "compute", 1, 30), TopOperator("hcom_allReduce_", "comm", 1, 20))


def test_top__longer_on_the_host__what_ran_inside_does_not_count() -> None:
    found = top(Timeline(0, 0, DEVICE), by="type", host=True, longer_ns=20)

    # Of the 50 of aten::linear 30 are those of aten::mm.
    assert (found.base_ns, found.rows) == (50, (TopOperator("aten::mm", "host", 1, 30),))


def test_top__longer_in_a_table_of_kernels__by_their_durations() -> None:
    kernels = tuple(Kernel("MatMulV2", "MatMulV2", "AI_CORE", None, length) for length in (5, 40, 60))

    found = top(Timeline(0, 0, table(), kernels=kernels), by="type", host=False, longer_ns=5)

    assert (found.base_ns, found.rows) == (105, (TopOperator("MatMulV2", "compute", 2, 100),))


def test_top__longer_of_totals_alone__says_that_no_single_run_is_known() -> None:
    timeline = Timeline(0, 0, table(), totals=Totals((NamedTotal("MatMulV2", 2, 40),)))

    with pytest.raises(UsageError, match="no single runs"):
        top(timeline, by="type", host=False, longer_ns=1)


def test_top__no_device__host() -> None:
    assert top(Timeline(0, None, DEVICE.of_kind("host_op")), by="type", host=False).side == "host"


def test_top__shapes_only_in_the_table_of_kernels__taken_from_there() -> None:
    kernels = (
        Kernel("a", "MatMulV2", "AI_CORE", 0, 30, inputs=Tensors(((4, 4), ()))),
        Kernel("b", "MatMulV2", "AI_CORE", 20, 30, inputs=Tensors(((4, 4), ()))),
        Kernel("c", None, "HCCL", 60, 5),
    )
    found = top(Timeline(0, 0, table(), kernels=kernels), by="shape", host=False)

    assert (found.side, found.base_ns) == ("device", 55)
    assert found.rows == (
        TopOperator("MatMulV2", "compute", 2, 60, "[[4, 4], []]"),
        TopOperator("c", "comm", 1, 5, "[]"),
    )


def test_top__kernels_without_times__base_is_their_sum() -> None:
    kernels = (Kernel("a", "Mul", "AI_CORE", None, 30), Kernel("b", "Mul", "AI_CORE", None, 30))

    assert top(Timeline(0, 0, table(), kernels=kernels), by="type", host=False).base_ns == 60


def test_top__only_the_profilers_totals__by_type_from_them() -> None:
    totals = (NamedTotal("Cast", 3, 20), NamedTotal("MatMulV2", 2, 40))
    operators = (NamedTotal("aten::mm", 2, 30),)
    timeline = Timeline(0, 0, table(), totals=Totals(types=totals, operators=operators))

    found = top(timeline, by="type", host=False)
    assert (found.side, found.base_ns, [row.name for row in found.rows]) == ("device", 60, ["MatMulV2", "Cast"])
    assert top(timeline, by="type", host=True).rows == (TopOperator("aten::mm", "host", 2, 30),)


def test_top__by_shape_without_shapes__says_what_to_do() -> None:
    with pytest.raises(UsageError, match="record_shapes=True"):
        top(Timeline(0, 0, table({"name": "k", "kind": "compute", "start": 0, "duration": 1})), by="shape", host=False)
