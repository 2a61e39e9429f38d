"""Fitness of a machine, from kernel files written by hand. Formats: proc(5); kernel documentation cpu-freq, psi.rst,
cgroup-v2.rst; Linux' therm_throt.c for the throttle counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.machine.fitness import KernelFiles, Machine, Moment, check_disk, examine_kernel, look
from perfgate.document.doctor import FitnessCheck
from tests.wording import text_of

GIB = 1 << 30
CPU = "sys/devices/system/cpu"


def machine(root: Path, **files: str) -> Machine:
    """Write kernel files; ``__`` in a name stands for a slash."""
    for name, text in files.items():
        write(root, name.replace("__", "/"), text)
    return Machine(root)


def examine(
    root: Path, name: str, cpus: list[int] | None = None, *, before: Moment | None = None, after: Moment | None = None
) -> FitnessCheck:
    """One check of a machine, of the kernel's files below ``root``."""
    kernel = KernelFiles(Machine(root), cpus or [0, 1], 8, before or Moment(), after or Moment())
    return {check.name: check for check in examine_kernel(kernel)}[name]


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("governors", "status"),
    [(["performance", "performance"], "ok"), (["performance", "powersave"], "attention"), ([], "unavailable")],
)
def test_governor__of_our_cpus__status(tmp_path: Path, governors: list[str], status: str) -> None:
    for cpu, governor in enumerate(governors):
        write(tmp_path, f"{CPU}/cpu{cpu}/cpufreq/scaling_governor", f"{governor}\n")
    # A CPU that is not ours may do what it wants.
    write(tmp_path, f"{CPU}/cpu7/cpufreq/scaling_governor", "powersave\n")
    found = examine(tmp_path, "governor")
    assert found.status == status
    assert (found.remedy is None) == (status == "ok")


@pytest.mark.parametrize(("cap", "status"), [("3500000", "ok"), ("2000000", "attention"), (None, "unavailable")])
def test_frequency__cap_below_what_the_cpu_can__status(tmp_path: Path, cap: str, status: str) -> None:
    write(tmp_path, f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n")
    if cap:
        write(tmp_path, f"{CPU}/cpu0/cpufreq/scaling_max_freq", f"{cap}\n")
    assert examine(tmp_path, "frequency", [0]).status == status


@pytest.mark.parametrize(
    ("before", "after", "status"), [(12, 12, "ok"), (12, 15, "attention"), (None, None, "unavailable")]
)
def test_throttling__counter_rises_while_looking__status(tmp_path: Path, before: int, after: int, status: str) -> None:
    found = examine(tmp_path, "throttling", before=Moment(hot=before), after=Moment(hot=after))
    assert found.status == status
    if status == "attention":
        assert text_of(found.seen) == "3 times during this check, 15 since boot"


@pytest.mark.parametrize(("before", "after", "status"), [(4, 4, "ok"), (4, 9, "attention"), (None, 9, "unavailable")])
def test_quota__stops_while_looking__status(tmp_path: Path, before: int, after: int, status: str) -> None:
    found = examine(tmp_path, "quota", before=Moment(quota=before), after=Moment(quota=after))
    assert found.status == status


@pytest.mark.parametrize(
    ("cpus", "quota", "status"),
    [
        ([0, 1, 2, 3], "max 100000", "ok"),
        ([0, 1, 2, 3], "400000 100000", "ok"),
        ([0, 1, 2, 3], "250000 100000", "attention"),
        ([0, 1], "50000 100000", "unfit"),
        ([2], "max 100000", "attention"),
        ([0, 1], None, "ok"),
    ],
)
def test_cpus__mask_and_quota__status(tmp_path: Path, cpus: list[int], quota: str, status: str) -> None:
    if quota:
        write(tmp_path, "sys/fs/cgroup/cpu.max", f"{quota}\n")
    assert examine(tmp_path, "cpus", cpus).status == status


def test_cpus__mask_with_a_hole__said_as_ranges(tmp_path: Path) -> None:
    found = examine(tmp_path, "cpus", [0, 1, 2, 5, 7])
    assert text_of(found.seen) == "5 of 8 CPUs in the affinity mask (0-2,5,7); no quota"


@pytest.mark.parametrize(
    ("clock", "status"), [("tsc", "ok"), ("arch_sys_counter", "ok"), ("hpet", "attention"), (None, "unavailable")]
)
def test_clock__source__status(tmp_path: Path, clock: str, status: str) -> None:
    if clock:
        write(tmp_path, "sys/devices/system/clocksource/clocksource0/current_clocksource", f"{clock}\n")
    assert examine(tmp_path, "clock").status == status


@pytest.mark.parametrize(
    ("loadavg", "status"),
    [("1.90 1.00 0.50 2/86 999", "ok"), ("2.10 9.00 9.00 3/86 999", "attention"), ("", "unavailable")],
)
def test_load__against_two_cpus__status(tmp_path: Path, loadavg: str, status: str) -> None:
    write(tmp_path, "proc/loadavg", loadavg)
    assert examine(tmp_path, "load").status == status


STAT = """cpu  9999 0 9999 9999 0 0 0 0 0 0
cpu0 {busy0} 0 0 {idle0} 0 0 0 {steal0} 0 0
cpu1 {busy1} 0 0 {idle1} 0 0 0 0 0 0
cpu2 0 0 0 500 0 0 0 0 0 0
intr 1 2 3
"""


def _examine_counters(root: Path, name: str, cpus: list[int], **after: int) -> FitnessCheck:
    start = {"busy0": 100, "idle0": 100, "steal0": 5, "busy1": 100, "idle1": 100}
    before = look(machine(root, proc__stat=STAT.format(**start)), cpus)
    later = {name: start[name] + after.get(name, 0) for name in start}
    return examine(root, name, cpus, before=before, after=look(machine(root, proc__stat=STAT.format(**later)), cpus))


def test_neighbours__one_of_two_cpus_idle__ok_and_named(tmp_path: Path) -> None:
    found = _examine_counters(tmp_path, "neighbours", [0, 1], busy0=100, idle1=90, busy1=10)
    assert (found.status, text_of(found.seen)) == ("ok", "the quietest CPU (1) is 10 % busy")


def test_neighbours__both_cpus_busy__attention(tmp_path: Path) -> None:
    found = _examine_counters(tmp_path, "neighbours", [0, 1], busy0=100, busy1=30, idle1=70)
    assert (found.status, text_of(found.seen)) == ("attention", "the quietest CPU (1) is 30 % busy")


def test_neighbours__a_cpu_that_is_not_ours_is_idle__no_help(tmp_path: Path) -> None:
    assert _examine_counters(tmp_path, "neighbours", [0], busy0=80, idle0=20, idle1=100).status == "attention"


@pytest.mark.parametrize(("steal", "status"), [(0, "ok"), (1, "ok"), (5, "attention")])
def test_steal__ticks_of_other_guests__status(tmp_path: Path, steal: int, status: str) -> None:
    assert _examine_counters(tmp_path, "steal", [0], steal0=steal, idle0=100 - steal).status == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("some avg10=0.00 avg60=90.00 avg300=90.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "ok"),
        ("some avg10=20.01 avg60=0.00 avg300=0.00 total=1\n", "attention"),
        ("full avg10=99.00 avg60=0.00 avg300=0.00 total=1\n", "unavailable"),
        ("some avg10=nan\n", "unavailable"),
        (None, "unavailable"),
    ],
)
@pytest.mark.parametrize("resource", ["cpu", "memory", "io"])
def test_pressure__of_a_resource__status(tmp_path: Path, resource: str, text: str, status: str) -> None:
    if text:
        write(tmp_path, f"proc/pressure/{resource}", text)
    found = examine(tmp_path, f"pressure.{resource}")
    assert (found.name, found.status) == (f"pressure.{resource}", status)


