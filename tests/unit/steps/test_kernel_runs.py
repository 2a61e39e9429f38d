"""Step 4: a kernel that runs too long at once, and one that was expected and does not run; measured and recorded."""

from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.recorded import recorded_checklist
from perfgate.measuring.checklist.step import RecordingContext, StepContext
from perfgate.measuring.checklist.steps.s04_top_ops import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import StepSettings
from perfgate.trace.analysis.summary import summarize
from tests.fakes.device import FakeDevice
from tests.fakes.recordings import ALL_REDUCE, GEMM, kineto_recording
from tests.fakes.recordings import STEP as RECORDED_STEP
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import QWEN, sample
from tests.wording import finding_text

MS = 1_000_000
ROOT = Path(__file__).parents[3]


def measure(tmp_path, *kernels, device=None, limits=None, **fields):
    device = device or FakeDevice()
    return STEP.measure(context_on(device, fake_workload(*kernels), artifacts=tmp_path, limits=limits or {}, **fields))


def of_rule(found, rule):
    return [finding for finding in found if finding.rule == rule]


def test_kernel_time__one_run_of_sixty_milliseconds__named(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 60 * MS), FakeKernel("aten::add", 30 * MS))

    (finding,) = of_rule(outcome.findings, "ops.kernel_time")
    assert (finding.severity, finding.evidence["op"]) == ("warning", "mm_kernel")
    assert finding.evidence["ops.kernel_time"] == pytest.approx(0.06)
    assert finding.evidence["limit"] == 0.05
    assert outcome.status == "attention"


def test_kernels__what_ran__names_and_the_longest_run_stand_in_the_document(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 60 * MS), FakeKernel("aten::add", 30 * MS))

    (value,) = [value for value in outcome.values if value.metric == "ops.kernel_time"]
    (kernels,) = outcome.kernels
    assert value.value == pytest.approx(0.06)
    assert (kernels.shape, kernels.longest, kernels.left_out) == (value.labels["shape"], "mm_kernel", 0)
    assert kernels.names == ["add_kernel", "mm_kernel"]


def test_kernel_time__as_much_in_many_runs__nothing(tmp_path: Path) -> None:
    outcome = measure(tmp_path, *[FakeKernel("aten::mm", 20 * MS)] * 4)

    assert of_rule(outcome.findings, "ops.kernel_time") == []


def test_kernel_time__limit_of_the_project__followed(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 2 * MS), limits={"ops.kernel_time.warning": 0.001})

    assert len(of_rule(outcome.findings, "ops.kernel_time")) == 1


def test_kernel_time__one_call_of_several_was_interrupted__nothing(tmp_path: Path) -> None:
    device = FakeDevice(kernel_times={"aten::mm": lambda number: 90 * MS if number % 10 == 7 else MS})

    assert of_rule(measure(tmp_path, FakeKernel("aten::mm", MS), device=device).findings, "ops.kernel_time") == []


def on_cpu(tmp_path, model, limits, expected=()):
    def inputs(items, seed):
        return torch.randn(items, 512, generator=torch.Generator().manual_seed(seed))

    device = open_device("cpu")
    workload = Workload(build=lambda device: model.eval(), inputs=inputs, batch=64)
    context = StepContext(
        workload=BoundWorkload("real", workload, device, seed=1, root=ROOT), limits=limits,
        seed=1, artifacts=tmp_path, progress=lambda text: None, settings=StepSettings(expected_kernels=[*expected]),
    )  # fmt: skip
    return STEP.measure(context)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 512))

    def forward(self, inputs):
        return torch.relu(inputs @ self.weight)  # the line that is named


def test_kernel_time__operator_of_a_real_model__with_its_line(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Model(), {"ops.kernel_time.warning": 1e-9})

    findings = {finding.evidence["op"]: finding for finding in of_rule(outcome.findings, "ops.kernel_time")}
    source = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if text.endswith("# the line that is named"))
    assert findings["aten::mm"].evidence["line"] == f"tests/unit/steps/test_kernel_runs.py:{line}"


def test_expected_kernel__that_runs__nothing(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Model(), {}, expected=["aten::mm", "aten::*relu*"])

    assert of_rule(outcome.findings, "ops.missing_kernel") == []


def test_expected_kernel__that_does_not_run__severe_with_the_nearest_names(tmp_path: Path) -> None:
    outcome = measure(
        tmp_path,
        FakeKernel("aten::flash_attention_score", MS),
        FakeKernel("aten::mm", MS),
        settings=StepSettings(expected_kernels=["FlashAttention*", "mm_kernel"]),
    )

    (finding,) = of_rule(outcome.findings, "ops.missing_kernel")
    assert (finding.severity, finding.evidence["kernel"]) == ("severe", "FlashAttention*")
    assert finding.evidence["nearest"] == "flash_attention_score_kernel"
    assert finding_text(finding) == (
        "no kernel named FlashAttention* ran, as perfgate.toml expects; most similar names: flash_attention_score_kernel"
    )
    assert outcome.status == "attention"


def test_expected_kernel__nothing_like_it__none(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", MS), settings=StepSettings(expected_kernels=["XXXXXXXX*"]))

    assert of_rule(outcome.findings, "ops.missing_kernel")[0].evidence["nearest"] == "none"


def judged(recording, expected, limits=None):
    settings = StepSettings(expected_kernels=[*expected])
    context = RecordingContext(recording, summarize(recording.timelines), "model", limits or {}, settings)
    return next(step for step in recorded_checklist(context).steps if step.number == 4)


def test_recorded__long_kernels_and_missing_ones__named(tmp_path: Path) -> None:
    recording = trace.read(kineto_recording(tmp_path / "t.json", steps=(RECORDED_STEP,) * 3))
    step = judged(recording, (f"{GEMM[:6]}*", "flash_fwd*"), {"ops.kernel_time.warning": 90e-6})

    # The all-reduce takes 100 us, but a kernel of a collective waits for other ranks.
    assert [finding.evidence["op"] for finding in of_rule(step.findings, "ops.kernel_time")] == [GEMM]
    assert ALL_REDUCE not in str(of_rule(step.findings, "ops.kernel_time"))
    (missing,) = of_rule(step.findings, "ops.missing_kernel")
    assert missing.evidence["kernel"] == "flash_fwd*"


@pytest.mark.recordings
def test_recorded_on_an_npu__kernels_by_type_and_by_name(tmp_path: Path) -> None:
    step = judged(
        trace.read(sample(f"{QWEN}/rank_0_ascend_pt", tmp_path)),
        ("FlashAttentionScore", "aclnnFlashAttention*", "PagedAttention*"),
    )

    (missing,) = of_rule(step.findings, "ops.missing_kernel")
    assert missing.evidence["kernel"] == "PagedAttention*"
    assert "FlashAttention" in missing.evidence["nearest"]
    assert of_rule(step.findings, "ops.kernel_time") == []
