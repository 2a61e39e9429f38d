"""Count calls once more in another process: what differs from process to process is no exact count."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from perfgate.document.run import CounterSet
from perfgate.measuring.counting.counters import count_calls, count_operators, with_fallbacks
from perfgate.measuring.counting.kept import with_kept_bytes
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import COUNTED_PARTS, CountedPart


def count_again(
    workload: BoundWorkload, device: Device, *, root: Path, parts: Collection[CountedPart] = COUNTED_PARTS
) -> list[CounterSet]:
    """The counters of every shape in the order in which step 4 counts them, without kernels and compilations."""
    return [_count(workload, device, shape, root, parts) for shape in workload.shapes]


def _count(
    workload: BoundWorkload, device: Device, shape: str, root: Path, parts: Collection[CountedPart]
) -> CounterSet:
    count = count_calls if "memory" in parts else count_operators
    counted = count(workload, device, shape, root=root)
    if (fallbacks := device.fallbacks()) is not None:
        counted = with_fallbacks(counted, fallbacks)
    if "python" in parts:
        counted = with_python_work(workload, counted, root=root)
    return with_kept_bytes(workload, counted, root=root) if "kept" in parts else counted
