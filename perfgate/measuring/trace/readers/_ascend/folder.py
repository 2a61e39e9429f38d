"""The folders of torch_npu.profiler: which there are in a path, and what one of them says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from perfgate.errors import DocumentError
from perfgate.measuring.trace.events import EventTable
from perfgate.measuring.trace.readers._ascend.kernels import read_kernels
from perfgate.measuring.trace.readers._ascend.timelines import DeviceEvents, device_events
from perfgate.measuring.trace.readers._ascend.view import read_view
from perfgate.measuring.trace.recording import Kernel, Timeline

OUTPUT = "ASCEND_PROFILER_OUTPUT"
# Any of these makes a folder an analysed one.
_TELLING = ("kernel_details.csv", "trace_view.json", "trace_view.json.gz", "op_statistic.csv", "step_trace_time.csv")
_STAMP = re.compile(r"_(\d{14,17})_ascend_pt$")
MAX_FOLDERS = 4096
_DEPTH = 3


@dataclass
class Rank:
    """What one folder says: timelines, and why what is not there is not there."""

    timelines: list[Timeline]
    absent: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def analysed_folders(path: Path) -> list[Path]:
    """Return the folders below a path that hold analysed tables, by their time stamp, then their name."""
    found = list(_analysed(path, _DEPTH))
    return sorted(found, key=lambda folder: (_stamp(folder), str(folder)))


def raw_folders(path: Path) -> list[Path]:
    """Return the folders that were recorded and never analysed."""
    candidates = [path, *sorted(path.iterdir())[:MAX_FOLDERS]] if path.is_dir() else []
    return [folder for folder in candidates if (folder / "FRAMEWORK").is_dir() and not (folder / OUTPUT).is_dir()]


def _analysed(path: Path, depth: int) -> Iterator[Path]:
    if any((path / name).is_file() for name in _TELLING):
        yield path
        return
    if (path / OUTPUT).is_dir():
        yield path / OUTPUT
        return
    if depth:
        for number, child in enumerate(sorted(path.iterdir())):
            if number >= MAX_FOLDERS:
                raise DocumentError(f"{path}: more than {MAX_FOLDERS} entries; name the profiler's own folder")
            if child.is_dir() and not child.is_symlink():
                yield from _analysed(child, depth - 1)


def _stamp(folder: Path) -> str:
    found = _STAMP.search(folder.parent.name) or _STAMP.search(folder.name)
    return found[1].ljust(17, "0") if found else ""


def read_rank(output: Path) -> Rank:
    """Return what the tables and the timeline of one folder say. Raises DocumentError for a damaged one."""
    rank = Rank([])
    kernels = _kernels(output, rank)
    events = _events(output, kernels, rank)
    rank.timelines = [
        Timeline(rank=None, device=device, events=table, kernels=kernels.get(device))
        for device, table in _paired(events, kernels)
    ]
    return rank


def _kernels(output: Path, rank: Rank) -> Mapping[Optional[int], tuple[Kernel, ...]]:
    path = output / "kernel_details.csv"
    if not path.is_file():
        rank.absent["kernels"] = (
            "there is no kernel_details.csv: the profiler recorded no device, or its analysis failed"
        )
        return {}
    table = read_kernels(path)
    if table.incomplete:
        rank.absent["kernels, some"] = f"{table.incomplete} rows of kernel_details.csv lack cells"
    return table.by_device


def _events(output: Path, kernels: Mapping[Optional[int], tuple[Kernel, ...]], rank: Rank) -> list[DeviceEvents]:
    path = next(
        (output / name for name in ("trace_view.json", "trace_view.json.gz") if (output / name).is_file()), None
    )
    if path is None:
        rank.absent["host"] = "there is no trace_view.json, so nothing is known of the host, of copies and of launches"
        return []
    return device_events(read_view(path), [kernel for several in kernels.values() for kernel in several])


def _paired(
    events: list[DeviceEvents], kernels: Mapping[Optional[int], tuple[Kernel, ...]]
) -> list[tuple[Optional[int], EventTable]]:
    """Return events by device; where timeline and tables know one device each, it is the same one."""
    if len(events) == 1 and len(kernels) == 1:
        return [(next(iter(kernels)), events[0].events)]
    return [(found.device, found.events) for found in events]
