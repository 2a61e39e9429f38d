"""Step 11: stages and their share on the fake device, pipelines on the real CPU, recorded waits for the DataLoader."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perfgate import trace
from perfgate.document.run import Value
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.steps import s11_preprocess
from perfgate.measuring.checklist.steps.s11_preprocess import STEP, preparing_share
from perfgate.measuring.devices.backends.cpu import CpuDevice
from perfgate.measuring.timing.calls import summarize_turns
from perfgate.measuring.timing.preprocessing import compare_pipeline, exposed_share
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import ProfilerStep, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve
from tests.unit.trace.ascend import ALEXNET, GPT, sample
from tests.wording import finding_text

MS = 1_000_000
HERE = Path(__file__).parent


def _value(outcome: StepOutcome, metric: str, stage: str | None = None) -> Value:
    (found,) = [v for v in outcome.values if v.metric == metric and v.labels.get("stage") == stage]
    return found


def _rules(outcome: StepOutcome) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in outcome.findings]


def _works(device: FakeDevice, ns: int) -> Any:
    def stage(batch: Any) -> Any:
        device.host_works(ns)
        return batch

    return stage


def test_preprocess__none_given__not_applicable_with_what_to_give() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0)))
    assert outcome.status == "not_applicable"
    assert outcome.reason is not None
    assert "set preprocess= to a function" in reason_of(outcome)


def test_preprocess__two_stages__each_timed_and_the_share_of_both() -> None:
    device = FakeDevice()
    stages = {"decode": _works(device, 2 * MS), "resize": _works(device, MS)}
    outcome = STEP.measure(context_on(device, curve(9 * MS, 0, preprocess=stages)))
    assert _value(outcome, "preprocess.time", "decode").value == 0.002
    assert _value(outcome, "preprocess.time", "resize").value == 0.001
    assert _value(outcome, "preprocess.share").value == pytest.approx(0.25)
    assert [samples.labels["stage"] for samples in outcome.samples] == ["decode", "resize"]


def test_exposed__rounds_of_known_times__share_that_the_model_waits() -> None:
    waits = summarize_turns(np.array([(12 * MS, 6 * MS)] * 6))
    assert exposed_share(waits) == pytest.approx((0.5, 0.5, 0.5))
    faster = summarize_turns(np.array([(6 * MS, 12 * MS)] * 6))  # but by noise no pipeline is
    assert exposed_share(faster) == (0.0, 0.0, 0.0)


# On the real CPU, where a thread really works beside the model. Sleeping is work that takes no core; what is long and what is
# short lie so far apart that a busy machine, on which every sleep is longer, shows the same.


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few calls as the step may make: of such differences more tell no more."""
    monkeypatch.setattr(s11_preprocess, "_QUICK", s11_preprocess._Effort(*[0.1] * 4))


class Sleeps(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: Any) -> Any:
        time.sleep(self.seconds)
        return x * 2


def _slow_decode(raw: Any) -> Any:
    time.sleep(0.04)
    return raw.float()


def _scale(raw: Any) -> Any:
    return raw / 255


def _context(model: float | torch.nn.Module, preprocess: Any, **fields: Any) -> StepContext:
    def inputs(items: int, seed: int) -> Any:
        return torch.randint(0, 256, (items, 16), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)

    built = model if isinstance(model, torch.nn.Module) else Sleeps(model)
    workload = Workload(build=lambda device: built, inputs=inputs, batch=4, preprocess=preprocess, **fields)
    return context_on(CpuDevice(), workload, root=HERE)  # type: ignore[arg-type]


@pytest.mark.usefixtures("brief")
def test_preprocess__slower_than_the_model__exposed_share_is_what_the_model_waits_and_the_stage_has_its_line() -> None:
    outcome = STEP.measure(_context(0.001, {"decode": _slow_decode, "scale": _scale}))
    exposed = _value(outcome, "preprocess.exposed_share")
    assert exposed.value is not None
    assert 0.5 < exposed.value < 1
    assert exposed.interval is not None
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("preprocess.exposed_share", "severe")
    assert finding.evidence["stage"] == "decode"
    assert str(finding.evidence["line"]).startswith("test_preprocess.py:")
    assert finding_text(finding) == "the model waits for preprocessing; decode takes most of it"
    assert (_value(outcome, "preprocess.share").value or 0) > 0.5
    assert outcome.status == "attention"


@pytest.mark.usefixtures("brief")
def test_preprocess__faster_than_the_model__hidden_behind_it() -> None:
    outcome = STEP.measure(_context(0.05, {"decode": lambda raw: raw.float()}))
    share = _value(outcome, "preprocess.share").value
    assert share is not None
    assert 0 < share < 0.05
    assert outcome.status == "ok"


