"""Calls that bring a batch of their own to the fake device: from pinned memory while the host goes on, and not so."""

from __future__ import annotations

from tests.fakes.device import FakeDevice, FakeTensor

BATCH = FakeTensor(64, 4 << 20)


def ahead(device: FakeDevice) -> None:
    """Copy from pinned memory, and queue the work behind it at once."""
    device.to_device(device.pin(BATCH), non_blocking=True)
    device.launch("aten::mm", 2_000_000)
    device.launch("aten::relu", 200_000)


def waiting(device: FakeDevice) -> None:
    """Copy from pageable memory, and wait for it."""
    device.to_device(BATCH)  # here
    device.launch("aten::mm", 2_000_000)
    device.launch("aten::relu", 200_000)
