"""The CPU, by the kernel's files below /sys: thermal zones, cpufreq, and the energy
counters of powercap (RAPL).

Sources: Documentation/driver-api/thermal/sysfs-api.rst, admin-guide/pm/cpufreq.rst and
power/powercap/powercap.rst of Linux. A virtual machine mostly shows none of them, and
reading energy takes root since 5.10 (CVE-2020-8694).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import ClockCommands, DeviceState, Sensor, Watch
from perfgate.measuring.devices.host import Host, text_of

KIND = "cpu"
# The zones of the processor by their type, as drivers name them: x86_pkg_temp,
# cpu-thermal, soc_thermal …; of a machine without such a zone no other is taken,
# because a battery or a radio is hot for other reasons.
_PROCESSOR = re.compile(r"x86_pkg|cpu|soc|cluster|tcpu", re.IGNORECASE)
# A package; zones below it (intel-rapl:0:0, a core or uncore) are part of its energy.
_PACKAGE = re.compile(r"intel-rapl:\d+")
_KILOHERTZ = 1000.0


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:  # noqa: ARG001 - a CPU needs no examination
    return []


def clock_commands(host: Host, index: int, megahertz: int) -> ClockCommands:  # noqa: ARG001 - no tool fixes its clock
    raise UnmeasuredError(Message("device.no-clock-lock", {"device": KIND}))


def open_watch(host: Host, index: int, identity: str) -> Watch:  # noqa: ARG001 - no tool tells a CPU's processes and clock
    raise UnmeasuredError(Message("device.not-watched", {"device": KIND}))


def open_sensor(host: Host, index: int) -> Sensor:
    """A reader of the CPU, which has index 0.

    Raises UnmeasuredError if the kernel reports no state of it.
    """
    if index != 0:
        raise UnmeasuredError(Message("device.no-such-cpu", {"index": index}))
    sensor = CpuSensor(host)
    state = sensor()
    if not sensor.has_energy and state.temperature is None and state.clock is None:
        raise UnmeasuredError(Message("system.no-sensor"))
    return sensor


class CpuSensor:
    """Reads the CPUs this process may use; power is the energy since the reading
    before.
    """

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clocks = [
            host.below(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq")
            for cpu in os.sched_getaffinity(0)
        ]
        self._zones: list[Path] = []
        for zone in sorted(host.below("/sys/class/thermal").glob("thermal_zone*")):
            if _PROCESSOR.search(text_of(zone / "type")):
                self._zones.append(zone)
        self._packages: list[Path] = []
        for package in sorted(host.below("/sys/class/powercap").glob("intel-rapl:*")):
            if (
                _PACKAGE.fullmatch(package.name)
                and _number(package / "energy_uj") is not None
            ):
                self._packages.append(package)
        self.has_energy = bool(self._packages)
        self._before = self._energy()

    def __call__(self) -> DeviceState:
        """The hottest zone, the fastest clock, the lowest rated clock and the power
        since the reading before.

        The fastest clock belongs to a core at work. Rated is the clock without turbo,
        which only some drivers report (base_frequency of intel_pstate): no CPU holds
        its highest clock on all cores, so a lower one is not throttling.
        """
        millidegrees = _numbers(self._zones, "temp")
        now = _numbers(self._clocks, "scaling_cur_freq")
        rated = _numbers(self._clocks, "base_frequency")
        temperature = clock = rated_clock = None
        if millidegrees:
            temperature = max(millidegrees) / 1000
        if now:
            clock = max(now) * _KILOHERTZ
        if rated:
            rated_clock = min(rated) * _KILOHERTZ
        return DeviceState(
            temperature=temperature,
            power=self._power(),
            clock=clock,
            rated_clock=rated_clock,
        )

    def _power(self) -> float | None:
        before, self._before = self._before, self._energy()
        if before is None or self._before is None or self._before[0] <= before[0]:
            return None
        # A counter that wrapped around (every minutes to hours) is useless for this
        # span.
        steps = [late - early for early, late in zip(before[1], self._before[1])]
        if min(steps) >= 0:
            return sum(steps) / (self._before[0] - before[0])
        return None

    def _energy(self) -> tuple[float, list[float]] | None:
        """The time of reading the counters of all packages, in s, and their values, in
        J.
        """
        joules = [value / 1e6 for value in _numbers(self._packages, "energy_uj")]
        if joules and len(joules) == len(self._packages):
            return (self._clock(), joules)
        return None


def _numbers(folders: list[Path], name: str) -> list[float]:
    """The numbers in these files, as far as they have one."""
    numbers = []
    for folder in folders:
        value = _number(folder / name)
        if value is not None:
            numbers.append(value)
    return numbers


def _number(path: Path) -> float | None:
    text = text_of(path)
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return float(text)
    return None