@pytest.mark.usefixtures("brief")
@pytest.mark.slow
def test_preprocess__short_but_in_the_way_of_the_model__contention_and_no_wait() -> None:
    ran_beside = threading.Event()

    class Disturbed(torch.nn.Module):
        """Takes far longer where a thread ran beside it, as one whose own threads want the same cores."""

        def forward(self, x: Any) -> Any:
            disturbed = ran_beside.is_set()
            ran_beside.clear()
            time.sleep(0.04 if disturbed else 0.008)
            return x

    def passing(raw: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            ran_beside.set()
        return raw

    outcome = STEP.measure(_context(Disturbed(), passing))
    assert _rules(outcome) == [("preprocess.contention", "info")]
    assert outcome.status == "ok"


@pytest.mark.usefixtures("brief")
def test_preprocess__device_does_the_same_sooner__measured_gain() -> None:
    context = _context(0.0, _slow_decode, preprocess_on_device=lambda raw: raw.float())
    outcome = STEP.measure(context)
    speedup = _value(outcome, "preprocess.device_speedup")
    assert speedup.value is not None
    assert speedup.interval is not None
    assert speedup.interval[0] is not None
    assert speedup.interval[0] > 3
    assert ("preprocess.on_device", "info") in _rules(outcome)


@pytest.mark.usefixtures("brief")
def test_preprocess__device_does_less__another_output_and_no_gain() -> None:
    outcome = STEP.measure(_context(0.001, _slow_decode, preprocess_on_device=lambda raw: raw.float() * 0.9))
    assert ("preprocess.device_differs", "warning") in _rules(outcome)
    assert ("preprocess.on_device", "info") not in _rules(outcome)


def test_measure_exposed__stage_that_raises__its_own_error_and_no_thread_left() -> None:
    def fails() -> Any:
        raise OSError("truncated image")

    made = iter([1, 2, 3, 4, 5])
    with pytest.raises(OSError, match="truncated image"):
        compare_pipeline(lambda: next(made, None) or fails(), lambda batch: batch, CpuDevice(), seconds=1.0, seed=1)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("preprocess")]


# Recordings that were made elsewhere.


def _recorded(path: Path) -> StepOutcome:
    recording = trace.read(path)
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "recorded", {}))


@pytest.mark.recordings
def test_judge_recording__resnet_with_a_loader_of_no_workers__waits_a_third_of_the_time(tmp_path: Path) -> None:
    outcome = _recorded(sample("cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz", tmp_path))
    assert _rules(outcome) == [("preprocess.loading_share", "severe")]
    assert _value(outcome, "preprocess.loading_share").value == pytest.approx(0.2935, abs=1e-3)
    assert outcome.findings[0].evidence["op"] == "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.recordings
@pytest.mark.parametrize("export", ["text", "db"])
def test_judge_recording__alexnet__waits_little_and_prepares_as_the_table_says(tmp_path: Path, export: str) -> None:
    outcome = _recorded(sample(f"{ALEXNET}/{export}/level1/rank0_ascend_pt", tmp_path))
    assert outcome.status == "ok"
    loading = _value(outcome, "preprocess.loading_share").value
    assert loading is not None
    assert 0.02 < loading < 0.03
    # text: of 154483.5 us 17902.5 before the first kernel, 842.4 of them copying
    assert _value(outcome, "preprocess.preparing_share").value == pytest.approx(0.1125, abs=0.003)


@pytest.mark.recordings
def test_judge_recording__nothing_of_loading__unavailable_and_says_what_was_looked_for(tmp_path: Path) -> None:
    outcome = _recorded(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path))
    assert outcome.status == "unavailable"
    assert outcome.values == []
    assert outcome.reason is not None
    assert "no span of a DataLoader" in reason_of(outcome)


def _timeline(*steps: ProfilerStep) -> Timeline:
    return Timeline(rank=0, device=0, events=EventTableBuilder().table(), steps=steps)


def test_preparing_share__a_step_whose_begin_is_not_known__tells_nothing() -> None:
    good = ProfilerStep(1, computing_ns=60, exposed_communication_ns=10, preparing_ns=20, free_ns=10)
    unknown = good._replace(number=2, preparing_ns=None)
    assert preparing_share(_timeline(good)) == pytest.approx(0.2)
    assert preparing_share(_timeline(good, unknown)) == pytest.approx(0.2)
    assert preparing_share(_timeline(unknown)) is None
    assert preparing_share(_timeline()) is None
