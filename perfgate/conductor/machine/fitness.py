"""How fit a machine is to be measured on, from what the kernel says of it in /proc and /sys.

Every check is a function of those files below a root, and of two looks a moment apart where a rate counts. What a machine
does not tell is `unavailable`, never ok.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.conductor.machine.cpus import cpu_quota
from perfgate.document.doctor import FitnessCheck, FitnessStatus

# Where a number becomes worth a word. Pressure: facts of Linux PSI, share of time in which some task waited.
PRESSURE_ATTENTION = 0.20
BUSY_ATTENTION = 0.20
STEAL_ATTENTION = 0.01
LOAD_ATTENTION = 1.0
# A fork server with torch and two workers of a small model hold 0.35 GiB (their PSS, torch 2.13 for CPUs); models need more.
LEAST_MEMORY, LITTLE_MEMORY = 1 << 30, 2 << 30
LEAST_DISK, LITTLE_DISK = 200 << 20, 2 << 30
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
_GIB = float(1 << 30)
_CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Machine:
    """The kernel's files below ``root``."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """A file's text, None where it is not there or may not be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
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


def examine_kernel(
    machine: Machine, cpus: list[int], visible: int, before: Moment, after: Moment
) -> list[FitnessCheck]:
    """Every check that reads the kernel's files: ``cpus`` are those of our mask, ``visible`` all there are."""
    return [
        check_cpus(machine, cpus, visible),
        check_governor(machine, cpus),
        check_frequency(machine, cpus),
        check_throttling(before, after),
        check_quota(before, after),
        check_clock(machine),
        check_load(machine, cpus),
        check_neighbours(before, after),
        check_steal(before, after),
        *(check_pressure(machine, resource) for resource in ("cpu", "memory", "io")),
        check_memory(machine),
    ]


def check_cpus(machine: Machine, cpus: list[int], visible: int) -> FitnessCheck:
    """Judge the CPUs we may run on: affinity mask and cgroup quota against what the machine has."""
    quota = cpu_quota(machine.root / "sys/fs/cgroup", machine.root / "proc/self/cgroup")
    paid = "no quota" if quota is None else f"the cgroup quota pays for {quota:g}"
    text = f"{len(cpus)} of {visible} CPUs in the affinity mask ({_ranges(cpus)}); {paid}"
    if quota is not None and quota < 1:
        return _check("cpus", "unfit", text, "give the job at least one whole CPU: below that every call is throttled")
    if quota is not None and quota < len(cpus):
        return _check(
            "cpus", "attention", text, "give the job a cpuset of whole CPUs instead of a quota, which throttles"
        )
    if len(cpus) == 1:
        return _check(
            "cpus", "attention", text, "give the job a second CPU: perfgate itself now runs on the measured one"
        )
    return _check("cpus", "ok", text)


def check_governor(machine: Machine, cpus: list[int]) -> FitnessCheck:
    """Judge the frequency governor of our CPUs."""
    governors = _of_cpus(machine, cpus, "cpufreq/scaling_governor")
    if not governors:
        return _check(
            "governor",
            "unavailable",
            "the kernel shows no scaling_governor (usual in virtual machines)",
            "on the host, set it to performance",
        )
    text = ", ".join(sorted(set(governors.values())))
    if set(governors.values()) == {"performance"}:
        return _check("governor", "ok", text)
    return _check("governor", "attention", text, "cpupower frequency-set --governor performance")


def check_frequency(machine: Machine, cpus: list[int]) -> FitnessCheck:
    """Judge whether the frequency is capped below what the CPU can do."""
    limits = _of_cpus(machine, cpus, "cpufreq/scaling_max_freq")
    tops = _of_cpus(machine, cpus, "cpufreq/cpuinfo_max_freq")
    now = _of_cpus(machine, cpus, "cpufreq/scaling_cur_freq")
    readable = [cpu for cpu in limits.keys() & tops.keys() if limits[cpu].isdigit() and tops[cpu].isdigit()]
    if not readable:
        return _check("frequency", "unavailable", "the kernel shows no CPU frequency (usual in virtual machines)")
    cap, top = min(int(limits[cpu]) for cpu in readable), min(int(tops[cpu]) for cpu in readable)
    running = min((int(text) for text in now.values() if text.isdigit()), default=None)
    seen = f"limit {cap / 1e6:.2f} of {top / 1e6:.2f} GHz" + (f", now {running / 1e6:.2f}" if running else "")
    if cap < 0.97 * top:
        return _check("frequency", "attention", seen, f"cpupower frequency-set --max {top}kHz")
    return _check("frequency", "ok", seen)


