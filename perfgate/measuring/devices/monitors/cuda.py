"""A CUDA GPU, from what ``nvidia-smi`` tells. Never seen on hardware here; what it cannot tell is unavailable."""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck
from perfgate.document.telemetry import Sensor, Telemetry, Watch
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.nvidia_smi import (
    APPS,
    GPUS,
    choose_row,
    foreign,
    parse_apps,
    parse_gpus,
    read_gpu,
    slowed_by,
    to_telemetry,
)

KIND = "cuda"


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Every check of ``cuda:index``; one line where nothing of an NVIDIA GPU is here at all."""
    if host.find_program("nvidia-smi", host.environ) is None:
        if not host.below("/dev/nvidiactl").exists():
            nothing = "no NVIDIA device: neither nvidia-smi nor /dev/nvidiactl is here"
            return [FitnessCheck("device cuda", "unavailable", nothing)]
        remedy = "in a container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return [FitnessCheck("cuda card", "unavailable", "nvidia-smi is not on PATH", remedy)]
    try:
        row = choose_row(parse_gpus(host.run(GPUS)), index, host.environ, "")
        telemetry = read_gpu(index, host.run, host.environ)
    except MeasuringError as error:
        remedy = "make nvidia-smi show the GPU: then temperature, clock, health and other processes can be seen"
        return [FitnessCheck("cuda card", "unavailable", str(error), remedy)]
    checks = [FitnessCheck("cuda driver", "ok", f"{row['name']}, driver {row['driver_version']}")]
    checks += check_card(KIND, telemetry)
    if reasons := slowed_by(row["clocks_throttle_reasons.active"]):
        remedy = "cool the GPU or raise its power limit (nvidia-smi -pl)"
        checks.append(FitnessCheck("cuda throttling", "attention", f"slowed down by {', '.join(reasons)}", remedy))
    return checks


def open_sensor(host: Host, index: int) -> Sensor:
    return open_watch(host, index, "").state


def open_watch(host: Host, index: int, identity: str) -> Watch:
    """``identity`` is the GPU's UUID (GPU-…) where that is known; without it nobody may be able to tell which one it is."""

    def row() -> dict[str, str]:
        return choose_row(parse_gpus(host.run(GPUS)), index, host.environ, identity)

    uuid = row()["uuid"]

    def processes() -> Telemetry:
        return Telemetry(foreign_processes=foreign(parse_apps(host.run(APPS)), uuid, frozenset()))

    return Watch(state=lambda: to_telemetry(row(), None), processes=processes)
