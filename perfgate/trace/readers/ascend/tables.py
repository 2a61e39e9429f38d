"""All tables of one profile: each is read once, may be missing, and is split by device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TypeVar

import numpy as np

from perfgate.document.message import Message
from perfgate.trace.model.allocations import allocation_totals
from perfgate.trace.model.arithmetic import counts_by_name, totals_by_name
from perfgate.trace.model.events import DEVICE_KINDS, EventTable, joined_events
from perfgate.trace.model.kernel_table import KernelTable, joined_tables
from perfgate.trace.model.packed import NO_NUMBER, Packed, alike_rows
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import (
    AllocationTotal,
    Collective,
    Kernel,
    NamedTotal,
    ProfilerStep,
    RankLink,
    Timeline,
)
from perfgate.trace.model.steps import profiler_steps, shows_copies, steps_of_tables
from perfgate.trace.readers.ascend.cache_rates import with_cache_rates
from perfgate.trace.readers.ascend.columns import NO_TEXT, Kind, TableColumns, columns_of
from perfgate.trace.readers.ascend.files import MAX_ROWS, Device, by_device, clean_cell, rows_of
from perfgate.trace.readers.ascend.kernels import read_kernels
from perfgate.trace.readers.ascend.timeline import task_events

_Item = TypeVar("_Item")
_Reader = Callable[[Path], Iterable[tuple[Device, _Item]]]
_ByDevice = dict[Device, tuple[_Item, ...]]

_NO_DEVICE = Message("notes.no-device-recorded")
_LEVEL1 = Message("notes.table-needs-level-1")
_MEMORY = Message("notes.table-needs-memory")
# Binary units: 1452.0 MB of memory_record.csv are 1522532352 bytes in the database of the same run, 18816.5 KB are 19268096.
_MEBIBYTE, _KIBIBYTE = 1 << 20, 1 << 10
_PARTS = {
    "total allocated(mb)": "allocated",
    "total reserved(mb)": "reserved",
    "total active(mb)": "active",
}
_TASKS: dict[str, Kind] = {
    **dict.fromkeys(("kernel_name", "kernel_type"), "text"),
    "task_start(us)": "timestamp",
    "task_time(us)": "duration",
    "stream_id": "whole",
    "device_id": "whole",
}
_OWNER: dict[str, Kind] = {"device type": "text", "device": "text", "device_id": "whole"}
_HELD = ("allocation time(us)", "release time(us)")
_SELF_TIME = "host self duration(us)"


class Tables:
    """The tables of one rank. ``absent`` gives the likely reason for each missing one."""

    def __init__(self, find: Callable[[str], Sequence[Path]], *, kernels: str) -> None:
        """Read all tables; ``find`` gives the files of a table by the stem of their names, ``kernels`` is the kernels' stem."""
        self._find = find
        self.absent: dict[str, Message] = {}
        self.groups: Mapping[str, tuple[int, ...]] = {}
        self.kernels = self._read_kernels(kernels)
        tasks = self._read("task_time", read_tasks)
        self.tasks = {device: reduce(joined_events, own) for device, own in tasks.items()}
        self._steps = self._read("step_trace_time", read_steps, "steps", _NO_DEVICE)
        self._types = self._read("op_statistic", read_types, "types", _LEVEL1)
        self._nodes = self._read("data_preprocess", read_cpu_nodes)
        self._allocations = self._read("operator_memory", read_allocations, "allocations", _MEMORY)
        self._calls = self._read("api_statistic", read_calls, "calls", _LEVEL1).get(None, ())
        operators = self._read("operator_details", read_operators, "operators", Message("notes.table-needs-cpu"))
        self._operators = operators.get(None)
        self._peaks = self._read_peaks()
        self._held = self._read("memory_record", read_held)
        self.collectives: tuple[Collective, ...] | None = None
        self.rank_links: tuple[RankLink, ...] | None = None

    def devices(self) -> set[Device]:
        """The devices that the tables name."""
        tables: tuple[Mapping[Device, object], ...] = (self.kernels, self.tasks, self._steps, self._types)
        devices = {device for table in tables for device in table} - {None}
        return devices or set(self._peaks) - {None}

    @property
    def has_kernels_and_steps(self) -> bool:
        """Whether the tables give the time and the step of each kernel."""
        kernels = [kernel for rows in self.kernels.values() if len(rows) for kernel in rows[:1]]
        return bool(self._steps and kernels) and all(kernel.start_ns is not None for kernel in kernels)

    def add_steps(self, steps: Iterable[tuple[Device, ProfilerStep]]) -> None:
        """Use the steps of analysis.db if there is no step_trace_time.csv."""
        if not self._steps:
            self._steps = by_device(steps)
            if self._steps:
                self.absent.pop("steps", None)

    def timeline(self, rank: int | None, own: Timeline, *, alone: bool) -> Timeline:
        """The events and counters of a device with its rows of the tables.

        With ``alone``, rows that name no device belong to it.
        """
        device, events = own.device, own.events
        steps, kernels = _of(self._steps, device, alone), _of(self.kernels, device, alone)
        return Timeline(
            rank=rank,
            device=device,
            events=events,
            kernels=kernels,
            steps=_steps(events, kernels, steps),
            step_table=steps,
            collectives=self.collectives if alone else None,
            memory=_of(self._peaks, device, alone) or {},
            rank_links=self.rank_links if alone else None,
            types=_of(self._types, device, alone),
            calls=self._calls + (_of(self._nodes, device, alone) or ()) or None,
            operators=self._operators,
            allocations=_of(self._allocations, device, alone),
            groups=self.groups,
            readings={**own.readings, **dict(_of(self._held, device, alone) or ())},
        )

    def _files(self, stem: str, name: str, reason: Message | None) -> Sequence[Path]:
        paths = self._find(stem)
        if not paths and reason is not None:
            self.absent[name] = Message("notes.no-table", {"table": stem, "why": reason})
        return paths

    def _read(
        self, stem: str, reader: _Reader[_Item], name: str = "", reason: Message | None = None
    ) -> _ByDevice[_Item]:
        return by_device(pair for path in self._files(stem, name, reason) for pair in reader(path))

    def _read_kernels(self, stem: str) -> dict[Device, KernelTable]:
        parts = [read_kernels(path) for path in self._files(stem, "kernels", _NO_DEVICE)]
        if incomplete := sum(rows for _, rows in parts):
            self.absent["kernels, some"] = Message("notes.rows-incomplete", {"rows": incomplete, "table": stem})
        tables: dict[Device, list[KernelTable]] = {}
        for device, kernels in (pair for tables_of, _ in parts for pair in tables_of.items()):
            tables.setdefault(device, []).append(kernels)
        rates = self._find("l2_cache")
        return {
            device: with_cache_rates(joined_tables(own), rates) if rates else joined_tables(own)
            for device, own in tables.items()
        }

    def _read_peaks(self) -> dict[Device, dict[str, float]]:
        devices: dict[Device, dict[str, float]] = {}
        records = [read_peaks(path) for path in self._files("memory_record", "memory", _MEMORY)]
        for table in [*records, *map(read_module_peaks, self._find("npu_module_mem"))]:
            for device, peaks in table.items():
                highest = devices.setdefault(device, {})
                highest.update({name: max(value, highest.get(name, value)) for name, value in peaks.items()})
        return devices


