"""The search for the steady state on scripted warm-ups; never steady is an answer too."""

from __future__ import annotations

from perfgate.measuring.timing.calls import find_steady_state
from tests.fakes.device import FakeDevice, KernelTime

MS = 1_000_000


def _search(script: KernelTime, **arguments: float):
    device = FakeDevice(kernel_times={"mm": script})
    return find_steady_state(lambda: device.launch("mm"), device, **arguments)


def test_find_steady_state__short_calls__three_windows_of_50_ms() -> None:
    found = _search(MS)
    assert (found.calls, found.steady, found.first_call_ns) == (151, True, MS)


def test_find_steady_state__long_calls__three_windows_of_10_calls() -> None:
    found = _search([500 * MS, 20 * MS])
    assert (found.calls, found.steady, found.first_call_ns) == (31, True, 500 * MS)
    assert found.call_ns == 20 * MS


def test_find_steady_state__slow_first_calls__waits_until_they_are_over() -> None:
    found = _search([10 * MS] * 15 + [5 * MS])
    assert (found.calls, found.steady, found.call_ns) == (41, True, 5 * MS)


def test_find_steady_state__ever_slower__ends_unsteady_after_300_calls() -> None:
    found = _search(lambda number: 5 * MS + number * MS // 2)
    assert (found.calls, found.steady) == (301, False)


def test_find_steady_state__noise_without_trend__is_steady() -> None:
    device = FakeDevice(noise=0.05, seed=3)
    found = find_steady_state(lambda: device.launch("mm", 5 * MS), device)
    assert found.steady
    assert 31 <= found.calls <= 34  # ten calls may fall short of 50 ms


def test_find_steady_state__calls_longer_than_the_cap__ends_unsteady_at_once() -> None:
    found = _search(20_000 * MS, cap_seconds=30.0)
    assert (found.calls, found.steady) == (2, False)
