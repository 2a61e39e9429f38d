"""A CUDA GPU, as ``nvidia-smi`` reports it by field name; read from an H100 with driver
580.

Source: ``nvidia-smi --help-query-gpu`` and ``--help-query-compute-apps`` as documented,
NVML's table of clock event reasons. A missing field is unavailable.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import (
    ClockCommands,
    DeviceProcess,
    DeviceState,
    Sensor,
    Watch,
)
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.cells import (
    MHZ,
    MIB,
    MOST_TEXT,
    number,
    quoted,
    scaled,
    share,
)
from perfgate.measuring.devices.host import Host, Runner, run_tool

KIND = "cuda"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Since driver 535 the reasons are called clocks_event_reasons; every driver still knows
# the older name.
FIELDS = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "temperature.gpu",
    "power.draw",
    "clocks.sm",
    "clocks.max.sm",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "clocks_throttle_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
)
APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")
# The commands that print FIELDS and APP_FIELDS.
GPUS = (
    "nvidia-smi",
    f"--query-gpu={','.join(FIELDS)}",
    "--format=csv,noheader,nounits",
)
APPS = (
    "nvidia-smi",
    f"--query-compute-apps={','.join(APP_FIELDS)}",
    "--format=csv,noheader,nounits",
)
# NVML, nvmlClocksEventReasons. The power limit lowers the clock of every heavy model,
# on both sides alike; the others mean that something is wrong. Idle (1), application
# clocks (2) and display clocks (0x100) do not slow a GPU down.
_POWER_CAP = 0x4
_THROTTLED = {
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
_LOADS = {"gpu": "utilization.gpu", "memory_bandwidth": "utilization.memory"}
_FAILURES = (
    "nvidia-smi has failed",
    "failed to initialize nvml",
    "unable to determine the device handle",
    "no devices were found",
    "is not a valid field to query",
    "command not found",
)


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Every check of ``cuda:index``; one line on a machine without any sign of an
    NVIDIA GPU.
    """
    if host.find_program("nvidia-smi", host.environ) is None:
        if not host.below("/dev/nvidiactl").exists():
            nothing = "no NVIDIA device: neither nvidia-smi nor /dev/nvidiactl is here"
            return [FitnessCheck("device cuda", "unavailable", nothing)]
        remedy = (
            "in a container, start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
        return [
            FitnessCheck(
                "cuda card", "unavailable", "nvidia-smi is not on PATH", remedy
            )
        ]
    try:
        row = choose_row(parse_gpus(host.run(GPUS)), index, host.environ, "")
        telemetry = read_gpu(index, host.run, host.environ)
    except MeasuringError as error:
        remedy = "make nvidia-smi show the GPU: then temperature, clock, health and other processes can be seen"
        return [FitnessCheck("cuda card", "unavailable", str(error), remedy)]
    checks = [
        FitnessCheck(
            "cuda driver", "ok", f"{row['name']}, driver {row['driver_version']}"
        )
    ]
    checks += check_card(KIND, telemetry)
    if reasons := throttled_by(row["clocks_throttle_reasons.active"]):
        remedy = "cool the GPU, and check its power supply"
        checks.append(
            FitnessCheck(
                "cuda throttling",
                "attention",
                f"slowed down by {', '.join(reasons)}",
                remedy,
            )
        )
    return checks


def open_sensor(host: Host, index: int) -> Sensor:
    return open_watch(host, index, "").state


def open_watch(host: Host, index: int, identity: str) -> Watch:
    """``identity`` is the GPU's UUID (GPU-…) if known; without it the index may be
    ambiguous.
    """

    def row() -> dict[str, str]:
        return choose_row(parse_gpus(host.run(GPUS)), index, host.environ, identity)

    uuid = row()["uuid"]

    def processes() -> DeviceState:
        return DeviceState(
            foreign_processes=foreign(parse_apps(host.run(APPS)), uuid, frozenset())
        )

    return Watch(state=lambda: to_telemetry(row(), None), processes=processes)


def clock_commands(host: Host, index: int, megahertz: int) -> ClockCommands:
    """The commands of nvidia-smi; both need the rights of root."""
    uuid = choose_row(parse_gpus(host.run(GPUS)), index, host.environ, "")["uuid"]
    lock = "nvidia-smi", "-i", uuid, f"--lock-gpu-clocks={megahertz},{megahertz}"
    return ClockCommands(lock, ("nvidia-smi", "-i", uuid, "--reset-gpu-clocks"))


def read_gpu(
    index: int,
    runner: Runner = run_tool,
    environ: Mapping[str, str] = os.environ,
    own: frozenset[int] = frozenset(),
    identity: str = "",
) -> DeviceState:
    """The state of torch's ``cuda:index`` from nvidia-smi; ``own`` are the processes
    that are not foreign.

    ``identity`` is its UUID as nvidia-smi writes it, if known. Raises MeasuringError
    when nvidia-smi is not there, fails, or shows no such GPU.
    """
    row = choose_row(parse_gpus(runner(GPUS)), index, environ, identity)
    try:
        processes = foreign(parse_apps(runner(APPS)), row["uuid"], own)
    except MeasuringError:
        processes = None
    return to_telemetry(row, processes)


def parse_rows(
    text: str, fields: tuple[str, ...], command: str
) -> list[dict[str, str]]:
    """One dictionary a line. Raises UnmeasuredError for a failure, or a line with
    another number of values.
    """
    text = text[:MOST_TEXT]
    printed = {"command": command, "printed": quoted(text)}
    if any(failure in text.lower() for failure in _FAILURES):
        raise UnmeasuredError(Message("device.nvidia-smi-fails", printed))
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    rows: list[dict[str, str]] = []
    try:
        for cells in csv.reader(lines, skipinitialspace=True):
            if len(cells) != len(fields):
                raise UnmeasuredError(
                    Message(
                        "device.nvidia-smi-no-row", {**printed, "count": len(fields)}
                    )
                )
            rows.append(dict(zip(fields, map(str.strip, cells))))
    except csv.Error as error:
        raise UnmeasuredError(
            Message(
                "device.nvidia-smi-no-table", {"command": command, "error": str(error)}
            )
        ) from error
    if not rows:
        raise UnmeasuredError(
            Message("device.nvidia-smi-no-row", {**printed, "count": len(fields)})
        )
    return rows


def parse_gpus(text: str) -> list[dict[str, str]]:
    return parse_rows(text, FIELDS, "nvidia-smi --query-gpu")


def parse_apps(text: str) -> list[dict[str, str]]:
    """The processes on all GPUs, none for an empty answer."""
    if text.strip():
        return parse_rows(text, APP_FIELDS, "nvidia-smi --query-compute-apps")
    return []


def choose_row(
    rows: list[dict[str, str]], index: int, environ: Mapping[str, str], identity: str
) -> dict[str, str]:
    """The row of torch's ``cuda:index``: by its UUID, else by CUDA_VISIBLE_DEVICES.

    Raises UnmeasuredError if there is none or its number is ambiguous: nvidia-smi
    counts by bus, CUDA puts the fastest first unless CUDA_DEVICE_ORDER overrides it
    (CUDA programming guide, environment variables).
    """
    visible = environ.get(_VISIBLE, "")
    entries = [entry.strip() for entry in visible.split(",") if entry.strip()]
    if not identity and entries and index >= len(entries):
        reason = Message(
            "device.gpu-not-visible",
            {
                "index": index,
                "variable": _VISIBLE,
                "value": visible[:80],
                "count": len(entries),
            },
        )
        raise UnmeasuredError(reason)
    name = identity
    if not name:
        name = entries[index] if entries else str(index)
    if identity or name.startswith("GPU-"):
        column, matches = "uuid", [row for row in rows if row["uuid"].startswith(name)]
    elif (
        environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and len({row["name"] for row in rows}) > 1
    ):
        raise UnmeasuredError(Message("device.gpu-ambiguous", {"index": index}))
    else:
        column, matches = "index", [row for row in rows if row["index"] == name]
    if not matches:
        listed = ", ".join(row[column] for row in rows)[:160]
        raise UnmeasuredError(
            Message("device.no-such-gpu", {"gpu": name[:80], "shown": listed})
        )
    return matches[0]


def to_telemetry(
    row: dict[str, str], processes: list[DeviceProcess] | None
) -> DeviceState:
    units = {}
    for name, column in _LOADS.items():
        load = share(row[column])
        if load is not None:
            units[name] = load
    mask = _clock_reasons(row["clocks_throttle_reasons.active"])
    throttled = power_capped = None
    if mask is not None:
        throttled = bool(mask & sum(_THROTTLED))
        power_capped = bool(mask & _POWER_CAP)
    # A GPU without ECC has [N/A] here: unknown, which is not OK.
    errors = number(row["ecc.errors.uncorrected.volatile.total"])
    health = "OK" if errors == 0 else None
    if errors:
        health = f"{errors:.0f} uncorrected ECC errors"
    return DeviceState(
        temperature=number(row["temperature.gpu"]),
        power=number(row["power.draw"]),
        clock=scaled(row["clocks.sm"], MHZ),
        rated_clock=scaled(row["clocks.max.sm"], MHZ),
        utilization=units.get("gpu"),
        units=units,
        memory_used=scaled(row["memory.used"], MIB),
        memory_total=scaled(row["memory.total"], MIB),
        health=health,
        throttled=throttled,
        power_capped=power_capped,
        foreign_processes=processes,
    )


def throttled_by(mask: str) -> list[str]:
    """Why heat, a brake or a fault lowers the clock, in words."""
    bits = _clock_reasons(mask) or 0
    return [word for bit, word in _THROTTLED.items() if bits & bit]


def _clock_reasons(mask: str) -> int | None:
    """The bits of the reasons, None if the driver does not report them."""
    text = mask.strip().lower()
    if re.fullmatch(r"0x[0-9a-f]{1,16}", text):
        return int(text, 16)
    return None


def foreign(
    apps: list[dict[str, str]], uuid: str, own: frozenset[int]
) -> list[DeviceProcess]:
    processes = []
    for app in apps:
        pid = number(app["pid"])
        if (
            app["gpu_uuid"] == uuid
            and pid is not None
            and pid > 0
            and int(pid) not in own
        ):
            memory = scaled(app["used_gpu_memory"], MIB)
            processes.append(
                DeviceProcess(pid=int(pid), name=app["process_name"], memory=memory)
            )
    return processes
