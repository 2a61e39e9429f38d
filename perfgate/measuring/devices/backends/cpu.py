"""The CPU as a device: no separate memory, no queue, and a profiler that sees operators
rather than kernels.
"""

from __future__ import annotations

import gc
import os
import platform
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.backends._shared import (
    GIB,
    require_packages,
    sweeper,
    text_of_error,
)
from perfgate.measuring.devices.device import (
    Call,
    Capability,
    Device,
    HostWait,
    MemoryCount,
)
from perfgate.measuring.devices.host import available_memory, text_of
from perfgate.trace.model.events import CALL

KIND = "cpu"
# How /sys writes the size of a cache: 491520K.
_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# How torch words a failed allocation on the host (c10/core/impl/alloc_cpu.cpp:
# "DefaultCPUAllocator: ... memory").
_OUT_OF_MEMORY = re.compile("DefaultCPUAllocator: (can't allocate|not enough) memory")


def open_device(index: int = 0) -> CpuDevice:
    """The CPU.

    Raises MeasuringError for an index other than 0, or if torch is not installed.
    """
    if index != 0:
        raise UnmeasuredError(Message("device.one-cpu", {"index": index}))
    require_packages("torch", install=Message("device.install-torch"))
    return CpuDevice()


class CpuDevice(Device):
    """The CPU; fulfils ``Device``.

    Importing this module or opening the device imports no torch.
    """

    kind = KIND
    index = 0
    capabilities: frozenset[Capability] = frozenset({"allocation_count", "forkable"})

    def __init__(self) -> None:
        self.name = cpu_model(text_of(Path("/proc/cpuinfo")))
        self._throttles = _throttle_count()

    def handle(self) -> Any:
        import torch

        return torch.device("cpu")

    def properties(self) -> dict[str, str]:
        import torch

        return {
            "model": self.name,
            "cores": str(os.cpu_count() or 1),
            "architecture": platform.machine(),
            "memory": f"{round(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB)} GiB",
            "instructions": str(torch.backends.cpu.get_cpu_capability()),
        }

    def count_memory(self, calls: Sequence[Call]) -> list[MemoryCount] | None:
        """The allocations of each call, counted at torch's CPU allocator.

        Only blocks allocated during these calls count, and only freeing those lowers
        the held bytes: the profiler's reports on older blocks depend on whether it ran
        before (c10 ProfiledCPUMemoryReporter does not know blocks allocated without
        it), so counting them would not be repeatable.
        """
        from torch.autograd.profiler import profile, record_function

        with profile(use_cpu=True, profile_memory=True) as profiler:
            for call in calls:
                with record_function(CALL):
                    output = call()
                    del output
                    gc.collect()
        results = profiler.kineto_results
        if results is None:
            raise UnmeasuredError(Message("operators.no-events"))
        return held_by_call(_allocations(results.experimental_event_tree()))

    def cache_bytes(self) -> int | None:
        return last_cache_bytes(
            Path(f"/sys/devices/system/cpu/cpu{min(os.sched_getaffinity(0))}/cache")
        )

    def cache_sweeper(self) -> Callable[[], None] | None:
        """A function that reads twice that cache; None also if it would take a quarter
        of the free memory.
        """
        size, available = self.cache_bytes(), available_memory()
        if size is None or available is None or 2 * size > available / 4:
            return None
        return sweeper(self.handle(), 2 * size, self.synchronize)

    def host_waits(self) -> list[HostWait]:
        import torch

        return [
            HostWait(torch.Tensor, "tolist", "Tensor.tolist"),
            HostWait(torch.Tensor, "numpy", "Tensor.numpy"),
            HostWait(torch.cpu, "synchronize", "torch.cpu.synchronize"),
        ]

    def condition(self) -> DeviceState:
        before, self._throttles = self._throttles, _throttle_count()
        if before is None or self._throttles is None:
            return DeviceState()
        return DeviceState(throttled=self._throttles > before)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return (
            isinstance(error, MemoryError)
            or _OUT_OF_MEMORY.search(text_of_error(error)) is not None
        )


def held_by_call(calls: Iterable[Sequence[tuple[int, int]]]) -> list[MemoryCount]:
    """The memory use of consecutive calls, from the ``(address, bytes)`` events of
    each; negative bytes free the address.
    """
    live: dict[int, int] = {}
    counts = []
    for events in calls:
        before = sum(live.values())
        own = {}
        now = peak = allocations = 0
        for address, size in events:
            if size > 0:
                allocations += 1
                live[address] = own[address] = size
                now += size
                peak = max(peak, now)
            else:
                now -= own.pop(address, 0)
                live.pop(address, None)
        counts.append(MemoryCount(allocations, peak, sum(live.values()) - before))
    return counts


def cpu_model(cpuinfo: str) -> str:
    """The CPU's name from the text of /proc/cpuinfo.

    x86 has a ``model name``; aarch64 (Kunpeng, Graviton) only the numbers of
    implementer and part.
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())  # of several CPUs the first
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:
        return f"implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()


def last_cache_bytes(folder: Path) -> int | None:
    """The size of the highest-level cache among ``index*`` of a CPU's folder in /sys;
    None if there is none.

    Some kernels and hypervisors list no caches, or none with a size.
    """
    sizes = {}
    for cache in folder.glob("index*"):
        level, size = text_of(cache / "level"), _SIZE.fullmatch(text_of(cache / "size"))
        if level.isdigit() and size and text_of(cache / "type") != "Instruction":
            sizes[int(level)] = int(size[1]) * _UNITS[size[2]]
    if sizes:
        return sizes[max(sizes)]
    return None


def _allocations(roots: Iterable[Any]) -> list[list[tuple[int, int]]]:
    """The ``(address, bytes)`` events of each call, in order of time."""
    from torch._C._profiler import _EventType

    blocks, starts = [], []
    pending = list(roots)
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            blocks.append((event.start_time_ns, fields.ptr, fields.alloc_size))
        elif event.name == CALL:
            starts.append(event.start_time_ns)
    starts.sort()
    calls: list[list[tuple[int, int]]] = [[] for _ in starts]
    blocks.sort(key=lambda block: block[0])
    for time_ns, address, size in blocks:
        calls[max(0, bisect_right(starts, time_ns) - 1)].append((address, size))
    return calls


def _throttle_count() -> int | None:
    """The number of throttlings of the CPUs this process may use; None if the kernel
    does not count them.
    """
    total = 0
    for cpu in os.sched_getaffinity(0):
        count = text_of(
            Path(
                f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count"
            )
        )
        if not count.isdigit():
            return None
        total += int(count)
    return total
