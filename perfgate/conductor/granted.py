"""Which CPUs and how much memory this job was granted: affinity mask and cgroup limits, not what the machine has."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Optional

CGROUP = Path("/sys/fs/cgroup")


def granted_cpus() -> list[int]:
    """Return the CPUs this process may run on, as many as the cgroup quota pays for.

    A quota of 2.5 CPUs on a mask of 64 grants 2: threads above the quota are throttled, which costs more than they gain.
    """
    mask = sorted(os.sched_getaffinity(0))
    quota = cpu_quota()
    return mask if quota is None else mask[: max(1, math.floor(quota))]


def cpu_quota() -> Optional[float]:
    """Return the CPUs the cgroup (v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``) pays for, None when unlimited."""
    text = _read(CGROUP / "cpu.max")
    if text:
        quota, _, period = text.partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    quota_us = _read(CGROUP / "cpu/cpu.cfs_quota_us")
    period_us = _read(CGROUP / "cpu/cpu.cfs_period_us")
    if quota_us and period_us and int(quota_us) > 0:
        return int(quota_us) / int(period_us)
    return None


def granted_memory() -> int:
    """Return the bytes this job may use: the cgroup's limit or the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _read(CGROUP / file)
        if text and text != "max":
            return min(total, int(text))
    return total


def quietest_cpus(count: int, *, seconds: float = 0.2) -> list[int]:
    """Return the least busy of the granted CPUs, by /proc/stat over a moment. ``count`` 0 means all of them."""
    cpus = granted_cpus()
    if count == 0 or count >= len(cpus):
        return cpus
    before = _busy_ticks()
    time.sleep(seconds)
    after = _busy_ticks()
    return sorted(sorted(cpus, key=lambda cpu: after.get(cpu, 0) - before.get(cpu, 0))[:count])


def _busy_ticks() -> dict[int, int]:
    busy = {}
    for line in _read(Path("/proc/stat")).splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields]
            busy[int(name[3:])] = sum(ticks[:8]) - ticks[3] - ticks[4]  # all but idle and iowait
    return busy


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
