"""Judge readings of a card for measuring on it, the same for every vendor: one at rest,
several under load.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.document.telemetry import AT_WORK, DeviceProcess, DeviceState
from perfgate.measuring.devices.device import Call, Device

# msprof-analyze calls a drop of the AI Core's frequency by 5 % an abnormal one.
FULL_CLOCK = 0.95
_NAMED = 4
_GIB = float(1 << 30)
# Between two readings; one of npu-smi takes about a second by itself.
PAUSE_SECONDS = 0.1
LEAST_READINGS = 2
_SIZE = 2048
_PRODUCTS = 8
_COOL = "cool the {}, raise its power limit, or lower its clock to one it can hold: times wander with its temperature"

Sample = Callable[[], DeviceState | None]


def check_card(kind: str, telemetry: DeviceState) -> list[FitnessCheck]:
    return [
        _check_health(f"{kind} health", telemetry.health),
        _check_others(f"{kind} others", telemetry),
        _check_heat(f"{kind} heat", telemetry),
        _check_clock(f"{kind} clock", telemetry),
    ]


def _check_health(name: str, health: str | None) -> FitnessCheck:
    if health is None:
        return FitnessCheck(
            name, "unavailable", "the driver reports no health of this card"
        )
    if health.upper() == "OK":
        return FitnessCheck(name, "ok", health)
    status: FitnessStatus = "unfit" if health.lower() == "critical" else "attention"
    remedy = (
        "look the error up (npu-smi info -t health -i <NPU ID> -c <Chip ID>; nvidia-smi -q), reset the card or take "
        "another"
    )
    return FitnessCheck(name, status, f"the card reports {health}", remedy)


def _check_others(name: str, telemetry: DeviceState) -> FitnessCheck:
    """Whether other processes use the card; other containers may hide theirs, but not
    the load.
    """
    processes, busy = telemetry.foreign_processes, telemetry.utilization
    memory = ""
    if telemetry.memory_used is not None and telemetry.memory_total is not None:
        memory = f"; {telemetry.memory_used / _GIB:.1f} of {telemetry.memory_total / _GIB:.1f} GiB in use"
    if processes:
        names = ", ".join(map(_process, processes[:_NAMED]))
        if len(processes) > _NAMED:
            names += f" and {len(processes) - _NAMED} more"
        detail = f"{len(processes)} other: {names}{memory}"
        remedy = (
            "wait until they end, or measure on a card of your own: times taken beside another process are not those of a "
            "card alone"
        )
        return FitnessCheck(name, "attention", detail, remedy)
    if busy is not None and busy > AT_WORK:
        detail = f"{busy * 100:.0f} % busy, by no process listed here{memory}"
        remedy = "another container may use the card: ask on its host, or take a card of your own"
        return FitnessCheck(name, "attention", detail, remedy)
    if processes is None:
        return FitnessCheck(
            name, "unavailable", f"the driver lists no processes{memory}"
        )
    return FitnessCheck(name, "ok", f"no other process{memory}")


def _process(process: DeviceProcess) -> str:
    memory = ""
    if process.memory is not None:
        memory = f", {process.memory / _GIB:.1f} GiB"
    if process.name:
        return f"pid {process.pid} ({process.name}{memory})"
    return f"pid {process.pid}{memory}"


def _check_heat(name: str, telemetry: DeviceState) -> FitnessCheck:
    """No limit is judged here: the clock shows whether heat slows the card down."""
    parts = _heat([telemetry])
    if not parts:
        return FitnessCheck(
            name,
            "unavailable",
            "the driver reports neither temperature nor power of this card",
        )
    if telemetry.power is None:
        parts[-1] += "; no power"
    elif telemetry.temperature is None:
        parts[-1] += "; no temperature"
    return FitnessCheck(name, "ok", ", ".join(parts))


def _heat(readings: list[DeviceState]) -> list[str]:
    degrees = _known([reading.temperature for reading in readings])
    watts = _known([reading.power for reading in readings])
    parts = []
    if degrees:
        parts.append(f"{max(degrees):.0f} °C")
    if watts:
        parts.append(f"{max(watts):.0f} W")
    return parts


def _known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _check_clock(name: str, telemetry: DeviceState) -> FitnessCheck:
    """A low clock is a fault only on a card that computes or reports throttling."""
    share, clock = telemetry.clock_share(), ""
    if telemetry.clock is not None:
        megahertz = f"{telemetry.clock / 1e6:.0f}"
        if telemetry.rated_clock is not None:
            megahertz += f" of {telemetry.rated_clock / 1e6:.0f}"
        clock = f" ({megahertz} MHz)"
    if telemetry.throttled:
        return FitnessCheck(
            name, "attention", f"slowed down by the driver{clock}", _COOL.format("card")
        )
    if share is None:
        return FitnessCheck(
            name, "unavailable", f"the driver reports no clock to compare{clock}"
        )
    if telemetry.power_capped:
        return FitnessCheck(
            name,
            "ok",
            f"{share * 100:.0f} % of the rated clock{clock}, at its power limit",
        )
    if share < FULL_CLOCK and telemetry.at_work:
        detail = f"computing at {share * 100:.0f} % of its clock{clock}"
        return FitnessCheck(name, "attention", detail, _COOL.format("card"))
    detail = f"{share * 100:.0f} % of the rated clock{clock}"
    if share < FULL_CLOCK:
        detail += ", idle: the clock under load is another question"
    return FitnessCheck(name, "ok", detail)


def watch_device(device: Device, seconds: float) -> list[FitnessCheck]:
    """Multiply matrices on an opened device for some seconds and judge its clock; torch
    must be imported.
    """
    import torch

    matrix = torch.rand(_SIZE, _SIZE).to(device.handle())
    right = torch.rand(_SIZE, _SIZE).to(device.handle())

    def multiply() -> None:
        with device.inference_mode():
            for _ in range(_PRODUCTS):
                torch.matmul(matrix, right)
        device.synchronize()

    return judge_load(device.kind, read_under_load(device.telemetry, multiply, seconds))


def read_under_load(
    sample: Sample,
    load: Call,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> list[DeviceState]:
    """Run ``load`` again and again for some seconds and return the samples taken
    meanwhile.

    One call of ``load`` should take milliseconds and end when the device is done. If
    the device reports no state, no load runs and there are no samples.
    """
    if sample() is None:
        return []
    readings: list[DeviceState] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            reading = sample()
            # A reading that overlaps the end of the load may be of either state.
            if reading is not None and not stop.is_set():
                readings.append(reading)
            stop.wait(PAUSE_SECONDS)

    reader = threading.Thread(target=read, name="perfgate-telemetry", daemon=True)
    load()
    reader.start()
    try:
        deadline = clock() + seconds
        while clock() < deadline:
            load()
    finally:
        stop.set()
        reader.join(PAUSE_SECONDS)
    return readings.copy()


def judge_load(kind: str, readings: list[DeviceState]) -> list[FitnessCheck]:
    clock, throttling = f"{kind} clock under load", f"{kind} throttling under load"
    busy = _known([reading.utilization for reading in readings])
    if len(readings) < LEAST_READINGS:
        why = f"the driver told its state {len(readings)} times under load, {LEAST_READINGS} are needed"
    elif busy and max(busy) <= AT_WORK:
        why = f"the driver shows a load of {max(busy) * 100:.0f} % at most: its clock is that of a device at rest"
    else:
        shares = _known([reading.clock_share() for reading in readings])
        return [
            _judge_clock(clock, readings, shares),
            _judge_throttling(throttling, readings, shares),
        ]
    return [FitnessCheck(name, "unavailable", why) for name in (clock, throttling)]


def _judge_clock(
    name: str, readings: list[DeviceState], shares: list[float]
) -> FitnessCheck:
    if not shares:
        return FitnessCheck(
            name, "unavailable", "the driver reports no current and rated clock"
        )
    middle = statistics.median(shares)
    rated = max(reading.rated_clock or 0 for reading in readings) / 1e6
    span = f"from {min(shares) * 100:.0f} to {max(shares) * 100:.0f} % in {len(shares)} readings"
    detail = f"{middle * 100:.0f} % of {rated:.0f} MHz, {span}"
    if capped := sum(reading.power_capped is True for reading in readings):
        # The power limit holds the clock of every heavy load, on both sides of a
        # comparison alike.
        return FitnessCheck(
            name,
            "ok",
            f"{detail}; at the power limit in {capped} of {len(readings)} readings",
        )
    if middle < FULL_CLOCK:
        return FitnessCheck(name, "attention", detail, _COOL.format("device"))
    return FitnessCheck(name, "ok", detail)


def _judge_throttling(
    name: str, readings: list[DeviceState], shares: list[float]
) -> FitnessCheck:
    """The driver's own report or, without one, whether the clock fell under load."""
    answers = [
        reading.throttled for reading in readings if reading.throttled is not None
    ]
    heat = ", ".join(_heat(readings))
    if heat:
        heat = f"; at most {heat}"
    if any(answers):
        detail = f"in {sum(answers)} of {len(answers)} readings{heat}"
        return FitnessCheck(name, "attention", detail, _COOL.format("device"))
    if answers:
        return FitnessCheck(name, "ok", f"none in {len(answers)} readings{heat}")
    if not shares:
        return FitnessCheck(
            name,
            "unavailable",
            f"the driver reports neither throttling nor a clock{heat}",
        )
    fall = 1 - min(shares) / max(shares)
    if min(shares) < FULL_CLOCK * max(shares):
        detail = f"the clock fell by {fall * 100:.0f} % of its highest while the load ran{heat}"
        return FitnessCheck(name, "attention", detail, _COOL.format("device"))
    return FitnessCheck(name, "ok", f"the clock stayed within {fall * 100:.1f} %{heat}")
