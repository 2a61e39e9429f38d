"""The CPU, by what the kernel shows below /sys: thermal zones, cpufreq, and the energy counters of powercap (RAPL).

Sources: Documentation/driver-api/thermal/sysfs-api.rst, admin-guide/pm/cpufreq.rst and power/powercap/powercap.rst of Linux.
A virtual machine mostly shows none of them, and reading energy takes root since 5.10 (CVE-2020-8694).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import Sensor, Telemetry
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host

KIND = "cpu"
# The zones of the processor by their type, as drivers name them: x86_pkg_temp, cpu-thermal, soc_thermal …; of a machine
# without such a zone no other is taken, because a battery or a radio is hot for reasons of its own.
_PROCESSOR = re.compile(r"x86_pkg|cpu|soc|cluster|tcpu", re.IGNORECASE)
# A package; what lies below it (intel-rapl:0:0, a core or uncore) is part of its energy.
_PACKAGE = re.compile(r"intel-rapl:\d+")
_KILOHERTZ = 1000.0


def open_sensor(host: Host, index: int) -> Sensor:
    """What reads the CPU, the only one of its kind. Raises MeasuringError where the kernel shows nothing of it."""
    if index != 0:
        raise MeasuringError(f"cpu:{index} does not exist, the CPU is one device")
    sensor = _CpuSensor(host)
    if not sensor.shows_anything():
        raise UnmeasuredError(Message("system.no-sensor"))
    return sensor


class _Energy(NamedTuple):
    """What the counters of all packages stood at, in J, and when."""

    seconds: float
    joules: tuple[float, ...]


class _CpuSensor:
    """Reads the CPUs this process may use; power is the energy since the reading before."""

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self._clock = clock
        self._zones = _processor_zones(host.below("/sys/class/thermal"))
        self._clocks = [host.below(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq") for cpu in cpus]
        self._packages = _packages(host.below("/sys/class/powercap"))
        self._before = self._energy()

    def shows_anything(self) -> bool:
        read = self()
        return bool(self._packages) or read.temperature is not None or read.clock is not None

    def __call__(self) -> Telemetry:
        """The hottest zone, the fastest clock, the lowest rated clock and the power since the reading before.

        The fastest clock is that of a core at work. Rated is the clock without turbo, which only some drivers tell
        (base_frequency of intel_pstate): the highest one is never held by all cores, so being below it is no throttling.
        """
        degrees = [value / 1000 for zone in self._zones if (value := _number(zone / "temp")) is not None]
        now = [value for clock in self._clocks if (value := _number(clock / "scaling_cur_freq")) is not None]
        rated = [value for clock in self._clocks if (value := _number(clock / "base_frequency")) is not None]
        return Telemetry(
            temperature=max(degrees, default=None),
            power=self._power(),
            clock=max(now) * _KILOHERTZ if now else None,
            rated_clock=min(rated) * _KILOHERTZ if rated else None,
        )

    def _power(self) -> float | None:
        before, after = self._before, self._energy()
        self._before = after
        if before is None or after is None or after.seconds <= before.seconds:
            return None
        # A counter that began anew (every minutes to hours) tells nothing of this span.
        steps = [late - early for early, late in zip(before.joules, after.joules)]
        return sum(steps) / (after.seconds - before.seconds) if min(steps) >= 0 else None

    def _energy(self) -> _Energy | None:
        joules = [_number(package / "energy_uj") for package in self._packages]
        values = tuple(value / 1e6 for value in joules if value is not None)
        return _Energy(self._clock(), values) if values and len(values) == len(joules) else None


def _processor_zones(folder: Path) -> list[Path]:
    return [zone for zone in sorted(folder.glob("thermal_zone*")) if _PROCESSOR.search(_text(zone / "type"))]


def _packages(folder: Path) -> list[Path]:
    packages = [package for package in sorted(folder.glob("intel-rapl:*")) if _PACKAGE.fullmatch(package.name)]
    return [package for package in packages if _number(package / "energy_uj") is not None]


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
