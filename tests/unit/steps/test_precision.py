from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from perfgate import trace
from perfgate.document.message import Message
from perfgate.measuring.checklist.experiment import Agreement
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext, StepOutcome
from perfgate.measuring.checklist.steps import s08_precision
from perfgate.measuring.checklist.steps.s08_precision import STEP
from perfgate.measuring.checklist.steps.s08_precision.trial import PrecisionTrial
from perfgate.measuring.timing.calls import Versus
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Kernel, Recording, Tensors, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.steps.planted_models import Linears, found, line_of, linears, measure, numbers, rows
from tests.unit.trace.ascend import ALEXNET, QWEN, sample

HAS_AMX = "amx_tile" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False


def judged(recording, **limits):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits))


def recorded(*kernels):
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table(), kernels=kernels)
    return Recording(path=Path("recording"), format="ascend-pytorch", timelines=(timeline,))


def kernel(kind, ns, *dtypes, **fields):
    return Kernel(
        name=f"aclnn_{kind}",
        type=kind,
        core="AI_CORE",
        start_ns=0,
        duration_ns=ns,
        step=1,
        inputs=Tensors(dtypes=dtypes),
        **fields,
    )


def in_dtype(dtype, *, scale=1.0, between=torch.relu, **fields):
    """A model whose weights, multiplied by ``scale``, and inputs are of one dtype."""

    def build(_device):
        torch.manual_seed(0)
        model = Linears(between).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(scale)
        return model.to(dtype)

    return linears(build=build, inputs=lambda batch, seed: rows(batch, seed).to(dtype), **fields)


def speedup(outcome):
    (value,) = (value for value in outcome.values if value.metric == "precision.speedup")
    return value


def test_precision__full_precision__autocast_measured_with_error_and_memory(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(), tmp_path)

    value = speedup(outcome)
    assert value.labels == {"shape": "default", "dtype": "bfloat16", "against": "as_is"}
    assert value.interval[0] <= value.value <= value.interval[1]
    assert numbers(outcome, "precision.low_share", "of") == {"flops": 0.0}
    # bfloat16 has 8 bits of mantissa, so each of two layers is off by some 2^-9.
    assert 1e-4 < numbers(outcome, "precision.error")["default"] < 0.02
    assert numbers(outcome, "precision.not_finite") == {"default": 0.0}


@pytest.mark.skipif(not HAS_AMX, reason="without AMX bfloat16 need not be faster on a CPU")
def test_precision__large_products_on_amx__recommended_if_the_machine_lets_it_show(tmp_path: Path) -> None:
    def build(_device):
        torch.manual_seed(0)
        return Linears(width=1024).eval()

    def inputs(batch, seed):
        return torch.randn(batch, 1024, generator=torch.Generator().manual_seed(seed))

    outcome = measure(STEP, linears(build=build, inputs=inputs, batch=256), tmp_path)

    gain = speedup(outcome)
    assert gain.interval is not None
    findings = found(outcome)
    # Other load may widen the interval beyond the limit; then it must not be recommended.
    assert ("precision.gain" in findings) == (gain.interval[0] > 1.1)
    if "precision.gain" in findings:
        assert findings["precision.gain"].evidence["dtype"] == "bfloat16"
        assert findings["precision.gain"].evidence["precision.gain"] == gain.interval[0]


def test_precision__low_precision_throughout__compared_with_a_float32_copy_and_ok(tmp_path: Path) -> None:
    outcome = measure(STEP, in_dtype(torch.bfloat16), tmp_path, limits={})

    assert numbers(outcome, "precision.low_share", "of") == {"flops": 1.0}
    assert speedup(outcome).labels["against"] == "full"
    assert {"precision.not_finite", "precision.error", "precision.low_share"}.isdisjoint(found(outcome))


def test_precision__float16_that_overflows__severe(tmp_path: Path) -> None:
    outcome = measure(STEP, in_dtype(torch.float16, scale=2000.0), tmp_path)

    finding = found(outcome)["precision.not_finite"]
    assert (finding.severity, finding.evidence["dtype"]) == ("severe", "float16")
    assert finding.evidence["elements"] > 0
    assert outcome.status == "attention"


