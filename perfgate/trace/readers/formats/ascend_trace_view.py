"""Read trace_view.json, the timeline that torch_npu.profiler exports, on its own."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Recording
from perfgate.trace.model.steps import MarkedSteps
from perfgate.trace.scanner.chrome_events import looks_like
from perfgate.trace.scanner.compressed import bare_name, is_json

READS = "trace_view.json of torch_npu.profiler, and msprof_*.json"
PRIORITY = 20
_NAMES = re.compile(r"(trace_view|msprof_[\w-]+).*\.json$")
# A bare list, unlike Kineto's object, with names that only Ascend's profilers write.
_LIST = re.compile(rb"\A\s*\[")
_OWN = lazy_pattern(
    rb'"Ascend Hardware"|"enqueue_to_dequeue"|"async_npu"|"Overlap Analysis"|"name": ?"(?:CANN|HCCL)"'
)


def recognises(path: Path) -> bool:
    """Whether a file is such a timeline, by its name or its first bytes."""
    if not path.is_file() or not is_json(path):
        return False
    return bool(_NAMES.match(bare_name(path))) or (
        looks_like(path, _LIST) and looks_like(path, _OWN)
    )


def read(path: Path) -> Recording:
    """The events of each device. Raises DocumentError, which names the fault, its place
    and the next step.
    """
    from perfgate.trace.model.kernel_table import KernelTable
    from perfgate.trace.readers.ascend.timeline import device_timelines
    from perfgate.trace.readers.ascend.view import read_view

    timelines = device_timelines(read_view(path), KernelTable.of(()))
    return Recording(
        path=path,
        format="ascend-trace-view",
        timelines=tuple(
            replace(timeline, steps=MarkedSteps.of(timeline.events))
            for timeline in timelines
        ),
        absent={"kernels": Message("notes.look-in-folder")},
    )