@pytest.mark.parametrize(
    ("available", "limit", "used", "status"),
    [
        (8 * GIB, None, None, "ok"),
        (8 * GIB, "max", 7 * GIB, "ok"),
        (8 * GIB, str(4 * GIB), 1 * GIB, "ok"),
        (8 * GIB, str(4 * GIB), 3 * GIB - 1, "attention"),
        (8 * GIB, str(4 * GIB), 4 * GIB, "unfit"),
        (GIB - 1024, None, None, "unfit"),
        (None, None, None, "unavailable"),
    ],
)
def test_memory__machine_and_cgroup__status(tmp_path: Path, available: int, limit: str, used: int, status: str) -> None:
    if available:
        write(tmp_path, "proc/meminfo", f"MemTotal: 99 kB\nMemAvailable:   {available // 1024} kB\n")
    if limit:
        write(tmp_path, "sys/fs/cgroup/memory.max", f"{limit}\n")
        write(tmp_path, "sys/fs/cgroup/memory.current", f"{used}\n")
    assert examine(tmp_path, "memory").status == status


@pytest.mark.parametrize(("free", "status"), [(3 * GIB, "ok"), (GIB, "attention"), (100 << 20, "unfit")])
def test_disk__free_bytes__status(tmp_path: Path, free: int, status: str) -> None:
    assert check_disk(free, tmp_path).status == status


def test_look__throttle_counters_and_cpu_stat__read(tmp_path: Path) -> None:
    for cpu, count in ((0, 3), (1, 4), (2, 50)):
        write(tmp_path, f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count", f"{count}\n")
    write(tmp_path, "proc/self/cgroup", "0::/jobs/7\n")
    write(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 1\n")
    write(tmp_path, "sys/fs/cgroup/jobs/7/cpu.stat", "usage_usec 9\nnr_periods 8\nnr_throttled 6\n")
    moment = look(Machine(tmp_path), [0, 1])
    assert (moment.hot, moment.quota) == (7, 6)


def test_examine__nothing_readable__nothing_ok_but_the_mask(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    moment = look(machine, [0, 1])
    checks = examine_kernel(KernelFiles(machine, [0, 1], 2, moment, moment))
    found = {check.name: check.status for check in checks}
    assert found.pop("cpus") == "ok"
    assert set(found.values()) == {"unavailable"}
    assert len(found) == 12
    assert all("fitness." not in text_of(text) for check in checks for text in (check.seen, check.remedy))
