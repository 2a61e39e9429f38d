"""The fitness of a machine for measuring: the kernel's state in /proc and /sys, and our
permissions.

A check judges those files below a root, rates by two readings a moment apart;
permissions are tried out. A fact that the machine hides is `unavailable`, never ok. The
sentences are in ``catalogue/messages/fitness.toml``.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from perfgate.catalogue.lookup import MESSAGES
from perfgate.conductor.machine.cpus import cpu_quota
from perfgate.conductor.machine.lock import machine_lock
from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.document.message import Message, MessageValue, quote, reason_of
from perfgate.errors import MeasuringError, RepositoryError
from perfgate.git.commands import run_git
from perfgate.git.repository import AS_PERFGATE, Repository
from perfgate.system.folders import remove_folder

# Thresholds for attention. Pressure: facts of Linux PSI, share of time in which some
# task waited.
PRESSURE_ATTENTION = 0.20
BUSY_ATTENTION = 0.20
STEAL_ATTENTION = 0.01
LOAD_ATTENTION = 1.0
# A fork server with torch and two workers of a small model hold 0.35 GiB (their PSS,
# torch 2.13 for CPUs); models need more.
LEAST_MEMORY, LITTLE_MEMORY = 1 << 30, 2 << 30
LEAST_DISK, LITTLE_DISK = 200 << 20, 2 << 30
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
_CPU = "sys/devices/system/cpu"


@dataclass(frozen=True)
class Machine:
    """The kernel's files below ``root``."""

    root: Path = Path("/")

    def read(self, path: str) -> str | None:
        """A file's text, None if it is missing or unreadable."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = self.read(path)
        return int(text) if text is not None and text.isdigit() else None


@dataclass(frozen=True)
class Moment:
    """Counters that only rise, at one moment: clock ticks per CPU, and how often the
    machine was slowed down.
    """

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
        if (
            name[:3] == "cpu"
            and name[3:].isdigit()
            and int(name[3:]) in cpus
            and len(fields) >= 8
        ):
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
            cpu = int(name[3:])
            moment.busy[cpu] = user + nice + system + irq + softirq
            moment.total[cpu] = (
                user + nice + system + idle + iowait + irq + softirq + steal
            )
            moment.steal[cpu] = steal
    return moment


@dataclass(frozen=True)
class KernelFiles:
    """The kernel's files, and counters at two moments.

    ``cpus`` are the CPUs of our mask, ``visible`` all CPUs.
    """

    machine: Machine
    cpus: list[int]
    visible: int
    before: Moment
    after: Moment


def examine_kernel(kernel: KernelFiles) -> list[FitnessCheck]:
    """Judge the machine; a fact that it hides is `unavailable`."""
    checks = []
    for name, judge in _CHECKS.items():
        unavailable = _check(
            name, "unavailable", {}, "unavailable", "unavailable-remedy"
        )
        checks.append(judge(kernel) or unavailable)
    return checks


def check_disk(free: int, folder: Path) -> FitnessCheck:
    """Judge the space for scratch homes and traces, ``free`` bytes."""
    return _check(
        "disk",
        _room(free, LEAST_DISK, LITTLE_DISK),
        {"free": free, "folder": str(folder)},
    )


def _check(
    name: str,
    status: FitnessStatus,
    values: dict[str, MessageValue],
    sentence: str = "",
    remedy: str = "remedy",
) -> FitnessCheck:
    """A check with its sentence and remedy in the catalogue; ``sentence`` and
    ``remedy`` choose among several.
    """
    code = f"fitness.{name.partition('.')[0]}"
    remedy = f"{code}-{remedy}"
    if sentence:
        code = f"{code}-{sentence}"
    advice: Message | None = None
    if status != "ok" and remedy in MESSAGES:
        advice = Message(remedy, values)
    return FitnessCheck(name, status, Message(code, values), advice)


def _status(bad: bool) -> FitnessStatus:
    return "attention" if bad else "ok"


def _room(free: int, least: int, little: int) -> FitnessStatus:
    if free < least:
        return "unfit"
    return _status(free < little)


def _cpus(kernel: KernelFiles) -> FitnessCheck:
    """The CPUs we may run on: affinity mask and cgroup quota against the machine's."""
    count = len(kernel.cpus)
    quota = cpu_quota(kernel.machine.root)
    values: dict[str, MessageValue] = {
        "mine": count,
        "visible": kernel.visible,
        "numbers": _ranges(kernel.cpus),
    }
    sentence = ""
    if quota is not None:
        values["quota"] = quota
        sentence = "quota"
    if quota is not None and quota < 1:
        return _check("cpus", "unfit", values, sentence, "remedy-whole")
    if quota is not None and quota < count:
        return _check("cpus", "attention", values, sentence, "remedy-cpuset")
    return _check("cpus", _status(count == 1), values, sentence, "remedy-second")