def read_tasks(path: Path) -> Iterator[tuple[Device, EventTable]]:
    """The events of task_time.csv, including copies, events and placeholders. Rows without times are left out."""
    columns = columns_of(path, _TASKS)
    names: dict[str, int] = {"": 0}
    name, kind = (columns.coded(column, clean_cell, names).unpacked() for column in ("kernel_name", "kernel_type"))
    start, duration, device = (columns.wholes(column) for column in ("task_start(us)", "task_time(us)", "device_id"))
    timed = (start != NO_NUMBER) & (duration != NO_NUMBER)
    kind = np.where(kind == NO_TEXT, 0, kind)
    name = np.where(name == NO_TEXT, kind, name)
    events = task_events(start, duration, columns.number("stream_id"), name, kind, tuple(names))
    for number in np.unique(device[timed]).tolist():
        yield _device(number), events.select(timed & (device == number))


def _of(table: Mapping[Device, _Item], device: Device, alone: bool) -> _Item | None:
    if device in table:
        return table[device]
    return next(iter(table.values())) if alone and len(table) == 1 else None


def _steps(
    events: EventTable, kernels: Sequence[Kernel] | None, table: Sequence[ProfilerStep] | None
) -> Sequence[ProfilerStep] | None:
    """The steps from the timeline if it shows work of the device in them, else from the tables."""
    marked = profiler_steps(events)
    if marked and any(step.computing_ns is not None for step in marked):
        return marked
    return steps_of_tables(kernels, events.of_kind(*DEVICE_KINDS), table, copies=shows_copies(events)) or marked


