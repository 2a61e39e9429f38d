"""A device of a kind that perfgate has not heard of; underneath it is the CPU."""

from __future__ import annotations

from perfgate.measuring.devices.backends.cpu import CpuDevice

KIND = "toy"


class ToyDevice(CpuDevice):
    kind = KIND

    def __init__(self) -> None:
        super().__init__()
        self.name = "Toy 1"


def open_device(index: int = 0) -> ToyDevice:
    del index
    return ToyDevice()
