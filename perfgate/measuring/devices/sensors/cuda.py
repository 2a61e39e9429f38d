"""An NVIDIA GPU, by questions of nvidia-smi: one of its state, one of its processes."""

from __future__ import annotations

from perfgate.document.telemetry import Sensor, Telemetry, Watch
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.nvidia_smi import (
    FIELDS,
    app_command,
    choose_row,
    foreign,
    gpu_command,
    parse_apps,
    parse_rows,
    to_telemetry,
)

KIND = "cuda"


def open_sensor(host: Host, index: int) -> Sensor:
    """What reads ``cuda:index``. Raises MeasuringError where nvidia-smi is not there or shows no such GPU."""
    return open_watch(host, index, "").state


def open_watch(host: Host, index: int, identity: str) -> Watch:
    """What reads state and processes of ``cuda:index``, which is ``identity`` (GPU-…) where that is known.

    Raises MeasuringError where nvidia-smi is not there, shows no such GPU, or nobody can tell which one it is.
    """

    def row() -> dict[str, str]:
        rows = parse_rows(host.run(gpu_command()), FIELDS, "nvidia-smi --query-gpu")
        return choose_row(rows, index, host.environ, identity)

    uuid = row()["uuid"]

    def state() -> Telemetry:
        return to_telemetry(row(), None)

    def processes() -> Telemetry:
        return Telemetry(foreign_processes=foreign(parse_apps(host.run(app_command())), uuid, frozenset()))

    return Watch(state=state, processes=processes)
