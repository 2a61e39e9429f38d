"""Read one folder of torch_npu.profiler or msprof, and several as one recording."""

from __future__ import annotations

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
    TRACE_VIEWS,
    folder_around,
    msprof_outputs,
)
from perfgate.trace.readers.ascend.msprof_files import tables_named, timeline_in
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
    view = next(iter(_files(output, *TRACE_VIEWS)), None)
    if view is None:
        tables.absent["host"] = Message("notes.no-trace-view")
    if tables_suffice and tables.has_kernels_and_steps:
        view = None
    return rank_of(recording, rank, tables, view)


def rank_of(
    recording: Recording, rank: int | None, tables: Tables, view: Path | None
) -> Recording:
    """The recording of one rank with its tables and its timeline combined."""
    devices = _devices(view, tables)
    if len(devices) > 1 and None in tables.kernels:
        tables.absent["kernels"] = Message(
            "notes.devices-unknown", {"devices": len(devices)}
        )
    timelines = tuple(
        tables.timeline(rank, device, alone=len(devices) == 1) for device in devices
    )
    return replace(recording, timelines=timelines, absent=tables.absent)


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


def _devices(view: Path | None, tables: Tables) -> list[Timeline]:
    """The events of each device, from the timeline if there is one, else from the
    tables.
    """
    numbers = tables.devices()
    timelines = []
    if view is not None:
        kernels = joined_tables(list(tables.kernels.values()) or [KernelTable.of(())])
        refuse_foreign(view)
        timelines = device_timelines(read_view(view), kernels)
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


_TABLES = ("kernels", "types", "calls")


def read_msprof(path: Path, *, table: str | None) -> Recording:
    """PROF folders by device, or one ``table`` of kernels.

    Raises DocumentError, which names the fault, its place and the next step.
    """
    if table is not None:
        tables = Tables(lambda stem: {table: [path]}.get(stem, []), kernels=table)
        return _rank(path, tables, {}, None)
    outputs = list(msprof_outputs(path))
    names = [output.parent.name for output in outputs]
    return Recording.of_parts(path, names, list(map(_read_output, outputs)))


def _read_output(output: Path) -> Recording:
    refuse_pointers(output)
    tables = Tables(lambda stem: tables_named(output, stem), kernels="op_summary")
    cores = read_cores(folder_around(output))
    with timeline_in(output) as view:
        return _rank(output, tables, cores, view)


def _rank(
    output: Path, tables: Tables, settings: dict[str, str], view: Path | None
) -> Recording:
    rank = rank_of(
        Recording(output, "msprof", (), settings=settings), None, tables, view
    )
    # msprof never writes the other parts that torch_npu has, so their absence needs no
    # reason.
    absent = {
        name: reason for name, reason in rank.absent.items() if name.startswith(_TABLES)
    }
    if view is None:
        absent["host"] = Message("notes.no-msprof-timeline")
    return replace(rank, absent=absent)
