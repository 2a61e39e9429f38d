"""Step 18 on the real CPU profiler, on scripted kernels, and on recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate import trace
from perfgate.document.run import Finding
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.step import RecordingContext, StepOutcome
from perfgate.measuring.checklist.steps.s04_top_ops import STEP as TOP_OPS
from perfgate.measuring.checklist.steps.s18_profile import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import sample
from tests.wording import text_of

MS = 1_000_000


def on_cpu(folder: Path, model: Any, size: int, **fields: Any) -> StepOutcome:
    def inputs(batch: int, seed: int, **shape: Any) -> torch.Tensor:
        return torch.randn(batch, size, generator=torch.Generator().manual_seed(seed))

    workload = Workload(build=lambda device: model, inputs=inputs, batch=size)
    return STEP.measure(context_on(open_device("cpu"), workload, artifacts=folder, **fields))


def numbers(outcome: StepOutcome) -> dict[str, Any]:
    return {value.metric: value.value for value in outcome.values}


def rules(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in findings]


def test_profile__real_model_on_the_cpu__all_time_has_its_function_and_the_trace_is_kept(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU()), 512)

    found = numbers(outcome)
    assert outcome.status == "ok"
    assert found["profile.attributed"] == pytest.approx(1.0)
    assert found["profile.lost_events"] == 0
    assert found["profile.overhead"] > 0
    assert len(list(tmp_path.iterdir())) == 1


def test_profile__many_tiny_operators__the_overhead_is_said(tmp_path: Path) -> None:
    class Tiny(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(100):
                x = x + 1
            return x

    outcome = on_cpu(tmp_path, Tiny(), 4)
    assert numbers(outcome)["profile.overhead"] > 1.1
    assert ("profile.overhead", "info") in rules(outcome.findings)
    assert outcome.status == "ok"


def test_profile__after_step_4__its_trace_is_read_and_not_kept_twice(tmp_path: Path) -> None:
    context = context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", MS)), artifacts=tmp_path)
    TOP_OPS.measure(context)
    STEP.measure(context)

    kept, used = context.kept
    assert used == kept
    assert [file.name for file in tmp_path.iterdir()] == [kept.path]


def test_profile__launches_not_recorded__no_share_and_nothing_lost(tmp_path: Path) -> None:
    outcome = STEP.measure(context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", MS)), artifacts=tmp_path))

    (attributed,) = (value for value in outcome.values if value.metric == "profile.attributed")
    assert (attributed.value, outcome.status) == (None, "ok")
    assert text_of(attributed.reason)
    assert numbers(outcome)["profile.lost_events"] == 0
    assert numbers(outcome)["profile.overhead"] == pytest.approx(1.0)


def test_profile__recordings_that_take_long_to_analyse__all_analysed_at_the_end(tmp_path: Path) -> None:
    capabilities = frozenset({"own_memory", "queue", "kernel_timeline", "late_analysis"})
    device = FakeDevice(capabilities=capabilities)
    outcome = STEP.measure(context_on(device, fake_workload(FakeKernel("aten::mm", MS)), artifacts=tmp_path))
    assert [value.count for value in outcome.values if value.metric == "profile.overhead"] == [2]


def test_profile__profiler_that_does_not_work__unavailable_in_its_words(tmp_path: Path) -> None:
    class Silent(FakeDevice):
        def record_trace(self, *args: Any, **fields: Any) -> Path:
            raise MeasuringError("msprof is not on PATH")

    outcome = STEP.measure(context_on(Silent(), fake_workload(FakeKernel("aten::mm", MS)), artifacts=tmp_path))
    assert (outcome.status, reason_of(outcome), outcome.values) == ("unavailable", "msprof is not on PATH", [])


def judged(path: Path) -> StepOutcome:
    recording = trace.read(path)
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


@pytest.mark.recordings
def test_profile__recording_of_a_gpu__every_kernel_leads_back(tmp_path: Path) -> None:
    outcome = judged(sample("cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz", tmp_path))
    assert (outcome.status, numbers(outcome)["profile.attributed"]) == ("ok", 1.0)


@pytest.mark.recordings
def test_profile__recording_of_a_gpu_with_few_operators__attention(tmp_path: Path) -> None:
    outcome = judged(sample("cuda-hta/a100_event_sync.json.gz", tmp_path))
    assert rules(outcome.findings) == [("profile.attributed", "warning")]
    assert numbers(outcome)["profile.attributed"] == pytest.approx(0.294, abs=0.001)


def test_profile__kernels_launched_outside_operators_and_launches_lost__attention(tmp_path: Path) -> None:
    """As the recorded sample cuda-hta/a100_event_sync has it: launches of a library that calls no operator."""
    builder = EventTableBuilder()
    host, stream = ("1", "1"), ("0", "7")
    builder.add(0, 100, track=host, name="aten::mm", kind="host_op", correlation=-1)
    for number, start in enumerate((10, 200, 300)):
        builder.add(start, 20, track=host, name="cudaLaunchKernel", kind="runtime", correlation=number)
    for number in range(4):
        builder.add(400 + 100 * number, 50, track=stream, name="sgemm", kind="compute", correlation=number)
    recording = Recording(tmp_path, "kineto", (Timeline(rank=0, device=0, events=builder.table()),))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))

    assert rules(outcome.findings) == [("profile.lost_events", "warning"), ("profile.attributed", "warning")]
    assert (numbers(outcome)["profile.attributed"], numbers(outcome)["profile.lost_events"]) == (0.25, 1)


def test_profile__recording_of_tables_alone__unavailable(tmp_path: Path) -> None:
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table())
    recording = Recording(tmp_path, "msprof", (timeline,))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize([timeline]), "model", {}))
    assert (outcome.status, outcome.values) == ("unavailable", [])
