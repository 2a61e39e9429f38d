"""Step 19: derating on the fake device and the real CPU, sensors by the software npu-smi, clocks of recorded NPUs."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate import trace
from perfgate.document.run import Finding, Value
from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.step import RecordingContext, StepOutcome
from perfgate.measuring.checklist.steps.s19_thermal import (
    CANARY,
    LAUNCHES,
    STEP,
    WORKLOAD,
    Slice,
    Soak,
    add_sensed,
    derating,
    judge_speed,
    judge_throttling,
    soak,
)
from perfgate.measuring.devices.host import RunTimes, run_times
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.devices.sampler import TelemetryReading
from perfgate.sampling import sampling
from perfgate.stats.summary import SampleEstimate
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.readings import CORE_CLOCK, Readings
from perfgate.trace.model.recording import Kernel, Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, sample
from tests.wording import finding_text

MS, S = 1_000_000, 1_000_000_000
SMI = Path(__file__).parents[2] / "softnpu" / "bin"
# A soak of six seconds with 600 items, of which readings know nothing more.
SOAKED = Soak(began_ns=0, slices=(Slice(3 * S, {WORKLOAD: 100.0}), Slice(6 * S, {WORKLOAD: 100.0})), calls=600)


def of_shape() -> StepOutcome:
    return StepOutcome(labels={"shape": "default"})


def measured(device: FakeDevice, **fields: Any) -> StepOutcome:
    return STEP.measure(context_on(device, fake_workload(FakeKernel("aten::mm", MS), batch=4), **fields))


def slowing(per_second: float) -> FakeDevice:
    """Return a device whose kernels of a millisecond get slower by a share of it each second."""
    return FakeDevice(kernel_times={"aten::mm": lambda number: round(MS * (1 + per_second * number / 1000))})


def value_of(values: list[Value], metric: str) -> Value:
    (found,) = [value for value in values if value.metric == metric]
    return found


def test_thermal__device_that_keeps_its_speed__ok_and_no_sensor_said() -> None:
    outcome = measured(FakeDevice())

    lost = value_of(outcome.values, "thermal.derating")
    assert lost.value == pytest.approx(0.0, abs=1e-3)
    assert lost.labels == {"shape": "default", "of": "workload"}
    assert outcome.status == "ok"
    missing = {value.metric: reason_of(value) for value in outcome.values if value.value is None}
    assert set(missing) == {
        "thermal.throttled",
        "thermal.clock",
        "thermal.temperature",
        "thermal.power",
        "thermal.energy",
    }
    assert set(missing.values()) == {"no sensor reports the temperature, clock or power of a fake device"}


def test_thermal__device_that_slows_down__derating_by_its_amount_and_severity() -> None:
    outcome = measured(slowing(0.01))

    # From 0.75 s, the middle of the first part, to 5 s, that of the last: 1 - 1.0075 / 1.05.
    lost = value_of(outcome.values, "thermal.derating")
    assert lost.value == pytest.approx(0.04, abs=0.003)
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("thermal.derating", "warning")]
    assert outcome.status == "attention"

    assert [finding.severity for finding in measured(slowing(0.05)).findings] == ["severe"]
    assert measured(slowing(0.01), limits={"thermal.derating.warning": 0.1}).findings == []


def test_soak__calls_longer_than_the_soak__two_slices_and_no_interval() -> None:
    device = FakeDevice(kernel_times={"aten::mm": 20 * S})
    soaked = soak(lambda: device.launch("aten::mm"), device, items=1, seconds=6.0)

    found = derating(soaked, 1.5, 2.0)
    assert len(soaked.slices) == 2
    assert (found.low, found.high) == (None, None)


def on_host(waited: float, *, canary: float) -> list[Finding]:
    """Judge a host that lost 20 to 30 % of its speed, and its canary so much, while others had so much of its time."""
    soaked = Soak(began_ns=0, slices=SOAKED.slices, calls=600, waited=waited)
    host = context_on(FakeDevice(capabilities=frozenset()), fake_workload(FakeKernel("aten::mm", MS)))
    outcome = of_shape()
    judge_speed(outcome, soaked, {WORKLOAD: SampleEstimate(0.25, 0.2, 0.3, 14), CANARY: lost(canary)}, host)
    return outcome.findings


def lost(share: float) -> SampleEstimate:
    return SampleEstimate(share, share, share, 14)


def test_judge_speed__others_use_the_cpus__said_and_not_judged() -> None:
    assert [(one.rule, one.severity) for one in on_host(0.5, canary=0.2)] == [("thermal.shared", "info")]


def test_judge_speed__host_to_itself__the_canary_says_whether_it_is_the_device() -> None:
    assert [(one.rule, one.severity) for one in on_host(0.05, canary=0.2)] == [("thermal.derating", "severe")]
    assert [(one.rule, one.severity) for one in on_host(0.05, canary=0.01)] == [("thermal.drift", "severe")]


def test_run_times__threads_that_run_and_wait__added_up(tmp_path: Path) -> None:
    for thread, text in (("1", "100 20 3\n"), ("2", "50 30 1\n")):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)

    assert run_times(tmp_path) == RunTimes(150, 50)
    assert RunTimes(100, 0).waited_share(RunTimes(150, 50)) == 0.5
    assert run_times(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("canary", "launches", "rule"),
    [
        (0.2, 0.2, "thermal.derating"),
        (0.2, 0.01, "thermal.derating"),
        (0.02, 0.2, "thermal.host"),
        (0.02, 0.01, "thermal.drift"),
    ],
)
def test_judge_speed__device_with_a_queue__what_slows_down_beside_the_calls(
    canary: float, launches: float, rule: str
) -> None:
    losses = {WORKLOAD: lost(0.25), CANARY: lost(canary), LAUNCHES: lost(launches)}
    outcome = of_shape()
    judge_speed(outcome, SOAKED, losses, context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", MS))))
    (found,) = outcome.findings

    assert (found.rule, found.severity) == (rule, "severe")
    assert found.evidence["thermal.derating launches"] == launches


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_soak__cpu_whose_calls_grow__the_canary_beside_them_does_not() -> None:
    device, ones = open_device("cpu"), torch.ones(200, 200)
    # Where others have the CPU, few slices fit into a second, and their speed varies; a longer soak has more of them.
    for seconds in (1.5, 6.0, 24.0):
        begun = time.monotonic()

        def call(begun: float = begun, seconds: float = seconds) -> None:
            for _ in range(10 + int(30 * (time.monotonic() - begun) / seconds)):
                torch.mm(ones, ones)

        third = seconds / 3
        soaked = soak(call, device, items=1, seconds=seconds, slice_seconds=0.1)
        of_calls, of_canary = (derating(soaked, third, third, of=subject) for subject in (WORKLOAD, CANARY))
        if of_calls.low is not None and of_calls.low > 0.1 and of_canary.value < of_calls.value / 2:
            break

    assert of_calls.low is not None
    assert of_calls.low > 0.1
    assert of_canary.value < of_calls.value / 2


def reading(at: float, **fields: Any) -> TelemetryReading:
    return TelemetryReading(began_ns=int(at * S), ended_ns=int((at + 0.1) * S), telemetry=DeviceState(**fields))


def told(readings: list[TelemetryReading]) -> dict[str, float | None]:
    add_sensed(outcome := of_shape(), readings, SOAKED, items=600)
    return {value.metric: value.value for value in outcome.values}


def test_sensor_values__power_that_rises__integrated_over_the_soak() -> None:
    # 100 W until 1.9 s, from there evenly up to 200 W at 4 s, and 200 W until 6 s: 190 + 315 + 400 J over 600 items.
    numbers = told([reading(1.8, power=100.0), reading(3.9, power=200.0)])

    assert numbers["thermal.energy"] == pytest.approx(905 / 600)
    assert numbers["thermal.power"] == pytest.approx(905 / 6)
    assert numbers["thermal.clock"] is None


def test_sensor_values__clocks__those_of_a_device_at_work_below_the_rated_one() -> None:
    clocks = [(1800e6, 0.9), (1740e6, 0.9), (1750e6, 0.9), (800e6, 0.0), (1200e6, 0.9)]
    numbers = told([
        reading(1 + n * 0.5, clock=clock, rated_clock=1800e6, utilization=busy, temperature=60.0 + n)
        for n, (clock, busy) in enumerate(clocks)
    ])  # fmt: skip

    # 1740 of 1800 MHz are 96.7 %, 1750 are 97.2 %; the one of 800 MHz was at rest.
    assert numbers["thermal.throttled"] == 2 / 4
    assert numbers["thermal.clock"] == pytest.approx(1745 / 1800)
    assert numbers["thermal.temperature"] == 64.0


def test_sensor_values__driver_says_that_it_slowed_down__believed() -> None:
    slowed = [reading(1 + n, clock=1000e6, rated_clock=1000e6, utilization=1.0, throttled=n == 2) for n in range(4)]

    assert told(slowed)["thermal.throttled"] == 0.25


def test_sensor_values__readings_outside_the_soak__do_not_count() -> None:
    outside = [reading(-1.0, power=1.0), reading(5.95, power=1.0), reading(2.0, power=1.0)]
    add_sensed(outcome := of_shape(), outside, SOAKED, items=600)

    assert {reason_of(value) for value in outcome.values} == {"the sensor answered once in 6 s of calls; 2 are needed"}


def sampled(monkeypatch: pytest.MonkeyPatch, folder: Path, **switches: str) -> list[TelemetryReading]:
    """Return the first two readings that the sampler's process takes of the software npu-smi."""
    monkeypatch.setenv("PATH", f"{SMI}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    for name, value in switches.items():
        monkeypatch.setenv(name, value)
    with sampling("npu:0", folder=folder, patience=60.0) as found:
        while len(readings := found.readings()) < 2:
            assert found.failure() is None
            time.sleep(0.05)
        return readings


def judged(readings: list[TelemetryReading]) -> tuple[dict[str, float | None], list[Finding]]:
    soaked = Soak(readings[0].began_ns, (Slice(readings[-1].ended_ns, {WORKLOAD: 1.0}),), calls=10)
    add_sensed(outcome := of_shape(), readings, soaked, items=10)
    judge_throttling(outcome)
    return {value.metric: value.value for value in outcome.values}, outcome.findings


def test_sampling__npu_below_its_clock_while_it_works__throttled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    switches = {"SOFTNPU_SMI_FREQUENCY": "1200", "SOFTNPU_SMI_UTILIZATION": "95", "SOFTNPU_SMI_TEMPERATURE": "97"}
    numbers, findings = judged(sampled(monkeypatch, tmp_path, **switches))

    assert numbers["thermal.throttled"] == 1.0
    assert numbers["thermal.clock"] == pytest.approx(1200 / 1800)
    assert numbers["thermal.temperature"] == 97.0
    assert numbers["thermal.power"] == pytest.approx(94.8)
    assert [(finding.rule, finding.severity) for finding in findings] == [("thermal.throttled", "warning")]


def test_sampling__npu_at_its_clock__green(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    numbers, findings = judged(sampled(monkeypatch, tmp_path, SOFTNPU_SMI_UTILIZATION="95"))

    assert numbers["thermal.throttled"] == 0.0
    assert findings == []


def test_sampling__driver_does_not_answer__says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="npu-smi"):
        sampled(monkeypatch, tmp_path, SOFTNPU_SMI_FAIL="driver")


def test_sampler__its_starter_is_gone__ends_by_itself() -> None:
    command = [sys.executable, "-m", "perfgate.measuring.devices.sampler", "npu:0"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": f"{SMI}:{Path(sys.executable).parent}:/usr/bin"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdin.close()
    try:
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.stdout.close()


def recorded(
    *timelines: Timeline, limits: dict[str, float] | None = None, settings: dict[str, str] | None = None
) -> StepOutcome:
    recording = Recording(path=Path("recording"), format="ascend-db", timelines=timelines, settings=settings or {})
    return STEP.judge_recording(RecordingContext(recording, summarize(timelines), "model", limits or {}))


def with_clock(lowest: float, highest: float) -> Timeline:
    clock = Readings.of([0, 1000], [highest, lowest])
    return Timeline(rank=0, device=0, events=EventTableBuilder().table(), readings={CORE_CLOCK: clock})


def test_thermal__recorded_clock_that_fell__warning() -> None:
    outcome = recorded(with_clock(1500e6, 1800e6))

    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("thermal.clock", "warning")]
    assert math.isclose(outcome.values[0].value or 0, 1500 / 1800)
    assert recorded(with_clock(1800e6, 1800e6)).status == "ok"


def test_thermal__recorded_without_a_clock__unavailable() -> None:
    outcome = recorded(Timeline(rank=0, device=0, events=EventTableBuilder().table()))

    assert (outcome.status, outcome.values) == ("unavailable", [])


@pytest.mark.recordings
def test_thermal__recorded_npu__clock_as_its_trace_shows_it(tmp_path: Path) -> None:
    recording = trace.read(sample(ALEXNET, tmp_path))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))

    # AI Core Freq is 1800 MHz throughout.
    assert {value.value for value in outcome.values} == {1.0}
    assert outcome.status == "ok"