def read_steps(path: Path) -> Iterator[tuple[Device, ProfilerStep]]:
    """step_trace_time.csv; a device of -1 means none (torch_npu writes it if the rank is unknown)."""
    for row in rows_of(path, limit=MAX_ROWS):
        device = row.whole("device_id")
        step = ProfilerStep(
            number=row.whole("step"),
            computing_ns=row.time("computing"),
            communication_ns=row.time("communication"),
            exposed_communication_ns=row.time("communication(not overlapped)"),
            free_ns=row.time("free"),
            preparing_ns=row.time("preparing"),
            bubble_ns=row.time("bubble"),
        )
        yield None if device is None or device < 0 else device, step


def read_types(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """op_statistic.csv, which excludes collectives."""
    for row in rows_of(path, limit=MAX_ROWS):
        kind, total, count = row.text("type"), row.duration("total time(us)"), row.whole("count")
        if kind is None or total is None or count is None:
            continue
        yield row.whole("device_id"), NamedTotal(kind, count, total)


def read_calls(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """api_statistic.csv; its Device_id is the word host."""
    for row in rows_of(path, limit=MAX_ROWS):
        name, total, count = row.text("api name"), row.duration("time(us)"), row.whole("count")
        if name is None or total is None or count is None:
            continue
        yield None, NamedTotal(name, count, total, row.text("level") or "")


def read_cpu_nodes(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """data_preprocess.csv, summed by node and device: the work of the device's own CPU."""
    columns = columns_of(path, {"node": "text", "total_time(us)": "duration", "device_id": "whole"})
    names: dict[str, int] = {}
    node, device = columns.coded("node", clean_cell, names), columns.number("device_id")
    name, owner, time = node.unpacked(), device.unpacked(), columns.wholes("total_time(us)")
    for rows in alike_rows((name != NO_TEXT) & (time != NO_NUMBER), device, node):
        total = NamedTotal(list(names)[name[rows[0]]], rows.size, int(time[rows].sum()), "aicpu")
        yield _device(owner[rows[0]]), total


def read_operators(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """The host's self times of operator_details.csv by operator; it has one row per call, and multi-line call stacks."""
    columns = columns_of(path, {"name": "text", _SELF_TIME: "time"})
    names: dict[str, int] = {}
    name, time = columns.coded("name", clean_cell, names).unpacked(), columns.wholes(_SELF_TIME)
    named = name != NO_TEXT
    # Self times are differences, which are slightly below zero in older builds.
    totals = totals_by_name(name[named], np.where(time == NO_NUMBER, 0, time)[named], len(names))
    counts = counts_by_name(name[named], len(names))
    return ((None, NamedTotal(*row)) for row in zip(names, counts.tolist(), totals.tolist()))


def read_allocations(path: Path) -> Iterator[tuple[Device, AllocationTotal]]:
    """operator_memory.csv, summed by operator; a negative size is a release.

    Memory allocated before the recording has no allocation time; memory that outlives it has no release time.
    """
    columns = columns_of(path, {"name": "text", "size(kb)": "number", **_OWNER, **dict.fromkeys(_HELD, "timestamp")})
    names: dict[str, int] = {}
    name, size = columns.coded("name", clean_cell, names).unpacked(), columns.real("size(kb)") * _KIBIBYTE
    start, end = (columns.wholes(column) for column in _HELD)
    for rows in alike_rows((name != NO_TEXT) & (size >= 0), owner := _owners(columns)):
        device = _device(owner.unpacked()[rows[0]])
        for total in allocation_totals(list(names), name[rows], size[rows], start[rows], end[rows]):
            yield device, total


def read_peaks(path: Path) -> Mapping[Device, dict[str, float]]:
    """The peak bytes by device of memory_record.csv, e.g. ``PTA.reserved``.

    The times of the rows are not used, so the peaks stay valid even if a spreadsheet has rounded the times.
    """
    columns = columns_of(path, {"component": "text", **dict.fromkeys(_PARTS, "number"), **_OWNER})
    names: dict[str, int] = {}
    component, owner = columns.coded("component", clean_cell, names), _owners(columns)
    codes, owners = component.unpacked(), owner.unpacked()
    sizes = {part: columns.real(column) for column, part in _PARTS.items()}
    devices: dict[Device, dict[str, float]] = {}
    for rows in alike_rows(codes != NO_TEXT, owner, component):
        peaks = devices.setdefault(_device(owners[rows[0]]), {})
        for part, size in sizes.items():
            told = size[rows][~np.isnan(size[rows])]
            if told.size:
                peaks[f"{list(names)[codes[rows[0]]]}.{part}"] = float(told.max(initial=0.0)) * _MEBIBYTE
    return devices


def read_held(path: Path) -> Iterator[tuple[Device, tuple[str, Readings]]]:
    """The memory that each component held on a device over time, by memory_record.csv.

    Rows with times that a spreadsheet has rounded are left out.
    """
    sizes = {column: part for column, part in _PARTS.items() if part in ("allocated", "reserved")}
    columns = columns_of(
        path, {"component": "text", "timestamp(us)": "timestamp", **dict.fromkeys(sizes, "number"), **_OWNER}
    )
    names: dict[str, int] = {}
    component, owner = columns.coded("component", clean_cell, names), _owners(columns)
    codes, owners, time = component.unpacked(), owner.unpacked(), columns.wholes("timestamp(us)")
    for rows in alike_rows((codes != NO_TEXT) & (time != NO_NUMBER), owner, component):
        for column, part in sizes.items():
            size = columns.real(column)[rows]
            told = rows[~np.isnan(size)]
            if (size > 0).any():
                held = Readings.of(time[told], columns.real(column)[told] * _MEBIBYTE, "B")
                yield _device(owners[rows[0]]), (held_name(list(names)[codes[rows[0]]], part), held)


def held_name(component: str, part: str) -> str:
    """The name of the readings of a component; PTA is the framework's allocator (torch_npu)."""
    return f"memory {part}" if component == "PTA" else f"{component} memory {part}"


def read_module_peaks(path: Path) -> Mapping[Device, dict[str, float]]:
    """The peak bytes by device of npu_module_mem.csv, e.g. ``module.HCCL.reserved``, without zeros.

    Few of its some eighty modules hold memory; its GE is not the GE of memory_record.csv.
    """
    return {
        device: {f"module.{name}": peak for name, peak in peaks.items() if peak}
        for device, peaks in read_peaks(path).items()
    }


def _owners(columns: TableColumns) -> Packed:
    """The device of each row: from ``NPU:3`` in the columns Device Type and Device, else from Device_id."""
    numbers: dict[int, int] = {}
    owner = columns.wholes("device_id")
    for column in ("device", "device type"):
        code = columns.coded(column, _number_behind_colon, numbers).unpacked()
        owner = np.where(code == NO_TEXT, owner, np.array([*numbers, NO_NUMBER])[code])
    return Packed.of(owner)


def _number_behind_colon(cell: str) -> int | None:
    number = (clean_cell(cell) or "").rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 7 else None


def _device(number: int) -> Device:
    return None if number == NO_NUMBER else int(number)
