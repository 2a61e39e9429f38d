"""Step 1 on the fake device: percentiles, throughput, first call and the SLA against known answers."""

from __future__ import annotations

from typing import Optional

import numpy as np
import pytest

from perfgate.document.run import Value
from perfgate.document.samples import unpack
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.measuring.checklist.steps.s01_latency import STEP
from perfgate.measuring.workload.workload import SLA
from tests.fakes.device import FakeDevice
from tests.fakes.workloads import context_on, curve

MS = 1_000_000


def _value(outcome: StepOutcome, metric: str, shape: str = "default") -> Value:
    (found,) = [v for v in outcome.values if v.metric == metric and v.labels.get("shape") == shape]
    return found


def _hundred_levels(number: int) -> int:
    """Give 1.00, 1.01 … 1.99 ms once in every hundred calls, in a mixed-up order."""
    return MS + 10_000 * (number * 37 % 100)


def test_latency__hundred_levels__percentiles_exact_to_one_percent() -> None:
    device = FakeDevice(kernel_times={"aten::mm": _hundred_levels})
    outcome = STEP.measure(context_on(device, curve(0, 0), quick=False))
    assert outcome.status == "ok"
    assert _value(outcome, "latency.p50").value == pytest.approx(1.49e-3, rel=0.01)
    assert _value(outcome, "latency.p90").value == pytest.approx(1.89e-3, rel=0.01)
    assert _value(outcome, "latency.p99").value == pytest.approx(1.98e-3, rel=0.01)
    assert _value(outcome, "latency.max").value == pytest.approx(1.99e-3)
    assert _value(outcome, "latency.low").value == pytest.approx(1.05e-3, rel=0.01)


def test_latency__log_normal_noise__intervals_hold_the_true_quantiles() -> None:
    device = FakeDevice(noise=0.1, seed=7)
    outcome = STEP.measure(context_on(device, curve(MS, 0), quick=False))
    true = {"latency.p50": 1.000e-3, "latency.p90": 1.1367e-3, "latency.p99": 1.2619e-3}  # exp(0.1 z) ms
    for metric, expected in true.items():
        value = _value(outcome, metric)
        assert value.value == pytest.approx(expected, rel=0.01)
        low, high = value.interval or (None, None)
        assert low is not None
        assert high is not None
        assert low <= expected <= high
        assert value.confidence == 0.95


def test_latency__quick_and_slow_calls__p99_not_estimable_and_says_why() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0)))
    p99 = _value(outcome, "latency.p99")
    assert p99.value is None
    assert p99.reason == "not estimable: a P99 needs 662 calls, there are 200; see P90"
    assert p99.interval == (0.005, None)
    assert _value(outcome, "latency.p90").value == 0.005


def test_latency__scripted_warm_up__first_call_and_warm_up_calls() -> None:
    device = FakeDevice(kernel_times={"aten::mm": [400 * MS] + [10 * MS] * 14 + [5 * MS]})
    outcome = STEP.measure(context_on(device, curve(0, 0)))
    assert _value(outcome, "latency.first_call").value == 0.4
    assert _value(outcome, "latency.warm_up_calls").value == 41
    assert _value(outcome, "latency.max").value == 0.005


def test_latency__launch_overlaps_kernel__throughput_higher_than_latency_says() -> None:
    outcome = STEP.measure(context_on(FakeDevice(launch_ns=MS), curve(2 * MS, 0, batch=8)))
    assert _value(outcome, "latency.p50").value == 0.003
    assert _value(outcome, "throughput.median").value == pytest.approx(4000.0)
    assert _value(outcome, "throughput.min").value == pytest.approx(4000.0)


def test_latency__drifting_calls__no_steady_state_is_a_warning() -> None:
    device = FakeDevice(kernel_times={"aten::mm": lambda number: MS + number * MS // 10})
    outcome = STEP.measure(context_on(device, curve(0, 0)))
    assert outcome.status == "attention"
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("latency.steady_state", "warning")]


@pytest.mark.parametrize(
    ("promised", "found"),
    [(0.0019, ("sla.p99", "severe")), (0.003, None)],
)
def test_latency__sla__severe_when_broken_silent_when_kept(promised: float, found: Optional[tuple[str, str]]) -> None:
    device = FakeDevice(kernel_times={"aten::mm": _hundred_levels})
    outcome = STEP.measure(context_on(device, curve(0, 0, sla=SLA(p99=promised)), quick=False))
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == ([found] if found else [])


def test_latency__sla_and_too_few_calls__said_as_information() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0, sla=SLA(p99=0.006))))
    assert outcome.status == "ok"
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("sla.p99.few_calls", "info")]


def test_latency__every_call__kept_as_a_sample_in_call_order() -> None:
    device = FakeDevice(kernel_times={"aten::mm": _hundred_levels}, launch_ns=1000)
    outcome = STEP.measure(context_on(device, curve(0, 0)))
    wall, cpu = outcome.samples
    assert wall.labels == {"shape": "default", "clock": "wall"}
    assert cpu.labels == {"shape": "default", "clock": "thread_cpu"}
    steps = np.diff(unpack(wall.samples)) % MS
    assert set(steps.tolist()) == {370_000}  # 37 levels of 10 us from one call to the next
    assert set(unpack(cpu.samples).tolist()) == {1000}


def test_latency__two_shapes__values_of_each() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0, shapes={"short": {}, "long": {}})))
    assert _value(outcome, "latency.p50", "short").value == 0.001
    assert _value(outcome, "latency.p50", "long").value == 0.001
