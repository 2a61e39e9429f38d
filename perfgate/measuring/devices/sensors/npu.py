"""An Ascend NPU, by the questions of npu-smi that may be asked while it works."""

from __future__ import annotations

from perfgate.document.telemetry import Sensor, Watch
from perfgate.measuring.devices.ascend.reading import find_chip, read_load, read_processes, read_state
from perfgate.measuring.devices.host import Host

KIND = "npu"


def open_sensor(host: Host, index: int) -> Sensor:
    """What reads ``npu:index``. Raises MeasuringError where npu-smi is not there or shows no such chip."""
    chip = find_chip(index, host.run, host.environ)

    return lambda: read_load(chip, host.run)


def open_watch(host: Host, index: int, identity: str) -> Watch:  # noqa: ARG001 - the runtime's id is the chip's own
    """What reads state and processes of ``npu:index``. Raises MeasuringError where npu-smi shows no such chip."""
    chip = find_chip(index, host.run, host.environ)
    read_state(chip, host.run)
    return Watch(state=lambda: read_state(chip, host.run), processes=lambda: read_processes(chip, host.run))
