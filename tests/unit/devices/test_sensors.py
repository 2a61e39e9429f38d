"""What is read of a device once a second while it works: each kind through its own door."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.monitors import cpu
from perfgate.measuring.devices.registry import device_kinds, monitored_kinds, open_sensor

CPU = min(os.sched_getaffinity(0))


def written(root: Path, files: dict[str, str]) -> Host:
    """Return a host whose /sys holds these files."""
    for name, text in files.items():
        path = root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return Host(environ={}, root=root)


def test_monitored_kinds__are_kinds_of_devices() -> None:
    assert set(monitored_kinds()) <= set(device_kinds())


def test_open_sensor__kind_without_one__says_which_have() -> None:
    with pytest.raises(MeasuringError, match="cpu, cuda, npu"):
        open_sensor("fake", Host())


def test_cpu__zones_and_clocks__hottest_processor_zone_and_fastest_clock(tmp_path: Path) -> None:
    frequency = f"devices/system/cpu/cpu{CPU}/cpufreq"
    host = written(
        tmp_path,
        {
            "class/thermal/thermal_zone0/type": "acpitz",
            "class/thermal/thermal_zone0/temp": "99000",
            "class/thermal/thermal_zone1/type": "x86_pkg_temp",
            "class/thermal/thermal_zone1/temp": "71500",
            f"{frequency}/scaling_cur_freq": "1900000",
            f"{frequency}/base_frequency": "2400000",
        },
    )
    read = open_sensor("cpu", host)()

    assert read.temperature == 71.5
    assert (read.clock, read.rated_clock) == (1.9e9, 2.4e9)
    assert read.power is None


def test_cpu__energy_counters__power_of_all_packages_without_their_parts(tmp_path: Path) -> None:
    def files(first: int, second: int) -> dict[str, str]:
        return {
            "class/powercap/intel-rapl:0/energy_uj": str(first),
            "class/powercap/intel-rapl:1/energy_uj": str(second),
            "class/powercap/intel-rapl:0:0/energy_uj": "123",
        }

    times = iter([10.0, 12.0, 13.0, 14.0])
    sensor = cpu.CpuSensor(written(tmp_path, files(1_000_000, 0)), clock=lambda: next(times))
    written(tmp_path, files(101_000_000, 20_000_000))
    first = sensor().power
    written(tmp_path, files(500, 30_000_000))  # a counter that began anew
    second = sensor().power
    written(tmp_path, files(10_000_500, 60_000_000))

    assert first == pytest.approx((100 + 20) / 2)
    assert second is None
    assert sensor().power == pytest.approx(10 + 30)


def test_cpu__nothing_below_sys__refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="virtual machine"):
        open_sensor("cpu", Host(environ={}, root=tmp_path))


def test_cuda__one_question__heat_clock_and_power() -> None:
    asked = []

    def run(command: object) -> str:
        asked.append(command)
        return "0, GPU-1, NVIDIA A10, 535.1, 64, 148.2, 1410, 1695, 97, 40, 1000, 23028, 0x0000000000000004, 0\n"

    read = open_sensor("cuda:0", Host(environ={}, run=run))()

    assert (read.temperature, read.power, read.clock, read.rated_clock) == (64.0, 148.2, 1410e6, 1695e6)
    assert (read.utilization, read.throttled, read.power_capped) == (0.97, False, True)
    assert len(asked) == 2
