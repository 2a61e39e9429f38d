"""What a device did in each profiler step, on made-up nanoseconds."""

from __future__ import annotations

import pytest

from perfgate.measuring.trace.events import NO_CORRELATION, EventTable, EventTableBuilder
from perfgate.measuring.trace.read import read_recording
from perfgate.measuring.trace.recording import ProfilerStep
from perfgate.measuring.trace.steps import profiler_steps
from tests.samples import recorded


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


def test_profiler_steps__communication_half_hidden__parts_add_up() -> None:
    found = profiler_steps(table(step(1, 0, 100), ("k", "compute", 10, 30, -1), ("nccl", "comm", 30, 20, -1),
                                 ("m", "copy", 60, 10, -1)))  # fmt: skip

    assert found == (ProfilerStep(1, 0, 100, 30, 20, 10, 60),)


def test_profiler_steps__device_runs_behind__the_step_lasts_until_its_work_is_done() -> None:
    launches = (("cudaLaunchKernel", "runtime", 40, 2, 1), ("cudaLaunchKernel", "runtime", 60, 2, 2))
    found = profiler_steps(
        table(step(1, 0, 50), step(2, 50, 50), *launches, ("k", "compute", 45, 30, 1), ("k", "compute", 75, 40, 2))
    )

    # The first kernel ends at 75, the second at 115, after the host's step.
    assert found == (ProfilerStep(1, 0, 75, 30, 0, 0, 45), ProfilerStep(2, 75, 115, 40, 0, 0, 0))


def test_profiler_steps__work_outside_of_all_steps__counted_nowhere() -> None:
    found = profiler_steps(table(("k", "compute", 0, 10, -1), step(1, 20, 10), ("k", "compute", 22, 3, -1),
                                 ("k", "compute", 40, 10, -1)))  # fmt: skip

    assert found == (ProfilerStep(1, 20, 30, 3, 0, 0, 7),)


@pytest.mark.parametrize("name", ["cuda-hta/nccl_data.json.gz", "cuda-hta/sampled_rank-0.json.gz",
                                  "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz"])  # fmt: skip
def test_profiler_steps__recorded_sample__parts_add_up_and_steps_do_not_overlap(name: str) -> None:
    path = recorded(name)
    (timeline,) = read_recording(path).timelines

    assert timeline.steps
    reach = 0
    for one in timeline.steps:
        parts = (one.computing_ns, one.exposed_communication_ns, one.free_ns)
        assert None not in (one.start_ns, one.end_ns, *parts)
        assert sum(parts) == one.end_ns - one.start_ns  # type: ignore[arg-type, operator]
        assert reach <= one.start_ns  # type: ignore[operator]
        reach = one.end_ns  # type: ignore[assignment]
