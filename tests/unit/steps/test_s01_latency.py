"""Step 1 on the fake device: percentiles, throughput, first call and the SLA against known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perfgate.document.budget import Budget
from perfgate.document.run import Value
from perfgate.document.samples import unpack
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.checklist.steps.s01_latency import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import SLA, Traffic, Workload
from perfgate.protocol import StepExtent, StepSettings
from perfgate.stats.summary import P99_FLOOR
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve
from tests.wording import finding_text

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
    assert _value(outcome, "latency.tail").value == pytest.approx(1.945e-3, rel=0.001)
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
    assert reason_of(p99) == "not estimable: a P99 needs 662 calls, there are 120; see P90"
    assert p99.interval == (0.005, None)
    assert _value(outcome, "latency.p90").value == 0.005


def test_latency__scripted_warm_up__first_call_and_warm_up_calls() -> None:
    device = FakeDevice(kernel_times={"aten::mm": [400 * MS] + [10 * MS] * 14 + [5 * MS]})
    outcome = STEP.measure(context_on(device, curve(0, 0)))
    assert _value(outcome, "latency.first_call").value == 0.4
    assert _value(outcome, "latency.max").value == 0.005


def test_latency__launch_overlaps_kernel__throughput_higher_than_latency_says() -> None:
    outcome = STEP.measure(context_on(FakeDevice(launch_ns=MS), curve(2 * MS, 0, batch=8)))
    assert _value(outcome, "latency.p50").value == 0.003
    assert _value(outcome, "throughput.median").value == pytest.approx(4000.0)


def test_latency__few_calls__no_slowest_tenth_and_why() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(60 * MS, 0)))
    tail = _value(outcome, "latency.tail")
    assert tail.value is None
    assert (reason_of(tail) or "").startswith("not estimable: the slowest tenth needs 100 calls, there are ")


def test_latency__drifting_calls__no_steady_state_is_a_warning() -> None:
    device = FakeDevice(kernel_times={"aten::mm": lambda number: MS + number * MS // 10})
    outcome = STEP.measure(context_on(device, curve(0, 0)))
    assert outcome.status == "attention"
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("latency.steady_state", "warning")]


@pytest.mark.parametrize(
    ("promised", "found"),
    [(0.0019, ("sla.p99", "severe")), (0.003, None)],
)
def test_latency__sla__severe_when_broken_silent_when_kept(promised: float, found: tuple[str, str] | None) -> None:
    device = FakeDevice(kernel_times={"aten::mm": _hundred_levels})
    outcome = STEP.measure(context_on(device, curve(0, 0, sla=SLA(p99=promised)), quick=False))
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == ([found] if found else [])


def test_latency__sla_when_quick__as_many_calls_as_its_p99_needs() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0, sla=SLA(p99=0.006))))
    (p99,) = (value for value in outcome.values if value.metric == "latency.p99")
    assert p99.value == pytest.approx(0.005, rel=0.1)
    assert not outcome.findings


def test_latency__sla_and_too_few_calls__said_as_information() -> None:
    # A P99 needs 662 calls, and these 30 seconds hold 500.
    outcome = STEP.measure(context_on(FakeDevice(), curve(60 * MS, 0, sla=SLA(p99=0.07))))
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


def _at_rate(outcome: StepOutcome, metric: str, rate: str) -> Value:
    (found,) = [v for v in outcome.values if v.metric == metric and v.labels.get("rate") == rate]
    return found


def _stall_late(number: int) -> int:
    """Give calls of 2 ms, of which one that comes when 2,000 are done stalls for 100 ms."""
    return 100 * MS if number == 6_000 else 2 * MS


def test_latency__no_traffic_and_no_rate__closed_loop_only() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0, sla=SLA(p99=0.01))))
    assert all("rate" not in value.labels for value in outcome.values)


@pytest.mark.parametrize("capabilities", [frozenset({"queue"}), frozenset()])
def test_latency__stall_in_the_open_loop__p99_at_the_rate_shows_it_and_the_closed_one_does_not(
    capabilities: frozenset[str],
) -> None:
    device = FakeDevice(kernel_times={"aten::mm": _stall_late}, capabilities=capabilities)
    outcome = STEP.measure(context_on(device, curve(0, 0, traffic=Traffic(rate=100.0)), quick=False))
    assert device.launches["aten::mm"] > 6_000
    assert _at_rate(outcome, "latency.p50", "100").value == pytest.approx(0.002, rel=0.1)
    at_rate = _at_rate(outcome, "latency.p99", "100")
    assert at_rate.value is not None
    assert at_rate.value > 0.02
    (closed,) = [v for v in outcome.values if v.metric == "latency.p99" and "rate" not in v.labels]
    assert closed.value == 0.002


def test_latency__sla_at_a_rate__judged_by_the_calls_that_came_in_at_it() -> None:
    workload = curve(8 * MS, 0, sla=SLA(p99=0.012, rate=100.0))  # a call alone keeps it; with 80 % load it queues
    outcome = STEP.measure(context_on(FakeDevice(), workload, quick=False))
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("sla.p99", "severe")]
    assert outcome.findings[0].evidence["p99.low"] > 0.012


def test_latency__more_calls_than_it_serves__saturated_and_no_percentile_claimed() -> None:
    workload = curve(8 * MS, 0, batch=2, traffic=Traffic(rate=400.0))  # 200 calls of two items, where 125 can be served
    outcome = STEP.measure(context_on(FakeDevice(), workload))
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("latency.saturated", "warning")
    assert finding_text(finding) == (
        "shape default does not keep up with 200 calls per second: the queue grows without bound"
    )
    assert finding.evidence["served"] == pytest.approx(125, rel=0.01)
    p99 = _at_rate(outcome, "latency.p99", "200")
    assert (p99.value, reason_of(p99)) == (None, "the queue grows without bound at 200 calls per second")


@pytest.mark.parametrize("rate", ["0.5", "0.01"])
def test_latency__rate_too_low_for_the_time__no_value_and_why(rate: str) -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0, traffic=Traffic(rate=float(rate)))))
    p50 = _at_rate(outcome, "latency.p50", rate)
    assert reason_of(p50) == f"{rate} calls per second are fewer than 10 in the time for it"


def test_latency__budget_on_the_p99__enough_calls_even_when_quick() -> None:
    budget = Budget(metric="latency.p99", bound=0.01, at_most=True)
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0), settings=StepSettings(budgets=[budget])))
    (p99,) = [value for value in outcome.values if value.metric == "latency.p99"]
    assert p99.value is not None
    assert (p99.count or 0) >= P99_FLOOR


def test_latency__budget_at_a_rate__calls_come_in_at_it() -> None:
    budget = Budget(metric="latency.p99", bound=0.01, at_most=True, rate=50.0)
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0), settings=StepSettings(budgets=[budget]), quick=False))
    rates = {value.labels["rate"] for value in outcome.values if "rate" in value.labels}
    assert rates == {"50"}


@pytest.mark.parametrize(
    ("rate", "shapes"), [(20.0, {"default": {}}), (20.0, {"short": {}, "long": {}}), (6.0, {"default": {}})]
)
def test_latency__budget_at_a_low_rate__as_long_as_its_p99_needs(
    rate: float, shapes: dict[str, dict[str, int]]
) -> None:
    budget = Budget(metric="latency.p99", bound=0.01, at_most=True, rate=rate)
    outcome = STEP.measure(
        context_on(FakeDevice(), curve(MS, 0, shapes=shapes), settings=StepSettings(budgets=[budget]))
    )
    p99 = [value for value in outcome.values if value.metric == "latency.p99" and "rate" in value.labels]
    assert [(value.value, value.count) for value in p99] == [(pytest.approx(0.001, rel=0.1), 663)] * len(shapes)


def test_latency__budget_at_a_rate_too_low_for_a_p99__usual_time_and_why() -> None:
    budget = Budget(metric="latency.p99", bound=0.01, at_most=True, rate=2.0)
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0), settings=StepSettings(budgets=[budget])))
    assert _at_rate(outcome, "latency.p50", "2").count == 60
    assert reason_of(_at_rate(outcome, "latency.p99", "2")) == "not estimable: a P99 needs 662 calls, there are 60"


def test_latency__traffic_that_nearly_fills_a_p99__goes_on_until_it_does() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(MS, 0, traffic=Traffic(rate=300.0))))
    assert _at_rate(outcome, "latency.p99", "300").count == 663


def test_latency__budget_of_another_workload__changes_nothing() -> None:
    budget = Budget(metric="latency.p99", bound=0.01, at_most=True, workload="other")
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0), settings=StepSettings(budgets=[budget])))
    (p99,) = [value for value in outcome.values if value.metric == "latency.p99"]
    assert p99.value is None


def test_latency__log_normal_noise__interval_holds_the_true_standard_deviation() -> None:
    outcome = STEP.measure(context_on(FakeDevice(noise=0.1, seed=7), curve(MS, 0), quick=False))
    value = _value(outcome, "latency.std")
    true = 1.00757e-4  # 1 ms * sqrt((e^0.01 - 1) e^0.01)
    low, high = value.interval or (None, None)
    assert low is not None
    assert high is not None
    assert low <= true <= high
    assert high / low < 1.1
    assert (value.confidence, value.count) == (0.95, 4982)


def _steady(device: FakeDevice, seconds: float = 30.0) -> StepOutcome:
    context = context_on(device, curve(0, 0))
    return STEP.measure(replace(context, extent=StepExtent(steady=seconds)))


def test_latency__steady_30_and_one_speed__measured_so_long_and_steady() -> None:
    noisy = np.random.default_rng(3).normal(5 * MS, 0.05 * MS, 10_000).astype(int)
    outcome = _steady(FakeDevice(kernel_times={"aten::mm": lambda number: int(noisy[number % noisy.size])}))
    drift = _value(outcome, "latency.drift")
    assert drift.value == pytest.approx(0.0, abs=0.004)
    low, high = drift.interval or (None, None)
    assert low is not None
    assert high is not None
    assert low < 0 < high
    assert drift.count == pytest.approx(6000, rel=0.01)
    assert _value(outcome, "latency.steady_share").value == 1.0
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, outcome.status) == ("latency.drift.steady", "info", "ok")
    said = finding_text(finding)
    assert said.startswith("calls of shape default are steady for 30 s: one level, with a drift of ")
    assert "(-" in said  # below nothing is faster


def test_latency__steady_and_noise_that_hides_a_drift__undecided() -> None:
    noisy = np.random.default_rng(3).lognormal(0, 0.5, 300)
    device = FakeDevice(kernel_times={"aten::mm": lambda number: int(5 * MS * noisy[number % noisy.size])})
    (finding,) = [found for found in _steady(device, seconds=2.0).findings if "steady_state" not in found.rule]
    assert finding.rule == "latency.drift.undecided"


def test_latency__steady_30_and_calls_get_slower__drift_with_its_interval_and_a_warning() -> None:
    outcome = _steady(FakeDevice(kernel_times={"aten::mm": lambda number: 5 * MS + 100 * number}))
    assert _value(outcome, "latency.drift").value == pytest.approx(0.111, rel=0.05)  # 5 to 5.56 ms in 5,690 calls
    (drift, *_) = [finding for finding in outcome.findings if finding.rule == "latency.drift"]
    assert finding_text(drift).startswith("calls of shape default drift by 11.1 % within 30 s of steady calls")


def test_latency__steady_30_and_a_slow_stretch__numbers_of_the_longest_level_beside_those_of_all() -> None:
    device = FakeDevice(kernel_times={"aten::mm": lambda number: (5 if number < 4000 else 6) * MS})
    outcome = _steady(device)
    assert _value(outcome, "latency.steady_share").value == pytest.approx(0.67, abs=0.02)
    (stretch,) = [v for v in outcome.values if v.metric == "latency.p99" and "stretch" in v.labels]
    assert stretch.value == 0.005
    (whole,) = [v for v in outcome.values if v.metric == "latency.p99" and "stretch" not in v.labels]
    assert whole.value == 0.006
    (finding,) = [finding for finding in outcome.findings if finding.rule == "latency.steady_share"]
    assert "2 levels within 30 s; the longest covers 66 % of the time" in finding_text(finding)


def test_latency__steady_not_asked_for__says_nothing_of_it() -> None:
    outcome = STEP.measure(context_on(FakeDevice(), curve(5 * MS, 0)))
    assert not {"latency.drift", "latency.steady_share"} & {value.metric for value in outcome.values}


def _soak(tmp_path: Path, call: Callable[[torch.nn.Module, torch.Tensor], object]) -> StepOutcome:
    workload = Workload(
        build=lambda _: torch.nn.Identity(), inputs=lambda batch, seed: torch.ones(batch, 20_000), call=call
    )
    device = open_device("cpu")
    context = StepContext(
        workload=BoundWorkload("soaked", workload, device, seed=1, root=tmp_path),
        limits={},
        seed=1,
        artifacts=tmp_path,
        progress=lambda text: None,
        extent=StepExtent(steady=0.7),
    )
    return STEP.measure(context)


def test_latency__steady_and_a_list_that_keeps_outputs__memory_grew_from_begin_to_end(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        output = inputs.sort(descending=True).values
        if len(kept) < 10_000:  # 800 MB at most
            kept.extend([output, output.clone(), output.clone(), output.clone()])
        return output

    outcome = _soak(tmp_path, keep)
    (growth,) = [finding for finding in outcome.findings if finding.rule == "soak.growth"]
    assert finding_text(growth).startswith("memory of the process grew from ")
    begin, end = (v.value for v in outcome.values if v.metric in ("soak.memory_begin", "soak.memory_end"))
    assert begin is not None
    assert end is not None
    assert end - begin > 20e6


def test_latency__steady_and_nothing_kept__memory_stays(tmp_path: Path) -> None:
    outcome = _soak(tmp_path, lambda _, inputs: inputs.sort(descending=True).values)
    assert [finding for finding in outcome.findings if finding.rule == "soak.growth"] == []
