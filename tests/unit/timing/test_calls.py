"""Latency call by call, and throughput with a bounded queue, on a device whose every time is scripted."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from perfgate.measuring.timing.calls import CallBudget, measure_throughput, time_calls, timed_call
from tests.fakes.device import FakeDevice

MS = 1_000_000


def test_timed_call__asynchronous_kernel__waits_for_it() -> None:
    device = FakeDevice(launch_ns=10_000)
    assert timed_call(lambda: device.launch("mm", 5 * MS), device) == 5 * MS + 10_000


def test_time_calls__scripted_kernels__every_call_in_order_by_both_clocks() -> None:
    device = FakeDevice(kernel_times={"mm": [1 * MS, 7 * MS, 2 * MS]}, launch_ns=1000)
    times = time_calls(lambda: device.launch("mm"), device, CallBudget(calls=4))
    assert times.wall.tolist() == [1_001_000, 7_001_000, 2_001_000, 2_001_000]
    assert times.cpu.tolist() == [1000, 1000, 1000, 1000]


def test_time_calls__calls_and_seconds__goes_on_until_both_are_reached() -> None:
    device = FakeDevice()
    assert time_calls(lambda: device.launch("mm", MS), device, CallBudget(calls=5, seconds=0.02)).wall.size == 20
    assert time_calls(lambda: device.launch("mm", MS), device, CallBudget(calls=50, seconds=0.02)).wall.size == 50


def test_time_calls__most_seconds__stops_short_of_the_calls() -> None:
    device = FakeDevice()
    times = time_calls(lambda: device.launch("mm", 400 * MS), device, CallBudget(calls=100, most_seconds=1.0))
    assert times.wall.size == 3


@pytest.mark.parametrize("leaves_out", [False, True])
def test_calls__others_have_the_cpu_meanwhile__that_counts_unless_waits_are_left_out(leaves_out: bool) -> None:
    device = FakeDevice(launch_ns=MS, capabilities=frozenset())

    def call() -> None:
        device.launch("mm", 4 * MS)
        device.waits_for_cpu(20 * MS)

    with device.leave_out_waits() if leaves_out else nullcontext():
        call_ns = timed_call(call, device)
        times = time_calls(call, device, CallBudget(calls=3))
        rates = measure_throughput(call, device, items=4, window_seconds=0.1)[0]
    expected = 5 * MS if leaves_out else 25 * MS
    assert [call_ns, *times.wall.tolist()] == [expected] * 4
    assert rates.tolist() == pytest.approx([4e9 / expected] * 5)
    assert device.timer_ns() == device.clock_ns()


def test_measure_throughput__queue__launches_overlap_kernels() -> None:
    device = FakeDevice(launch_ns=MS)
    rates, _ = measure_throughput(lambda: device.launch("mm", 2 * MS), device, items=4, window_seconds=0.1)
    assert rates.tolist() == pytest.approx([2000.0] * 5)


def test_measure_throughput__launch_slower_than_kernel__the_host_sets_the_rate() -> None:
    device = FakeDevice(launch_ns=2 * MS)
    rates, _ = measure_throughput(lambda: device.launch("mm", MS), device, items=1, window_seconds=0.1)
    assert rates.tolist() == pytest.approx([500.0] * 5)


def test_measure_throughput__no_queue__one_call_after_another() -> None:
    device = FakeDevice(launch_ns=MS, capabilities=frozenset())
    rates, _ = measure_throughput(lambda: device.launch("mm", 3 * MS), device, items=1, window_seconds=0.1)
    assert rates.tolist() == pytest.approx([250.0] * 5)


def test_measure_throughput__fast_host__never_more_than_depth_in_flight() -> None:
    device = FakeDevice()
    ahead: list[int] = []

    def call() -> None:
        device.launch("mm", MS)
        ahead.append(device.free_ns["compute"] - device.host_ns)

    measure_throughput(call, device, items=1, window_seconds=0.05, depth=4)
    assert max(ahead) == 4 * MS


def test_measure_throughput__calls_longer_than_a_window__a_window_holds_one_call() -> None:
    device = FakeDevice()
    rates, calls = measure_throughput(lambda: device.launch("mm", 3000 * MS), device, items=1, window_seconds=1.0)
    assert rates.tolist() == pytest.approx([1 / 3] * 5)
    assert calls == 6


def test_measure_throughput__slow_spell__shows_in_the_lowest_window() -> None:
    device = FakeDevice(kernel_times={"mm": lambda number: 2 * MS if 101 <= number < 151 else MS})
    rates, _ = measure_throughput(lambda: device.launch("mm"), device, items=1, window_seconds=0.1)
    assert rates.min() == pytest.approx(500.0)
    assert rates.max() == pytest.approx(1000.0)