US = 1000


def at_work(
    *kernels: tuple[str, int, int], clock: tuple[tuple[int, float], ...] = (), core: str = "AI_CORE"
) -> Timeline:
    """Kernels by type, start and length in microseconds, and MHz from a microsecond on (AI Core Freq, sample alexnet)."""
    rows = tuple(Kernel(op, op, core, start * US, length * US) for op, start, length in kernels)
    readings = Readings.of([at * US for at, _ in clock], [megahertz * 1e6 for _, megahertz in clock])
    table = EventTableBuilder().table()
    return Timeline(rank=0, device=0, events=table, kernels=rows, readings={CORE_CLOCK: readings} if clock else {})


def clocks(outcome: StepOutcome) -> dict[str, float | None]:
    return {value.labels["op"]: value.value for value in outcome.values if value.metric == "thermal.kernel_clock"}


def test_thermal__recorded_kernels_below_the_rated_clock__which_at_which_and_how_much_of_the_time() -> None:
    timeline = at_work(("MatMulV3", 0, 40), ("Add", 40, 20), ("MatMulV3", 60, 40), clock=((0, 1800), (40, 1500)))

    outcome = recorded(timeline)

    assert clocks(outcome) == {
        "MatMulV3": pytest.approx(1650 / 1800),
        "Add": pytest.approx(1500 / 1800),
    }
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, finding.evidence["op"]) == ("thermal.kernel_clock", "warning", "MatMulV3")
    assert finding.evidence["lost"] == pytest.approx((80 * 150 + 20 * 300) / 1800 / 100)
    assert "100 % of the time ran below the rated clock, most of it MatMulV3: at 1.65 GHz" in finding_text(finding)


