from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext
from perfgate.measuring.checklist.steps.s07_format import STEP
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Kernel, Recording, Tensors, Timeline
from tests.fakes.device import ALL_CAPABILITIES, FakeDevice
from tests.fakes.recordings import kineto_recording
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.steps.planted_models import context, found, images, line_of, linears, measure, numbers, pictures, turn
from tests.unit.trace.ascend import ALEXNET, QWEN, sample


def judged(recording, **limits):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits))


def recorded(*kernels):
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table(), kernels=kernels)
    return Recording(path=Path("recording"), format="ascend-pytorch", timelines=(timeline,))


def kernel(name, ns, before=(), after=(), *, dtypes=((), ()), **fields):
    given = {"type": name.rpartition("_")[2], "core": "AI_CORE", "start_ns": 0, "duration_ns": ns, "step": 1}
    inputs, outputs = Tensors(formats=before, dtypes=dtypes[0]), Tensors(formats=after, dtypes=dtypes[1])
    return Kernel(name=name, inputs=inputs, outputs=outputs, **{**given, **fields})


def test_format__no_conversion__zero_and_ok(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(), tmp_path)

    assert outcome.status == "ok"
    assert numbers(outcome, "format.conversions") == {"default": 0.0}
    assert numbers(outcome, "format.share") == {"default": 0.0}


def test_format__permute_and_contiguous__counted_as_the_counter_does_and_named_with_its_line(tmp_path: Path) -> None:
    workload = linears(turn)
    outcome = measure(STEP, workload, tmp_path)

    assert outcome.status == "attention"
    finding = found(outcome)["format.share"]
    assert (finding.evidence["op"], finding.evidence["conversions"]) == ("aten::clone", 2)
    assert finding.evidence["line"] == line_of("rows.t().contiguous()")
    assert finding.evidence["pair"] == "strided -> contiguous"
    here = context(workload, tmp_path)
    counted = count_calls(here.workload, "default")
    assert counted.values["counters.noncontiguous_copies"] == 2
    assert numbers(outcome, "format.conversions", "pair") == {"strided -> contiguous": 2.0}


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is built without oneDNN")
def test_format__reorder_of_onednn__a_conversion(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(lambda rows: rows.to_mkldnn().to_dense()), tmp_path)

    pairs = numbers(outcome, "format.conversions", "pair")
    assert pairs == {"contiguous -> mkldnn": 1.0, "mkldnn -> contiguous": 1.0}


def test_format__weights_in_channels_last_and_images_not__mixed_with_both_orders(tmp_path: Path) -> None:
    outcome = measure(STEP, Workload(build=images(channels_last=True), inputs=pictures, batch=2), tmp_path)

    assert numbers(outcome, "format.mixed_convolutions") == {"default": 1}
    evidence = found(outcome)["format.mixed"].evidence
    assert (evidence["input"], evidence["weight"], evidence["convolutions"]) == ("NCHW", "NHWC", 2)
    assert outcome.status == "attention"


def test_format__weights_and_images_in_one_order__nothing_mixed(tmp_path: Path) -> None:
    def turned(batch, seed):
        return pictures(batch, seed).contiguous(memory_format=torch.channels_last)

    for workload in (
        Workload(build=images(), inputs=pictures, batch=2),
        Workload(build=images(channels_last=True), inputs=turned, batch=2),
    ):
        outcome = measure(STEP, workload, tmp_path)
        assert numbers(outcome, "format.mixed_convolutions") == {"default": 0}
        assert found(outcome) == {}


def test_format__no_operator_and_no_kernel__unavailable() -> None:
    device = FakeDevice(capabilities=frozenset())
    result, _ = run_step(STEP, context_on(device, fake_workload(FakeKernel("aten::mm", 1000))))

    assert result.status == "unavailable"
    assert "no operator" in reason_of(result)


def test_format__kernels_of_a_live_trace__share_and_name(tmp_path: Path) -> None:
    kernels = (FakeKernel("aten::mm", 90_000), FakeKernel("aten::nchwToNhwc", 10_000))
    device = FakeDevice(capabilities=ALL_CAPABILITIES)
    outcome = STEP.measure(context_on(device, fake_workload(*kernels), artifacts=tmp_path))

    assert numbers(outcome, "format.share") == {"default": pytest.approx(0.1)}
    assert numbers(outcome, "format.conversions", "pair") == {"NCHW -> NHWC": 1.0}
    assert found(outcome)["format.share"].severity == "warning"
    assert [path.name for path in tmp_path.iterdir()] == ["trace-fake-default.json.gz"]


def test_format__kernels_that_the_graph_engine_put_in__by_formats_and_dtypes() -> None:
    outcome = judged(
        recorded(
            kernel("trans_TransData_0", 30, ("NCHW",), ("NC1HWC0",)),
            kernel("trans_Cast_5", 10, ("ND",), ("ND",), dtypes=(("INT32",), ("UINT64",))),
            kernel("aclnnCast_CastAiCore_Cast", 10, ("ND",), ("ND",)),
            kernel("aclnnMatmul_MatMulV2", 50),
            kernel("hcom_allReduce", 900, core="HCCL"),
        )
    )

    assert numbers(outcome, "format.share") == {"rank 0": pytest.approx(0.4)}
    assert numbers(outcome, "format.conversions", "pair") == {"NCHW -> NC1HWC0": 1.0, "INT32 -> UINT64": 1.0}
    assert [(one.rule, one.severity) for one in outcome.findings] == [("format.share", "severe")]


@pytest.mark.recordings
def test_format__recorded_alexnet__57_conversions_16_percent(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1", tmp_path)))

    # 57 TransData take 1423.202 us of the 8873.737 us of all kernels (SOURCES.md of the samples, test_ascend_samples).
    assert numbers(outcome, "format.share")["rank 0"] == pytest.approx(1_423_202 / 8_873_737)
    totals = [value.value for value in outcome.values if value.labels == {"shape": "rank 0"}]
    assert totals[1] == 57
    assert outcome.findings[0].severity == "warning"
    pairs = {v.labels["pair"] for v in outcome.values if "pair" in v.labels and v.labels["shape"] == "rank 0"}
    assert {"NCHW -> NC1HWC0", "NC1HWC0 -> NCHW", "NCHW -> FRACTAL_Z"} <= pairs


@pytest.mark.recordings
def test_format__recorded_qwen__none_is_zero_and_ok(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(QWEN, tmp_path)))

    assert outcome.status == "ok"
    assert numbers(outcome, "format.share")["rank 0"] == 0.0


def test_format__recording_of_a_gpu__its_own_kernels_by_step(tmp_path: Path) -> None:
    outcome = judged(trace.read(kineto_recording(tmp_path / "t.json")))

    # Two nchwToNhwcKernel of 40 and 50 us in 400 us of compute.
    assert numbers(outcome, "format.share") == {"rank 0": pytest.approx(90 / 400)}
    assert numbers(outcome, "format.conversions", "pair") == {"NCHW -> NHWC": 2.0}


def test_format__recording_without_kernels__unavailable(tmp_path: Path) -> None:
    outcome = judged(
        Recording(path=tmp_path, format="kineto", timelines=(Timeline(0, 0, EventTableBuilder().table()),))
    )

    assert (outcome.status, outcome.values) == ("unavailable", [])
