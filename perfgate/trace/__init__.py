"""Recordings of any profiler, read and analysed on any machine: numpy, no torch.

    >>> from pathlib import Path
    >>> from perfgate import trace
    >>> recording = trace.read(Path("profile"))
    >>> for timeline in recording.timelines:
    ...     gaps = trace.device_gaps(timeline.events)
    ...     for row in trace.top(timeline, by="type", host=False).rows[:10]:
    ...         print(timeline.label, row.name, row.count, row.total_ns)

``read`` takes what torch.profiler, torch_npu.profiler and msprof write, and Chrome trace events. The tables of a
``Timeline`` (``events``, ``kernels``, ``steps``, ``collectives`` …) are in integer nanoseconds and bytes; one that was not
collected is None. ``top``, ``device_gaps`` and ``flame_tree(stacks_of(…))`` say what takes the time.
"""

from __future__ import annotations

from perfgate.trace.events import EventKind, EventTable
from perfgate.trace.flame import flame_tree
from perfgate.trace.gaps import DeviceGaps, Gap, device_gaps
from perfgate.trace.reader import Reader, read
from perfgate.trace.recording import Collective, Kernel, ProfilerStep, Recording, Timeline
from perfgate.trace.rows import Top, TopRow, top
from perfgate.trace.stacks import Stacks, stacks_of

__all__ = [
    "Collective",
    "DeviceGaps",
    "EventKind",
    "EventTable",
    "Gap",
    "Kernel",
    "ProfilerStep",
    "Reader",
    "Recording",
    "Stacks",
    "Timeline",
    "Top",
    "TopRow",
    "device_gaps",
    "flame_tree",
    "read",
    "stacks_of",
    "top",
]
