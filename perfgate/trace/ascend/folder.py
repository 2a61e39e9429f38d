"""The folders of torch_npu.profiler: which there are in a path, and what one of them says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.ascend.about import About, read_about
from perfgate.trace.ascend.communication import (
    read_collectives,
    read_database_collectives,
    read_database_steps,
    read_rank_links,
)
from perfgate.trace.ascend.export import read_export
from perfgate.trace.ascend.tables import Tables
from perfgate.trace.ascend.timeline import DeviceEvents, device_events, events_of_tables
from perfgate.trace.ascend.view import read_view
from perfgate.trace.recording import Recording, Timeline

OUTPUT = "ASCEND_PROFILER_OUTPUT"
MAX_FOLDERS = 4096
# Any of these makes a folder an analysed one.
_ANALYSED = ("kernel_details.csv", "trace_view.json", "trace_view.json.gz", "step_trace_time.csv", "analysis.db")
_STAMP = re.compile(r"_(\d{14,17})_ascend_pt$")
_DEPTH = 3
_Item = TypeVar("_Item")


@dataclass
class Rank:
    """What one folder says: timelines, and why what is not there is not there."""

    timelines: list[Timeline]
    absent: dict[str, Message] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def analysed_folders(path: Path) -> list[Path]:
    """The folders below a path that hold analysed tables, by their time stamp, then their name."""
    return sorted(_analysed(path, _DEPTH), key=lambda folder: (_stamp(folder), str(folder)))


def raw_folders(path: Path) -> list[Path]:
    """The folders that were recorded and never analysed."""
    candidates = [path, *_entries(path)] if path.is_dir() else []
    return [folder for folder in candidates if (folder / "FRAMEWORK").is_dir() and not (folder / OUTPUT).is_dir()]


def holds_profiles(path: Path) -> bool:
    """Whether a folder holds analysed or recorded output; a cheap look, which raises nothing."""
    try:
        return next(_analysed(path, _DEPTH), None) is not None or bool(raw_folders(path))
    except DocumentError:
        return False


def read_rank(output: Path) -> Rank:
    """What the tables and the timeline of one folder say. Raises DocumentError for a damaged one."""
    about = read_about(output.parent if output.name == OUTPUT else output)
    tables = Tables(lambda stem: _files(output, f"{stem}.csv"), kernels="kernel_details")
    analysis = output / "analysis.db"
    if (output / "communication.json").is_file():
        tables.collectives = read_collectives(output / "communication.json")
    elif analysis.is_file():
        tables.collectives = read_database_collectives(analysis)
    if tables.collectives is None:
        tables.absent["collectives"] = Message("notes.no-communication")
    if (output / "communication_matrix.json").is_file():
        tables.rank_links = read_rank_links(output / "communication_matrix.json")
    if analysis.is_file():
        tables.add_steps(read_database_steps(analysis))
    databases = sorted(output.glob("ascend_pytorch_profiler*.db"))
    if databases:
        return _rank_of_export(about, tables, databases[0])
    views = _files(output, "trace_view.json", "trace_view.json.gz")
    if not views:
        tables.absent["host"] = Message("notes.no-trace-view")
    return rank_of(about, tables, views[:1])


def rank_of(about: About, tables: Tables, views: Sequence[Path]) -> Rank:
    """What tables and timelines of one rank say together."""
    devices = _devices(views, tables)
    if len(devices) > 1 and None in tables.kernels:
        tables.absent["kernels"] = Message("notes.devices-unknown", {"devices": len(devices)})
    timelines = [tables.timeline(about.rank, device, alone=len(devices) == 1) for device in devices]
    return Rank(timelines, tables.absent, about.software, about.settings, about.environment)


def recording_of(path: Path, kind: str, names: Sequence[str], ranks: Sequence[Rank]) -> Recording:
    """The ranks as one recording, by rank; repeats of a rank keep their order. ``names`` are those of their folders."""
    timelines = [timeline for rank in ranks for timeline in rank.timelines]
    return Recording(
        path=path,
        format=kind,
        timelines=tuple(sorted(timelines, key=lambda timeline: (timeline.rank is None, timeline.rank or 0))),
        software=_merged(rank.software for rank in ranks),
        settings=_merged(rank.settings for rank in ranks),
        environment=_merged(rank.environment for rank in ranks),
        absent={
            # What only some folders lack is named with the folder.
            name if all(name in rank.absent for rank in ranks) else f"{name} of {folder}": reason
            for folder, rank in zip(names, ranks)
            for name, reason in rank.absent.items()
        },
    )


def _analysed(path: Path, depth: int) -> Iterator[Path]:
    if any((path / name).is_file() for name in _ANALYSED) or any(path.glob("ascend_pytorch_profiler*.db")):
        yield path
    elif (path / OUTPUT).is_dir():
        yield path / OUTPUT
    elif depth:
        for child in _entries(path):
            # PROF folders hold msprof's own export, which is read by its reader.
            if child.is_dir() and not child.is_symlink() and not child.name.startswith("PROF_"):
                yield from _analysed(child, depth - 1)


def _entries(path: Path) -> list[Path]:
    try:
        entries = sorted(islice(path.iterdir(), MAX_FOLDERS + 1))
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error
    if len(entries) > MAX_FOLDERS:
        raise DocumentError(f"{path}: more than {MAX_FOLDERS} entries; name the profiler's own folder")
    return entries


def _stamp(folder: Path) -> str:
    match = _STAMP.search(folder.parent.name) or _STAMP.search(folder.name)
    return match[1].ljust(17, "0") if match else ""


def _files(output: Path, *names: str) -> list[Path]:
    return [output / name for name in names if (output / name).is_file()]


def _rank_of_export(about: About, tables: Tables, database: Path) -> Rank:
    """What the database says, whose times are exact, and the tables where it says nothing."""
    export = read_export(database)
    timelines = []
    for own in export.timelines:
        events = DeviceEvents(own.device, own.events, own.core_frequency)
        rank = own.rank if about.rank is None else about.rank
        tabled = tables.timeline(rank, events, alone=len(export.timelines) == 1)
        timelines.append(
            replace(
                tabled,
                kernels=own.kernels or tabled.kernels,
                steps=own.steps or tabled.steps,
                memory={**tabled.memory, **own.memory},
                allocations=own.allocations or tabled.allocations,
            )
        )
    first = timelines[0]
    tables_of = {
        "kernels": first.kernels,
        "steps": first.steps,
        "memory": first.memory,
        "allocations": first.allocations,
    }
    for name in (name for name, table in tables_of.items() if table):
        tables.absent.pop(name, None)
    settings = {**export.settings, **about.settings}
    return Rank(timelines, tables.absent, about.software, settings, about.environment or export.environment)


def _devices(views: Sequence[Path], tables: Tables) -> list[DeviceEvents]:
    """The events of each device, from the timelines where there are some, else from the tables."""
    kernels = [kernel for rows in tables.kernels.values() for kernel in rows]
    devices = [device for path in views for device in device_events(read_view(path), kernels)]
    numbers = tables.devices()
    if not devices:
        present = {*tables.kernels, *tables.tasks} - {None} or numbers or {None}
        return [
            DeviceEvents(number, events_of_tables(_own(tables.kernels, number), _own(tables.tasks, number)), None)
            for number in sorted(present, key=lambda number: number or 0)
        ]
    if len(devices) == 1 and devices[0].device is None and len(numbers) == 1:
        return [devices[0]._replace(device=next(iter(numbers)))]
    return devices


def _own(table: Mapping[int | None, tuple[_Item, ...]], device: int | None) -> tuple[_Item, ...]:
    """The rows of a device; a table that names none holds those of the only one."""
    return table.get(device, table.get(None, ()))


def _merged(ranks: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What the ranks agree on or one alone says; where they differ, all their values."""
    values: dict[str, dict[str, None]] = {}
    for rank in ranks:
        for name, value in rank.items():
            values.setdefault(name, {})[value] = None
    return {name: " | ".join(distinct) for name, distinct in values.items()}
