"""What a trace of calls says of them."""

from __future__ import annotations

from pathlib import Path

from perfgate.measuring.counting.collect import read_calls, trace_name
from perfgate.trace.analysis.flame import flame_tree
from perfgate.trace.analysis.stacks import stacks_of
from perfgate.trace.model.events import CALL
from tests.fakes.kineto import TraceLog, write_trace


def test_of_faster_half__calls_that_were_disturbed__are_none_any_more(tmp_path: Path) -> None:
    log = TraceLog()
    for number, length in enumerate((100_000, 900_000, 110_000, 100_000, 500_000)):
        start = number * 1_000_000
        log.annotation(CALL, start, start + length)
    path = tmp_path / "trace.json.gz"
    write_trace(log, path)
    trace = read_calls(path)

    stacks = stacks_of(trace.of_faster_half())

    assert trace.calls == 5
    (costs,) = flame_tree(stacks, "default").sides
    assert (costs.units, sum(costs.own)) == (3, 310_000)


def test_trace_name__names_that_no_file_can_have__short_and_never_the_same() -> None:
    assert trace_name("w", "short") == "trace-w-short"
    names = ["../up", "a/b", "a-b", "x" * 300, "x" * 301, "\udcff"]
    files = [trace_name("w", name) for name in names]
    assert len(set(files)) == len(names)
    assert all(len(file) < 130 and "/" not in file and file.isascii() for file in files)
