"""Read trace_view.json, the timeline that torch_npu.profiler exports, on its own, under
any name that ``export_chrome_trace`` was given.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Recording
from perfgate.trace.model.steps import MarkedSteps
from perfgate.trace.readers.rank_names import rank_in_name
from perfgate.trace.scanner.chrome_events import begins_with
from perfgate.trace.scanner.compressed import (
    bare_name,
    files_named,
    is_json,
    named,
    opened,
    unreadable,
)

READS = "trace_view.json of torch_npu.profiler, and msprof_*.json"
PRIORITY = 20
_NAMES = re.compile(r"(trace_view|msprof_[\w-]+).*\.json$")
_JSON_FILES = named("*.json")
_EVENTS = re.compile(rb'"ph"\s*:')
_BLOCK_BYTES, _LONGEST_OWN = 1 << 20, 64
# A bare list, unlike Kineto's object, with names that only Ascend's profilers write.
_LIST = re.compile(rb"\A\s*\[")
_OWN = lazy_pattern(
    rb'"Ascend Hardware"|"enqueue_to_dequeue"|"async_npu"|"Overlap Analysis"|"name": ?"(?:CANN|HCCL)"'
)


def recognises(path: Path) -> bool:
    """Whether a file is such a timeline, by its name or its content, or a folder has
    no other traces.
    """
    if path.is_dir():
        return bool(_timelines_in(path))
    if not path.is_file() or not is_json(path):
        return False
    return bool(_NAMES.match(bare_name(path))) or _is_own(path)


def _timelines_in(folder: Path) -> list[Path]:
    """All traces in a folder; none if any is of another kind."""
    timelines = []
    for file in files_named(folder, _JSON_FILES, below=False):
        if _is_own(file):
            timelines.append(file)
        elif begins_with(file, _EVENTS):
            return []
    return timelines


def _is_own(path: Path) -> bool:
    """Whether a file is a bare list with names of Ascend's profilers; these may be near
    its end, because torch_npu writes all events of the host first.
    """
    if not begins_with(path, _LIST):
        return False
    end = b""
    with suppress(*unreadable(path)), opened(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            if _OWN.search(end + block):
                return True
            end = block[-_LONGEST_OWN:]
    return False


def read(path: Path) -> Recording:
    """The events of each device; of a folder, of all its files. Raises DocumentError,
    which names the fault, its place and the next step.
    """
    if path.is_dir():
        return Recording.of_files(path, list(map(_read_file, _timelines_in(path))))
    return _read_file(path)


def _read_file(path: Path) -> Recording:
    from perfgate.trace.model.kernel_table import KernelTable
    from perfgate.trace.readers.ascend.timeline import device_timelines
    from perfgate.trace.readers.ascend.view import read_view

    rank = rank_in_name(path)
    timelines = device_timelines(read_view(path), KernelTable.of(()))
    return Recording(
        path=path,
        format="ascend-trace-view",
        timelines=tuple(
            replace(timeline, rank=rank, steps=MarkedSteps.of(timeline.events))
            for timeline in timelines
        ),
        absent={"kernels": Message("notes.look-in-folder")},
    )
