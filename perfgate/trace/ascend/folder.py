"""The folders of torch_npu.profiler: which there are in a path, and what one of them says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

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
# Any of these makes a folder an analysed one.
_TELLING = ("kernel_details.csv", "trace_view.json", "trace_view.json.gz", "step_trace_time.csv", "analysis.db")
_STAMP = re.compile(r"_(\d{14,17})_ascend_pt$")
MAX_FOLDERS = 4096
_DEPTH = 3
_Item = TypeVar("_Item")


@dataclass
class Rank:
    """What one folder says: timelines, and why what is not there is not there."""

    timelines: list[Timeline]
    absent: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def analysed_folders(path: Path) -> list[Path]:
    found = list(_analysed(path, _DEPTH))
    return sorted(found, key=lambda folder: (_stamp(folder), str(folder)))


def raw_folders(path: Path) -> list[Path]:
    candidates = [path, *_entries(path)] if path.is_dir() else []
    return [folder for folder in candidates if (folder / "FRAMEWORK").is_dir() and not (folder / OUTPUT).is_dir()]


def holds_profiles(path: Path) -> bool:
    """Whether a folder holds analysed or recorded output; a cheap look, which raises nothing."""
    try:
        return next(_analysed(path, _DEPTH), None) is not None or bool(raw_folders(path))
    except DocumentError:
        return False


def _analysed(path: Path, depth: int) -> Iterator[Path]:
    if any((path / name).is_file() for name in _TELLING) or any(path.glob("ascend_pytorch_profiler*.db")):
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
        found = sorted(islice(path.iterdir(), MAX_FOLDERS + 1))
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error
    if len(found) > MAX_FOLDERS:
        raise DocumentError(f"{path}: more than {MAX_FOLDERS} entries; name the profiler's own folder")
    return found


def _stamp(folder: Path) -> str:
    found = _STAMP.search(folder.parent.name) or _STAMP.search(folder.name)
    return found[1].ljust(17, "0") if found else ""


def read_rank(output: Path) -> Rank:
    about = read_about(output.parent if output.name == OUTPUT else output)
    tables = Tables(lambda stem: _files(output, f"{stem}.csv"), kernels="kernel_details")
    analysis = output / "analysis.db"
    if (output / "communication.json").is_file():
        tables.collectives = read_collectives(output / "communication.json")
    elif analysis.is_file():
        tables.collectives = read_database_collectives(analysis)
    if tables.collectives is None:
        tables.absent["collectives"] = (
            "there is no communication.json: it is written for several ranks, from level 1 on"
        )
    if (output / "communication_matrix.json").is_file():
        tables.rank_links = read_rank_links(output / "communication_matrix.json")
    if analysis.is_file():
        tables.add_steps(read_database_steps(analysis))
    databases = sorted(output.glob("ascend_pytorch_profiler*.db"))
    if databases:
        return _rank_of_export(about, tables, databases[0])
    views = _files(output, "trace_view.json", "trace_view.json.gz")
    if not views:
        tables.absent["host"] = "there is no trace_view.json, so nothing is known of the host and of launches"
    return rank_of(about, tables, views[:1])


def _rank_of_export(about: About, tables: Tables, database: Path) -> Rank:
    """Put together the database, whose times are exact, and the tables for what it has not."""
    export = read_export(database)
    alone = len(export.timelines) == 1
    rank = Rank(
        [],
        tables.absent,
        about.software,
        {**export.settings, **about.settings},
        about.environment or export.environment,
    )
    for own in export.timelines:
        events = DeviceEvents(own.device, own.events, own.core_frequency)
        other = tables.timeline(own.rank if about.rank is None else about.rank, events, alone=alone)
        rank.timelines.append(
            replace(
                other,
                kernels=own.kernels or other.kernels,
                steps=own.steps or other.steps,
                memory={**other.memory, **own.memory},
                allocations=own.allocations or other.allocations,
            )
        )
    present = rank.timelines[0]
    for what, found in (("kernels", present.kernels), ("steps", present.steps), ("memory", present.memory),
                        ("allocations", present.allocations)):  # fmt: skip
        if found:
            rank.absent.pop(what, None)
    return rank


def recording_of(path: Path, kind: str, names: Sequence[str], ranks: Sequence[Rank]) -> Recording:
    """The ranks as one recording, by rank; repeats of a rank keep their order."""
    timelines = [timeline for rank in ranks for timeline in rank.timelines]
    return Recording(
        path=path,
        format=kind,
        timelines=tuple(sorted(timelines, key=lambda timeline: (timeline.rank is None, timeline.rank or 0))),
        software=_merged(rank.software for rank in ranks),
        settings=_merged(rank.settings for rank in ranks),
        environment=_merged(rank.environment for rank in ranks),
        absent=_absent(names, ranks),
    )


def _merged(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for values in several:
        for name, value in values.items():
            known = found.setdefault(name, [])
            if value not in known:
                known.append(value)
    return {name: " | ".join(values) for name, values in found.items()}


def _absent(names: Sequence[str], ranks: Sequence[Rank]) -> dict[str, str]:
    found = {}
    for name, rank in zip(names, ranks):
        for what, reason in rank.absent.items():
            everywhere = all(what in other.absent for other in ranks)
            found[what if everywhere else f"{what} of {name}"] = reason
    return found


def rank_of(about: About, tables: Tables, views: Sequence[Path]) -> Rank:
    """Put together what tables and timelines of one rank say."""
    found = all_devices(views, tables)
    rank = Rank([], tables.absent, about.software, about.settings, about.environment)
    if len(found) > 1 and None in tables.kernels:
        tables.absent["kernels"] = f"the table of kernels does not say which of {len(found)} devices they ran on"
    rank.timelines = [tables.timeline(about.rank, device, alone=len(found) == 1) for device in found]
    return rank


def all_devices(views: Sequence[Path], tables: Tables) -> list[DeviceEvents]:
    """The events of each device, from the timelines where there are some, else from the tables."""
    every = [kernel for kernels in tables.kernels.values() for kernel in kernels]
    found = [device for path in views for device in device_events(read_view(path), every)]
    named = tables.devices()
    if not found:
        devices = {*tables.kernels, *tables.tasks} - {None} or named
        return [
            DeviceEvents(device, events_of_tables(_own(tables.kernels, device), _own(tables.tasks, device)), None)
            for device in sorted(devices or {None}, key=lambda item: item or 0)
        ]
    if len(found) == 1 and found[0].device is None and len(named) == 1:
        return [found[0]._replace(device=next(iter(named)))]
    return found


def _own(table: Mapping[int | None, tuple[_Item, ...]], device: int | None) -> tuple[_Item, ...]:
    return table.get(device, table.get(None, ()))


def _files(output: Path, *names: str) -> list[Path]:
    return [output / name for name in names if (output / name).is_file()]
