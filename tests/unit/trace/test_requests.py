"""Requests of a recording: what lies in their spans, and what that launched, is theirs."""

from __future__ import annotations

import tracemalloc

from perfgate.document.trace import RequestRow
from perfgate.trace.analysis.requests import Requests
from perfgate.trace.analysis.rows import TopOperator
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder

HOST, STREAM = ("python", "main"), ("device 0", "stream 7")
Row = tuple[int, int, tuple[str, str], str, EventKind, int, "str | None"]


def events(*rows: Row) -> EventTable:
    builder = EventTableBuilder()
    for start, duration, track, name, kind, correlation, request in rows:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation, request=request)
    return builder.table()


# The first request's kernel runs long after its span has ended; the second has a step more later on.
TWO = events(
    (0, 100, HOST, "request#a", "annotation", NO_CORRELATION, "a"),
    (10, 50, HOST, "aten::mm", "host_op", NO_CORRELATION, None),
    (20, 10, HOST, "launch", "runtime", 1, None),
    (300, 40, STREAM, "gemm", "compute", 1, None),
    (110, 30, HOST, "request#b", "annotation", NO_CORRELATION, "b"),
    (115, 10, HOST, "launch", "runtime", 2, None),
    (130, 60, STREAM, "copy", "copy", 2, None),
    (500, 20, HOST, "request#b", "annotation", NO_CORRELATION, "b"),
    (600, 50, HOST, "aten::relu", "host_op", NO_CORRELATION, None),  # nobody's
)


def test_requests__kernel_long_after_the_span__is_the_request_s_and_the_rest_is_waiting() -> None:
    longest, other = Requests(TWO).all()
    assert longest == RequestRow(
        request="b", start=1.1e-7, elapsed=4.1e-7, active=1e-7, host=5e-8, device=6e-8, kernels=0
    )
    assert other == RequestRow(request="a", start=0.0, elapsed=3.4e-7, active=1.4e-7, host=1e-7, device=4e-8, kernels=1)


def test_rows__of_a_request__own_times_add_up_to_what_ran() -> None:
    found = Requests(TWO)
    assert found.rows("a") == [
        TopOperator("request#a", "host", 1, 50),
        TopOperator("aten::mm", "host", 1, 40),
        TopOperator("gemm", "compute", 1, 40),
        TopOperator("launch", "host", 1, 10),
    ]
    assert found.rows("c") is None


def test_requests__span_inside_another_request_s__is_its_own() -> None:
    table = events(
        (0, 100, HOST, "request#batch", "annotation", NO_CORRELATION, "batch"),
        (10, 30, HOST, "request#one", "annotation", NO_CORRELATION, "one"),
        (15, 5, HOST, "aten::mm", "host_op", NO_CORRELATION, None),
    )
    assert [(one.request, one.elapsed) for one in Requests(table).all()] == [("batch", 1e-7), ("one", 3e-8)]
    assert [row.name for row in Requests(table).rows("one") or ()] == ["request#one", "aten::mm"]


def test_requests__none_named__none() -> None:
    assert Requests(events((0, 10, HOST, "aten::mm", "host_op", NO_CORRELATION, None))).all() == []
    assert Requests(events()).all() == []


def test_events__one_request_of_many__takes_memory_of_its_own_events_alone() -> None:
    requests = 5000
    rows: list[Row] = [
        (number, 1, HOST, f"request#{number}", "annotation", NO_CORRELATION, str(number)) for number in range(requests)
    ]
    found = Requests(events(*rows))
    tracemalloc.start()
    try:
        assert len(found.events("17")) == 1
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < requests
