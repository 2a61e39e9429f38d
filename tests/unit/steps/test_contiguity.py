from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext
from perfgate.measuring.checklist.steps.s14_contiguity import STEP
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Recording, Timeline
from tests.fakes.device import ALL_CAPABILITIES, FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.steps.planted_models import context, found, images, line_of, linears, measure, numbers, pictures, turn
from tests.unit.trace.ascend import ALEXNET, QWEN, sample

SPEEDUP = "contiguity.channels_last_speedup"


def judged(recording):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


def reason(outcome, metric):
    (value,) = (value for value in outcome.values if value.metric == metric)
    assert value.value is None
    return reason_of(value)


def train(model, inputs):
    loss = model(inputs).square().mean()
    loss.backward()
    return loss.detach()


def test_contiguity__no_copy__zero_and_ok(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(), tmp_path)

    assert outcome.status == "ok"
    assert set(numbers(outcome, "contiguity.copies", "cause").values()) == {0}
    assert set(numbers(outcome, "contiguity.copy_share", "cause").values()) == {0.0}


def test_contiguity__permute_and_contiguous__bytes_and_line(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(turn), tmp_path)

    # Two products and two copies, each of 16 x 64 floats.
    assert numbers(outcome, "contiguity.copy_share", "cause")["layout"] == pytest.approx(0.5)
    evidence = found(outcome)["contiguity.copy_share"].evidence
    assert (evidence["op"], evidence["copies"], evidence["bytes"]) == ("aten::clone", 2, 2 * 16 * 64 * 4)
    assert evidence["line"] == line_of("rows.t().contiguous()")
    assert outcome.status == "attention"


@pytest.mark.parametrize(
    ("between", "causes"),
    [
        (turn, {"layout": 2}),
        (torch.clone, {"duplicate": 1}),
        (lambda rows: rows.double().float(), {"dtype": 2}),
        (lambda rows: rows.t().double().contiguous().t().float(), {"dtype": 2, "layout": 1}),
        (lambda rows: rows.expand(2, 16, 64).reshape(32, 64)[:16], {"layout": 1}),
    ],
    ids=["turned", "cloned", "cast", "turned and cast", "reshape that copies"],
)
def test_contiguity__copies_by_cause__add_up_to_the_counters(
    between: Callable[[torch.Tensor], torch.Tensor], causes: dict[str, int], tmp_path: Path
) -> None:
    workload = linears(between)
    copies = numbers(measure(STEP, workload, tmp_path), "contiguity.copies", "cause")

    assert {cause: count for cause, count in copies.items() if count} == causes
    here = context(workload, tmp_path)
    counted = count_calls(here.workload, "default").values
    assert sum(copies.values()) == counted["counters.copies"]
    assert copies["layout"] == counted["counters.noncontiguous_copies"]


def test_contiguity__casts_only__not_this_step_s_matter(tmp_path: Path) -> None:
    outcome = measure(STEP, linears(lambda rows: rows.double().float()), tmp_path)

    assert (outcome.status, outcome.findings) == ("ok", [])


def test_contiguity__images__channels_last_measured_with_its_interval(tmp_path: Path) -> None:
    outcome = measure(STEP, Workload(build=images(), inputs=pictures, batch=2), tmp_path)

    (value,) = (value for value in outcome.values if value.metric == SPEEDUP)
    assert value.value is not None
    low, high = value.interval
    assert 0 < low <= value.value <= high
    assert value.count >= 6


def test_contiguity__images_in_channels_last_already__said_and_not_tried(tmp_path: Path) -> None:
    def turned(batch, seed):
        return pictures(batch, seed).contiguous(memory_format=torch.channels_last)

    outcome = measure(STEP, Workload(build=images(channels_last=True), inputs=turned, batch=2), tmp_path)

    assert reason(outcome, SPEEDUP) == "every convolution runs in channels_last already"


def test_contiguity__answer_depends_on_the_layout__no_gain(tmp_path: Path) -> None:
    class Peeking(torch.nn.Sequential):
        def forward(self, images):
            return super().forward(images) * (1 if images.is_contiguous() else 2)

    outcome = measure(
        STEP, Workload(build=lambda device: Peeking(*images()(device)), inputs=pictures, batch=2), tmp_path
    )

    assert "the output differs in channels_last" in (reason(outcome, SPEEDUP) or "")


def test_contiguity__images_in_training__not_tried_and_the_model_untouched(tmp_path: Path) -> None:
    workload = Workload(build=images(), inputs=pictures, batch=2, train_step=train)

    assert "training" in (reason(measure(STEP, workload, tmp_path), SPEEDUP) or "")


def test_contiguity__model_is_no_module__not_tried(tmp_path: Path) -> None:
    weight = torch.randn(8, 8, 3, 3)
    workload = Workload(
        build=lambda device: weight, inputs=pictures, call=lambda weight, x: torch.nn.functional.conv2d(x, weight)
    )

    assert "not a torch.nn.Module" in (reason(measure(STEP, workload, tmp_path), SPEEDUP) or "")


def test_contiguity__nothing_dispatched__unavailable() -> None:
    device = FakeDevice(capabilities=frozenset())
    result, _ = run_step(STEP, context_on(device, fake_workload(FakeKernel("aten::mm", 1000))))

    assert result.status == "unavailable"


def test_contiguity__kernels_of_a_live_trace__share(tmp_path: Path) -> None:
    kernels = (FakeKernel("aten::mm", 80_000), FakeKernel("at::native::direct_copy", 20_000))
    device = FakeDevice(capabilities=ALL_CAPABILITIES)
    outcome = STEP.measure(context_on(device, fake_workload(*kernels), artifacts=tmp_path))

    assert numbers(outcome, "contiguity.kernel_share") == {"default": pytest.approx(0.2)}
    assert found(outcome)["contiguity.kernel_share"].evidence["op"] == "direct_copy_kernel"


@pytest.mark.recordings
def test_contiguity__recorded_alexnet__copies_and_transposes_of_one_rank(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1", tmp_path)))

    # 11 TensorMove and 5 Transpose; the 57 TransData are step 7's.
    assert numbers(outcome, "contiguity.kernel_share")["rank 0"] == pytest.approx(0.0781, abs=1e-4)
    assert found(outcome)["contiguity.kernel_share"].evidence["op"] == "TensorMove"
    assert outcome.status == "attention"


@pytest.mark.recordings
def test_contiguity__recorded_qwen__below_the_limit(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(QWEN, tmp_path)))

    assert numbers(outcome, "contiguity.kernel_share")["rank 0"] == pytest.approx(0.0254, abs=1e-3)
    assert outcome.status == "ok"


def test_contiguity__recording_without_kernels__unavailable() -> None:
    timeline = Timeline(0, 0, EventTableBuilder().table())
    outcome = judged(Recording(path=Path("recording"), format="kineto", timelines=(timeline,)))

    assert (outcome.status, outcome.values) == ("unavailable", [])
