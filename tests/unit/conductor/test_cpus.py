from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate.conductor.machine.cpus import cpu_quota, granted_cpus, granted_memory, quietest_cpus

TOTAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _root(root: Path, files: dict[str, str], membership: str) -> Path:
    tree = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {**tree, "proc/self/cgroup": membership}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "membership", "quota"),
    [
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 1.5),
        ({"cpu.max": "max\n", "jobs/7/cpu.max": "50000 100000\n"}, "0::/jobs/7\n", 0.5),
        # The smallest limit on the way up holds.
        ({"cpu.max": "max\n", "a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", 2.0),
        # In a container the path may be one of the host; the mount point is our cgroup.
        ({"cpu.max": "400000 100000\n"}, "0::/../../docker/abc\n", 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "1:cpu:/\n", None),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/\n", 2.5),
        ({"cpu/k/cpu.cfs_quota_us": "100000\n", "cpu/k/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/k\n", 1.0),
        ({"cpu.max": "nonsense\n"}, "nonsense\n", None),
        ({}, "", None),
    ],
)
def test_cpu_quota__recorded_cgroup_files__cpus(
    tmp_path: Path, files: dict[str, str], membership: str, quota: float
) -> None:
    """File formats: kernel documentation cgroup-v2.rst (cpu.max) and sched-bwc.rst (cfs_quota_us)."""
    assert cpu_quota(_root(tmp_path, files, membership)) == quota


@pytest.mark.parametrize(
    ("files", "membership", "limit"),
    [
        ({"memory.max": "max\n"}, "0::/\n", TOTAL),
        ({"memory.max": "1073741824\n"}, "0::/\n", 1073741824),
        ({"memory.max": "1073741824\n", "j/memory.max": "536870912\n"}, "0::/j\n", 536870912),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, "5:memory:/\n", TOTAL),
        ({"memory/x/memory.limit_in_bytes": "268435456\n"}, "5:memory:/x\n", 268435456),
        ({}, "", TOTAL),
    ],
)
def test_granted_memory__recorded_cgroup_files__bytes(
    tmp_path: Path, files: dict[str, str], membership: str, limit: int
) -> None:
    assert granted_memory(_root(tmp_path, files, membership)) == limit


@pytest.mark.parametrize(("quota", "count"), [("50000 100000", 1), ("199999 100000", 1), ("100000000000 100000", None)])
def test_granted_cpus__quota_and_mask__whole_cpus_of_the_mask(tmp_path: Path, quota: str, count: int) -> None:
    mask = sorted(os.sched_getaffinity(0))
    granted = granted_cpus(_root(tmp_path, {"cpu.max": quota}, "0::/\n"))
    assert granted == (mask if count is None else mask[:count])


def test_granted_cpus__affinity_mask_of_one__that_one(tmp_path: Path) -> None:
    mask = os.sched_getaffinity(0)
    last = max(mask)
    os.sched_setaffinity(0, {last})
    try:
        assert granted_cpus(tmp_path) == [last]
        assert quietest_cpus(1) == [last]
    finally:
        os.sched_setaffinity(0, mask)


def test_quietest_cpus__zero__all_granted() -> None:
    assert quietest_cpus(0) == granted_cpus()


def test_quietest_cpus__one__one_of_the_granted() -> None:
    found = quietest_cpus(1, seconds=0.05)
    assert len(found) == 1
    assert found[0] in granted_cpus()
