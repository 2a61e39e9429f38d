"""Read one folder of torch_npu.profiler or msprof, and several as one recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.kernel_table import KernelTable, joined_tables
from perfgate.trace.model.recording import Memory, Recording, Timeline
from perfgate.trace.readers.ascend.about import read_about, read_cores
from perfgate.trace.readers.ascend.communication import (
    read_collectives,
    read_database_collectives,
    read_database_steps,
    read_rank_links,
)
from perfgate.trace.readers.ascend.export import read_export
from perfgate.trace.readers.ascend.files import Device
from perfgate.trace.readers.ascend.layout import (
    MAX_FOLDERS,
    TRACE_VIEWS,
    folder_around,
    msprof_outputs,
)
from perfgate.trace.readers.ascend.tables import Tables
from perfgate.trace.readers.ascend.timeline import device_timelines, events_of_tables
from perfgate.trace.readers.ascend.view import read_view
from perfgate.trace.readers.foreign import refuse_foreign, refuse_pointers


def read_rank(output: Path, *, tables_suffice: bool = False) -> Recording:
    """The tables and the timeline of one folder.

    Raises DocumentError for a damaged one.

    With ``tables_suffice``, a timeline is skipped if tables hold its kernels and steps:
    the events of the device are then known, the host's are not.
    """
    for folder in {output, folder_around(output)}:
        refuse_pointers(folder, but=TRACE_VIEWS)
    about, rank, groups = read_about(folder_around(output))
    recording = replace(about, path=output)
    tables = Tables(
        lambda stem: _files(output, f"{stem}.csv"), kernels="kernel_details"
    )
    tables.groups = groups
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
        return _rank_of_export(recording, rank, tables, databases[0])
    views = _files(output, *TRACE_VIEWS)
    if not views:
        tables.absent["host"] = Message("notes.no-trace-view")
    if tables_suffice and tables.has_kernels_and_steps:
        views = []
    return rank_of(recording, rank, tables, views[:1])


def rank_of(
    recording: Recording, rank: int | None, tables: Tables, views: Sequence[Path]
) -> Recording:
    """The recording of one rank with its tables and timelines combined."""
    devices = _devices(views, tables)
    if len(devices) > 1 and None in tables.kernels:
        tables.absent["kernels"] = Message(
            "notes.devices-unknown", {"devices": len(devices)}
        )
    timelines = tuple(
        tables.timeline(rank, device, alone=len(devices) == 1) for device in devices
    )
    return replace(recording, timelines=timelines, absent=tables.absent)


def recording_of(
    path: Path, names: Sequence[str], ranks: Sequence[Recording]
) -> Recording:
    """The ranks as one recording, by rank; repeats of a rank keep their order.

    ``names`` are the names of their folders.
    """
    timelines: list[Timeline] = []
    absent = {}
    for folder, rank in zip(names, ranks):
        timelines += rank.timelines
        for name, reason in rank.absent.items():
            if all(name in rank_of_folder.absent for rank_of_folder in ranks):
                absent[name] = reason
            else:
                absent[f"{name} of {folder}"] = reason  # only some folders lack it
    timelines.sort(key=lambda timeline: (timeline.rank is None, timeline.rank or 0))
    return Recording(
        path=path,
        format=ranks[0].format,
        timelines=tuple(timelines),
        software=_merged(rank.software for rank in ranks),
        settings=_merged(rank.settings for rank in ranks),
        environment=_merged(rank.environment for rank in ranks),
        absent=absent,
    )


def _files(output: Path, *names: str) -> list[Path]:
    return [output / name for name in names if (output / name).is_file()]


def _rank_of_export(
    recording: Recording, rank: int | None, tables: Tables, database: Path
) -> Recording:
    """The database, which has exact times, with the tables for values it lacks."""
    export = read_export(database)
    timelines = []
    for own in export.timelines:
        of_rank = own.rank
        if rank is not None:
            of_rank = rank
        tabled = tables.timeline(of_rank, own, alone=len(export.timelines) == 1)
        complete = replace(
            tabled,
            kernels=own.kernels or tabled.kernels,
            steps=own.steps or tabled.steps,
            memory=_complete(own.memory, tabled.memory),
        )
        timelines.append(complete)
    first = timelines[0]
    tables_of_first = {
        "kernels": first.kernels,
        "steps": first.steps,
        "memory": first.memory.peaks,
        "allocations": first.memory.allocations,
    }
    for name, table in tables_of_first.items():
        if table:
            tables.absent.pop(name, None)
    return replace(
        recording,
        timelines=tuple(timelines),
        settings={**export.settings, **recording.settings},
        environment=recording.environment or export.environment,
        absent=tables.absent,
    )


def _complete(exported: Memory, tabled: Memory) -> Memory:
    return Memory(
        {**tabled.peaks, **exported.peaks}, exported.allocations or tabled.allocations
    )


def _devices(views: Sequence[Path], tables: Tables) -> list[Timeline]:
    """The events of each device, from the timelines if there are any, else from the
    tables.
    """
    numbers = tables.devices()
    timelines = []
    if views:
        kernels = joined_tables(list(tables.kernels.values()) or [KernelTable.of(())])
        for path in views:
            refuse_foreign(path)
            timelines += device_timelines(read_view(path), kernels)
    if not timelines:
        return _devices_of_tables(tables, numbers)
    if len(timelines) == 1 and timelines[0].device is None and len(numbers) == 1:
        return [replace(timelines[0], device=next(iter(numbers)))]
    return timelines


def _devices_of_tables(tables: Tables, numbers: set[Device]) -> list[Timeline]:
    present = {*tables.kernels, *tables.tasks} - {None} or numbers or {None}
    timelines = []
    for number in sorted(present, key=lambda number: number or 0):
        # A table that names no device belongs to the only one.
        own = (
            tables.kernels.get(number) or tables.kernels.get(None) or KernelTable.of(())
        )
        tasks = tables.tasks.get(number, tables.tasks.get(None))
        timelines.append(Timeline(None, number, events_of_tables(own, tasks)))
    return timelines


def _merged(ranks: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One value per key if the ranks that have it agree, else all their values."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for rank in ranks:
        for name, value in rank.items():
            values[name][value] = None
    return {name: " | ".join(distinct) for name, distinct in values.items()}


_TABLES = ("kernels", "types", "calls")


def read_msprof(path: Path, *, table: str | None) -> Recording:
    """PROF folders by device, or one ``table`` of kernels.

    Raises DocumentError, which names the fault, its place and the next step.
    """
    if table is not None:
        tables = Tables(lambda stem: {table: [path]}.get(stem, []), kernels=table)
        return _rank(path, tables, {}, [])
    outputs = list(msprof_outputs(path))
    ranks = list(map(_read_output, outputs))
    return recording_of(path, [output.parent.name for output in outputs], ranks)


def _read_output(output: Path) -> Recording:
    def files_of(stem: str) -> list[Path]:
        """The files of a table: op_summary_20260823165254.csv, or the parts
        op_summary_slice_0_*.csv of a long run.
        """
        files = [path for path in sorted(output.glob(f"{stem}*.csv")) if path.is_file()]
        return files[:MAX_FOLDERS]

    refuse_pointers(output)
    tables = Tables(files_of, kernels="op_summary")
    cores = read_cores(folder_around(output))
    views = [
        view
        for view in sorted(output.glob("msprof_*.json"))
        if "_slice_" not in view.name
    ]
    if not views:
        views = sorted(output.glob("msprof_slice_*.json"))
    return _rank(output, tables, cores, views[:1])


def _rank(
    output: Path, tables: Tables, settings: dict[str, str], views: list[Path]
) -> Recording:
    rank = rank_of(
        Recording(output, "msprof", (), settings=settings), None, tables, views
    )
    # msprof never writes the other parts that torch_npu has, so their absence needs no
    # reason.
    absent = {
        name: reason for name, reason in rank.absent.items() if name.startswith(_TABLES)
    }
    if not views:
        absent["host"] = Message("notes.no-msprof-timeline")
    return replace(rank, absent=absent)
