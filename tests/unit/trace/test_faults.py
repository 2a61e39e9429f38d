"""Times that cannot be true: counted and said first, never a shorter step, a faster kernel or a PASS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.flows.trace.answer import trace_answer
from perfgate.flows.trace.diff import trace_diff
from perfgate.flows.trace.trace import Choice, trace_gaps, trace_steps, trace_top
from perfgate.judging.gate.decide import decide
from perfgate.trace.model.faults import ClockOffset, clock_offset, time_faults
from perfgate.trace.readers.contradictions import contradictions
from tests.each import each

from .job import is_kernel, kernel, recorded, step_mark, steps


def second_half(**changes: Any) -> list[dict[str, Any]]:
    """The job whose last 12 of 24 kernels have other fields."""
    events = steps()
    for event in [event for event in events if is_kernel(event)][12:]:
        event.update(changes)
    return events


def without_durations() -> list[dict[str, Any]]:
    events = steps()
    for event in [event for event in events if is_kernel(event)][12:]:
        del event["dur"]
    return events


def overflowing() -> list[dict[str, Any]]:
    """The first kernel of each step runs over the next three."""
    events = steps()
    for event in [event for event in events if is_kernel(event)][::4]:
        event["dur"] = 160_000
    return events


LOST = {
    "no-time": second_half(ts=0, dur=0),
    "no-length": second_half(dur=0),
    "no-dur": without_durations(),
    "a-nanosecond": second_half(dur=0.001),
}


@each("name", list(LOST))
def test_top__work_without_times__its_number_first(tmp_path: Path, name: str) -> None:
    path = recorded(tmp_path / "trace.json", LOST[name])
    note = trace_top(path, Choice(), by="type", host=False, longer=None).notes[0]
    assert (note.code, note.values["count"], note.values["work"]) == ("notes.untimed-work", 12, 24)


@each("name", list(LOST))
def test_steps__work_without_times__unknown_and_never_zero(tmp_path: Path, name: str) -> None:
    path = recorded(tmp_path / "trace.json", LOST[name])
    (timeline,) = trace_steps(path, Choice(), step_by=None).timelines
    assert [step.computing for step in timeline.steps] == [2e-4] * 3 + [None] * 3
    assert all(step.length != 0 for step in timeline.steps)


@each("name", list(LOST))
def test_diff__work_without_times__intact_steps_alone_are_compared(tmp_path: Path, name: str) -> None:
    good = recorded(tmp_path / "good.json", steps())
    path = recorded(tmp_path / "trace.json", LOST[name])
    for base, head in ((good, path), (path, good)):
        document = trace_diff([base], [head], Choice())
        assert [row.change for row in document.timelines[0].rows] == []
        assert "notes.steps-left-out" in [note.code for note in document.notes]


def test_diff__every_step_overlaps__refused(tmp_path: Path) -> None:
    good = recorded(tmp_path / "good.json", steps())
    path = recorded(tmp_path / "trace.json", overflowing())
    with pytest.raises(DocumentError, match="no step of it is known to be complete"):
        trace_diff([good], [path], Choice())


def test_time_faults__kernels_over_their_successors__counted_by_stream(tmp_path: Path) -> None:
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", overflowing())).timelines
    faults = time_faults(timeline.events)
    assert (faults.work, faults.overlapping.size, faults.untimed.size) == (24, 6, 0)
    (note,) = contradictions(timeline)
    assert (note.code, note.values["streams"], note.values["named"]) == ("notes.overlapping-work", "7", "gemm")


def test_top__kernels_over_their_successors__no_share_above_100_percent(tmp_path: Path) -> None:
    path = recorded(tmp_path / "trace.json", overflowing())
    (timeline,) = trace_top(path, Choice(), by="type", host=False, longer=None).timelines
    assert [row.share for row in timeline.rows] == [None]


def test_time_faults__kernels_of_a_graph_side_by_side__none(tmp_path: Path) -> None:
    events = overflowing()
    for event in events:
        if event["name"] == "cudaLaunchKernel":
            event["name"] = "cudaGraphLaunch"
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    assert contradictions(timeline) == []


def test_time_faults__kernel_that_begins_while_the_last_one_drains__none(tmp_path: Path) -> None:
    events = [step_mark(0, 0), *(kernel(100 + 45 * number, 50, number) for number in range(8))]
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    assert contradictions(timeline) == []


def test_time_faults__whole_microseconds__a_short_kernel_has_none(tmp_path: Path) -> None:
    # No operator launches them, so they name none.
    own = {"device": 0, "stream": 7}
    fills = [kernel(9000 + 10 * number, number % 2, 900 + number, name="fill") for number in range(6)]
    events = [*steps(), *({**fill, "args": {**own, "correlation": 900 + index}} for index, fill in enumerate(fills))]
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    assert contradictions(timeline) == []


def test_time_faults__clock_that_jumps__said(tmp_path: Path) -> None:
    events = steps()
    for event in [event for event in events if is_kernel(event)][20:]:
        event["ts"] += 3_600_000_000
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    assert [note.code for note in contradictions(timeline)] == ["notes.clock-jumped"]


def test_gaps__kernels_before_their_launch__offset_said_and_operators_kept(tmp_path: Path) -> None:
    good, early = steps(), steps()
    for event in filter(is_kernel, early):
        event["ts"] -= 45
    documents = [
        trace_gaps(recorded(tmp_path / f"{name}.json", events), Choice(), exposed=False, shortest=0.0)
        for name, events in (("good", good), ("early", early))
    ]
    (timeline,) = trace.read(tmp_path / "early.json").timelines
    offset = clock_offset(timeline.events)
    assert offset is not None
    assert offset == ClockOffset(early=24, launched=24, behind_ns=25_000, before_operator_ns=15_000)
    assert [note.code for note in documents[1].notes] == ["notes.clock-offset"]
    groups = [document.timelines[0].groups for document in documents]
    assert [row.operator for row in groups[1]] == [row.operator for row in groups[0]]


def test_clock_offset__kernels_begin_within_their_operators__the_offset_to_their_launches(tmp_path: Path) -> None:
    events = steps()
    for event in filter(is_kernel, events):
        event["ts"] -= 25
    path = recorded(tmp_path / "trace.json", events)
    (timeline,) = trace.read(path).timelines
    assert clock_offset(timeline.events) == ClockOffset(24, 24, behind_ns=5_000, before_operator_ns=None)
    document = trace_gaps(path, Choice(), exposed=False, shortest=0.0)
    assert [note.code for note in document.notes] == ["notes.clock-offset-launch"]


@each("name", [*LOST, "overlap"])
def test_gate__impossible_times__no_time_is_compared(tmp_path: Path, name: str) -> None:
    good = recorded(tmp_path / "good.json", steps())
    path = recorded(tmp_path / "trace.json", LOST.get(name) or overflowing())
    base, head = (
        run_from_profile(tmp_path, file, tmp_path / out, say=lambda _: None, keep_files=False)
        for file, out in ((good, "b"), (path, "h"))
    )
    decision = decide(base, head, policy=Policy(), history=History())
    assert decision.verdict == "INCONCLUSIVE"


def test_time_faults__server_that_idles_between_two_requests__none(tmp_path: Path) -> None:
    events = steps()
    for event in events[len(events) // 2 :]:
        event["ts"] += 60_000_000
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines
    assert contradictions(timeline) == []


def test_diff__operator_at_another_time__its_step_is_left_out(tmp_path: Path) -> None:
    good, moved = steps(), steps()
    for events in (good, moved):
        for event in events:
            event["ts"] += 1_700_000_000_000_000
    next(event for event in moved if event["cat"] == "cpu_op")["ts"] = 0
    paths = [recorded(tmp_path / f"{name}.json", events) for name, events in (("good", good), ("moved", moved))]
    document = trace_diff(paths[:1], paths[1:], Choice())
    assert [row.change for row in document.timelines[0].rows] == []
    codes = [note.code for note in document.notes]
    assert codes == ["verdict.about", "notes.steps-left-out", "notes.same-steps-left-out"]


@each("name", [*LOST, "apart"])
def test_gaps__work_without_times__the_window_is_that_of_the_others(tmp_path: Path, name: str) -> None:
    events = LOST.get(name) or steps()
    if name == "apart":
        next(event for event in events if is_kernel(event))["ts"] = 9e15
    for event in events:
        if event["ts"] == 0:
            continue
        event["ts"] += 1_700_000_000_000_000
    path = recorded(tmp_path / "trace.json", events)
    (timeline,) = trace_gaps(path, Choice(), exposed=False, shortest=0.0).timelines
    assert timeline.window is not None
    assert timeline.window < 0.006
    answer = trace_answer(path, Choice(), base=None).timelines[0]
    assert answer.window is not None
    assert answer.window < 0.006


def test_time_faults__device_alone_recorded__a_length_unlike_all_others_of_its_name(tmp_path: Path) -> None:
    side_by_side = [event for event in overflowing() if is_kernel(event)]
    for number, event in enumerate(side_by_side):
        event["name"] = "long" if number % 4 == 0 else "short"
    (timeline,) = trace.read(recorded(tmp_path / "graph.json", side_by_side)).timelines
    assert contradictions(timeline) == []
    side_by_side[4]["dur"] = 90_000_000
    (timeline,) = trace.read(recorded(tmp_path / "overflow.json", side_by_side)).timelines
    assert [note.values["count"] for note in contradictions(timeline)] == [1]


def test_time_faults__last_kernel_outlasts_all_others_together__is_apart(tmp_path: Path) -> None:
    events = steps()
    last = [event for event in events if is_kernel(event)][-1]
    last["dur"] = 1e9
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines

    (place,) = time_faults(timeline.events).apart.tolist()
    assert timeline.events.duration[place] == 10**12
    assert [note.code for note in contradictions(timeline)] == ["notes.clock-jumped"]


def test_time_faults__one_kernel_of_a_graph_runs_over_the_next_and_is_long__overlaps(tmp_path: Path) -> None:
    """Modelled on TraceLens' sglang_Qwen3-8B_decode: 544 kernels of a graph, of which none overlaps the next."""
    events = steps(40)
    for event in events:
        if event["name"] == "cudaLaunchKernel":
            event["name"] = "cudaGraphLaunch"
    kernels = [event for event in events if is_kernel(event)]
    kernels[1]["dur"] *= 20
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines

    assert time_faults(timeline.events).overlapping.size == 1


def test_contradictions__all_operators_at_time_zero__said(tmp_path: Path) -> None:
    events = steps()
    for event in events:
        if event.get("cat") == "cpu_op":
            event.update(ts=0, dur=0)
    (timeline,) = trace.read(recorded(tmp_path / "trace.json", events)).timelines

    assert "notes.operators-untimed" in [note.code for note in contradictions(timeline)]