def _governor(kernel: KernelFiles) -> FitnessCheck | None:
    governors = sorted(
        set(_of_cpus(kernel.machine, kernel.cpus, "cpufreq/scaling_governor").values())
    )
    if not governors:
        return None
    return _check(
        "governor", _status(governors != ["performance"]), {"governors": governors}
    )


def _frequency(kernel: KernelFiles) -> FitnessCheck | None:
    """Whether the frequency is capped below the CPU's maximum; the kernel reports kHz."""
    limits = _numbers_of_cpus(kernel.machine, kernel.cpus, "cpufreq/scaling_max_freq")
    tops = _numbers_of_cpus(kernel.machine, kernel.cpus, "cpufreq/cpuinfo_max_freq")
    running = _numbers_of_cpus(kernel.machine, kernel.cpus, "cpufreq/scaling_cur_freq")
    both = limits.keys() & tops.keys()
    if not both:
        return None
    cap, top = min(limits[cpu] for cpu in both), min(tops[cpu] for cpu in both)
    values: dict[str, MessageValue] = {
        "cap": cap * 1e3,
        "top": top * 1e3,
        "top_khz": top,
    }
    if now := min(running.values(), default=0):
        values["now"] = now * 1e3
    return _check("frequency", _status(cap < 0.97 * top), values, "now" if now else "")


def _throttling(kernel: KernelFiles) -> FitnessCheck | None:
    before, after = kernel.before.hot, kernel.after.hot
    if before is None or after is None:
        return None
    return _check(
        "throttling",
        _status(after > before),
        {"count": after - before, "boot": after},
    )


def _quota(kernel: KernelFiles) -> FitnessCheck | None:
    before, after = kernel.before.quota, kernel.after.quota
    if before is None or after is None:
        return None
    return _check("quota", _status(after > before), {"count": after - before})


def _clock(kernel: KernelFiles) -> FitnessCheck | None:
    """The clock that times are read from: one outside the CPU costs a microsecond a
    reading.
    """
    clock = kernel.machine.read(
        "sys/devices/system/clocksource/clocksource0/current_clocksource"
    )
    if not clock:
        return None
    return _check("clock", _status(clock in _SLOW_CLOCKS), {"clock": clock})


def _load(kernel: KernelFiles) -> FitnessCheck | None:
    fields = (kernel.machine.read("proc/loadavg") or "").split()
    if len(fields) < 4:
        return None
    load = float(fields[0])
    values: dict[str, MessageValue] = {
        "load": load,
        "runnable": int(fields[3].partition("/")[0]),
    }
    return _check("load", _status(load > LOAD_ATTENTION * len(kernel.cpus)), values)


def _neighbours(kernel: KernelFiles) -> FitnessCheck | None:
    """How busy others keep the quietest of our CPUs, to which pairs are pinned."""
    shares = _shares(kernel.before.busy, kernel.after.busy, kernel)
    if not shares:
        return None
    cpu, share = min(shares.items(), key=lambda item: (item[1], item[0]))
    return _check(
        "neighbours", _status(share > BUSY_ATTENTION), {"cpu": cpu, "share": share}
    )


def _steal(kernel: KernelFiles) -> FitnessCheck | None:
    shares = _shares(kernel.before.steal, kernel.after.steal, kernel)
    if not shares:
        return None
    worst = max(shares.values())
    return _check("steal", _status(worst > STEAL_ATTENTION), {"share": worst})


