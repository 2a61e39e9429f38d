"""Arrivals and open-loop calls: what comes in when, and what a stall costs those that had to wait."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.measuring.devices.backends.cpu import CpuDevice
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.measuring.timing.open_loop import arrivals, calls_of, rate_of, run_open_loop
from perfgate.measuring.workload.workload import Traffic
from perfgate.stats.arrivals import draw
from perfgate.stats.summary import dependent_quantile, quantile
from tests.fakes.device import FakeDevice

MS = 1_000_000


def test_draw__poisson__mean_and_spread_of_gaps_are_those_of_the_exponential() -> None:
    gaps = np.diff(draw(50.0, burstiness=1.0, count=100_001, seed=1))
    assert gaps.mean() == pytest.approx(0.02, rel=0.01)
    assert gaps.std() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(("burstiness", "spread"), [(4.0, 0.5), (0.25, 2.0)])
def test_draw__burstiness__coefficient_of_variation_is_one_over_its_root(burstiness: float, spread: float) -> None:
    gaps = np.diff(draw(50.0, burstiness=burstiness, count=100_001, seed=1))
    assert gaps.std() / gaps.mean() == pytest.approx(spread, rel=0.02)


def test_arrivals__same_seed__same_times_and_another_seed_others() -> None:
    traffic = Traffic(rate=100.0)
    assert arrivals(traffic, count=50, seed=3).tolist() == arrivals(traffic, count=50, seed=3).tolist()
    assert arrivals(traffic, count=50, seed=3).tolist() != arrivals(traffic, count=50, seed=4).tolist()


def test_arrivals__recording_too_short__starts_over_a_mean_gap_later() -> None:
    traffic = Traffic(arrivals=[5.0, 5.1, 5.4])
    assert rate_of(traffic) == pytest.approx(5.0)
    assert arrivals(traffic, count=5, seed=1).tolist() == pytest.approx([0.0, 0.1, 0.4, 0.6, 0.7])


def test_calls_of__batch_of_three__sent_with_the_request_that_completes_it() -> None:
    traffic = Traffic(arrivals=[0.0, 0.1, 0.2, 0.5, 0.6, 0.9])
    assert calls_of(traffic, 3, count=2, seed=1).tolist() == pytest.approx([0.0, 0.7])


def test_calls_of__none_in_the_time__no_times() -> None:
    assert calls_of(Traffic(rate=0.2), 3, count=0, seed=1).tolist() == []
    assert calls_of(Traffic(arrivals=[0.0, 9.0]), 3, count=0, seed=1).tolist() == []


def _stall_once(number: int) -> int:
    """Give calls of 2 ms, of which the 300th stalls for 100 ms."""
    return 100 * MS if number == 300 else 2 * MS


@pytest.mark.parametrize("capabilities", [frozenset({"queue"}), frozenset()])
def test_open_loop__one_stall_of_100_ms__in_its_p99_and_not_in_that_of_the_closed_loop(
    capabilities: frozenset[str],
) -> None:
    evenly = np.arange(1000) / 100  # 100 calls a second
    device = FakeDevice(kernel_times={"mm": _stall_once}, capabilities=capabilities)
    opened = run_open_loop(lambda: device.launch("mm"), device, evenly)
    device = FakeDevice(kernel_times={"mm": _stall_once}, capabilities=capabilities)
    closed = time_calls(lambda: device.launch("mm"), device, CallBudget(calls=1000))
    assert quantile(closed.wall, 0.99).value == 2 * MS
    # The stalled call, then those that came in meanwhile: 10 ms later each, and each waits for 2 ms more of work.
    assert np.sort(opened.latencies)[::-1][:4].tolist() == [100 * MS, 92 * MS, 84 * MS, 76 * MS]
    assert quantile(opened.latencies, 0.99).value == 20 * MS
    assert not opened.saturated


def test_open_loop__device_with_queue__host_sends_while_it_works() -> None:
    device = FakeDevice(launch_ns=100_000)
    found = run_open_loop(lambda: device.launch("mm", 5 * MS), device, np.array([0.0, 0.001, 0.002]))
    assert found.latencies.tolist() == [5_100_000, 9_100_000, 13_100_000]


@pytest.mark.parametrize(("rate", "saturated"), [(150.0, False), (260.0, True), (2000.0, True)])
def test_open_loop__rate_against_200_calls_a_second__says_when_the_queue_grows(rate: float, saturated: bool) -> None:
    device = FakeDevice(capabilities=frozenset())
    times = draw(rate, burstiness=1.0, count=1000, seed=1)
    assert run_open_loop(lambda: device.launch("mm", 5 * MS), device, times).saturated is saturated


def test_open_loop__far_too_many_calls__gives_up_and_says_so() -> None:
    device = FakeDevice(capabilities=frozenset())
    times = np.arange(3000) / 3000
    found = run_open_loop(lambda: device.launch("mm", 100 * MS), device, times)
    assert found.gave_up
    assert found.saturated
    assert device.host_ns / 1e9 < 4.0


def test_idle_until__real_clock__never_early() -> None:
    """How late is the machine's doing."""
    device = CpuDevice()
    for _ in range(20):
        until = device.clock_ns() + 3 * MS
        device.idle_until(until)
        assert device.clock_ns() >= until


def test_dependent_quantile__independent_samples__interval_as_that_of_the_quantile() -> None:
    samples = np.random.default_rng(1).exponential(size=2000)
    plain, found = quantile(samples, 0.9), dependent_quantile(samples, 0.9)
    assert found.value == plain.value
    assert found.low == pytest.approx(plain.low, rel=0.05)
    assert found.high == pytest.approx(plain.high, rel=0.05)


def test_dependent_quantile__samples_in_runs_of_fifty__holds_the_true_median_where_the_plain_interval_does_not() -> (
    None
):
    """Of 200 series, 95 % of the intervals should hold the median of 0; runs of 50 leave 40 independent values of 2000."""
    lot = np.random.default_rng(2)
    held = {"plain": 0, "dependent": 0}
    for _ in range(200):
        samples = np.repeat(lot.normal(size=40), 50)
        for name, find in (("plain", quantile), ("dependent", dependent_quantile)):
            low, high = find(samples, 0.5).interval
            held[name] += low is not None and high is not None and low <= 0 <= high
    assert held["plain"] < 80
    assert held["dependent"] > 170
