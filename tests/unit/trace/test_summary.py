"""What a recording says of each device, on recordings made here whose right answers are written out."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import trace
from perfgate.trace.analysis.summary import StepTotals, shape_names, summarize
from perfgate.trace.model.events import NO_CORRELATION, EventTable, EventTableBuilder
from perfgate.trace.model.recording import Collective, Kernel, Launch, NamedTotal, ProfilerStep, Timeline, Totals
from perfgate.trace.model.spans import WorkItem
from perfgate.trace.model.steps import profiler_steps
from tests.fakes.recordings import ADD, ALL_REDUCE, GEMM, STEP, TO_NHWC, UPLOAD, kineto_recording
from tests.samples import recorded, unpacked

NOTHING = EventTableBuilder().table()


def timeline(rank: int | None = None, device: int | None = None, **fields: object) -> Timeline:
    return Timeline(rank=rank, device=device, events=fields.pop("events", NOTHING), **fields)  # type: ignore[arg-type]


def kernel(name: str, kind: str | None, step: int | None, start: int, duration: int, core: str = "AI_CORE") -> Kernel:
    return Kernel(
        name=name, type=kind, core=core, start_ns=start, duration_ns=duration, step=step, launch=Launch(stream=2)
    )


def host(*spans: tuple[str, str, int, int]) -> EventTable:
    builder = EventTableBuilder()
    for kind, name, start, duration in spans:
        builder.add(start, duration, track=("1", "1"), name=name, kind=kind, correlation=NO_CORRELATION)  # type: ignore[arg-type]
    return builder.table()


def collective(name: str, step: int | None, elapsed: int) -> Collective:
    return Collective(name, "collective", "g", step, None, elapsed, None, None, None)


def test_summarize__kineto_with_three_steps__work_times_and_copies_of_each(tmp_path: Path) -> None:
    (found,) = summarize(trace.read(kineto_recording(tmp_path / "t.json")).timelines)

    assert (found.shape, found.unit, found.spans, found.on_host) == ("rank 0", "profiler step", 3, False)
    assert (
        found.works
        == (
            {
                WorkItem("copy", UPLOAD): 1,
                WorkItem("compute", TO_NHWC): 2,
                WorkItem("compute", GEMM): 1,
                WorkItem("compute", ADD): 1,
                WorkItem("comm", ALL_REDUCE): 1,
            },
        )
        * 3
    )
    assert found.absent == frozenset()
    # From 20 us on 50 us of the copy, 400 of kernels and 100 of the collective, 1 us apart; after the last of them the next
    # step begins, so that it is 446 us until its first kernel, without the copy.
    assert found.lengths() == [575_000, 1_000_000, 1_000_000]
    assert found.parts() == StepTotals(
        length_ns=2_575_000,
        computing_ns=1_200_000,
        fused_ns=0,
        communication_ns=300_000,
        exposed_communication_ns=300_000,
        exposed_copies_ns=150_000,
        preparing_ns=913_000,
        free_ns=12_000,
    )
    assert found.collectives == {ALL_REDUCE: 300_000}
    assert [(row.name, row.typical_ns, row.count) for row in found.totals[:2]] == [
        (GEMM, 250_000.0, 3),
        (ALL_REDUCE, 100_000.0, 3),
    ]


def test_summarize__profiler_stopped_right_after_a_step__the_empty_step_is_none(tmp_path: Path) -> None:
    (found,) = summarize(trace.read(kineto_recording(tmp_path / "t.json", steps=(STEP, STEP, ()))).timelines)

    assert (found.spans, len(found.works), len(found.steps)) == (2, 2, 2)


def test_summarize__no_steps_marked__one_span_without_a_length(tmp_path: Path) -> None:
    (found,) = summarize(trace.read(kineto_recording(tmp_path / "t.json", marked=False)).timelines)

    assert (found.unit, found.spans, found.lengths(), found.parts()) == ("whole recording", 1, None, None)
    assert found.works[0][WorkItem("compute", GEMM)] == 3


def test_summarize__table_of_kernels__rows_go_to_their_steps_and_copies_are_unknown() -> None:
    kernels = (
        kernel("aclnnMm_MatMulCommon_MatMulV2", "MatMulV2", 5, 100, 50),
        kernel("trans_TransData_1", "TransData", 5, 160, 10),
        kernel("hcom_allReduce__586_0_1", "hcom_allReduce_", 6, 200, 30, core="HCCL"),
        kernel("outside", "Add", None, 10, 5),
    )
    steps = (ProfilerStep(5), ProfilerStep(6))

    (found,) = summarize([timeline(0, 4, kernels=kernels, steps=steps)])

    assert found.works == (
        {WorkItem("compute", "MatMulV2"): 1, WorkItem("compute", "TransData"): 1},
        {WorkItem("comm", "hcom_allReduce_"): 1},
    )
    assert found.absent == {"counters.device_copies"}
    assert (found.lengths(), found.parts()) == (None, None)


def test_summarize__level0_without_types__the_type_a_name_tells() -> None:
    kernels = (
        kernel("trans_TransData_12", None, 5, 1, 1, core="N/A"),
        kernel("hcom_allReduce__586_0_1", None, 5, 2, 1, core="N/A"),
    )

    (found,) = summarize([timeline(0, 0, kernels=kernels, steps=(ProfilerStep(5),))])

    assert found.works == ({WorkItem("compute", "TransData"): 1, WorkItem("comm", "hcom_allReduce_"): 1},)


def test_summarize__rows_without_a_start__none_inside_another() -> None:
    rows = tuple(
        Kernel(name="Add", type="Add", core="AI_CORE", start_ns=None, duration_ns=length, step=1) for length in (7, 5)
    )

    (found,) = summarize([timeline(kernels=rows, steps=(ProfilerStep(1),))])

    assert [(row.name, row.typical_ns) for row in found.totals] == [("Add", 12.0)]


def test_summarize__only_steps_and_collectives__times_and_a_count_and_nothing_else() -> None:
    step = ProfilerStep(
        2, computing_ns=600, communication_ns=300, exposed_communication_ns=100, preparing_ns=50, free_ns=250
    )
    steps = (step, step._replace(number=3))
    collectives = tuple(collective("hcom_allReduce__586_0_1@1", step, 40) for step in (2, 2, 3, 3))

    (found,) = summarize([timeline(1, 0, steps=steps, collectives=collectives)])

    assert found.works == ({WorkItem("comm", "hcom_allReduce_"): 2},) * 2
    assert found.absent == {"counters.kernels", "counters.format_conversions", "counters.device_copies"}
    assert found.parts() == StepTotals(2000, 1200, 0, 600, 200, None, 100, 500)
    assert found.collectives == {"hcom_allReduce_": 160}
    assert found.totals == ()


def test_summarize__empty_table_beside_a_timeline__no_kernels_and_no_copies() -> None:
    seen = host(("annotation", "ProfilerStep#0", 0, 100), ("compute", "x", 10, 5))
    (found,) = summarize([timeline(0, kernels=(), events=seen, steps=profiler_steps(seen))])
    assert (found.totals, found.steps[0].exposed_copies_ns) == ((), 0)


def test_summarize__nothing_of_a_device__the_operators_of_the_host() -> None:
    events = host(
        ("annotation", "ProfilerStep#2", 0, 100),
        ("host_op", "aten::linear", 10, 50),
        ("host_op", "aten::addmm", 20, 30),
        ("annotation", "ProfilerStep#3", 100, 100),
        ("host_op", "aten::linear", 110, 50),
        ("host_op", "aten::addmm", 120, 30),
        ("host_op", "aten::zero_", 250, 5),
    )

    (found,) = summarize([timeline(events=events)])

    assert found.on_host
    assert found.works == ({WorkItem("host_op", "aten::linear"): 1, WorkItem("host_op", "aten::addmm"): 1},) * 2
    assert [(row.name, row.typical_ns) for row in found.totals] == [("aten::addmm", 30.0), ("aten::linear", 20.0)]


def test_summarize__host_beside_totals_of_kernels__not_a_recording_of_a_host_alone() -> None:
    totals = (NamedTotal("MatMulV2", 8, 921_000),)
    (found,) = summarize([timeline(events=host(("host_op", "aten::mm", 0, 10)), totals=Totals(types=totals))])

    assert not found.on_host


def test_summarize__trace_of_perfgate_itself__its_calls() -> None:
    events = host(*(("annotation", "perfgate.call", start, 10) for start in (0, 20)), ("host_op", "aten::mm", 22, 5))

    (found,) = summarize([timeline(events=events)])

    assert (found.unit, found.spans, found.lengths()) == ("call", 2, [10, 10])


@pytest.mark.parametrize(
    ("places", "names"),
    [
        ([(None, None)], ["all"]),
        ([(None, 4)], ["all"]),
        ([(2, 4)], ["rank 2"]),
        ([(0, 4), (1, 5)], ["rank 0", "rank 1"]),
        ([(None, 0), (None, 1)], ["device 0", "device 1"]),
        ([(0, 0), (0, 1)], ["rank 0, device 0", "rank 0, device 1"]),
        ([(0, 4), (0, 4)], ["rank 0, device 4", "rank 0, device 4, recording 2"]),
    ],
)
def test_shape_names__as_short_as_tells_them_apart(
    places: list[tuple[int | None, int | None]], names: list[str]
) -> None:
    assert shape_names([timeline(rank, device) for rank, device in places]) == names


@pytest.mark.recordings
def test_summarize__alexnet_of_two_ranks__kernels_of_the_table_and_copies_of_the_timeline(tmp_path: Path) -> None:
    found = summarize(trace.read(unpacked(tmp_path / "sample", "msinsight-910B-alexnet-2501/text/level1")).timelines)

    assert [(one.shape, one.spans) for one in found] == [("rank 0", 1), ("rank 1", 1)]
    for one in found:
        # 191 rows of kernel_details.csv, 4 of them HCCL; op_statistic.csv counts 57 TransData.
        assert sum(count for item, count in one.works[0].items() if item.kind == "compute") == 187
        assert one.works[0][WorkItem("compute", "TransData")] == 57
        assert one.works[0][WorkItem("comm", "hcom_allReduce_")] == 4
        assert one.works[0][WorkItem("copy", "MEMCPY_ASYNC")] == 24
    # The rows of the table of kernels; step_trace_time.csv of rank 0 has 8873.756 us, of times that went through a float.
    assert found[0].steps[0].computing_ns == 8_873_737


@pytest.mark.recordings
def test_summarize__qwen3_without_a_timeline__kernels_of_one_rank_collectives_of_both(tmp_path: Path) -> None:
    found = summarize(
        trace.read(unpacked(tmp_path / "sample", "msinsight-910B-qwen3-cann8.3RC1-2511/level2")).timelines
    )

    assert [one.absent for one in found] == [
        {"counters.device_copies"},
        {"counters.kernels", "counters.format_conversions", "counters.device_copies"},
    ]
    assert sum(count for item, count in found[0].works[0].items() if item.kind == "compute") == 2448
    assert [sum(count for item, count in one.works[0].items() if item.kind == "comm") for one in found] == [15, 15]


@pytest.mark.recordings
def test_summarize__three_steps_of_a_gpu__the_same_work_in_each() -> None:
    path = recorded("cuda-hta", "nccl_data.json.gz")

    (found,) = summarize(trace.read(path).timelines)

    assert [sum(work.values()) for work in found.works] == [893 + 358 + 7] * 3