def test_thermal__recorded_operators_at_800_megahertz__the_clock_of_an_idle_device() -> None:
    # msprof-analyze's freq_analysis: 1800 MHz is the usual clock, 800 MHz that of a device that idles.
    timeline = at_work(("MatMulV3", 0, 60), ("Cast", 100, 20), clock=((0, 1800), (70, 800)))

    (finding,) = recorded(timeline).findings

    assert (finding.rule, finding.severity, finding.evidence["op"]) == ("thermal.idle_clock", "warning", "Cast")
    assert (finding.evidence["clock"], finding.evidence["share"]) == (8e8, pytest.approx(20 / 80))
    assert finding_text(finding).startswith("Cast ran at 0.80 GHz, the idle clock of the device")


@pytest.mark.parametrize(
    "timeline",
    [
        at_work(("MatMulV3", 0, 100), clock=((0, 1800), (10, 1710))),
        at_work(("MatMulV3", 0, 60), ("MatMulV3", 100, 60), clock=((0, 1800), (60, 800), (100, 1800))),
        at_work(("Cast", 100, 20), clock=((0, 1800), (70, 800)), core="AI_CPU"),
    ],
    ids=["5 % lower", "low while nothing runs", "on the AI CPU, which has a clock of its own"],
)
def test_thermal__recorded_clock_that_falls_a_little_or_while_nothing_runs__nothing_said(timeline: Timeline) -> None:
    outcome = recorded(timeline, limits={"thermal.clock.warning": 0.0})

    assert outcome.findings == []


def test_thermal__recorded_kernels_and_no_clock__unavailable() -> None:
    assert recorded(at_work(("MatMulV3", 0, 100))).status == "unavailable"


def test_thermal__recorded_rated_clock_of_the_device__instead_of_the_highest_read() -> None:
    outcome = recorded(at_work(("MatMulV3", 0, 100), clock=((0, 1500),)), settings={"aic_frequency_mhz": "1800"})

    assert clocks(outcome) == {"MatMulV3": pytest.approx(1500 / 1800)}
    assert [finding.rule for finding in outcome.findings] == ["thermal.kernel_clock"]
