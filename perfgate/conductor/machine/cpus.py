"""The CPUs and memory granted to this job: affinity mask and cgroup limits, not the
machine's total.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from pathlib import Path

# The kernel's files are below it.
ROOT = Path("/")


def granted_cpus(root: Path = ROOT) -> list[int]:
    """The CPUs this process may run on, limited to the cgroup quota.

    A quota of 2.5 CPUs on a mask of 64 grants 2: threads above the quota are throttled,
    which costs more than they gain.
    """
    mask = sorted(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    if quota is None:
        return mask
    return mask[: max(1, math.floor(quota))]


def cpu_quota(root: Path = ROOT) -> float | None:
    """The CPUs our cgroups pay for, None when unlimited: v2 ``cpu.max``, v1
    ``cpu.cfs_quota_us``.

    A limit on any level above us holds for us too, so the smallest counts.
    """
    texts = []
    for folder in _folders(root, ""):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        texts.append((quota, period))
    for folder in _folders(root, "cpu"):
        texts.append(
            (_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
        )
    limits = []
    for quota, period in texts:
        # ``max`` (v2), -1 (v1) and other text mean no limit.
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def granted_memory(root: Path = ROOT) -> int:
    """The bytes this job may use: the smallest limit of our cgroups, or the machine's
    memory.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    files = [folder / "memory.max" for folder in _folders(root, "")]
    files += [folder / "memory.limit_in_bytes" for folder in _folders(root, "memory")]
    for text in map(_read, files):
        # v2 has "max" for no limit, v1 a number beyond any memory.
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def _folders(root: Path, controller: str) -> list[Path]:
    """Our cgroup's folder and all above it, of a v1 controller or, for ``""``, of v2.

    /proc/self/cgroup has lines ``number:controllers:/path`` (cgroups(7)). In a
    container the path may be one of the host that cannot be seen here; the mount point
    itself then is our cgroup.
    """
    cgroup = root / "sys/fs/cgroup"
    mounts = [cgroup / controller] if controller else [cgroup, cgroup / "unified"]
    steps = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, membership_text = line.partition(":")
        controllers, colon, path = membership_text.partition(":")
        if colon and controller in controllers.split(","):
            steps = [part for part in path.split("/") if part not in ("", "..")]
            break
    folders = []
    for mount in mounts:
        for depth in range(len(steps), -1, -1):
            folders.append(mount.joinpath(*steps[:depth]))
    return list(filter(Path.is_dir, folders))


def cpu_list(text: str) -> list[int]:
    """The CPUs of a list such as ``0-3,8``. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.split(","):
        ends = list(map(int, part.split("-")))
        cpus.update(range(ends[0], ends[-1] + 1))
    return sorted(cpus)


def quietest_cpus(count: int, *, seconds: float = 0.2) -> list[int]:
    """The least busy of the granted CPUs, by /proc/stat over a moment.

    ``count`` 0 means all of them.
    """
    cpus = granted_cpus()
    if count == 0 or count >= len(cpus):
        return cpus
    before = _busy_ticks()
    time.sleep(seconds)
    after = _busy_ticks()
    cpus.sort(key=lambda cpu: after[cpu] - before[cpu])
    return sorted(cpus[:count])


def _busy_ticks() -> Counter[int]:
    busy: Counter[int] = Counter()
    for line in _read(Path("/proc/stat")).splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields]
            busy[int(name[3:])] = (
                sum(ticks[:8]) - ticks[3] - ticks[4]
            )  # all but idle and iowait
    return busy


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
