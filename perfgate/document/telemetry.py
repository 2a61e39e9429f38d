"""The state of a device at one moment: heat, power, clocks, load, memory, health, and
other processes on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perfgate.document.records import FrozenStruct

# A card that computes more than this share of the time is at work; below, its clock is
# low because it is idle.
AT_WORK = 0.05


class DeviceProcess(FrozenStruct, kw_only=True):
    """One process on a device; ``memory`` is its memory there in bytes, None if the
    tool does not report it.
    """

    pid: int
    name: str = ""
    memory: int | None = None


class DeviceState(FrozenStruct, kw_only=True):
    """The state of one device in base units; None for values that the device does not
    report, which is never zero.

    Sensors, watches, checks of a card and devices between two blocks all report this
    record, each its own part of it.
    """

    # Degrees Celsius.
    temperature: float | None = None
    # W.
    power: float | None = None
    # Hz, as ``rated_clock``.
    clock: float | None = None
    rated_clock: float | None = None
    # The share of time in which the compute cores were busy, 0 to 1.
    utilization: float | None = None
    # The same for each unit that is counted separately (``aicore``, ``aivector``,
    # ``aicpu``, ``hbm_bandwidth`` …).
    units: dict[str, float] = {}
    # Bytes.
    memory_used: int | None = None
    memory_total: int | None = None
    # The device's own word, such as OK or Alarm.
    health: str | None = None
    # Whether heat, a brake or a fault slowed it down.
    throttled: bool | None = None
    # Whether its power limit holds the clock: the normal state of a heavy model.
    power_capped: bool | None = None
    # Processes other than the asking one; empty if there are none.
    foreign_processes: list[DeviceProcess] | None = None

    @property
    def at_work(self) -> bool | None:
        """Whether the device computed; None if its load is unknown."""
        return None if self.utilization is None else self.utilization > AT_WORK

    def clock_share(self) -> float | None:
        return (
            None
            if self.clock is None or not self.rated_clock
            else self.clock / self.rated_clock
        )


class TelemetryReading(FrozenStruct, kw_only=True):
    """The state of a device, queried at ``began_ns`` and answered at ``ended_ns``.

    The clock is ``Device.clock_ns``: on Linux all processes share it (CLOCK_MONOTONIC).
    """

    began_ns: int
    ended_ns: int
    telemetry: DeviceState


# Reads a device once; raises MeasuringError without an answer.
Sensor = Callable[[], DeviceState]


class ClockCommands(NamedTuple):
    """The vendor's commands that lock the clock of a device, and unlock it."""

    lock: tuple[str, ...]
    unlock: tuple[str, ...]


class Watch(NamedTuple):
    """The single queries of a device during a measurement: its state, and the processes
    on it.
    """

    state: Sensor
    processes: Sensor
