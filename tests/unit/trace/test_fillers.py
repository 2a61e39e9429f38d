"""Gaps of a device by what the host does meanwhile: the innermost frame and operator that fill them."""

from __future__ import annotations

from perfgate.document.trace import GapGroupRow
from perfgate.trace.analysis.gaps import device_gaps, gap_groups
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder

MAIN, OTHER, STREAM = ("python", "1"), ("python", "2"), ("device 0", "stream 7")


def events(*rows: tuple[int, int, tuple[str, str], str, EventKind, int]) -> EventTable:
    builder = EventTableBuilder()
    for start, duration, track, name, kind, correlation in rows:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation)
    return builder.table()


def step(at: int) -> list[tuple[int, int, tuple[str, str], str, EventKind, int]]:
    """A kernel of 100, and 900 in which the host loads data and copies before it launches the next."""
    return [
        (at, 100, STREAM, "gemm", "compute", at),
        (at - 10, 5, MAIN, "cudaLaunchKernel", "runtime", at),
        (at, 960, MAIN, "train.py(12): step", "python", NO_CORRELATION),
        (at + 60, 880, MAIN, "data/loader.py(7): __next__", "python", NO_CORRELATION),
        (at + 70, 860, MAIN, "<built-in method stack>", "python", NO_CORRELATION),
        (at + 100, 800, MAIN, "aten::stack", "host_op", NO_CORRELATION),
        (at + 200, 100, MAIN, "aten::cat", "host_op", NO_CORRELATION),
        (at, 990, OTHER, "watchdog.py(3): run", "python", NO_CORRELATION),
    ]


def test_gap_groups__host_loads_data__the_loader_and_its_operator_are_named_once_for_all_gaps() -> None:
    table = events(*step(1000), *step(2000), *step(3000))
    found = device_gaps(table)
    assert found is not None
    assert gap_groups(table, found, uncertain=False) == [
        GapGroupRow(
            frame="data/loader.py(7): __next__",
            operator="aten::stack",
            ended_by="gemm",
            cause="host",
            count=2,
            total=1.8e-6,
            longest=9e-7,
            share=1800 / 2100,
        )
    ]


def test_gap_groups__host_not_recorded__said_by_none() -> None:
    table = events((0, 10, STREAM, "a", "compute", NO_CORRELATION), (100, 10, STREAM, "b", "compute", NO_CORRELATION))
    found = device_gaps(table)
    assert found is not None
    (group,) = gap_groups(table, found, uncertain=False)
    assert (group.frame, group.operator, group.ended_by, group.cause) == (None, None, "b", "unknown")
    assert (group.count, group.total, group.longest, group.share) == (1, 90 / 1e9, 90 / 1e9, 90 / 110)


def test_device_gaps__blocking_copy_that_begins_in_the_gap_and_fills_it__is_a_synchronization() -> None:
    table = events(
        (0, 10, STREAM, "gemm", "compute", 1),
        (30, 900, MAIN, "hipMemcpyWithStream", "runtime", 2),
        (980, 20, STREAM, "Memcpy HtoD", "copy", 2),
    )
    found = device_gaps(table)
    assert found is not None
    (gap,) = found.gaps
    assert gap.cause == "synchronization"