def test_precision__one_product_left_in_float32__named_with_its_line(tmp_path: Path) -> None:
    def build(_device):
        torch.manual_seed(0)
        model = Linears(torch.Tensor.float).eval()
        model.first.to(torch.bfloat16)
        return model

    outcome = measure(STEP, linears(build=build, inputs=lambda batch, seed: rows(batch, seed).bfloat16()), tmp_path)

    assert numbers(outcome, "precision.low_share", "of") == {"flops": pytest.approx(0.5)}
    evidence = found(outcome)["precision.low_share"].evidence
    assert (evidence["op"], evidence["dtype"]) == ("aten::addmm", "float32")
    assert evidence["line"] == line_of("self.last(self.between")


def test_precision__autocast_of_its_own__share_and_reason(tmp_path: Path) -> None:
    def call(model, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(inputs)

    outcome = measure(STEP, linears(call=call), tmp_path)

    assert numbers(outcome, "precision.low_share", "of") == {"flops": 1.0}
    assert speedup(outcome).value is None
    assert "enables autocast itself" in reason_of(speedup(outcome))
    # Input, two weights and two biases, in every call.
    assert numbers(outcome, "precision.casts") == {"default": 5}


def test_precision__fails_under_autocast__reason_and_no_error(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(lambda rows: rows @ torch.eye(64).addmm_(rows.t(), rows)), tmp_path)

    assert speedup(outcome).value is None
    assert "fails under autocast" in reason_of(speedup(outcome))
    assert outcome.status == "ok"


def test_precision__training__share_only(tmp_path: Path) -> None:
    def train(model, inputs):
        loss = model(inputs).square().mean()
        loss.backward()
        return loss.detach()

    outcome = measure(STEP, linears(train_step=train), tmp_path)

    assert numbers(outcome, "precision.low_share", "of") == {"flops": 0.0}
    assert "training" in reason_of(speedup(outcome))


@pytest.mark.slow
def test_precision__another_output_each_time__error_not_known(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(lambda rows: nn.functional.dropout(rows, 0.5)), tmp_path)

    (error,) = (value for value in outcome.values if value.metric == "precision.error")
    assert error.value is None
    assert "a different output each time" in reason_of(error)
    assert "precision.gain" not in found(outcome)


def test_precision__no_product__not_applicable(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(call=lambda model, inputs: inputs + 1), tmp_path)

    assert (outcome.status, outcome.values) == ("not_applicable", [])
    result, _ = run_step(STEP, context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", 1000))))
    assert result.status == "not_applicable"


def trial(**fields):
    given = {
        "dtype": "bfloat16",
        "against": "as_is",
        "versus": Versus(speedup=2.0, low=1.8, high=2.2, first_ns=2.0, second_ns=1.0, quads=20),
        "agreement": Agreement(comparable=True, absolute=0.01, relative=0.01),
        "refused": None,
    }
    return PrecisionTrial(**{**given, **fields})


def rules(made, limits=None):
    outcome = StepOutcome(labels={"shape": "default"}, limits=limits or {})
    s08_precision.judge_trial(outcome, made)
    return [(f.rule, f.severity) for f in outcome.findings]


def test_judge_trial__faster_and_right__recommended_by_the_low_end() -> None:
    slightly = Versus(speedup=1.3, low=1.2, high=1.4, first_ns=1.3, second_ns=1.0, quads=20)
    unsure = Versus(speedup=1.3, low=1.05, high=1.6, first_ns=1.3, second_ns=1.0, quads=20)

    assert rules(trial()) == [("precision.gain", "warning")]
    assert rules(trial(versus=slightly)) == [("precision.gain", "info")]
    assert rules(trial(versus=unsure)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"agreement": Agreement(comparable=True, relative=0.05)},
        {"agreement": Agreement(comparable=True, not_finite=3)},
        {"agreement": Message("operators.outputs-not-comparable")},
        {"refused": "check returned False"},
    ],
)
def test_judge_trial__faster_and_wrong__no_recommendation(wrong: dict[str, Any]) -> None:
    assert rules(trial(**wrong)) == [("precision.inaccurate", "info")]


