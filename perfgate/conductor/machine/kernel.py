"""What the kernel says of a machine in /proc and /sys: its files, and its counters at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Machine:
    """The kernel's files below ``root``."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """Return a file's text, None where it is not there or may not be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return a file's whole number, None where there is none."""
        text = self.read(path)
        return int(text) if text is not None and text.isdigit() else None


@dataclass(frozen=True)
class Moment:
    """Counters that only rise, at one moment: clock ticks per CPU, and how often the machine was slowed down."""

    busy: dict[int, int] = field(default_factory=dict)
    total: dict[int, int] = field(default_factory=dict)
    steal: dict[int, int] = field(default_factory=dict)
    hot: int | None = None
    quota: int | None = None


def look(machine: Machine, cpus: list[int]) -> Moment:
    """Read the counters of the granted CPUs. Fields of /proc/stat: proc(5)."""
    moment = Moment(hot=_throttled(machine, cpus), quota=_quota_throttled(machine))
    for line in (machine.read("proc/stat") or "").splitlines():
        name, *fields = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus and len(fields) >= 8:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
            cpu = int(name[3:])
            moment.busy[cpu] = user + nice + system + irq + softirq
            moment.total[cpu] = user + nice + system + idle + iowait + irq + softirq + steal
            moment.steal[cpu] = steal
    return moment


def of_cpus(machine: Machine, cpus: Iterable[int], file: str) -> dict[int, str]:
    """Return one file of each CPU that has it, e.g. ``cpufreq/scaling_governor``."""
    texts = {cpu: machine.read(f"{_CPU}/cpu{cpu}/{file}") for cpu in cpus}
    return {cpu: text for cpu, text in texts.items() if text}


def _throttled(machine: Machine, cpus: list[int]) -> int | None:
    counts = [
        int(text)
        for name in ("core_throttle_count", "package_throttle_count")
        for text in of_cpus(machine, cpus, f"thermal_throttle/{name}").values()
        if text.isdigit()
    ]
    return sum(counts) if counts else None


def _quota_throttled(machine: Machine) -> int | None:
    own = next(
        (line[3:].strip("/") for line in (machine.read("proc/self/cgroup") or "").splitlines() if line[:3] == "0::"), ""
    )
    for folder in (f"sys/fs/cgroup/{own}", "sys/fs/cgroup", "sys/fs/cgroup/cpu"):
        for line in (machine.read(f"{folder}/cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled" and value.isdigit():
                return int(value)
    return None
