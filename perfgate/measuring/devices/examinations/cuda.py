"""A CUDA GPU, from what ``nvidia-smi`` tells. Never seen on hardware here; what it cannot tell is unavailable."""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.nvidia_smi import FIELDS, choose_row, gpu_command, parse_rows, read_gpu, slowed_by

KIND = "cuda"


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Every check of ``cuda:index``; one line where nothing of an NVIDIA GPU is here at all."""
    if host.find_program("nvidia-smi", host.environ) is None:
        if not host.below("/dev/nvidiactl").exists():
            return [
                FitnessCheck(
                    "device cuda", "unavailable", "no NVIDIA device: neither nvidia-smi nor /dev/nvidiactl is here"
                )
            ]
        return [
            FitnessCheck(
                "cuda card",
                "unavailable",
                "nvidia-smi is not on PATH",
                "in a container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            )
        ]
    try:
        rows = parse_rows(host.run(gpu_command()), FIELDS, "nvidia-smi --query-gpu")
        row = choose_row(rows, index, host.environ, "")
        telemetry = read_gpu(index, host.run, host.environ)
    except MeasuringError as error:
        return [
            FitnessCheck(
                "cuda card",
                "unavailable",
                str(error),
                "make nvidia-smi show the GPU: then temperature, clock, health and other processes can be seen",
            )
        ]
    reasons = slowed_by(row["clocks_throttle_reasons.active"])
    slowed = (
        [
            FitnessCheck(
                "cuda throttling",
                "attention",
                f"slowed down by {', '.join(reasons)}",
                "cool the GPU or raise its power limit (nvidia-smi -pl)",
            )
        ]
        if reasons
        else []
    )
    driver = FitnessCheck("cuda driver", "ok", f"{row['name']}, driver {row['driver_version']}")
    return [driver, *check_card(KIND, telemetry), *slowed]