def test_judge_trial__tolerance_of_the_project__followed() -> None:
    off = Agreement(comparable=True, relative=0.05)

    assert rules(trial(agreement=off), {"precision.error.warning": 0.1}) == [("precision.gain", "warning")]


def test_judge_trial__low_precision_that_is_slower_than_full__said() -> None:
    slower = Versus(speedup=0.5, low=0.4, high=0.6, first_ns=1.0, second_ns=2.0, quads=20)

    assert rules(trial(against="full", versus=slower)) == [("precision.slower", "warning")]


@pytest.mark.slow
def test_precision__check_refuses_the_low_precision_output__not_recommended(tmp_path: Path) -> None:
    workload = linears(check=lambda output, inputs: output.dtype == torch.float32)
    outcome = measure(STEP, workload, tmp_path, limits={"precision.gain.info": 0.0, "precision.gain.warning": 0.0})

    assert "check" in str(found(outcome)["precision.inaccurate"].evidence["why"])


def test_precision__kernels_by_dtype__shares_casts_and_what_is_left_in_full() -> None:
    outcome = judged(
        recorded(
            kernel("MatMulV2", 60, "BF16", "BF16"),
            kernel("Conv2D", 30, "FLOAT", "FLOAT", hf32=True),
            kernel("MatMulV3", 10, "FLOAT", "FLOAT", hf32=False),
            kernel("Cast", 20, "FLOAT", outputs=Tensors(dtypes=("BF16",))),
            kernel("Softmax", 80, "FLOAT"),
        )
    )

    assert numbers(outcome, "precision.low_share", "of") == {"time": pytest.approx(0.6)}
    assert numbers(outcome, "precision.rounded_share") == {"rank 0": pytest.approx(0.75)}
    assert numbers(outcome, "precision.cast_share") == {"rank 0": pytest.approx(0.1)}
    assert found(outcome)["precision.low_share"].evidence["op"] == "Conv2D"


@pytest.mark.recordings
def test_precision__recorded_qwen__all_low_with_its_casts(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(QWEN, tmp_path)))

    assert numbers(outcome, "precision.low_share")["rank 0"] == 1.0
    # 287 Cast, 2.593 % of the time of all kernels (SOURCES.md of the samples).
    assert numbers(outcome, "precision.casts")["rank 0"] == 287
    assert numbers(outcome, "precision.cast_share")["rank 0"] == pytest.approx(0.02593, abs=1e-4)
    assert outcome.status == "ok"


@pytest.mark.recordings
def test_precision__recorded_alexnet__full_and_partly_rounded(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1", tmp_path)))

    assert numbers(outcome, "precision.low_share")["rank 0"] == 0.0
    # Convolutions are HF32 eligible there, matrix products are not.
    assert 0.3 < numbers(outcome, "precision.rounded_share")["rank 0"] < 0.9


@pytest.mark.parametrize(
    ("name", "low"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", True),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", True),
        ("volta_sgemm_128x64_nn", False),
        ("cutlass_80_tensorop_s1688tf32gemm_128x128_16x4_nn_align4", False),
        ("ampere_fp16_s16816gemm_fp16_64x64", True),
        ("turing_h1688gemm_128x128_ldg8_nn", True),
    ],
)
def test_precision__kernel_of_a_gpu__precision_by_its_name(name: str, low: bool) -> None:
    unnamed = Kernel(name=name, type=name, core=None, start_ns=0, duration_ns=10, step=1)

    assert numbers(judged(recorded(unnamed)), "precision.low_share") == {"rank 0": 1.0 if low else 0.0}


def test_precision__recording_without_dtypes__unavailable() -> None:
    outcome = judged(
        recorded(Kernel(name="MatMulV2", type="MatMulV2", core="AI_CORE", start_ns=0, duration_ns=9, step=1))
    )

    assert (outcome.status, outcome.values) == ("unavailable", [])
    assert "Level1" in reason_of(outcome)
