"""Batches of serving engines as steps: prefill and decode apart, requests counted."""

from __future__ import annotations

from perfgate.trace.analysis.phases import batches
from perfgate.trace.model.events import NO_CORRELATION, EventTable, EventTableBuilder
from perfgate.trace.model.recording import ProfilerStep
from perfgate.trace.model.steps import profiler_steps
from tests.each import each

HOST, STREAM = ("python", "1"), ("device 0", "stream 7")


def marked(*names: str) -> EventTable:
    builder = EventTableBuilder()
    for number, name in enumerate(names):
        at = 1000 * number
        builder.add(at, 900, track=HOST, name=name, kind="annotation", correlation=NO_CORRELATION)
        builder.add(at + 10, 5, track=HOST, name="launch", kind="runtime", correlation=number + 1)
        builder.add(at + 100, 100 * (number + 1), track=STREAM, name="gemm", kind="compute", correlation=number + 1)
    return builder.table()


@each(
    "name, phase, requests",
    [
        ("execute_context_2(1024)_generation_0(0)", "prefill", 2),
        ("execute_context_0(0)_generation_5(5)", "decode", 5),
        ("execute_context_1(512)_generation_5(5)", "mixed", 6),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk9sqsq32sqsk1)", "decode", 32),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 15),
        ("step[DECODE bs=64]", "decode", 64),
        ("step[IDLE bs=0]", "idle", 0),
        ("step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]", "decode", 2),
        ("step[VERIFY bs=4]", "verify", 4),
        ("execute_new_2_cached_0", "prefill", 2),
        ("execute_new_1_cached_5", "mixed", 6),
        ("prefill[bs=2 tok=16384]", "prefill", 2),
        ("eager_decode[bs=64 tok=64 d=64]", "decode", 64),
    ],
)
def test_batches__names_of_engines__phase_and_requests(name: str, phase: str, requests: int) -> None:
    (batch,) = batches(marked(name, "forward", "Optimizer.step#SGD.step"))
    assert (batch.phase, batch.requests) == (phase, requests)


def test_batches__pattern_with_a_group__the_group_is_the_phase() -> None:
    events = marked("serve: prompt 1", "serve: token 2", "other")
    assert [batch.phase for batch in batches(events, r"serve: (\w+)")] == ["prompt", "token"]
    assert [batch.phase for batch in batches(events, "serve")] == [None, None]


def test_batches__device_alone_recorded__the_outermost_annotation_of_its_streams() -> None:
    builder = EventTableBuilder()
    for name, at, length, stream in (
        ("step[EXTEND bs=1 toks=8192]", 0, 50, "23"),
        ("step[EXTEND bs=1 toks=8192]", 30, 5, "7"),  # the draft model of speculative decoding
        ("step[DECODE bs=3]", 60, 20, "23"),
    ):
        track = ("device 0", f"stream {stream}")
        builder.add(at, length, track=track, name=name, kind="device_annotation", correlation=NO_CORRELATION)
        builder.add(at + 1, length - 2, track=track, name="gemm", kind="compute", correlation=NO_CORRELATION)
    found = batches(builder.table())
    assert [(batch.phase, batch.requests, batch.mark) for batch in found] == [
        ("prefill", 1, ProfilerStep(0, 0, 50)),
        ("decode", 3, ProfilerStep(1, 60, 80)),
    ]
    steps = profiler_steps(builder.table(), [batch.mark for batch in found])
    assert [step.computing_ns for step in steps or ()] == [48, 18]


def test_batches__no_engine__none() -> None:
    assert batches(marked("forward", "backward")) == []


def test_batches__as_steps__have_the_work_that_they_launched() -> None:
    events = marked("step[EXTEND bs=1]", "step[DECODE bs=1]")
    steps = profiler_steps(events, [batch.mark for batch in batches(events)])
    assert steps is not None
    assert [(step.number, step.computing_ns) for step in steps] == [(0, 100), (1, 200)]


def test_batches__marked_twice_by_one_engine__once() -> None:
    builder = EventTableBuilder()
    for number in range(3):
        at = 1000 * number
        builder.add(at, 900, track=HOST, name="execute_context_0(0)_generation_4(4)", kind="annotation")
        for thread in (HOST, ("python", "2")):
            builder.add(at + 10, 500, track=thread, name="step[DECODE bs=4]", kind="annotation")
    found = batches(builder.table())
    assert [(batch.phase, batch.requests, batch.mark.start_ns) for batch in found] == [
        ("decode", 4, 0),
        ("decode", 4, 1000),
        ("decode", 4, 2000),
    ]
