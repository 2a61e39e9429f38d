"""What a device says of its own state at one moment: heat, power, clocks, load, memory, health, and who else uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

# A card that computes more than this share of the time is at work; below, its low clock is that of an idle card.
AT_WORK = 0.05


class DeviceProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process on a device; ``memory`` is what it holds there in bytes, None where the tool does not say."""

    pid: int
    name: str = ""
    memory: int | None = None


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one device, in base units; None where the device does not say, which is never zero.

    ``temperature`` in degrees Celsius, ``power`` in W, ``clock`` and ``rated_clock`` in Hz, memory in bytes.
    ``utilization`` is the share of time the compute cores were busy, 0 to 1, and ``units`` the same of each unit that is
    counted by itself (``aicore``, ``aivector``, ``aicpu``, ``hbm_bandwidth`` …). ``health`` is the device's own word, such as
    OK or Alarm. ``foreign_processes`` are those other than the asking one, empty where there are none.
    """

    temperature: float | None = None
    power: float | None = None
    clock: float | None = None
    rated_clock: float | None = None
    utilization: float | None = None
    units: dict[str, float] = {}
    memory_used: int | None = None
    memory_total: int | None = None
    health: str | None = None
    throttled: bool | None = None
    foreign_processes: list[DeviceProcess] | None = None

    @property
    def at_work(self) -> bool | None:
        """Whether the device computed; None where nobody tells its load."""
        return None if self.utilization is None else self.utilization > AT_WORK

    def clock_share(self) -> float | None:
        return None if self.clock is None or not self.rated_clock else self.clock / self.rated_clock


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a device said to a question that was asked at ``began_ns`` and answered at ``ended_ns``.

    The clock is that of ``Device.clock_ns``: on Linux all processes share it (CLOCK_MONOTONIC).
    """

    began_ns: int
    ended_ns: int
    telemetry: Telemetry


# Reads a device once; raises MeasuringError where no answer comes.
Sensor = Callable[[], Telemetry]


class Watch(NamedTuple):
    """The single questions that are asked of a device beside a measurement; one answer tells the state or the processes."""

    state: Sensor
    processes: Sensor