def check_throttling(before: Moment, after: Moment) -> FitnessCheck:
    """Judge whether heat slows our CPUs down now."""
    if before.hot is None or after.hot is None:
        return _check("throttling", "unavailable", "the kernel shows no throttle counters (usual in virtual machines)")
    if after.hot > before.hot:
        return _check(
            "throttling",
            "attention",
            f"{after.hot - before.hot} times while looking, {after.hot} since boot",
            "cool the machine, or lower its clock to one it can hold",
        )
    return _check("throttling", "ok", f"none while looking, {after.hot} times since boot")


def check_quota(before: Moment, after: Moment) -> FitnessCheck:
    """Judge whether the cgroup's quota stops us now."""
    if before.quota is None or after.quota is None:
        return _check("quota", "unavailable", "the cgroup counts no throttling: cpu.stat is not there")
    if after.quota > before.quota:
        return _check(
            "quota",
            "attention",
            f"stopped {after.quota - before.quota} times while looking",
            "raise the job's CPU quota, or give it a cpuset",
        )
    return _check("quota", "ok", "not stopped while looking")


def check_clock(machine: Machine) -> FitnessCheck:
    """Judge the clock that times are read from: one outside the CPU costs a microsecond a reading."""
    clock = machine.read("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not clock:
        return _check("clock", "unavailable", "the kernel does not say which clock it reads")
    if clock in _SLOW_CLOCKS:
        return _check("clock", "attention", clock, "boot with clocksource=tsc (x86) if the CPU has a constant one")
    return _check("clock", "ok", clock)


def check_load(machine: Machine, cpus: list[int]) -> FitnessCheck:
    """Judge the load of the last minute against the CPUs."""
    fields = (machine.read("proc/loadavg") or "").split()
    if len(fields) < 4:
        return _check("load", "unavailable", "/proc/loadavg is not there")
    load = float(fields[0])
    text = f"{load:.2f} in the last minute, {fields[3].partition('/')[0]} runnable now"
    if load > LOAD_ATTENTION * len(cpus):
        return _check("load", "attention", text, "let other jobs end, or measure on a machine of your own")
    return _check("load", "ok", text)


def check_neighbours(before: Moment, after: Moment) -> FitnessCheck:
    """Judge how busy others keep the quietest of our CPUs, which is the one that pairs are pinned to."""
    shares = _shares(before.busy, after.busy, before, after)
    if not shares:
        return _check("neighbours", "unavailable", "/proc/stat shows no time of our CPUs")
    cpu, share = min(shares.items(), key=lambda item: (item[1], item[0]))
    text = f"the quietest CPU ({cpu}) is {share * 100:.0f} % busy"
    if share > BUSY_ATTENTION:
        return _check("neighbours", "attention", text, "find what runs with `top`, or give the job a CPU of its own")
    return _check("neighbours", "ok", text)


def check_steal(before: Moment, after: Moment) -> FitnessCheck:
    """Judge how much time the hypervisor gives to other guests."""
    shares = _shares(before.steal, after.steal, before, after)
    if not shares:
        return _check("steal", "unavailable", "/proc/stat shows no time of our CPUs")
    worst = max(shares.values())
    text = f"{worst * 100:.1f} % of the time taken by other guests"
    if worst > STEAL_ATTENTION:
        return _check("steal", "attention", text, "ask for dedicated CPUs; more pairs help a little")
    return _check("steal", "ok", text)


def check_pressure(machine: Machine, resource: str) -> FitnessCheck:
    """Judge how long tasks wait for CPU, memory or disk: the ten-second average of Linux' pressure stall information."""
    name = f"pressure.{resource}"
    share = _pressure(machine.read(f"proc/pressure/{resource}"))
    if share is None:
        return _check(name, "unavailable", "the kernel has no pressure stall information (CONFIG_PSI, psi=1)")
    text = f"some task waited {share * 100:.1f} % of the last 10 s"
    if share > PRESSURE_ATTENTION:
        return _check(name, "attention", text, "let other jobs end; times taken now are spoiled")
    return _check(name, "ok", text)


def check_memory(machine: Machine) -> FitnessCheck:
    """Judge the memory that is left: of the machine, and under the limit of our cgroup."""
    lines = dict(line.split(":", 1) for line in (machine.read("proc/meminfo") or "").splitlines() if ":" in line)
    fields = lines.get("MemAvailable", "").split()
    if not fields:
        return _check("memory", "unavailable", "/proc/meminfo does not say what is available")
    free = int(fields[0]) * 1024
    limit, used = machine.number("sys/fs/cgroup/memory.max"), machine.number("sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return _check(
        "memory",
        _room(free, LEAST_MEMORY, LITTLE_MEMORY),
        f"{free / _GIB:.1f} GiB available",
        "free memory, or raise the job's limit: two workers hold a model each",
    )


def check_disk(free: int, folder: Path) -> FitnessCheck:
    """Judge the space where scratch homes and traces are written, ``free`` bytes."""
    return _check(
        "disk",
        _room(free, LEAST_DISK, LITTLE_DISK),
        f"{free / _GIB:.1f} GiB free in {folder}",
        "free space, or set TMPDIR to a folder on a larger disk",
    )


def _check(name: str, status: FitnessStatus, text: str, remedy: str | None = None) -> FitnessCheck:
    return FitnessCheck(name=name, status=status, seen=text, remedy=None if status == "ok" else remedy)


def _room(free: int, least: int, little: int) -> FitnessStatus:
    return "unfit" if free < least else "attention" if free < little else "ok"


def _shares(first: dict[int, int], second: dict[int, int], before: Moment, after: Moment) -> dict[int, float]:
    passed = {cpu: after.total[cpu] - before.total[cpu] for cpu in before.total.keys() & after.total.keys()}
    return {cpu: (second[cpu] - first[cpu]) / ticks for cpu, ticks in passed.items() if ticks > 0}


def _pressure(text: str | None) -> float | None:
    """The share of ``some avg10=1.23 …`` (kernel documentation, accounting/psi.rst)."""
    for line in (text or "").splitlines():
        kind, *fields = line.split()
        values = dict(entry.partition("=")[::2] for entry in fields)
        try:
            share = float(values.get("avg10", "")) / 100
        except ValueError:
            continue
        if kind == "some" and math.isfinite(share):
            return share
    return None


def _ranges(numbers: list[int]) -> str:
    """E.g. ``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


# --- the kernel's files


def _of_cpus(machine: Machine, cpus: Iterable[int], file: str) -> dict[int, str]:
    """One file of each CPU that has it, e.g. ``cpufreq/scaling_governor``."""
    texts = {cpu: machine.read(f"{_CPU}/cpu{cpu}/{file}") for cpu in cpus}
    return {cpu: text for cpu, text in texts.items() if text}


def _throttled(machine: Machine, cpus: list[int]) -> int | None:
    counts = [
        int(text)
        for name in ("core_throttle_count", "package_throttle_count")
        for text in _of_cpus(machine, cpus, f"thermal_throttle/{name}").values()
        if text.isdigit()
    ]
    return sum(counts) if counts else None


def _quota_throttled(machine: Machine) -> int | None:
    memberships = (machine.read("proc/self/cgroup") or "").splitlines()
    own = next((line[3:].strip("/") for line in memberships if line[:3] == "0::"), "")
    for folder in (f"sys/fs/cgroup/{own}", "sys/fs/cgroup", "sys/fs/cgroup/cpu"):
        for line in (machine.read(f"{folder}/cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled" and value.isdigit():
                return int(value)
    return None
