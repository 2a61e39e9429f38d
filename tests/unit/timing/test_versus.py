"""Two ways in turns on a device with a clock of its own: the ratio is known."""

from __future__ import annotations

import pytest

from perfgate.measuring.timing.calls import FEWEST_QUADS, compare
from tests.fakes.device import FakeDevice

MS = 1_000_000


def test_compare__second_takes_half_as_long__twice_as_fast() -> None:
    device = FakeDevice()
    found = compare(lambda: device.launch("slow", 2 * MS), lambda: device.launch("fast", MS), device, seconds=1.0)
    assert found.speedup == pytest.approx(2.0, rel=0.05)
    assert found.faster
    assert found.low <= found.speedup <= found.high
    assert found.quads >= FEWEST_QUADS


def test_compare__the_same_way_twice__interval_holds_one() -> None:
    device = FakeDevice()
    found = compare(lambda: device.launch("a", MS), lambda: device.launch("b", MS), device, seconds=0.5)
    assert found.low <= 1.0 <= found.high
    assert not found.faster


def test_compare__calls_of_a_minute__stops_at_the_fewest_quads() -> None:
    device = FakeDevice()
    found = compare(
        lambda: device.launch("a", 60_000 * MS), lambda: device.launch("b", 60_000 * MS), device, seconds=1.0
    )
    assert found.quads == FEWEST_QUADS
