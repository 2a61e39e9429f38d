"""What a device did in each profiler step, on made-up nanoseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import trace
from perfgate.trace.model.events import NO_CORRELATION, EventTable, EventTableBuilder
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Kernel, ProfilerStep
from perfgate.trace.model.steps import profiler_steps, separate_marks, steps_of_tables
from perfgate.trace.readers.ascend.timeline import events_of_tables

from .ascend import ALEXNET, sample


def table(*events: tuple[str, str, int, int, int]) -> EventTable:
    builder = EventTableBuilder()
    for name, kind, start, duration, correlation in events:
        builder.add(start, duration, track=("p", kind), name=name, kind=kind, correlation=correlation)  # type: ignore[arg-type]
    return builder.table()


def step(number: int, start: int, duration: int) -> tuple[str, str, int, int, int]:
    return (f"ProfilerStep#{number}", "annotation", start, duration, NO_CORRELATION)


def test_profiler_steps__none_marked__none() -> None:
    assert profiler_steps(table(("aten::mm", "host_op", 0, 5, -1))) is None


def test_profiler_steps__no_device__length_alone() -> None:
    assert profiler_steps(table(step(8, 60, 40), step(7, 0, 50))) == (ProfilerStep(7, 0, 50), ProfilerStep(8, 60, 100))


def test_profiler_steps__mark_around_several_others__is_none() -> None:
    """It marks an epoch."""
    marks = [step(0, 0, 400), step(5, 100, 90), step(6, 200, 90)]

    assert profiler_steps(table(*marks)) == (ProfilerStep(5, 100, 190), ProfilerStep(6, 200, 290))


def test_profiler_steps__mark_lasts_beyond_the_next_number__ends_where_it_begins() -> None:
    marks = [step(0, 0, 400_000), step(1, 100_000, 90_000), step(2, 200_000, 90_000)]

    assert separate_marks(table(*marks)).clipped == 1
    assert profiler_steps(table(*marks)) == (
        ProfilerStep(0, 0, 100_000),
        ProfilerStep(1, 100_000, 190_000),
        ProfilerStep(2, 200_000, 290_000),
    )


def parts(step: ProfilerStep) -> tuple[int | None, ...]:
    """Return computing, exposed communication, exposed copies, preparing, free."""
    return (
        step.computing_ns, step.exposed_communication_ns, step.exposed_copies_ns, step.preparing_ns, step.free_ns,
    )  # fmt: skip


def test_profiler_steps__communication_half_hidden__parts_add_up() -> None:
    (found,) = profiler_steps(table(step(1, 0, 100), ("k", "compute", 10, 30, -1), ("nccl", "comm", 30, 20, -1),
                                    ("m", "copy", 60, 10, -1))) or ()  # fmt: skip

    # The step ends with its last work, the copy.
    assert (found.start_ns, found.end_ns, found.communication_ns) == (0, 70, 20)
    assert parts(found) == (30, 10, 10, 10, 10)
    assert found.length_ns == 70


def test_profiler_steps__fused_kernel__neither_computing_nor_communication() -> None:
    (found,) = profiler_steps(
        table(
            step(1, 0, 100),
            ("k", "compute", 10, 30, -1),
            ("MatmulAllReduce", "fused", 30, 30, -1),
            ("nccl", "comm", 50, 20, -1),
        )
    ) or ()  # fmt: skip

    # It counts where nothing else computes, and hides communication.
    assert (found.fused_ns, found.communication_ns, *parts(found)) == (20, 20, 30, 10, 0, 10, 0)
    assert found.length_ns == 70


def test_profiler_steps__copy_before_the_first_kernel__it_is_no_preparing() -> None:
    (found,) = profiler_steps(table(step(1, 0, 100), ("m", "copy", 5, 10, -1), ("k", "compute", 20, 30, -1))) or ()

    assert parts(found) == (30, 0, 10, 10, 0)


def test_profiler_steps__device_runs_behind__the_step_lasts_until_its_work_is_done() -> None:
    launches = (("cudaLaunchKernel", "runtime", 40, 2, 1), ("cudaLaunchKernel", "runtime", 60, 2, 2))
    found = profiler_steps(
        table(step(1, 0, 50), step(2, 50, 50), *launches, ("k", "compute", 45, 30, 1), ("k", "compute", 75, 40, 2))
    )

    # The first kernel ends at 75, the second at 115, after the host's step.
    assert [(one.start_ns, one.end_ns) for one in found or ()] == [(0, 75), (75, 115)]
    assert [parts(one) for one in found or ()] == [(30, 0, 0, 45, 0), (40, 0, 0, 0, 0)]


def test_profiler_steps__host_goes_on_after_the_device__its_time_is_in_the_next_steps_preparing() -> None:
    found = profiler_steps(
        table(step(1, 0, 50), step(2, 50, 50), ("k", "compute", 10, 20, -1), ("k", "compute", 60, 20, -1))
    )

    assert [(one.start_ns, one.end_ns) for one in found or ()] == [(0, 30), (30, 80)]
    assert [parts(one) for one in found or ()] == [(20, 0, 0, 10, 0), (20, 0, 0, 30, 0)]


def test_profiler_steps__a_pause_between_two_schedules__belongs_to_no_step() -> None:
    found = profiler_steps(
        table(step(1, 0, 50), step(7, 500, 50), ("k", "compute", 10, 20, -1), ("k", "compute", 510, 20, -1))
    )

    assert [(one.start_ns, one.end_ns) for one in found or ()] == [(0, 30), (500, 530)]


def test_profiler_steps__work_outside_of_all_steps__counted_nowhere() -> None:
    (found,) = profiler_steps(table(("k", "compute", 0, 10, -1), step(1, 20, 10), ("k", "compute", 22, 3, -1),
                                    ("k", "compute", 40, 10, -1))) or ()  # fmt: skip

    assert (found.start_ns, found.end_ns, parts(found)) == (20, 25, (3, 0, 0, 2, 0))


def kernel(step: int | None, start: int, duration: int, core: str = "AI_CORE") -> Kernel:
    return Kernel(name="k", type="k", core=core, start_ns=start, duration_ns=duration, step=step)


def test_profiler_steps__work_in_the_queue_when_the_recording_began__is_of_no_step() -> None:
    """As in torch's trace of a ResNet on MI300 and HTA's trace_diff: kernels without a launch run into the first step."""
    found = profiler_steps(table(
        step(5, 100, 100), step(6, 200, 100),
        ("mm", "compute", 90, 40, 1), ("mm", "compute", 130, 30, 2),
        # Another stream is idle, and begins with the copies of the step at once.
        ("cudaMemcpyAsync", "runtime", 102, 2, 11), ("Memcpy HtoD", "copy", 105, 5, 11),
        ("launch", "runtime", 110, 5, 12), ("mm", "compute", 160, 40, 12),
        ("launch", "runtime", 210, 5, 13), ("mm", "compute", 220, 40, 13),
    ))  # fmt: skip
    assert [(one.start_ns, one.end_ns) for one in found or ()] == [(160, 200), (200, 260)]
    assert [parts(one) for one in found or ()] == [(40, 0, 0, 0, 0), (40, 0, 0, 20, 0)]


@pytest.mark.parametrize("events", [
    # Later calls than the first are not recorded.
    [("other", "compute", 110, 20, 91)],
    # Nor is its number known.
    [("other", "compute", 110, 20, -1)],
    # Between others that have a launch.
    [("launch", "runtime", 101, 5, 3), ("mm", "compute", 106, 4, 3), ("mm", "compute", 110, 20, 91)],
])  # fmt: skip
def test_profiler_steps__other_work_without_a_launch__is_of_the_step_in_which_it_began(
    events: list[tuple[str, str, int, int, int]],
) -> None:
    (only,) = profiler_steps(table(
        step(5, 100, 100), *events, ("launch", "runtime", 140, 5, 1), ("mm", "compute", 160, 40, 1),
    )) or ()  # fmt: skip
    assert (only.start_ns, only.computing_ns) == (100, 40 + sum(event[3] for event in events if event[1] == "compute"))


def test_steps_of_tables__two_steps__the_second_begins_where_the_first_ended() -> None:
    kernels = (kernel(1, 10, 20), kernel(2, 60, 20), kernel(2, 75, 10, core="HCCL"))
    rows = (ProfilerStep(1, preparing_ns=10), ProfilerStep(2, preparing_ns=10))

    found = steps_of_tables(kernels, events_of_tables(KernelTable.of(kernels), None), rows, copies=False)

    # The same as a timeline tells, above.
    assert [(one.start_ns, one.end_ns) for one in found or ()] == [(0, 30), (30, 85)]
    assert [parts(one) for one in found or ()] == [(20, 0, None, 10, 0), (20, 5, None, 30, 0)]


@pytest.mark.parametrize("rows", [None, (ProfilerStep(1),), (ProfilerStep(1, preparing_ns=-5),)])
def test_steps_of_tables__nothing_says_when_the_host_began__no_length(rows: tuple[ProfilerStep, ...] | None) -> None:
    kernels = (kernel(1, 10, 20), kernel(1, 40, 20))

    (found,) = steps_of_tables(kernels, events_of_tables(KernelTable.of(kernels), None), rows, copies=False) or ()

    assert (found.start_ns, found.length_ns, parts(found)) == (None, None, (40, 0, None, None, 10))


def test_steps_of_tables__rows_alone__as_they_are_written() -> None:
    row = ProfilerStep(3, computing_ns=5, communication_ns=4, exposed_communication_ns=3, free_ns=2, preparing_ns=1)

    (found,) = steps_of_tables(None, table(), (row,), copies=False) or ()

    assert (found.number, found.length_ns, parts(found)) == (3, 11, (5, 3, None, 1, 2))


SAMPLES = [
    "cuda-hta/a100_event_sync.json.gz",
    "cuda-hta/mi250_rocm62.json.gz",
    "cuda-hta/nccl_data.json.gz",
    "cuda-hta/sampled_rank-0.json.gz",
    "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz",
    "mstt-advisor/timeline_advice/trace_view.json.gz",
    "msinsight-910B-alexnet-2501/text/level0/rank0_ascend_pt",
    "msinsight-910B-alexnet-2501/text/level1",
    "msinsight-910B-alexnet-2501/db/level1/rank0_ascend_pt",
    "msinsight-910B-qwen3-cann8.3RC1-2511/level2",
]


@pytest.mark.recordings
@pytest.mark.parametrize("name", SAMPLES)
def test_steps__recorded_sample__parts_add_up_and_steps_do_not_overlap(name: str, tmp_path: Path) -> None:
    for timeline in trace.read(sample(name, tmp_path)).timelines:
        assert timeline.steps
        reach = 0
        for one in timeline.steps:
            known = [part for part in parts(one) if part is not None]
            assert len(known) >= 4
            assert min(known) >= 0
            assert sum(known) == one.length_ns
            if one.start_ns is not None and one.end_ns is not None:
                assert one.length_ns == one.end_ns - one.start_ns
                assert reach <= one.start_ns
                reach = one.end_ns


# What torch_npu writes of steps went through a float of microseconds: 0.25 us a number.
ROUNDING_NS = 500
OUTPUT = "ASCEND_PROFILER_OUTPUT"


@pytest.mark.recordings
@pytest.mark.parametrize("name", [f"{ALEXNET}/text/level0/rank0_ascend_pt", f"{ALEXNET}/text/level1/rank0_ascend_pt",
                                  f"{ALEXNET}/text/level1/rank1_ascend_pt"])  # fmt: skip
@pytest.mark.parametrize(
    "without",
    [
        ("trace_view.json",),
        ("step_trace_time.csv",),
        ("kernel_details.csv",),
        ("trace_view.json", "kernel_details.csv"),
        ("kernel_details.csv", "step_trace_time.csv"),
    ],
)
def test_steps__whatever_files_lie_beside__the_same_step(name: str, without: tuple[str, ...], tmp_path: Path) -> None:
    (whole,) = trace.read(sample(name, tmp_path / "whole")).timelines
    fewer = sample(name, tmp_path / "fewer")
    for file in without:
        (removed,) = (fewer / OUTPUT).glob(f"{file}*")
        removed.unlink()

    (timeline,) = trace.read(fewer).timelines

    _same_step(timeline.steps, whole.steps)


@pytest.mark.recordings
@pytest.mark.parametrize("without", ["ascend_pytorch_profiler_0.db", "analysis.db"])
def test_steps__export_or_its_analysis_alone__the_same_step(without: str, tmp_path: Path) -> None:
    name = f"{ALEXNET}/db/level1/rank0_ascend_pt"
    (whole,) = trace.read(sample(name, tmp_path / "whole")).timelines
    fewer = sample(name, tmp_path / "fewer")
    (fewer / OUTPUT / without).unlink()

    (timeline,) = trace.read(fewer).timelines

    _same_step(timeline.steps, whole.steps)


def _same_step(found: tuple[ProfilerStep, ...] | None, expected: tuple[ProfilerStep, ...] | None) -> None:
    assert len(found or ()) == len(expected or ())
    for one, other in zip(found or (), expected or ()):
        assert one.number == other.number
        assert one.length_ns == pytest.approx(other.length_ns, abs=ROUNDING_NS)
        for part in ("computing_ns", "communication_ns", "exposed_communication_ns"):
            assert getattr(one, part) == pytest.approx(getattr(other, part), abs=ROUNDING_NS)
        # Where no copies were recorded, their time is in that before the first kernel and in the free time.
        idle = [(step.preparing_ns or 0) + (step.free_ns or 0) + (step.exposed_copies_ns or 0) for step in (one, other)]
        assert idle[0] == pytest.approx(idle[1], abs=ROUNDING_NS)


def test_steps_of_tables__kernels_that_the_timeline_does_not_show__a_step_without_parts() -> None:
    found = steps_of_tables((kernel(1, 10, 20),), table(), (ProfilerStep(1, preparing_ns=5),), copies=False)

    assert tuple(found or ()) == (ProfilerStep(1),)
