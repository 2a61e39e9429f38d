"""Recordings of any profiler, read and analysed on any machine: numpy, no torch.

    >>> from pathlib import Path
    >>> from perfgate import trace
    >>> recording = trace.read(Path("profile"))
    >>> [timeline.label for timeline in recording.timelines]
    ['device 0']
    >>> trace.top(recording.timelines[0], by="type", host=False).rows[0].name
    'sgemm_kernel'

``read`` reads recordings of torch.profiler, torch_npu.profiler and msprof, and Chrome
trace events; ``salvage`` also recovers the intact events of a damaged file. The tables
of a ``Timeline`` (``events``, ``kernels``, ``steps``, ``collectives`` …) are in integer
nanoseconds and bytes; one that was not collected is None. ``top``, ``device_gaps`` and
``flame_tree(stacks_of(…))`` show where the time goes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfgate.trace.analysis.flame import flame_tree
    from perfgate.trace.analysis.gaps import DeviceGaps, Gap, device_gaps
    from perfgate.trace.analysis.rows import Top, TopOperator, top
    from perfgate.trace.analysis.stacks import stacks_of
    from perfgate.trace.model.events import EventKind, EventTable, EventTableBuilder
    from perfgate.trace.model.recording import (
        Collective,
        Kernel,
        ProfilerStep,
        Recording,
        Timeline,
    )
    from perfgate.trace.model.stacks import Stacks
    from perfgate.trace.readers.damaged import salvage
    from perfgate.trace.readers.reader import Reader, read

__all__ = [
    "Collective",
    "DeviceGaps",
    "EventKind",
    "EventTable",
    "EventTableBuilder",
    "Gap",
    "Kernel",
    "ProfilerStep",
    "Reader",
    "Recording",
    "Stacks",
    "Timeline",
    "Top",
    "TopOperator",
    "device_gaps",
    "flame_tree",
    "read",
    "salvage",
    "stacks_of",
    "top",
]

_HOMES = {
    "Collective": "model.recording",
    "DeviceGaps": "analysis.gaps",
    "EventKind": "model.events",
    "EventTable": "model.events",
    "EventTableBuilder": "model.events",
    "Gap": "analysis.gaps",
    "Kernel": "model.recording",
    "ProfilerStep": "model.recording",
    "Reader": "readers.reader",
    "Recording": "model.recording",
    "Stacks": "model.stacks",
    "Timeline": "model.recording",
    "Top": "analysis.rows",
    "TopOperator": "analysis.rows",
    "device_gaps": "analysis.gaps",
    "flame_tree": "analysis.flame",
    "read": "readers.reader",
    "salvage": "readers.damaged",
    "stacks_of": "analysis.stacks",
    "top": "analysis.rows",
}


def __getattr__(name: str) -> object:
    """Import a name when it is asked for (PEP 562): a short trace takes less time to
    read than all of these to import.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
