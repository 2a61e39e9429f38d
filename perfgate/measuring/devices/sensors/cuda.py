"""An NVIDIA GPU, by one question of nvidia-smi; its processes are not asked for."""

from __future__ import annotations

from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.nvidia.smi import FIELDS, VISIBLE, choose_row, gpu_command, parse_rows, to_telemetry
from perfgate.measuring.devices.telemetry import Sensor, Telemetry

KIND = "cuda"


def open_sensor(host: Host, index: int) -> Sensor:
    """Return what reads ``cuda:index``. Raises MeasuringError where nvidia-smi is not there or shows no such GPU."""
    visible = host.environ.get(VISIBLE, "")

    def read() -> Telemetry:
        rows = parse_rows(host.run(gpu_command()), FIELDS, "nvidia-smi --query-gpu")
        return to_telemetry(choose_row(rows, index, visible), None)

    read()
    return read
