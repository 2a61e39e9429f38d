"""The CPUs and memory granted to this job: affinity mask and cgroup limits, not the machine's total."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def granted_cpus(cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> list[int]:
    """The CPUs this process may run on, as many as the cgroup quota pays for.

    A quota of 2.5 CPUs on a mask of 64 grants 2: threads above the quota are throttled, which costs more than they gain.
    """
    mask = sorted(os.sched_getaffinity(0))
    quota = cpu_quota(cgroup, membership)
    return mask if quota is None else mask[: max(1, math.floor(quota))]


def cpu_quota(cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> float | None:
    """The CPUs our cgroups pay for, None when unlimited: v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``.

    A limit on any level above us holds for us too, so the smallest counts.
    """
    texts = [_read(folder / "cpu.max").partition(" ")[::2] for folder in _folders(cgroup, membership, "")]
    texts += [
        (_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
        for folder in _folders(cgroup, membership, "cpu")
    ]
    # ``max`` (v2), -1 (v1) and other text mean no limit.
    limits = [(int(quota), int(period)) for quota, period in texts if quota.isdigit() and period.isdigit()]
    return min((quota / period for quota, period in limits if quota and period), default=None)


def granted_memory(cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> int:
    """The bytes this job may use: the smallest limit of our cgroups, or the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    texts = [_read(folder / "memory.max") for folder in _folders(cgroup, membership, "")]
    texts += [_read(folder / "memory.limit_in_bytes") for folder in _folders(cgroup, membership, "memory")]
    # v2 has "max" for no limit, v1 a number beyond any memory.
    return min([total, *(int(text) for text in texts if text.isdigit())])


def _folders(cgroup: Path, membership: Path, controller: str) -> list[Path]:
    """Our cgroup's folder and all above it, of a v1 controller or, for ``""``, of v2.

    /proc/self/cgroup has lines ``number:controllers:/path`` (cgroups(7)). In a container the path may be one of the host
    that cannot be seen here; the mount point itself then is our cgroup.
    """
    mounts = [cgroup / controller] if controller else [cgroup, cgroup / "unified"]
    entries = [line.split(":", 2) for line in _read(membership).splitlines() if line.count(":") >= 2]
    own = next((path for _, controllers, path in entries if controller in controllers.split(",")), "/")
    steps = [part for part in own.split("/") if part not in ("", "..")]
    levels = ["/".join(steps[:depth]) for depth in range(len(steps), -1, -1)]
    folders: list[Path] = []
    for mount in mounts:
        folders += [mount / level for level in levels]
    return [folder for folder in folders if folder.is_dir()]


def cpu_list(text: str) -> list[int]:
    """The CPUs of a list such as ``0-3,8``. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.split(","):
        ends = list(map(int, part.split("-")))
        cpus.update(range(ends[0], ends[-1] + 1))
    return sorted(cpus)


def quietest_cpus(count: int, *, seconds: float = 0.2) -> list[int]:
    """The least busy of the granted CPUs, by /proc/stat over a moment. ``count`` 0 means all of them."""
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
