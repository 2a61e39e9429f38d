"""Whether a device keeps its clock while it computes: read while a load runs on it, never while something is timed."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.document.telemetry import AT_WORK, Telemetry
from perfgate.measuring.devices.card import FULL_CLOCK
from perfgate.measuring.devices.device import Device

# Between two readings; one of npu-smi takes about a second by itself.
PAUSE_SECONDS = 0.1
LEAST_READINGS = 2
_SIZE = 2048
_PRODUCTS = 8
_COOL = (
    "cool the device, raise its power limit, or lower its clock to one it can hold: times wander with its temperature"
)

Sample = Callable[[], Telemetry | None]


def watch_device(device: Device, seconds: float) -> list[FitnessCheck]:
    """Multiply matrices on an opened device for some seconds and judge its clock; torch must be imported."""
    return watch_under_load(device.telemetry, _products(device), seconds, kind=device.kind)


def watch_under_load(
    sample: Sample, load: Callable[[], Any], seconds: float, *, kind: str, clock: Callable[[], float] = time.monotonic
) -> list[FitnessCheck]:
    """Run ``load`` again and again for so long, take samples beside it, and judge the clock they show.

    One call of ``load`` should take milliseconds and end when the device is done. A device of which nobody tells anything is
    not loaded at all.
    """
    return judge_load(kind, read_under_load(sample, load, seconds, clock=clock))


def read_under_load(
    sample: Sample, load: Callable[[], Any], seconds: float, *, clock: Callable[[], float] = time.monotonic
) -> list[Telemetry]:
    """Run ``load`` for so long and return the samples taken meanwhile; none, and no load, where nobody tells anything."""
    if sample() is None:
        return []
    readings: list[Telemetry] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            reading = sample()
            # What was asked while the load ran and answered after its end may be of either.
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
    return list(readings)


def judge_load(kind: str, readings: list[Telemetry]) -> list[FitnessCheck]:
    """Judge readings taken in this order while a load ran."""
    busy = [reading.utilization for reading in readings if reading.utilization is not None]
    if len(readings) < LEAST_READINGS:
        why = f"the driver told its state {len(readings)} times under load, {LEAST_READINGS} are needed"
    elif busy and max(busy) <= AT_WORK:
        why = f"the driver shows a load of {max(busy) * 100:.0f} % at most: its clock is that of a device at rest"
    else:
        return [_judge_clock(kind, readings), _judge_throttling(kind, readings)]
    return [_check(kind, name, "unavailable", why) for name in ("clock", "throttling")]


def _judge_clock(kind: str, readings: list[Telemetry]) -> FitnessCheck:
    shares = _shares(readings)
    if not shares:
        return _check(kind, "clock", "unavailable", "the driver reports no current and rated clock")
    middle = statistics.median(shares)
    rated = max(reading.rated_clock or 0 for reading in readings) / 1e6
    span = f"from {min(shares) * 100:.0f} to {max(shares) * 100:.0f} % in {len(shares)} readings"
    detail = f"{middle * 100:.0f} % of {rated:.0f} MHz, {span}"
    if middle < FULL_CLOCK:
        return _check(kind, "clock", "attention", detail, _COOL)
    return _check(kind, "clock", "ok", detail)


def _judge_throttling(kind: str, readings: list[Telemetry]) -> FitnessCheck:
    """Judge what the driver says of itself, or, where it says nothing, whether the clock fell while the load ran."""
    answers = [reading.throttled for reading in readings if reading.throttled is not None]
    degrees = [reading.temperature for reading in readings if reading.temperature is not None]
    watts = [reading.power for reading in readings if reading.power is not None]
    parts = [f"{max(degrees):.0f} °C"] if degrees else []
    parts += [f"{max(watts):.0f} W"] if watts else []
    heat = f"; at most {', '.join(parts)}" if parts else ""
    if answers:
        if any(answers):
            return _check(kind, "throttling", "attention", f"in {sum(answers)} of {len(answers)} readings{heat}", _COOL)
        return _check(kind, "throttling", "ok", f"none in {len(answers)} readings{heat}")
    shares = _shares(readings)
    if not shares:
        return _check(kind, "throttling", "unavailable", f"the driver reports neither throttling nor a clock{heat}")
    lowest, highest = min(shares), max(shares)
    if lowest < FULL_CLOCK * highest:
        detail = f"the clock fell by {(1 - lowest / highest) * 100:.0f} % of its highest while the load ran{heat}"
        return _check(kind, "throttling", "attention", detail, _COOL)
    return _check(kind, "throttling", "ok", f"the clock stayed within {(1 - lowest / highest) * 100:.1f} %{heat}")


def _shares(readings: list[Telemetry]) -> list[float]:
    return [share for reading in readings if (share := reading.clock_share()) is not None]


def _products(device: Device) -> Callable[[], None]:
    import torch

    matrix = torch.rand(_SIZE, _SIZE).to(device.handle())
    right = torch.rand(_SIZE, _SIZE).to(device.handle())

    def multiply() -> None:
        with device.inference_mode():
            for _ in range(_PRODUCTS):
                torch.matmul(matrix, right)
        device.synchronize()

    return multiply


def _check(kind: str, name: str, status: FitnessStatus, detail: str, remedy: str | None = None) -> FitnessCheck:
    return FitnessCheck(name=f"{kind} {name} under load", status=status, seen=detail, remedy=remedy)
