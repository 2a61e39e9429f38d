"""Step 10: ways of batching on a fake device whose every call takes a + c b, and on the real CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfgate.document.message import Message
from perfgate.document.run import Value
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.checklist.steps.s10_batching import STEP, items_agree
from perfgate.measuring.checklist.steps.s10_batching.serving import ServiceModel, candidates, measure_service
from perfgate.measuring.devices.backends.cpu import CpuDevice
from perfgate.measuring.workload.workload import SLA, Traffic, Workload
from perfgate.stats.arrivals import draw
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve
from tests.wording import finding_text

MS = 1_000_000
US = 1_000
HALF = Traffic(rate=200.0)


def _measure(fixed: int, per_item: int, *, noise: float = 0.0, quick: bool = True, **fields: Any) -> StepOutcome:
    return STEP.measure(context_on(FakeDevice(noise=noise), curve(fixed, per_item, **fields), quick=quick))


def _value(outcome: StepOutcome, metric: str, policy: str, source: str) -> Value:
    (found,) = [
        value
        for value in outcome.values
        if (value.metric, value.labels["policy"], value.labels["source"]) == (metric, policy, source)
    ]
    return found


def _number(outcome: StepOutcome, metric: str, policy: str, source: str) -> float:
    value = _value(outcome, metric, policy, source).value
    assert value is not None
    return value


def test_batching__no_traffic__not_applicable_with_what_to_add() -> None:
    outcome = _measure(MS, MS)
    assert outcome.status == "not_applicable"
    assert outcome.reason is not None
    assert "add traffic=Traffic(rate=...)" in reason_of(outcome)


def test_batching__training__not_applicable() -> None:
    outcome = _measure(MS, MS, traffic=HALF, train_step=lambda model, inputs: model(inputs))
    assert (outcome.status, reason_of(outcome)) == (
        "not_applicable",
        "a training iteration answers no requests",
    )


def test_batching__static_batches_of_eight_that_fill_slowly__continuous_recommended_with_both_numbers() -> None:
    outcome = _measure(4 * MS, 100 * US, batch=8, traffic=HALF)
    assert outcome.status == "attention"
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("batching.gain", "warning")
    assert finding_text(finding).startswith("at 200 requests per second, continuous batching of at most")
    assert finding.evidence["batching.gain"] > 1.0
    speedup = _value(outcome, "batching.speedup", "continuous", "replayed")
    assert speedup.value == finding.evidence["batching.speedup"]
    assert speedup.interval is not None
    assert speedup.interval[0] is not None
    assert speedup.interval[0] > 1.5
    # The first of eight waits for seven more, 35 ms on average, and its batch takes 4.8 ms.
    assert _number(outcome, "batching.p50", "static", "simulated") == pytest.approx(0.022, rel=0.1)
    assert _number(outcome, "batching.p50", "static", "replayed") == pytest.approx(0.022, rel=0.25)


@pytest.mark.parametrize("quick", [True, False])
def test_batching__calls_as_in_the_sweep__replay_is_the_simulation_to_one_percent(quick: bool) -> None:
    outcome = _measure(4 * MS, 100 * US, batch=8, traffic=HALF, quick=quick)
    for policy in ("static", "continuous"):
        assert abs(_number(outcome, "batching.simulation_error", policy, "replayed")) < 0.01


def test_batching__calls_alone_far_below_capacity__nothing_to_gain() -> None:
    outcome = _measure(MS, 100 * US, batch=1, traffic=Traffic(rate=50.0))
    assert outcome.status == "ok"
    assert outcome.findings == []
    gain = next(value for value in outcome.values if value.metric == "batching.gain").value
    assert gain is not None
    assert gain < 0.2


def test_batching__one_by_one_above_capacity__batches_keep_up() -> None:
    outcome = _measure(10 * MS, 100 * US, batch=1, traffic=HALF)  # 99 a second one by one, 10 times as many in batches
    assert [finding.rule for finding in outcome.findings] == ["batching.gain"]
    # A batch starts when the last ends, with those that came in during 10 ms: about two of them.
    assert _number(outcome, "batching.p50", "continuous", "simulated") == pytest.approx(0.015, rel=0.1)


def test_batching__more_than_any_batch_can_answer__said_with_the_most_there_is() -> None:
    outcome = _measure(0, 10 * MS, batch=1, traffic=HALF)  # an item takes 10 ms in any batch
    saturated = [finding for finding in outcome.findings if finding.rule == "batching.saturated"]
    assert [finding_text(finding) for finding in saturated] == [
        "no batching policy keeps up with 200 requests per second; the maximum is about 100"
    ]


def test_batching__all_requests_within_one_stretch__every_stretch_has_its_part() -> None:
    outcome = _measure(US, US // 100, traffic=Traffic(rate=1e6), batch_sizes=(1024,), batch=64)
    replayed = _value(outcome, "batching.p50", "continuous", "replayed")
    assert replayed.count == 2 * 10_000


def test_batching__sla__goodput_and_highest_rate_of_each_way() -> None:
    outcome = _measure(4 * MS, 100 * US, batch=8, traffic=HALF, sla=SLA(p99=0.02))
    assert _number(outcome, "batching.goodput", "continuous", "simulated") == pytest.approx(200, rel=0.03)
    assert _number(outcome, "batching.goodput", "static", "simulated") < 120
    assert _number(outcome, "batching.goodput", "continuous", "replayed") == pytest.approx(200, rel=0.15)
    # Batches of 8 that must fill keep 20 ms only when they fill quickly, and are then as many as calls of 4.8 ms allow;
    # under load continuous batches are the larger the more come in: with 64 a call takes 10.4 ms, and two of them 20.8.
    rates = {way: _number(outcome, "batching.max_rate", way, "simulated") for way in ("static", "continuous")}
    assert 1000 < rates["static"] < 8 / 0.0048
    assert rates["static"] < rates["continuous"] < 64 / 0.0104


def test_batching__rate_too_low_to_replay__simulated_only_and_no_claim() -> None:
    outcome = _measure(4 * MS, 100 * US, batch=8, traffic=Traffic(rate=2.0))
    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("batching.unconfirmed", "info")]
    assert outcome.status == "ok"
    speedup = next(value for value in outcome.values if value.metric == "batching.speedup")
    assert reason_of(speedup) == "2 requests per second are too few for a replay in the available time"


def test_batching__quick_on_a_model_of_5_ms__at_most_6_seconds() -> None:
    for fixed, per_item in ((5 * MS, 0), (0, 5 * MS)):
        device = FakeDevice()
        started = device.host_ns
        STEP.measure(context_on(device, curve(fixed, per_item, batch=4, traffic=Traffic(rate=100.0))))
        assert (device.host_ns - started) / 1e9 < 6.0


def test_measure_service__curve__every_size_to_one_percent_and_padded_upwards() -> None:
    service = measure_service(context_on(FakeDevice(noise=0.01), curve(MS, MS, batch=6), quick=False), "default")
    assert service.sizes == [1, 2, 4, 6, 8, 16, 32, 64]
    assert service(6) == pytest.approx(0.007, rel=0.01)
    assert service.padded(9) == 16
    assert service(9) == service(16)
    assert service.capacity(8) == pytest.approx(8 / 0.009, rel=0.02)


def test_candidates__wait_of_the_traffic__bounds_what_a_time_out_costs() -> None:
    service = ServiceModel({1: 0.001, 8: 0.001})
    found = candidates(
        service, draw(10.0, burstiness=1.0, count=2000, seed=1), configured=8, max_wait=0.03, promised=None
    )
    timed_out = next(one for one in found if one.policy.name == "time-out")
    assert timed_out.policy.batch == 1  # waiting for others only costs
    assert max(one.served.waits.max() for one in found if one.policy.name == "continuous") < 0.01


# On the real CPU: calls that take what they take, at real times.


def _torch_context(model: Any, *, batch: int = 1, traffic: Traffic | None = None) -> StepContext:
    import torch

    def inputs(items: int, seed: int) -> Any:
        return torch.randn(items, 8, generator=torch.Generator().manual_seed(seed))

    workload = Workload(
        build=lambda device: model, inputs=inputs, batch=batch, traffic=traffic, batch_sizes=(1, 2, 4, 8)
    )
    return context_on(CpuDevice(), workload)  # type: ignore[arg-type]


def test_batching__real_calls_with_a_fixed_cost__static_batches_slower_and_same_outputs() -> None:
    import time

    import torch

    class Sleeps(torch.nn.Module):
        """A call costs 2 ms, whatever the batch."""

        def forward(self, x: Any) -> Any:
            time.sleep(0.002)
            return x * 2

    # The first of eight waits for 70 ms: far longer than a call of 2 ms takes on a busy machine.
    outcome = STEP.measure(_torch_context(Sleeps(), batch=8, traffic=Traffic(rate=100.0)))
    assert outcome.findings[0].rule == "batching.gain"
    assert outcome.findings[0].evidence["outputs"] == Message("output.same")
    assert outcome.findings[0].evidence["speedup.low"] > 1.0
    assert np.isfinite(_number(outcome, "batching.simulation_error", "static", "replayed"))


def test_items_agree__model_that_looks_at_its_batch__seen_and_one_that_does_not_too() -> None:
    import torch

    class Centres(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x - x.mean(dim=0)

    assert items_agree(_torch_context(torch.nn.Linear(8, 3)), "default", 4) is True
    assert items_agree(_torch_context(Centres()), "default", 4) is False
    assert items_agree(_torch_context(torch.nn.Flatten(0)), "default", 4) is None
    assert items_agree(_torch_context(torch.nn.Linear(8, 3)), "default", 1) is None


def test_batching__answers_that_hang_on_the_batch__no_gain_is_claimed() -> None:
    import time

    import torch

    class Centres(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            time.sleep(0.01)
            return x - x.mean(dim=0) if len(x) > 1 else x

    outcome = STEP.measure(_torch_context(Centres(), batch=1, traffic=Traffic(rate=150.0)))
    assert (outcome.findings[0].rule, outcome.findings[0].severity) == ("batching.differs", "warning")
    assert np.isfinite(outcome.findings[0].evidence["batching.gain"])


def test_batching__calls_slower_under_traffic_than_in_the_sweep__said_as_information() -> None:
    sweep = 60  # launches, by which the sweep over two sizes is done
    device = FakeDevice(kernel_times={"aten::mm": lambda number: 4 * MS if number < sweep else 6 * MS})
    outcome = STEP.measure(context_on(device, curve(0, 0, traffic=Traffic(rate=100.0), batch_sizes=(1, 2))))
    finding = next(finding for finding in outcome.findings if finding.rule == "batching.simulation_error")
    assert finding.severity == "info"
    assert finding.evidence["batching.simulation_error"] > 0.4
