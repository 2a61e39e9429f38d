"""An Ascend NPU, by the two questions of npu-smi that may be asked while it works."""

from __future__ import annotations

from perfgate.measuring.devices.ascend.reading import find_chip, read_load
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.telemetry import Sensor, Telemetry

KIND = "npu"


def open_sensor(host: Host, index: int) -> Sensor:
    """Return what reads ``npu:index``. Raises MeasuringError where npu-smi is not there or shows no such chip."""
    chip = find_chip(index, host.run, host.environ)

    def read() -> Telemetry:
        return read_load(chip, host.run)

    return read
