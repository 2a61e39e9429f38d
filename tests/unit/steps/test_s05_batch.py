"""Step 5 on the fake device: throughput b / (a + c b), whose knee is where that of 64 is less than 1.1 times as high."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from perfgate.measuring.checklist.step import StepOutcome
from perfgate.measuring.checklist.steps.s05_batch import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import SLA, Workload
from perfgate.stats.knee import Knee, find_knee, paired_knees
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve, fake_workload

MS = 1_000_000
US = 1_000


def _measure(fixed: int, per_item: int, *, quick: bool = True, noise: float = 0.0, **fields: Any) -> StepOutcome:
    return STEP.measure(context_on(FakeDevice(noise=noise), curve(fixed, per_item, **fields), quick=quick))


def _number(outcome: StepOutcome, metric: str) -> float | None:
    (value,) = [v for v in outcome.values if v.metric == metric]
    assert (value.value is None) == (value.reason is not None)
    return value.value


def _throughput(outcome: StepOutcome) -> dict[str, float | None]:
    return {v.labels["batch"]: v.value for v in outcome.values if v.metric == "batch.throughput"}


def _rules(outcome: StepOutcome) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in outcome.findings]


@pytest.mark.parametrize(
    ("fixed", "per_item", "knee"),
    [
        (100 * US, 1000 * US, 1),  # 64 is 1.098 times as fast
        (1000 * US, 1000 * US, 16),  # 1.046, and as 8 it is 1.108
        (3000 * US, 1000 * US, 32),  # 1.045, 1.134
        (2000 * US, 300 * US, 32),  # 1.094, 1.358
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_batch__curve_with_known_knee__found(fixed: int, per_item: int, knee: int, quick: bool) -> None:
    assert _number(_measure(fixed, per_item, quick=quick), "batch.knee") == knee


def test_batch__noisy_curve__same_knee_and_throughput_to_one_percent() -> None:
    outcome = _measure(MS, MS, quick=False, noise=0.02)
    assert _number(outcome, "batch.knee") in (8, 16)
    assert _throughput(outcome)["8"] == pytest.approx(888.9, rel=0.01)


def test_batch__curve__throughput_of_every_size_exact() -> None:
    throughput = _throughput(_measure(MS, MS))
    assert list(throughput) == ["1", "2", "4", "8", "16", "32", "64"]
    assert throughput["1"] == pytest.approx(500.0, rel=0.01)
    assert throughput["4"] == pytest.approx(800.0, rel=0.01)
    assert throughput["64"] == pytest.approx(984.6, rel=0.01)


def test_batch__still_rising__knee_not_reached_is_said() -> None:
    outcome = _measure(10 * MS, 10 * US, batch_sizes=(16, 32, 64), batch=64)
    assert _number(outcome, "batch.knee") is None
    assert _rules(outcome) == [("batch.knee", "info")]
    assert outcome.status == "ok"


def test_batch__still_rising_at_the_usual_largest_size__goes_on_until_a_doubling_gains_little() -> None:
    outcome = _measure(10 * MS, 100 * US, batch=64)
    assert list(_throughput(outcome))[-5:] == ["64", "128", "256", "512", "1024"]
    assert _number(outcome, "batch.knee") == 512  # 8366 of 9110 items/s; 256 has 7191


@pytest.mark.parametrize(
    ("batch", "loss", "found"),
    [
        (64, 0.0, []),
        (16, 0.0294, []),  # 941.2 of 969.7 items/s
        (8, 0.0833, [("batch.loss", "warning")]),
        (1, 0.4844, [("batch.loss", "severe")]),
    ],
)
def test_batch__configured_size__loss_against_the_best(batch: int, loss: float, found: list[tuple[str, str]]) -> None:
    outcome = _measure(MS, MS, batch=batch)
    assert _number(outcome, "batch.loss") == pytest.approx(loss, abs=1e-4)
    assert _number(outcome, "batch.best") == 32  # 969.7 items/s, within 2 % of the 984.6 of 64
    assert _rules(outcome) == found


def test_batch__configured_size_no_power_of_two__measured_too() -> None:
    outcome = _measure(MS, MS, batch=6)
    assert _throughput(outcome)["6"] == pytest.approx(857.1, rel=0.01)
    assert _number(outcome, "batch.knee") == 16


def test_batch__sla__best_size_is_the_largest_that_keeps_it() -> None:
    outcome = _measure(MS, MS, batch=8, sla=SLA(p99=0.0175))  # 16 items take 17 ms, 32 take 33
    assert _number(outcome, "batch.best") == 16
    assert _number(outcome, "batch.loss") == pytest.approx(0.0556, abs=1e-4)  # 888.9 of 941.2 items/s


def test_batch__sla_below_every_size__no_best_size_and_no_loss() -> None:
    outcome = _measure(MS, MS, sla=SLA(p99=0.001))
    assert _number(outcome, "batch.best") is None
    assert _number(outcome, "batch.loss") is None


def test_batch__memory_full__ends_the_sweep_and_is_said() -> None:
    device = FakeDevice(memory_limit=20_000)
    outcome = STEP.measure(context_on(device, curve(MS, MS, model={"activation_bytes": 1000})))
    assert list(_throughput(outcome)) == ["1", "2", "4", "8", "16"]
    assert _rules(outcome) == [("batch.loss", "severe"), ("batch.out_of_memory", "info")][::-1]
    assert outcome.findings[0].evidence == {"batch": 32}


def test_batch__memory_full_at_the_configured_size__raised_to_the_runner() -> None:
    device = FakeDevice(memory_limit=20_000)
    with pytest.raises(RuntimeError, match="bytes wanted"):
        STEP.measure(context_on(device, curve(MS, MS, batch=32, model={"activation_bytes": 1000})))


def test_batch__long_calls_in_quick_mode__sweep_ends_early() -> None:
    outcome = _measure(0, 10 * MS)
    assert list(_throughput(outcome)) == ["1", "2", "4", "8"]
    assert _rules(outcome) == [("batch.too_slow", "info")]


def test_batch__fixed_batch__not_applicable_with_the_models_own_words() -> None:
    outcome = _measure(MS, MS, batch=4, model={"only_batch": 4})
    assert outcome.status == "not_applicable"
    assert reason_of(outcome) == (
        "the batch size is fixed at 4: a batch of 1 is refused "
        "(RuntimeError: expected a batch of 4, got 1, raised in tests/fakes/workloads.py:37)"
    )


def test_batch__memory_full_at_every_other_size__not_applicable() -> None:
    device = FakeDevice(memory_limit=20_000)
    outcome = STEP.measure(context_on(device, curve(MS, MS, batch=1, model={"activation_bytes": 15_000})))
    assert outcome.status == "not_applicable"
    assert reason_of(outcome) == "only the configured batch size 1 fits into device memory"


@pytest.mark.parametrize(
    "inputs",
    [
        lambda batch, seed: torch.full((8, 4), float(seed)),
        lambda batch, seed: {"x": (torch.full((8, 4), float(seed)), None, "text")},
        lambda batch, seed: torch.full((8, 4), float(seed)).to_sparse(),
    ],
)
def test_batch__inputs_that_ignore_the_batch__not_applicable(inputs: Any) -> None:
    workload = Workload(build=lambda device: torch.nn.Identity(), inputs=inputs, call=lambda model, x: 1.0, batch=8)
    outcome = STEP.measure(context_on(open_device("cpu"), workload))
    assert outcome.status == "not_applicable"
    assert reason_of(outcome) == (
        "the batch size is fixed at 8: a batch of 1 is refused "
        "(inputs makes the same batch for 1 as for 8; let it use its argument batch)"
    )


def test_batch__inputs_that_stop_growing__sizes_beyond_are_left_out() -> None:
    workload = Workload(
        build=lambda device: torch.nn.Identity(),
        inputs=lambda batch, seed: [torch.full((min(batch, 4), 8), float(seed))],
        call=lambda model, x: model(x[0]),
        batch=2,
    )
    outcome = STEP.measure(context_on(open_device("cpu"), workload))
    assert list(_throughput(outcome)) == ["1", "2", "4"]
    refused = [finding.evidence["batch"] for finding in outcome.findings if finding.rule == "batch.refused"]
    assert refused == [8, 16, 32, 64]


def test_batch__inputs_of_objects_of_unknown_size__measured() -> None:
    class Request:
        pass

    workload = Workload(
        build=lambda device: torch.nn.Identity(),
        inputs=lambda batch, seed: [Request()],
        call=lambda model, x: 1.0,
        batch_sizes=(1, 2),
    )
    outcome = STEP.measure(context_on(open_device("cpu"), workload))
    assert list(_throughput(outcome)) == ["1", "2"]


def test_batch__one_size_refused__left_out_and_said() -> None:
    def picky(batch: int, seed: int) -> Any:
        if batch == 1:
            raise ValueError("expected more than 1 value per channel when training")
        return fake_workload().inputs(batch, seed)

    workload = curve(MS, MS, batch=64)
    outcome = STEP.measure(context_on(FakeDevice(), type(workload)(build=workload.build, inputs=picky, batch=64)))
    assert list(_throughput(outcome)) == ["2", "4", "8", "16", "32", "64"]
    assert _rules(outcome) == [("batch.refused", "info")]


def test_batch__sizes_of_the_workload__only_those_and_the_configured() -> None:
    assert list(_throughput(_measure(MS, MS, batch=3, batch_sizes=(5, 10)))) == ["3", "5", "10"]


def test_batch__no_other_size_named__not_applicable() -> None:
    outcome = _measure(MS, MS, batch=3, batch_sizes=(3,))
    assert outcome.status == "not_applicable"
    assert reason_of(outcome) == "the workload names no batch size but the configured 3"


def test_batch__quick_on_a_model_of_5_ms__takes_about_5_seconds() -> None:
    device = FakeDevice()
    started = device.host_ns
    STEP.measure(context_on(device, curve(0, 5 * MS)))
    assert (device.host_ns - started) / 1e9 < 8.0


ROUNDS = (1.0, 0.6, 0.9, 1.0, 0.5, 0.95)  # a machine that others use now and then


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ({1: 100.0, 2: 200.0, 4: 400.0}, None),
        ({1: 100.0, 2: 195.0, 4: 200.0}, Knee(2, 2, 2, 6)),
        ({1: 100.0, 4: 101.0}, Knee(1, 1, 1, 6)),
        ({4: 100.0}, None),
        ({}, None),
    ],
)
def test_find_knee__disturbed_rounds__smallest_size_not_worse_than_the_fastest(
    rates: dict[int, float], knee: Knee | None
) -> None:
    assert find_knee({size: [rate * part for part in ROUNDS] for size, rate in rates.items()}, 1.10) == knee


def test_find_knee__sizes_nobody_can_tell_apart__range_from_the_smallest_to_the_first_that_is_shown() -> None:
    fastest = [100.0, 104.0, 98.0, 101.0, 99.0, 103.0]
    spread = [100.0, 80.0, 102.0, 85.0, 101.0, 79.0]
    assert find_knee({2: [50.0] * 6, 4: spread, 8: [97.0] * 6, 16: fastest}, 1.10) == Knee(4, 4, 8, 6)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.15])
def test_find_knee__noisy_runs_of_one_commit__range_holds_the_true_knee(noise: float) -> None:
    """Throughput b / (a + c b), whose knee lies anywhere; a rate is slowed by as much as other programs take."""
    chance = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        fixed = 10 ** chance.uniform(-1, 0.5)  # the knee lies from 1 to 28: one beyond 64 is not reached
        sizes = (1, 2, 4, 8, 16, 32, 64)
        truth = min(size for size in sizes if 1.1 * size / (fixed + size) >= 64 / (fixed + 64))
        slowed = {size: np.exp(-chance.exponential(noise, 16)) for size in sizes}
        knee = find_knee({size: list(size / (fixed + size) * rates) for size, rates in slowed.items()}, 1.10)
        held += knee is None or knee.earliest <= truth <= knee.shown
    assert held >= 190


def test_find_knee__one_visit_in_three_takes_twice_as_long__wide_range() -> None:
    rates = {1: [50.0] * 6, 4: [100.0, 50.0, 100.0, 99.0, 51.0, 100.0], 16: [99.0] * 6, 64: [100.0, 101.0] * 3}
    assert find_knee(rates, 1.10) == Knee(4, 4, 16, 6)


def test_find_knee__largest_size_is_still_clearly_the_fastest__not_reached() -> None:
    assert find_knee({16: [80.0] * 6, 32: [89.0, 85.0, 90.0, 84.0, 88.0, 86.0], 64: [100.0] * 6}, 1.10) is None


def test_paired_knees__equal_code__same_size_on_both_sides() -> None:
    """Both sides draw from the same rates; by its own rounds alone each side would name another size now and then."""
    chance = np.random.default_rng(7)
    same = alone = 0
    for _ in range(100):
        base, head = (
            {size: list(size / (1.6 + size) * np.exp(chance.normal(0, 0.05, 16))) for size in (1, 2, 4, 8, 16, 32, 64)}
            for _ in range(2)
        )
        pair = paired_knees(base, head, 1.10)
        same += pair is not None and pair[0].size == pair[1].size
        alone += find_knee(base, 1.10) == find_knee(head, 1.10)
    assert same >= 95
    assert alone < same


def test_batch__knee__has_an_interval() -> None:
    (knee,) = [value for value in _measure(MS, MS, quick=True).values if value.metric == "batch.knee"]
    assert knee.interval == (16.0, 16.0)
    assert knee.confidence == 0.95


def test_batch__other_sizes_refused_after_the_probe__not_applicable_instead_of_a_best_size() -> None:
    calls: Counter[int] = Counter()

    class Tired(torch.nn.Module):
        """Takes other sizes than its own three times."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls[len(x)] += 1
            assert len(x) == 4 or calls[len(x)] <= 3, "only three times"
            return x + 1

    workload = Workload(
        build=lambda device: Tired().eval(), inputs=lambda batch, seed: torch.full((batch, 8), float(seed)), batch=4
    )

    outcome = STEP.measure(context_on(open_device("cpu"), workload))

    assert outcome.status == "not_applicable"
    assert "only three times" in reason_of(outcome)
