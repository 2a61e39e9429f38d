"""Steps 1 to 5 of a recording: numbers where it has them, a reason where it has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import trace
from perfgate.document.run import StepResult
from perfgate.measuring.checklist.recorded import RecordedChecklist, recorded_checklist
from perfgate.measuring.checklist.step import RecordingContext
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTableBuilder
from perfgate.trace.model.recording import Collective, Kernel, ProfilerStep, Recording, Timeline
from perfgate.trace.model.steps import profiler_steps
from tests.fakes.recordings import GEMM, STEP, TO_NHWC, kineto_recording
from tests.fakes.wording import reason_of
from tests.samples import unpacked
from tests.wording import finding_text, text_of


def checklist(folder: Path, *, limits: dict[str, float] | None = None, **fields: object) -> RecordedChecklist:
    recording = trace.read(kineto_recording(folder / "t.json", **fields))  # type: ignore[arg-type]
    return judged(recording, limits)


def judged(recording: Recording, limits: dict[str, float] | None = None) -> RecordedChecklist:
    return recorded_checklist(RecordingContext(recording, summarize(recording.timelines), "model", limits or {}))


def recorded(*timelines: Timeline) -> Recording:
    return Recording(path=Path("recording"), format="kineto", timelines=timelines)


def on_rank(rank: int, **fields: object) -> Timeline:
    return Timeline(rank=rank, device=rank, events=EventTableBuilder().table(), **fields)  # type: ignore[arg-type]


def values(step: StepResult) -> dict[str, float | None]:
    return {value.metric: value.value for value in step.values if value.metric != "ops.share"}


def test_recorded_checklist__every_step_has_a_status(tmp_path: Path) -> None:
    found = checklist(tmp_path)

    assert [(step.number, step.slug, step.status) for step in found.steps[:5]] == [
        (1, "latency", "ok"),
        (2, "utilization", "attention"),
        (3, "transfer", "ok"),
        (4, "top_ops", "ok"),
        (5, "batch", "not_applicable"),
    ]
    assert [step.number for step in found.steps] == list(range(1, 20))
    assert all(text_of(step.reason) for step in found.steps if step.status not in ("ok", "attention"))
    assert reason_of(found.steps[4]) == "a recording has one batch size"


US = 1000


def served(*spans: tuple[str, EventKind, int, int]) -> StepResult:
    """Step 10 of a recording of events, each with its name, kind, start and length in microseconds."""
    table = EventTableBuilder()
    for name, kind, start, length in spans:
        track = ("device", "7") if kind == "compute" else ("host", "1")
        table.add(start * US, length * US, track=track, name=name, kind=kind, correlation=NO_CORRELATION)
    found = judged(recorded(Timeline(rank=None, device=0, events=table.table())))
    return found.steps[9]


@pytest.mark.parametrize("kind", ["annotation", "host_op", "python", "other"])
@pytest.mark.parametrize("name", ["select_batch", "server/loop.py(12): prepare_inputs", "Scheduler::schedule"])
def test_recorded_checklist__scheduler_while_the_device_is_idle__found_with_its_share(
    name: str, kind: EventKind
) -> None:
    step = served((name, kind, 0, 300), ("gemm", "compute", 200, 800))

    assert values(step) == {"batching.scheduling": pytest.approx(0.2)}
    ((rule, op),) = [(finding.rule, finding.evidence["op"]) for finding in step.findings]
    assert (rule, op) == ("batching.scheduling", name)


def test_recorded_checklist__scheduler_behind_kernels__nothing_to_say() -> None:
    step = served(("select_batch", "annotation", 0, 300), ("gemm", "compute", 0, 1000))

    assert (values(step), step.findings, step.status) == ({"batching.scheduling": 0.0}, [], "ok")


@pytest.mark.parametrize("name", ["aten::mm", "schedule_step_function", "reschedule", "prepare"])
def test_recorded_checklist__no_scheduler__not_applicable(name: str) -> None:
    step = served((name, "host_op", 0, 300), ("gemm", "compute", 300, 700))

    assert (step.status, step.values) == ("not_applicable", [])


def test_recorded_checklist__one_step_alone__one_latency_and_no_quantiles() -> None:
    step = ProfilerStep(1, None, None, 60, 0, 0, None, 0, 40)
    recording = Recording(Path("one"), "kineto", [Timeline(0, 0, EventTableBuilder().table(), steps=(step,))])
    latency, *_ = recorded_checklist(RecordingContext(recording, summarize(recording.timelines), "model", {})).steps

    assert [(value.metric, value.value, value.count) for value in latency.values] == [("latency.single", 1e-7, 1)]


def test_recorded_checklist__numbers_of_the_recording(tmp_path: Path) -> None:
    latency, utilization, transfer, *_ = checklist(tmp_path).steps

    assert values(latency) == {
        "latency.p50": 0.001,
        "latency.p90": 0.001,
        "latency.p99": None,
        "latency.tail": None,
        "latency.max": 0.001,
        # Steps of 1000, 1000 and 575 us.
        "latency.std": pytest.approx(245.4e-6, rel=1e-3),
    }
    # Three steps of 2575 us together: 1200 computing, 300 in a collective, 150 copying, 913 before the first kernels.
    assert values(utilization) == {
        "utilization.busy": pytest.approx(1500 / 2575),
        "utilization.computing": pytest.approx(1200 / 2575),
        "utilization.free": pytest.approx(12 / 2575),
        "utilization.gap": pytest.approx((2575 - 1500) * 1e-6 / 3),
    }
    assert values(transfer) == {"transfer.exposed_share": pytest.approx(150 / 2575)}
    assert all(
        value.labels == {"shape": "rank 0", "under": "profiler"}
        for step in (latency, utilization, transfer)
        for value in step.values
    )


def test_recorded_checklist__the_steps_own_limits__as_the_project_sets_them(tmp_path: Path) -> None:
    given = {"utilization.busy.severe": 0.1, "utilization.busy.warning": 0.2, "ops.share.conv_matmul.info": 0.5}

    found = checklist(tmp_path, limits=given)

    assert [step.status for step in found.steps[:5]] == ["ok", "ok", "ok", "ok", "not_applicable"]
    assert [finding.rule for finding in found.steps[3].findings] == ["ops.share.conv_matmul"]


def test_recorded_checklist__operators__self_time_count_and_share_of_a_step(tmp_path: Path) -> None:
    row = checklist(tmp_path).operators[0]

    assert (row.workload, row.shape, row.op, row.kind, row.count) == ("model", "rank 0", GEMM, "compute", 1.0)
    assert (row.self_time, row.share) == (pytest.approx(250e-6), pytest.approx(250 / 550))


def test_recorded_checklist__counters_of_equal_steps__repeats_and_sites(tmp_path: Path) -> None:
    (counted,) = checklist(tmp_path).counters

    assert (counted.repeats, counted.unstable) == (3, [])
    assert counted.values == {
        "counters.collectives": 1,
        "counters.device_copies": 1,
        "counters.format_conversions": 2,
        "counters.kernels": 4,
    }
    assert {(op.op, op.count) for op in counted.ops} >= {(TO_NHWC, 2), (GEMM, 1)}


def test_recorded_checklist__one_step_runs_a_kernel_more__unstable_and_said(tmp_path: Path) -> None:
    found = checklist(tmp_path, steps=(STEP, (*STEP, (TO_NHWC, 5)), STEP))

    assert found.counters[0].unstable == [
        "counters.format_conversions",
        "counters.kernels",
        f"ops.count:{TO_NHWC}",
    ]
    assert "counters.unstable" in [finding.rule for finding in found.steps[3].findings]


def test_recorded_checklist__no_steps_marked__counts_of_the_whole_and_no_times(tmp_path: Path) -> None:
    found = checklist(tmp_path, marked=False)

    assert [step.status for step in found.steps[:5]] == ["unavailable"] * 3 + ["ok", "not_applicable"]
    assert all("call prof.step()" in reason_of(step) for step in found.steps[:3])
    assert (found.counters[0].repeats, found.counters[0].values["counters.kernels"]) == (0, 12)


def test_recorded_checklist__operators_of_a_cpu__no_device_to_judge() -> None:
    builder = EventTableBuilder()
    for number in range(2):
        track, at = ("1", "1"), number * 100
        builder.add(at, 100, track=track, name=f"ProfilerStep#{number}", kind="annotation", correlation=NO_CORRELATION)
        builder.add(at + 5, 80, track=track, name="aten::mm", kind="host_op", correlation=NO_CORRELATION)

    found = judged(recorded(Timeline(None, None, builder.table())))

    assert [step.status for step in found.steps[:5]] == [
        "ok",
        "not_applicable",
        "not_applicable",
        "ok",
        "not_applicable",
    ]
    assert reason_of(found.steps[1]) == "the recording shows nothing that ran on a device"
    assert found.counters[0].values == {"counters.recorded_ops": 1}


def test_recorded_checklist__ranks_in_a_collective__the_slowest_is_named() -> None:
    def rank(number: int, elapsed: int) -> Timeline:
        collective = Collective("hcom_allReduce__1_0_1", "collective", None, 1, None, elapsed, None, None, None)
        kernels = (Kernel("MatMulV2", "MatMulV2", "AI_CORE", 0, 10, step=1),)
        return on_rank(number, kernels=kernels, steps=(ProfilerStep(1),), collectives=(collective,))

    found = judged(recorded(rank(0, 90_000), rank(1, 2_000)))

    (finding,) = (one for one in found.steps[15].findings if one.rule == "collectives.slowest_rank")
    assert finding.severity == "info"
    assert finding_text(finding).startswith("rank 0 spends the most time in hcom_allReduce_, rank 1 the least;")
    assert finding.evidence == {
        "collective": "hcom_allReduce_",
        "longest": "rank 0",
        "shortest": "rank 1",
        "rank 0 [s]": 9e-5,
        "rank 1 [s]": 2e-6,
    }


def test_recorded_checklist__collectives_do_not_hide_what_is_computed() -> None:
    kernels = (
        Kernel("TransData", "TransData", "AI_VECTOR_CORE", 0, 40, step=1),
        Kernel("MatMulV2", "MatMulV2", "AI_CORE", 50, 60, step=1),
        Kernel("hcom_allReduce__1_0_1", "hcom_allReduce_", "HCCL", 110, 9900, step=1),
    )

    found = judged(recorded(on_rank(0, kernels=kernels, steps=(ProfilerStep(1),))))

    assert "ops.share.copy" in [finding.rule for finding in found.steps[3].findings]


@pytest.mark.parametrize(
    ("step", "rule", "part"),
    [
        (ProfilerStep(1, None, None, 10, 20, 20, 5, 15, 50), "utilization.busy", "free"),
        (ProfilerStep(1, None, None, 10, 20, 20, 5, 50, 15), "utilization.preparing", "preparing"),
        (ProfilerStep(1, None, None, 10, 20, 20, 40, 15, 15), "utilization.copies", "exposed copies"),
        (ProfilerStep(1, None, None, 10, 60, 60, 5, 15, 10), "utilization.communication", "exposed communication"),
    ],
)
def test_recorded_checklist__busy_too_little__worded_by_what_takes_most(
    step: ProfilerStep, rule: str, part: str
) -> None:
    kernels = (Kernel("MatMulV2", "MatMulV2", "AI_CORE", 0, 10, step=1),)

    found = judged(recorded(on_rank(0, kernels=kernels, steps=(step,))))

    (finding,) = found.steps[1].findings
    assert finding.rule == rule
    assert finding.evidence["computing"] == pytest.approx(0.1)
    assert finding.evidence[part] == pytest.approx({"exposed communication": 0.6, "exposed copies": 0.4}.get(part, 0.5))


@pytest.mark.parametrize(
    ("loading", "rule", "part", "share"),
    [(50, "utilization.graph_head", "graph head", 0.7), (800, "utilization.preparing", "preparing", 0.8)],
)
def test_recorded_checklist__device_waits_for_a_graph__worded_by_its_head_or_by_the_time_before_it(
    loading: int, rule: str, part: str, share: float
) -> None:
    builder = EventTableBuilder()
    for name, kind, begin, duration in (
        ("ProfilerStep#1", "annotation", 0, 1000),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "annotation", 0, loading),
        ("Torch-Compiled Region: 0/0", "annotation", loading + 50, 900 - loading),
        ("## Call CompiledFxGraph ##", "host_op", loading + 60, 880 - loading),
        ("triton_poi_fused_add_0", "compute", max(750, loading + 70), 1000 - max(750, loading + 70)),
    ):
        builder.add(begin, duration, track=("1", kind), name=name, kind=kind, correlation=NO_CORRELATION)
    events = builder.table()
    timeline = Timeline(0, 0, events, steps=profiler_steps(events))
    (finding,) = judged(recorded(timeline)).steps[1].findings
    assert (finding.rule, finding.evidence[part]) == (rule, pytest.approx(share, abs=0.03))


@pytest.mark.recordings
def test_recorded_checklist__alexnet_of_two_ranks__busy_counts_the_collectives(tmp_path: Path) -> None:
    recording = trace.read(unpacked(tmp_path / "sample", "msinsight-910B-alexnet-2501/text/level1"))

    utilization = judged(recording).steps[1]

    # Of 154.48 ms of rank 0 8.87 computing and 101.96 in AllReduce.
    busy = {value.labels["shape"]: value.value for value in utilization.values if value.metric == "utilization.busy"}
    assert busy == {"rank 0": pytest.approx(0.7174, abs=1e-4), "rank 1": pytest.approx(0.6908, abs=1e-4)}
    assert [finding.rule for finding in utilization.findings] == ["utilization.communication"] * 2
    assert "the device waits for the host" not in " ".join(finding_text(finding) for finding in utilization.findings)


@pytest.mark.recordings
def test_recorded_checklist__shares_of_a_step__add_up_to_one(tmp_path: Path) -> None:
    recording = trace.read(unpacked(tmp_path / "sample", "msinsight-910B-alexnet-2501/text/level1"))

    shares = {
        (value.metric, value.labels["shape"]): value.value or 0.0
        for step in judged(recording).steps
        for value in step.values
        if "shape" in value.labels
    }

    parts = ("utilization.computing", "communication.exposed", "transfer.exposed_share", "preprocess.preparing_share",
             "utilization.free")  # fmt: skip
    for rank in ("rank 0", "rank 1"):
        assert sum(shares[part, rank] for part in parts) == pytest.approx(1.0, abs=1e-12)
