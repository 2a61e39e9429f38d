from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.document.telemetry import DeviceState
from perfgate.measuring.checklist.steps import s02_utilization
from perfgate.measuring.checklist.steps.s02_utilization import STEP
from perfgate.protocol import StepSettings
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload

US = 1000


def measure(tmp_path, *kernels, device=None, **fields):
    workload = fields.pop("workload", None) or fake_workload(*kernels)
    outcome = STEP.measure(context_on(device or FakeDevice(), workload, artifacts=tmp_path, **fields))
    return outcome, {value.metric: value for value in outcome.values}


def test_utilization__device_bound__nearly_one_and_ok(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US)
    outcome, values = measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=device)

    # 20 calls: the first launch of 10 us, then 20 kernels of 90 us without a gap: 1800 of 1810 us.
    assert values["utilization.busy"].value == pytest.approx(0.99448, rel=0.001)
    assert values["utilization.gap"].value == pytest.approx(0.5e-6, rel=0.001)
    assert values["utilization.busy"].count == 20
    assert values["utilization.busy"].labels == {"shape": "default"}
    assert (outcome.status, outcome.findings) == ("ok", [])


def test_utilization__host_bound__severe_finding_with_limit(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=100 * US)
    outcome, values = measure(tmp_path, FakeKernel("aten::mm", 40 * US), device=device)

    # 20 launches of 100 us, and 40 us for the last kernel: 800 of 2040 us, 62 us idle per call.
    assert values["utilization.busy"].value == pytest.approx(0.39216, rel=0.001)
    assert values["utilization.gap"].value == pytest.approx(62e-6, rel=0.001)
    assert values["utilization.host"].value == pytest.approx(2000 / 2040, rel=0.001)
    assert outcome.status == "attention"
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("utilization.busy", "severe")
    assert finding.evidence["limit"] == 0.5
    assert finding.evidence["shape"] == "default"
    assert finding.evidence["utilization.busy"] == pytest.approx(0.39216, rel=0.001)


def test_utilization__between_the_limits__warning(tmp_path: Path) -> None:
    outcome, values = measure(tmp_path, FakeKernel("aten::mm", 70 * US), device=FakeDevice(launch_ns=100 * US))

    # 1400 of 2070 us.
    assert values["utilization.busy"].value == pytest.approx(0.67633, rel=0.001)
    assert [finding.severity for finding in outcome.findings] == ["warning"]


def test_utilization__limit_set_by_the_project__followed(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=100 * US)
    outcome, _ = measure(
        tmp_path, FakeKernel("aten::mm", 70 * US), device=device, limits={"utilization.busy.warning": 0.6}
    )

    assert (outcome.status, outcome.findings) == ("ok", [])


def test_utilization__kernels_of_two_streams_overlap__counted_once(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=50 * US)

    def call(_, __):
        device.launch("aten::mm", 80 * US)
        with device.copy_stream():
            device.launch("aten::add", 40 * US)

    workload = fake_workload(call=call)
    _, values = measure(tmp_path, workload=workload, device=device)

    # Each call of 100 us: one kernel from 50 to 130, the other from 100 to 140: 90 us together, 120 when added up.
    # 20 calls take 2040 us.
    assert values["utilization.busy"].value == pytest.approx(0.88235, rel=0.001)


def test_utilization__copies__are_no_kernels(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=0)

    def call(_, inputs):
        device.launch("aten::mm", 50 * US)
        device.to_host(inputs)

    # The copy back of 50 kB at 1 GB/s takes 50 us: the device computes half of the time.
    workload = fake_workload(item_bytes=50_000, call=call)
    _, values = measure(tmp_path, workload=workload, device=device)

    assert values["utilization.busy"].value == pytest.approx(0.5, rel=0.01)


def test_utilization__not_quick__a_hundred_calls(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US)
    _, values = measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=device, quick=False)

    # 9000 of 9010 us.
    assert values["utilization.busy"].count == 100
    assert values["utilization.busy"].value == pytest.approx(0.99889, rel=0.001)


def test_utilization__two_shapes__values_of_each(tmp_path: Path) -> None:
    workload = fake_workload(FakeKernel("aten::mm", 90 * US), shapes={"short": {}, "long": {}})
    outcome, _ = measure(tmp_path, workload=workload, device=FakeDevice(launch_ns=10 * US))

    assert [value.labels["shape"] for value in outcome.values if value.metric == "utilization.busy"] == [
        "short",
        "long",
    ]


def test_utilization__no_timeline__host_only_and_the_reason(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US, capabilities=frozenset())
    outcome, values = measure(
        tmp_path, FakeKernel("aten::mm", 90 * US), device=device, settings=StepSettings(threads=2)
    )

    # The host runs the kernels itself, on one of two threads.
    assert values["utilization.host"].value == pytest.approx(0.5, rel=0.001)
    for metric in ("utilization.busy", "utilization.gap"):
        assert values[metric].value is None
        assert "no kernels of this device on a separate timeline" in reason_of(values[metric])
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("utilization.host", "info")]
    assert outcome.status == "ok"


def test_utilization__afterwards__the_trace_stays_for_the_steps_to_come_and_nothing_else(tmp_path: Path) -> None:
    measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=FakeDevice(launch_ns=10 * US))

    assert [path.name for path in tmp_path.iterdir()] == ["trace-fake-default.json.gz"]


def test_utilization__driver_tells__its_median_beside_ours_unless_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s02_utilization, "_REPORTED_SECONDS", 0.5)
    device = FakeDevice(launch_ns=10 * US)
    device.reported = DeviceState(utilization=0.75)
    _, values = measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=device, quick=False)

    assert values["utilization.reported"].value == 0.75
    assert values["utilization.reported"].count >= 2
    assert (
        "utilization.reported" not in measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=device, quick=True)[1]
    )


def test_utilization__driver_tells_nothing__absent_with_the_reason(tmp_path: Path) -> None:
    _, values = measure(tmp_path, FakeKernel("aten::mm", 90 * US), device=FakeDevice(launch_ns=US), quick=False)

    assert values["utilization.reported"].value is None
    assert "reported its utilization 0 times" in reason_of(values["utilization.reported"])
