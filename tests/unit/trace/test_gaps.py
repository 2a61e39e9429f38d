"""Gaps of a device and their causes, on made-up nanoseconds; the recorded samples give numbers to hold."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from perfgate import trace
from perfgate.trace.analysis.gaps import Gap, Gaps, device_gaps
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from tests.samples import recorded


def table(*events: tuple[str, EventKind, int, int, int]) -> EventTable:
    """Return events given as (name, kind, start, duration, correlation)."""
    builder = EventTableBuilder()
    for name, kind, start, duration, correlation in events:
        builder.add(start, duration, track=("p", kind), name=name, kind=kind, correlation=correlation)
    return builder.table()


def kernel(start: int, duration: int, correlation: int = NO_CORRELATION) -> tuple[str, EventKind, int, int, int]:
    return ("k", "compute", start, duration, correlation)


def launch(start: int, correlation: int, duration: int = 5) -> tuple[str, EventKind, int, int, int]:
    return ("cudaLaunchKernel", "runtime", start, duration, correlation)


def test_device_gaps__no_device_work__none() -> None:
    assert device_gaps(table(launch(0, 1))) is None
    assert device_gaps(table(kernel(10, 0))) is None


def test_device_gaps__launched_after_the_gap_began__host() -> None:
    found = device_gaps(table(kernel(0, 10, 1), launch(25, 2), kernel(30, 10, 2)))

    assert found is not None
    assert (found.start_ns, found.end_ns, found.busy_ns) == (0, 40, 20)
    assert tuple(found.gaps) == (Gap(10, 20, "host"),)


def test_device_gaps__launched_before_the_gap_began__queue() -> None:
    found = device_gaps(table(launch(3, 2), kernel(0, 10, 1), kernel(30, 10, 2)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "queue"),)


def test_device_gaps__no_launch_recorded__unknown() -> None:
    found = device_gaps(table(kernel(0, 10), kernel(30, 10)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "unknown"),)


def test_device_gaps__work_in_the_queue_when_the_recording_began__queue() -> None:
    found = device_gaps(table(kernel(0, 10, 1), kernel(30, 10, 2), launch(20, 7), kernel(50, 10, 7)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "queue"), Gap(40, 10, "queue"))


def test_device_gaps__launch_that_is_the_profilers_placeholder__unknown() -> None:
    # PrivateUse1 runtimes write a launch without length at the kernel's own start (sample torch-native-privateuse1).
    found = device_gaps(table(kernel(0, 10, 1), launch(30, 2, duration=0), kernel(30, 10, 2)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "unknown"),)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaStreamSynchronize", "synchronization"),
        ("hipDeviceSynchronize", "synchronization"),
        ("AscendCL@aclrtSynchronizeStreamWithTimeout", "synchronization"),
        ("hipMemcpyWithStream", "synchronization"),
        ("cudaMemcpy", "synchronization"),
        ("AscendCL@aclrtMemcpy", "synchronization"),
        ("cudaMemcpyAsync", "host"),
        ("AscendCL@aclrtMemcpyAsync", "host"),
        ("cudaEventQuery", "host"),
    ],
)
def test_device_gaps__host_in_a_call_when_the_device_ran_dry__synchronization_if_it_waits(
    name: str, cause: str
) -> None:
    waiting: tuple[str, EventKind, int, int, int] = (name, "runtime", 5, 7, NO_CORRELATION)
    found = device_gaps(table(kernel(0, 10, 1), waiting, launch(25, 2), kernel(30, 10, 2)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, cause),)


def test_device_gaps__waiting_began_after_the_device_ran_dry__host() -> None:
    late: tuple[str, EventKind, int, int, int] = ("cudaStreamSynchronize", "runtime", 11, 4, NO_CORRELATION)
    found = device_gaps(table(kernel(0, 10, 1), late, launch(25, 2), kernel(30, 10, 2)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "host"),)


def test_device_gaps__two_streams__only_where_both_are_idle() -> None:
    other: tuple[str, EventKind, int, int, int] = ("ncclAllReduce", "comm", 8, 12, NO_CORRELATION)
    found = device_gaps(table(kernel(0, 10), other, kernel(15, 3), kernel(30, 10)))

    assert found is not None
    assert [(gap.start_ns, gap.duration_ns) for gap in found.gaps] == [(20, 10)]


def test_device_gaps__two_end_a_gap_together__the_one_launched_first_counts() -> None:
    found = device_gaps(table(kernel(0, 10, 1), kernel(30, 5, 3), kernel(30, 10, 2), launch(2, 2), launch(20, 3)))

    assert found is not None
    assert tuple(found.gaps) == (Gap(10, 20, "queue"),)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9, None])
def test_longest__any_number__the_longest_first_and_of_equal_ones_the_first(count: int | None) -> None:
    gaps = Gaps(np.array([0, 10, 20, 30]), np.array([3, 5, 3, 5]), np.zeros(4, dtype=int))

    assert [gap.start_ns for gap in gaps.longest(count)] == [10, 30, 0, 20][:count]
    assert len(Gaps(gaps.start[:0], gaps.start[:0], gaps.cause[:0]).longest(count)) == 0


def test_device_gaps__exposed__where_only_copies_or_collectives_ran() -> None:
    copy: tuple[str, EventKind, int, int, int] = ("Memcpy HtoD", "copy", 8, 7, NO_CORRELATION)
    collective: tuple[str, EventKind, int, int, int] = ("ncclAllReduce", "comm", 12, 8, NO_CORRELATION)
    found = device_gaps(table(kernel(0, 10), copy, collective, kernel(18, 2), kernel(30, 5)), exposed=True)

    assert found is not None
    # Copies 10 to 12, then collectives with them to 18; the kernel hides the rest.
    assert tuple(found.gaps) == (Gap(10, 2, "copy"), Gap(12, 6, "communication"), Gap(20, 10, "unknown"))
    assert found.busy_ns == 25


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "busy", "causes"),
    [
        # 275 by decimal arithmetic; in float64, which is 250 ns wide there, it is 236.
        ("mstt-advisor/timeline_advice/trace_view.json.gz", 1_790_457,
         {"host": 140, "queue": 132, "unknown": 2, "synchronization": 1}),
        ("cuda-hta/nccl_data.json.gz", 157_500_014, {"host": 2440, "queue": 1040}),
        ("cuda-hta/a100_alexnet.json.gz", 66_141_000, {"queue": 59, "host": 20, "synchronization": 16}),
        ("cuda-hta/mi250_rocm62.json.gz", 149_042, {"host": 13, "synchronization": 2}),
        ("cuda-hta/sampled_rank-0.json.gz", 547_656_000, {"queue": 660, "host": 270}),
        ("cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz", 602_145_000,
         {"queue": 7411, "host": 861, "synchronization": 12}),
        ("torch-native-privateuse1/excerpt.pt.trace.json", 47_900, {"unknown": 5}),
    ],
)  # fmt: skip
def test_device_gaps__recorded_sample__as_counted_once(name: str, busy: int, causes: dict[str, int]) -> None:
    (timeline,) = trace.read(recorded(name)).timelines
    found = device_gaps(timeline.events)

    assert found is not None
    assert found.busy_ns == busy
    assert Counter(gap.cause for gap in found.gaps) == causes
    assert found.busy_ns + sum(gap.duration_ns for gap in found.gaps) == found.end_ns - found.start_ns