def _pressure(kernel: KernelFiles, resource: str) -> FitnessCheck | None:
    """How long tasks wait: the share of ``some avg10=1.23 …`` (kernel documentation,
    accounting/psi.rst).
    """
    for line in (kernel.machine.read(f"proc/pressure/{resource}") or "").splitlines():
        kind, *fields = line.split()
        values = dict(entry.partition("=")[::2] for entry in fields)
        try:
            share = float(values.get("avg10", "")) / 100
        except ValueError:
            continue
        if kind == "some" and math.isfinite(share):
            return _check(
                f"pressure.{resource}",
                _status(share > PRESSURE_ATTENTION),
                {"share": share},
            )
    return None


def _memory(kernel: KernelFiles) -> FitnessCheck | None:
    machine = kernel.machine
    available = re.search(
        r"^MemAvailable:\s*(\d+)", machine.read("proc/meminfo") or "", re.MULTILINE
    )
    if available is None:
        return None
    free = int(available[1]) * 1024
    limit = machine.number("sys/fs/cgroup/memory.max")
    used = machine.number("sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return _check("memory", _room(free, LEAST_MEMORY, LITTLE_MEMORY), {"free": free})


_CHECKS: dict[str, Callable[[KernelFiles], FitnessCheck | None]] = {
    "cpus": _cpus,
    "governor": _governor,
    "frequency": _frequency,
    "throttling": _throttling,
    "quota": _quota,
    "clock": _clock,
    "load": _load,
    "neighbours": _neighbours,
    "steal": _steal,
    "pressure.cpu": partial(_pressure, resource="cpu"),
    "pressure.memory": partial(_pressure, resource="memory"),
    "pressure.io": partial(_pressure, resource="io"),
    "memory": _memory,
}


def _shares(
    first: dict[int, int], second: dict[int, int], kernel: KernelFiles
) -> dict[int, float]:
    """By CPU, the share of its time in which a counter rose."""
    before, after = kernel.before.total, kernel.after.total
    shares = {}
    for cpu in before.keys() & after.keys():
        ticks = after[cpu] - before[cpu]
        if ticks > 0:
            shares[cpu] = (second[cpu] - first[cpu]) / ticks
    return shares


def _ranges(numbers: list[int]) -> str:
    """E.g. ``0-3,8``."""
    texts: list[str] = []
    first = last = -1
    for number in sorted(numbers):
        if texts and number == last + 1:
            texts[-1] = f"{first}-{number}"
        else:
            first = number
            texts.append(str(number))
        last = number
    return ",".join(texts)


# --- the kernel's files


def _of_cpus(machine: Machine, cpus: Iterable[int], file: str) -> dict[int, str]:
    """One file of each CPU that has it, e.g. ``cpufreq/scaling_governor``."""
    texts = {cpu: machine.read(f"{_CPU}/cpu{cpu}/{file}") for cpu in cpus}
    return {cpu: text for cpu, text in texts.items() if text}


def _numbers_of_cpus(
    machine: Machine, cpus: Iterable[int], file: str
) -> dict[int, int]:
    texts = _of_cpus(machine, cpus, file)
    return {cpu: int(text) for cpu, text in texts.items() if text.isdigit()}


def _throttled(machine: Machine, cpus: list[int]) -> int | None:
    total: int | None = None
    for name in ("core_throttle_count", "package_throttle_count"):
        for count in _numbers_of_cpus(
            machine, cpus, f"thermal_throttle/{name}"
        ).values():
            total = (total or 0) + count
    return total


def _quota_throttled(machine: Machine) -> int | None:
    folders = ["sys/fs/cgroup", "sys/fs/cgroup/cpu"]
    own = re.search(
        r"^0::/*(.*?)/*$", machine.read("proc/self/cgroup") or "", re.MULTILINE
    )
    if own is not None:
        folders.insert(0, f"sys/fs/cgroup/{own[1]}")
    for folder in folders:
        throttled = re.search(
            r"^nr_throttled (\d+)$",
            machine.read(f"{folder}/cpu.stat") or "",
            re.MULTILINE,
        )
        if throttled is not None:
            return int(throttled[1])
    return None


# --- permissions that measuring needs, tried out

# rev-parse --path-format, by which worktrees are placed, came with 2.31 (git's release
# notes).
OLDEST_GIT = (2, 31)


def try_everything(scratch: Path, lock: Path) -> list[FitnessCheck]:
    """One check per permission; ``scratch`` is the folder of the workers' homes,
    ``lock`` the machine's lock.
    """
    return [
        try_scratch(scratch),
        try_pinning(),
        try_git(),
        try_worktrees(scratch),
        try_lock(lock),
    ]


def try_scratch(folder: Path) -> FitnessCheck:
    name = "scratch home"
    try:
        home = Path(tempfile.mkdtemp(prefix="perfgate-", dir=folder))
        try:
            (home / "written").write_text("by perfgate doctor")
        finally:
            remove_folder(home)
    except OSError as error:
        refused = _message(
            "scratch-refused", folder=str(folder), error=str(error.strerror)
        )
        return FitnessCheck(name, "unfit", refused, _message("scratch-remedy"))
    return FitnessCheck(name, "ok", _message("scratch", folder=str(folder)))


def try_pinning() -> FitnessCheck:
    """Pin this process to each CPU of its mask in turn, and give it the mask back."""
    mask = os.sched_getaffinity(0)
    try:
        for cpu in sorted(mask):
            os.sched_setaffinity(0, {cpu})
    except OSError as error:
        refused = _message("pinning-refused", error=str(error.strerror))
        return FitnessCheck("pinning", "unfit", refused, _message("pinning-remedy"))
    finally:
        os.sched_setaffinity(0, mask)
    return FitnessCheck("pinning", "ok", _message("pinning"))


def try_git() -> FitnessCheck:
    try:
        return judge_git(run_git(Path.cwd(), ["--version"], {}).output)
    except RepositoryError as error:
        return FitnessCheck("git", "unfit", reason_of(error), _message("git-remedy"))


def judge_git(version: str) -> FitnessCheck:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return FitnessCheck("git", "attention", quote(version), _message("git-remedy"))
    if (int(numbers[1]), int(numbers[2])) < OLDEST_GIT:
        return FitnessCheck("git", "unfit", quote(version), _message("git-remedy"))
    return FitnessCheck("git", "ok", quote(version))


def try_worktrees(scratch: Path) -> FitnessCheck:
    """Check out a commit of a scratch repository the way a gate checks out base and
    head.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix="perfgate-doctor-", dir=scratch
        ) as folder:
            clone = Path(folder)
            commit = [
                "commit",
                "--quiet",
                "--allow-empty",
                "--no-gpg-sign",
                "-m",
                "one",
            ]
            for arguments in (["init", "--quiet"], commit):
                result = run_git(clone, arguments, AS_PERFGATE)
                if result.code:
                    raise RepositoryError(
                        "git {arguments} failed: {why}",
                        arguments=arguments[0],
                        why=result.errors,
                    )
            repository = Repository(clone)
            with repository.worktrees({"base": repository.head()}, link=[]):
                return FitnessCheck("worktrees", "ok", _message("worktrees"))
    except (OSError, RepositoryError) as error:
        return FitnessCheck(
            "worktrees", "unfit", reason_of(error), _message("worktrees-remedy")
        )


def try_lock(path: Path) -> FitnessCheck:
    """Take the machine's lock and release it; a held lock needs attention, one that
    cannot be opened is unfit.
    """
    name = "machine lock"
    holder: list[str] = []
    try:
        with machine_lock(
            path, purpose="perfgate doctor", say=holder.append, timeout=0.0
        ):
            return FitnessCheck(name, "ok", _message("lock", path=str(path)))
    except MeasuringError as error:
        if holder:
            return FitnessCheck(
                name, "attention", quote(holder[0]), _message("lock-held-remedy")
            )
        return FitnessCheck(name, "unfit", reason_of(error), _message("lock-remedy"))


def _message(name: str, **values: MessageValue) -> Message:
    return Message(f"fitness.{name}", values)
