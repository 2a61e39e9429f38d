"""Count calls once more in another process: what differs from process to process is no exact count."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.run import CounterSet
from perfgate.measuring.counting.counters import count_calls, with_fallbacks
from perfgate.measuring.counting.kept import with_kept_bytes
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload


def count_again(workload: BoundWorkload, device: Device, *, root: Path) -> list[CounterSet]:
    """The counters of every shape in the order in which step 4 counts them, without kernels and compilations."""
    return [_count(workload, device, shape, root) for shape in workload.shapes]


def _count(workload: BoundWorkload, device: Device, shape: str, root: Path) -> CounterSet:
    counted = count_calls(workload, device, shape, root=root)
    if (fallbacks := device.fallbacks()) is not None:
        counted = with_fallbacks(counted, fallbacks)
    return with_kept_bytes(workload, with_python_work(workload, counted, root=root), root=root)
