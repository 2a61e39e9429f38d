"""Several cycles of a profiler in one recording: the pause between them is neither idle time nor part of a step or window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.flows.trace.answer import trace_answer
from perfgate.flows.trace.trace import Choice, trace_gaps, trace_steps
from perfgate.trace.model.cycles import pauses
from tests.wording import text_of

STEP, PAUSE = 100, 1_000_000


def step(number: int, start: int) -> list[dict[str, Any]]:
    """A step of 100 us with an operator and a kernel of 60 us."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    return [
        {**host, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": start, "dur": STEP},
        {**host, "cat": "cpu_op", "name": "aten::mm", "ts": start + 1, "dur": 80},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 2, "dur": 3}
        | {"args": {"correlation": start + 1}},
        {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": start + 10, "dur": 60}
        | {"args": {"device": 0, "stream": 7, "correlation": start + 1}},
    ]


def cycle(start: int) -> dict[str, Any]:
    """The span of a cycle of two steps."""
    return {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P"} | {
        "ts": start,
        "dur": 2 * STEP,
    }


def written(folder: Path, events: list[dict[str, Any]]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def cycles(numbers: tuple[int, int, int, int]) -> list[dict[str, Any]]:
    starts = 1000, 1000 + STEP, 1000 + PAUSE, 1000 + PAUSE + STEP
    events: list[dict[str, Any]] = []
    for number, start in zip(numbers, starts):
        events += step(number, start)
    return events


@pytest.mark.parametrize("numbers", [(2, 3, 6, 7), (2, 3, 2, 3)])
def test_pauses__steps_that_do_not_follow_each_other__no_idle_time_and_named(
    tmp_path: Path, numbers: tuple[int, int, int, int]
) -> None:
    path = written(tmp_path, cycles(numbers))

    gaps = trace_gaps(path, Choice(), exposed=False, shortest=0)
    answer = trace_answer(path, Choice(), base=None).timelines[0]

    (timeline,) = gaps.timelines
    # From the first kernel to the end of its cycle, and from the begin of the next cycle to the end of the last kernel.
    assert timeline.window == pytest.approx((2 * STEP - 10 + 2 * STEP - 30) / 1e6)
    assert timeline.busy == pytest.approx(4 * 60 / 1e6)
    assert answer.window == pytest.approx(timeline.window)
    assert [text_of(note) for note in gaps.notes] == [
        "the profiler paused between cycles for 0.9998 s in total (pauses: 1); the pauses count neither as idle time nor as "
        "part of the window"
    ]
    lengths = [row.length for row in trace_steps(path, Choice(), step_by=None).timelines[0].steps]
    assert max(length or 0 for length in lengths) <= STEP / 1e6


def test_pauses__two_spans_of_cycles_without_steps__found(tmp_path: Path) -> None:
    events = [event for event in cycles((2, 3, 4, 5)) if not event["name"].startswith("ProfilerStep")]
    path = written(tmp_path, [*events, cycle(1000), cycle(1000 + PAUSE)])

    (timeline,) = trace.read(path).timelines

    assert pauses(timeline.events).start.size == 1


def test_pauses__mark_of_a_step_is_missing__none(tmp_path: Path) -> None:
    events = [*step(2, 1000), *step(3, 1100)[1:], *step(4, 1200)]

    (timeline,) = trace.read(written(tmp_path, events)).timelines

    assert pauses(timeline.events).start.size == 0
