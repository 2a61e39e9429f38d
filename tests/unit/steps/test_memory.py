"""Step 17: memory over steady calls, on the fake device, on the real CPU, and of recorded NPUs."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate import trace
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.steps.s17_memory import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Memory, Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, sample
from tests.wording import finding_text

MS = 1_000_000
HERE = Path(__file__).parent


def numbers(outcome: StepOutcome) -> dict[str, float | None]:
    return {value.metric: value.value for value in outcome.values}


def value_of(outcome: StepOutcome, metric: str) -> Value:
    (found,) = [value for value in outcome.values if value.metric == metric]
    return found


def found(outcome: StepOutcome, rule: str) -> Finding:
    (finding,) = [finding for finding in outcome.findings if finding.rule == rule]
    return finding


def on_fake(device: FakeDevice, **fields: Any) -> StepOutcome:
    limits = fields.pop("limits", {})
    workload = fake_workload(FakeKernel("aten::mm", MS), **fields)
    return STEP.measure(context_on(device, workload, limits=limits))


def on_cpu(call: Any, **fields: Any) -> StepOutcome:
    device = open_device("cpu")
    workload = Workload(
        build=lambda _: torch.nn.Linear(64, 64),
        inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed)),
        call=call,
        batch=8,
    )
    bound = BoundWorkload("real", workload, device, seed=1, root=HERE)
    context = StepContext(
        workload=bound,
        limits={},
        seed=1,
        artifacts=HERE,
        progress=lambda text: None,
        **fields,
    )
    return STEP.measure(context)


def test_memory__calls_that_keep_nothing__peaks_and_no_finding() -> None:
    outcome = on_fake(FakeDevice(), model={"output_bytes": 100, "activation_bytes": 1000})

    # The activation is gone before the output is made, and the inputs have no bytes.
    assert outcome.findings == []
    assert outcome.status == "ok"
    assert numbers(outcome) == {
        "memory.allocated": 1000.0,
        "memory.reserved": 1000.0,
        "memory.fragmentation": 0.0,
        "memory.retries": 0.0,
        "memory.segments": 0.0,
        "memory.growth": 0.0,
        "memory.resident": float(1 << 20),
        "memory.resident_growth": 0.0,
        "memory.faults": 0.0,
    }


def test_memory__kept_outputs__grow_by_their_size_and_take_segments() -> None:
    device, kept = FakeDevice(), []

    def call(model: Any, inputs: Any) -> None:
        kept.append(model(inputs))

    outcome = on_fake(device, call=call, model={"output_bytes": 5000})

    growth = value_of(outcome, "memory.growth")
    assert (growth.value, growth.interval, growth.count) == (5000.0, (5000.0, 5000.0), 12)
    finding = found(outcome, "memory.growth")
    assert finding.severity == "warning"
    assert finding.evidence["growth [B/call]"] == 5000.0
    # Its pool has nothing to reuse, so every call asks the driver.
    assert numbers(outcome)["memory.segments"] == 1.0
    assert found(outcome, "memory.segments").severity == "warning"


def test_memory__pages_taken_in_every_call__faults_with_the_remedy_and_growth_of_the_process() -> None:
    device = FakeDevice()
    outcome = on_fake(device, call=lambda model, inputs: (model(inputs), device.host_takes(20 * 4096)))

    assert numbers(outcome)["memory.faults"] == 20.0
    assert "MALLOC_TRIM_THRESHOLD_" in finding_text(found(outcome, "memory.faults"))
    assert found(outcome, "memory.resident_growth").evidence["growth [B/call]"] == 20 * 4096


def test_memory__device_full_during_calls__said() -> None:
    device = FakeDevice()

    def call(model: Any, inputs: Any) -> None:
        device.retries += 1
        model(inputs)

    assert found(on_fake(device, call=call), "memory.retries").evidence["memory.retries"] == 12.0


def test_memory__reserved_in_vain__information_only_where_it_is_much() -> None:
    device = FakeDevice()
    device.reserved_bytes = 4 << 30
    assert "memory.fragmentation" not in {finding.rule for finding in on_fake(FakeDevice()).findings}

    outcome = on_fake(device, model={"output_bytes": 1 << 30})

    assert numbers(outcome)["memory.fragmentation"] == pytest.approx(0.75)
    assert found(outcome, "memory.fragmentation").severity == "info"
    assert outcome.status == "ok"


def test_memory__limits_of_the_project__followed() -> None:
    device = FakeDevice()

    def call(model: Any, inputs: Any) -> None:
        device.host_takes(20 * 4096)
        model(inputs)

    limits = {"memory.faults.warning": 20.0, "memory.resident_growth.warning": 1e6}
    assert on_fake(device, call=call, limits=limits).findings == []


def test_memory__no_pool_and_no_counting__values_are_missing_with_a_reason() -> None:
    outcome = on_fake(FakeDevice(capabilities=frozenset()))

    missing = {value.metric: reason_of(value) for value in outcome.values if value.value is None}
    assert missing["memory.allocated"] == "the framework keeps no pool of this device's memory"
    assert missing["memory.growth"] == "the device's allocations cannot be counted"
    assert numbers(outcome)["memory.faults"] == 0.0
    assert outcome.status == "ok"


def test_memory__cpu_with_a_list_that_keeps_outputs__named_with_operator_and_line() -> None:
    kept = []

    def call(model: Any, inputs: Any) -> Any:
        y = model(inputs)
        kept.append(y.relu())
        return y

    outcome = on_cpu(call)

    finding = found(outcome, "memory.growth")
    assert finding.evidence["growth [B/call]"] == 8 * 64 * 4
    assert finding.evidence["op"] == "aten::relu"
    assert finding.evidence["line"] == f"test_memory.py:{call.__code__.co_firstlineno + 2}"
    assert outcome.status == "attention"
    # The process grows by the same bytes, and they are not told twice.
    assert "memory.resident_growth" not in {finding.rule for finding in outcome.findings}


def test_memory__cpu_that_keeps_nothing__ok_with_its_resident_bytes() -> None:
    outcome = on_cpu(lambda model, inputs: model(inputs))

    assert [finding.rule for finding in outcome.findings] == []
    assert outcome.status == "ok"
    assert numbers(outcome)["memory.growth"] == 0.0
    assert (numbers(outcome)["memory.resident"] or 0) > 50e6


def test_memory__cpu_that_maps_memory_anew__faults() -> None:
    def call(model: Any, inputs: Any) -> Any:
        with mmap.mmap(-1, 64 * 4096) as pages:
            for page in range(64):
                pages[page * 4096] = 1
        return model(inputs)

    outcome = on_cpu(call)

    assert (numbers(outcome)["memory.faults"] or 0) >= 64
    assert found(outcome, "memory.faults").severity == "warning"


def test_memory__cpu_that_keeps_what_is_not_torchs__growth_of_the_process_alone() -> None:
    kept = []

    def call(model: Any, inputs: Any) -> Any:
        # Pages of their own: bytes may lie where earlier tests have left room, and then the process does not grow.
        page = mmap.mmap(-1, 300_000)
        page.write(b"x" * 300_000)
        kept.append(page)
        return model(inputs)

    outcome = on_cpu(call)

    assert found(outcome, "memory.resident_growth").evidence["growth [B/call]"] == pytest.approx(300_000, rel=0.1)
    assert "memory.growth" not in {finding.rule for finding in outcome.findings}


def recorded(name: str, folder: Path) -> StepOutcome:
    recording = trace.read(sample(name, folder))
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


@pytest.mark.recordings
def test_memory__recorded_npu__peaks_by_component_in_bytes(tmp_path: Path) -> None:
    outcome = recorded(ALEXNET, tmp_path)

    peaks = {
        (value.metric, value.labels["component"]): value.value
        for value in outcome.values
        if value.labels["shape"] == outcome.values[0].labels["shape"] and "component" in value.labels
    }
    # 1452.0 and 1187.98 MB of memory_record.csv, which counts in MiB.
    assert peaks["memory.reserved", "PTA"] == 1452 * 2**20
    assert peaks["memory.allocated", "PTA"] == pytest.approx(1187.98 * 2**20, rel=1e-5)
    assert peaks["memory.fragmentation", "PTA"] == pytest.approx(1 - 1187.98 / 1452, rel=1e-4)
    assert (peaks["memory.reserved", "APP"] or 0) > 1452 * 2**20
    assert outcome.status == "ok"


@pytest.mark.recordings
def test_memory__recorded_npu__what_each_operator_allocated_and_held_at_the_peak(tmp_path: Path) -> None:
    outcome = recorded(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path)

    by_operator = {
        (value.metric, value.labels["op"]): (value.value, value.count)
        for value in outcome.values
        if "op" in value.labels
    }
    # operator_memory.csv: seven rows of aten::mm; those not released until the end are gradients.
    assert by_operator["memory.operator_total", "aten::mm"] == (258591744, 7)
    assert by_operator["memory.operator_held", "aten::mm"] == (234489344, 7)
    assert by_operator["memory.operator_held", "aten::max_pool2d_with_indices"] == (0, 9)
    assert len(by_operator) == 20
    (largest,) = outcome.findings
    assert (largest.rule, largest.evidence["held at the peak [B]"]) == ("memory.largest", 234489344)


def test_memory__recorded_without_allocations__peaks_alone() -> None:
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table(), memory=Memory({"PTA.allocated": 100.0}))
    recording = Recording(path=Path("recording"), format="ascend-pytorch", timelines=(timeline,))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize([timeline]), "model", {}))

    assert (numbers(outcome), outcome.findings) == ({"memory.allocated": 100.0}, [])


def test_memory__recorded_without_memory__unavailable() -> None:
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table())
    recording = Recording(path=Path("recording"), format="kineto", timelines=(timeline,))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize([timeline]), "model", {}))

    assert outcome.status == "unavailable"
    assert reason_of(outcome) == "the recording contains no memory data; record with profile_memory=True"
    assert outcome.values == []
