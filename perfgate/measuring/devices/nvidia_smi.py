"""What ``nvidia-smi`` says of a GPU, asked for by name. Never seen on hardware here: written from NVIDIA's manual.

Source: ``nvidia-smi --help-query-gpu`` and ``--help-query-compute-apps`` as documented, NVML's table of clock event reasons.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping

from perfgate.document.telemetry import DeviceProcess, Telemetry
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Runner, run_tool

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
# Since driver 535 the reasons are called clocks_event_reasons; every driver still knows the older name.
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
# NVML, nvmlClocksEventReasons: bits that mean slower than asked for. Idle (1), application clocks (2) and display clocks
# (0x100) are not among them.
_SLOWED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
_MIB, _MHZ = 1 << 20, 1_000_000
_MOST_TEXT = 1 << 20
_QUOTED = 160
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_FAILURES = (
    "nvidia-smi has failed",
    "failed to initialize nvml",
    "unable to determine the device handle",
    "no devices were found",
    "is not a valid field to query",
    "command not found",
)


def read_gpu(
    index: int,
    runner: Runner = run_tool,
    environ: Mapping[str, str] = os.environ,
    own: frozenset[int] = frozenset(),
    identity: str = "",
) -> Telemetry:
    """What nvidia-smi says of torch's ``cuda:index``; ``own`` are the processes that are not foreign.

    ``identity`` is its UUID as nvidia-smi writes it, where that is known. Raises MeasuringError when nvidia-smi is not there,
    fails, or shows no such GPU.
    """
    rows = parse_rows(runner(gpu_command()), FIELDS, "nvidia-smi --query-gpu")
    row = choose_row(rows, index, environ, identity)
    try:
        apps: list[dict[str, str]] | None = parse_apps(runner(app_command()))
    except MeasuringError:
        apps = None
    return to_telemetry(row, apps, own=own)


def gpu_command() -> list[str]:
    """The command whose rows have ``FIELDS``."""
    return ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]


def app_command() -> list[str]:
    """The command whose rows have ``APP_FIELDS``."""
    return ["nvidia-smi", f"--query-compute-apps={','.join(APP_FIELDS)}", "--format=csv,noheader,nounits"]


def parse_rows(text: str, fields: tuple[str, ...], command: str) -> list[dict[str, str]]:
    """One dictionary a line. Raises MeasuringError for a failure, and where a line has another number of values."""
    text = text[:_MOST_TEXT]
    lower = text.lower()
    for failure in _FAILURES:
        if failure in lower:
            raise MeasuringError(f"{command} failed: {_quote(text)}; does `nvidia-smi` alone show the GPUs?")
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    try:
        cells = list(csv.reader(lines, skipinitialspace=True))
    except csv.Error as error:
        raise MeasuringError(f"{command} printed no table: {error}") from error
    if not cells or any(len(row) != len(fields) for row in cells):
        raise MeasuringError(f"{command} printed no row of {len(fields)} values: {_quote(text)}")
    return [dict(zip(fields, (cell.strip() for cell in row))) for row in cells]


def parse_apps(text: str) -> list[dict[str, str]]:
    """The processes on all GPUs, none for an empty answer."""
    return parse_rows(text, APP_FIELDS, "nvidia-smi --query-compute-apps") if text.strip() else []


def choose_row(rows: list[dict[str, str]], index: int, environ: Mapping[str, str], identity: str) -> dict[str, str]:
    """The row of torch's ``cuda:index``: by its UUID, else by what CUDA_VISIBLE_DEVICES shows.

    Raises MeasuringError when there is none, and where its number does not tell which: nvidia-smi counts by bus, CUDA puts
    the fastest first unless CUDA_DEVICE_ORDER says otherwise (CUDA programming guide, environment variables).
    """
    if identity:
        return _by_uuid(rows, identity)
    visible = environ.get(VISIBLE, "")
    entries = [entry.strip() for entry in visible.split(",") if entry.strip()]
    if entries and index >= len(entries):
        raise MeasuringError(f"cuda:{index} is not visible: {VISIBLE}={visible[:80]} shows {len(entries)}")
    name = entries[index] if entries else str(index)
    if name.startswith("GPU-"):
        return _by_uuid(rows, name)
    if environ.get(ORDER) != BY_BUS and len({row["name"] for row in rows}) > 1:
        raise MeasuringError(
            f"cuda:{index} may be any of the different GPUs here, as CUDA counts the fastest first; set {ORDER}={BY_BUS}"
        )
    for row in rows:
        if row["index"] == name:
            return row
    raise MeasuringError(
        f"nvidia-smi shows no GPU {name[:80]}; it shows {', '.join(row['index'] for row in rows)[:80]}"
    )


def _by_uuid(rows: list[dict[str, str]], uuid: str) -> dict[str, str]:
    for row in rows:
        if row["uuid"].startswith(uuid):
            return row
    raise MeasuringError(
        f"nvidia-smi shows no GPU {uuid[:80]}; it shows {', '.join(row['uuid'] for row in rows)[:160]}"
    )


def to_telemetry(
    row: dict[str, str], apps: list[dict[str, str]] | None, *, own: frozenset[int] = frozenset()
) -> Telemetry:
    """A row and the processes as one record in base units."""
    busy, memory_busy = _share(row["utilization.gpu"]), _share(row["utilization.memory"])
    reasons = slowed_by(row["clocks_throttle_reasons.active"])
    units = {"gpu": busy, "memory_bandwidth": memory_busy}
    return Telemetry(
        temperature=_number(row["temperature.gpu"]),
        power=_number(row["power.draw"]),
        clock=_scaled(row["clocks.sm"], _MHZ),
        rated_clock=_scaled(row["clocks.max.sm"], _MHZ),
        utilization=busy,
        units={name: value for name, value in units.items() if value is not None},
        memory_used=_scaled(row["memory.used"], _MIB),
        memory_total=_scaled(row["memory.total"], _MIB),
        health=_health(row["ecc.errors.uncorrected.volatile.total"]),
        throttled=None if reasons is None else bool(reasons),
        foreign_processes=None if apps is None else foreign(apps, row["uuid"], own),
    )


def slowed_by(mask: str) -> list[str] | None:
    """Why the clock is lower than asked for, in words; None where the driver does not say."""
    text = mask.strip().lower()
    if not re.fullmatch(r"0x[0-9a-f]{1,16}", text):
        return None
    return [word for bit, word in _SLOWED.items() if int(text, 16) & bit]


def _health(errors: str) -> str | None:
    # A GPU without ECC says [N/A]: nothing is known, which is not OK.
    count = _number(errors)
    return None if count is None else "OK" if count == 0 else f"{count:.0f} uncorrected ECC errors"


def foreign(apps: list[dict[str, str]], uuid: str, own: frozenset[int]) -> list[DeviceProcess]:
    """The processes on a GPU other than ``own``."""
    processes = []
    for app in apps:
        pid = _number(app["pid"])
        if app["gpu_uuid"] == uuid and pid is not None and pid > 0 and int(pid) not in own:
            processes.append(
                DeviceProcess(pid=int(pid), name=app["process_name"], memory=_scaled(app["used_gpu_memory"], _MIB))
            )
    return processes


def _number(cell: str) -> float | None:
    # [N/A], [Not Supported], [Unknown Error]: in brackets stands what is no value.
    return float(cell) if _NUMBER.fullmatch(cell) else None


def _share(cell: str) -> float | None:
    value = _number(cell)
    return value / 100 if value is not None and 0 <= value <= 100 else None


def _scaled(cell: str, unit: int) -> int | None:
    value = _number(cell)
    return None if value is None or value < 0 else int(value * unit)


def _quote(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
    return line[:_QUOTED]
