"""Work by the line and the operator that launched it, on made-up nanoseconds."""

from __future__ import annotations

import pytest

from perfgate.errors import UsageError
from perfgate.trace.analysis.rows import TopOperator, top
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.trace.model.recording import Kernel, Timeline

HOST, STREAM = ("python", "1"), ("device 0", "stream 7")


def events(*rows: tuple[int, int, tuple[str, str], str, EventKind, int]) -> EventTable:
    builder = EventTableBuilder()
    for start, duration, track, name, kind, correlation in rows:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation)
    return builder.table()


PYTHON: list[tuple[int, int, tuple[str, str], str, EventKind, int]] = [
    (0, 100, HOST, "model.py(12): forward", "python", NO_CORRELATION),
    (10, 60, HOST, "torch/nn/modules/linear.py(114): forward", "python", NO_CORRELATION),
]
LAUNCHES: list[tuple[int, int, tuple[str, str], str, EventKind, int]] = [
    (20, 10, HOST, "aten::mm", "host_op", NO_CORRELATION),
    (22, 2, HOST, "cudaLaunchKernel", "runtime", 1),
    (40, 10, HOST, "aten::add", "host_op", NO_CORRELATION),
    (42, 2, HOST, "cudaLaunchKernel", "runtime", 2),
    (120, 10, HOST, "aten::copy_", "host_op", NO_CORRELATION),
    (122, 2, HOST, "cudaMemcpyAsync", "runtime", 3),
    (30, 50, STREAM, "gemm", "compute", 1),
    (80, 10, STREAM, "add", "compute", 2),
    (130, 5, STREAM, "Memcpy HtoD", "copy", 3),
    (140, 1, STREAM, "orphan", "compute", NO_CORRELATION),
]


def test_top__by_line__function_of_the_project_and_the_operator_with_most_of_its_time() -> None:
    found = top(Timeline(0, 0, events(*PYTHON, *LAUNCHES)), by="line", host=False)
    assert found.base_ns == 66
    # What no function launched stands under its operator, and what nothing launched under itself.
    assert found.rows == (
        TopOperator("model.py(12): forward", "compute", 2, 60, operator="aten::mm"),
        TopOperator("aten::copy_", "copy", 1, 5, operator="aten::copy_"),
        TopOperator("orphan", "compute", 1, 1, operator="orphan"),
    )


def test_top__by_line_of_the_host__self_time_of_operators_under_their_function() -> None:
    found = top(Timeline(0, 0, events(*PYTHON, *LAUNCHES)), by="line", host=True)
    assert [(row.name, row.total_ns, row.operator) for row in found.rows] == [
        ("model.py(12): forward", 20, "aten::mm"),
        ("aten::copy_", 10, "aten::copy_"),
    ]


def test_top__by_line_with_a_shortest_time__longer_runs_alone() -> None:
    found = top(Timeline(0, 0, events(*PYTHON, *LAUNCHES)), by="line", host=False, longer_ns=10)
    assert [(row.name, row.count) for row in found.rows] == [("model.py(12): forward", 1)]


def test_top__by_line_without_python_functions__says_how_to_record_them() -> None:
    with pytest.raises(UsageError, match="with_stack=True"):
        top(Timeline(0, 0, events(*LAUNCHES)), by="line", host=False)


def test_top__by_line_of_tables_alone__says_that_they_name_none() -> None:
    tables = Timeline(0, 0, events(), kernels=[Kernel("gemm", "MatMul", "AI_CORE", 0, 10)])
    with pytest.raises(UsageError, match="tables alone"):
        top(tables, by="line", host=False)
