"""All tables of one profile: each is read once, may be missing, and is split by device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.trace.model.allocations import allocation_totals
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    IntColumn,
    Mask,
    Positions,
    alike_rows,
    counts_by_name,
    known_number,
    totals_by_name,
)
from perfgate.trace.model.events import DEVICE_KINDS, EventTable, joined_events
from perfgate.trace.model.kernel_table import KernelTable, joined_tables
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.recording import (
    SOME_KERNELS,
    AllocationTotal,
    Collective,
    Kernel,
    Memory,
    NamedTotal,
    ProfilerStep,
    RankLink,
    Timeline,
    Totals,
)
from perfgate.trace.model.steps import profiler_steps, shows_copies, steps_of_tables
from perfgate.trace.readers.ascend.columns import (
    NO_TEXT,
    Kind,
    TableColumns,
    columns_of,
)
from perfgate.trace.readers.ascend.files import (
    MAX_ROWS,
    Device,
    by_device,
    clean_cell,
    is_cut_off,
    rows_of,
)
from perfgate.trace.readers.ascend.kernels import read_kernels, with_cache_rates
from perfgate.trace.readers.ascend.timeline import task_events

_Item = TypeVar("_Item")
_Reader = Callable[[Path], Iterable[tuple[Device, _Item]]]
_ByDevice = dict[Device, tuple[_Item, ...]]

_NO_DEVICE = Message("notes.no-device-recorded")
_LEVEL1 = Message("notes.table-needs-level-1")
_MEMORY = Message("notes.table-needs-memory")
# Binary units: 1452.0 MB of memory_record.csv are 1522532352 bytes in the database of
# the same run, 18816.5 KB are 19268096.
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
_OWNER: dict[str, Kind] = {
    "device type": "text",
    "device": "text",
    "device_id": "whole",
}
_ALLOCATED, _RELEASED = "allocation time(us)", "release time(us)"
_DEVICE_DIGITS = 7  # the number of a device has fewer
_SELF_TIME = "host self duration(us)"


class Tables:
    """The tables of one rank.

    ``absent`` gives the likely reason for each missing one.
    """

    def __init__(self, find: Callable[[str], Sequence[Path]], *, kernels: str) -> None:
        """Read all tables; ``find`` gives the files of a table by the stem of their
        names, ``kernels`` is the kernels' stem.
        """
        self._find = find
        self.absent: dict[str, Message] = {}
        self.groups: Mapping[str, tuple[int, ...]] = {}
        self.kernels = self._read_kernels(kernels)
        tasks = self._read("task_time", read_tasks)
        self.tasks = {
            device: reduce(joined_events, own) for device, own in tasks.items()
        }
        self._steps = self._read("step_trace_time", read_steps, "steps", _NO_DEVICE)
        self._types = self._read("op_statistic", read_types, "types", _LEVEL1)
        self._nodes = self._read("data_preprocess", read_cpu_nodes)
        self._allocations = self._read(
            "operator_memory", read_allocations, "allocations", _MEMORY
        )
        self._calls = self._read("api_statistic", read_calls, "calls", _LEVEL1).get(
            None, ()
        )
        operators = self._read(
            "operator_details",
            read_operators,
            "operators",
            Message("notes.table-needs-cpu"),
        )
        self._operators = operators.get(None)
        self._peaks = self._read_peaks()
        self._held = self._read("memory_record", read_held)
        self.collectives: tuple[Collective, ...] | None = None
        self.rank_links: tuple[RankLink, ...] | None = None

    def devices(self) -> set[Device]:
        """The devices that the tables name."""
        devices = {*self.kernels, *self.tasks, *self._steps, *self._types} - {None}
        return devices or set(self._peaks) - {None}

    @property
    def has_kernels_and_steps(self) -> bool:
        """Whether the tables give the time and the step of each kernel."""
        tables = [table for table in self.kernels.values() if len(table)]
        return bool(self._steps and tables) and all(
            table[0].start_ns is not None for table in tables
        )

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
        device = own.device
        steps = _of(self._steps, device, alone)
        kernels = _of(self.kernels, device, alone)
        nodes = _of(self._nodes, device, alone) or ()
        held = _of(self._held, device, alone) or ()
        totals = Totals(
            _of(self._types, device, alone),
            (*self._calls, *nodes) or None,
            self._operators,
        )
        timeline = replace(
            own,
            rank=rank,
            kernels=kernels,
            steps=_steps(own.events, kernels, steps),
            step_table=steps,
            memory=Memory(
                _of(self._peaks, device, alone) or {},
                _of(self._allocations, device, alone),
            ),
            totals=totals,
            groups=self.groups,
            readings={**own.readings, **dict(held)},
        )
        if not alone:
            return timeline
        return replace(
            timeline, collectives=self.collectives, rank_links=self.rank_links
        )

    def _files(self, stem: str, name: str, reason: Message | None) -> Sequence[Path]:
        paths = self._find(stem)
        if not paths and reason is not None:
            self.absent[name] = Message(
                "notes.no-table", {"table": stem, "why": reason}
            )
        return paths

    def _read(
        self,
        stem: str,
        reader: _Reader[_Item],
        name: str = "",
        reason: Message | None = None,
    ) -> _ByDevice[_Item]:
        pairs: list[tuple[Device, _Item]] = []
        for path in self._files(stem, name, reason):
            pairs += reader(path)
        return by_device(pairs)

    def _read_kernels(self, stem: str) -> dict[Device, KernelTable]:
        parts: list[tuple[Device, KernelTable]] = []
        incomplete = 0
        for path in self._files(stem, "kernels", _NO_DEVICE):
            of_file, incomplete_rows = read_kernels(path)
            parts += of_file.items()
            incomplete += incomplete_rows
            if is_cut_off(path):
                self.absent[f"{SOME_KERNELS}, of {path.name}"] = Message(
                    "notes.table-cut-off", {"table": path.name}
                )
        if incomplete:
            self.absent[SOME_KERNELS] = Message(
                "notes.rows-incomplete", {"rows": incomplete, "table": stem}
            )
        tables = {
            device: joined_tables(own) for device, own in by_device(parts).items()
        }
        rates = self._find("l2_cache")
        if rates:
            tables = {
                device: with_cache_rates(table, rates)
                for device, table in tables.items()
            }
        return tables

    def _read_peaks(self) -> dict[Device, dict[str, float]]:
        peaks: list[tuple[Device, _Peak]] = []
        for path in self._files("memory_record", "memory", _MEMORY):
            peaks += read_peaks(path)
        for path in self._find("npu_module_mem"):
            peaks += read_module_peaks(path)
        devices: dict[Device, dict[str, float]] = defaultdict(dict)
        for device, (name, size) in peaks:
            highest = devices[device]
            highest[name] = max(size, highest.get(name, size))
        return devices


class _Peak(NamedTuple):
    """The most bytes that a component held; its name is e.g. ``PTA.reserved``."""

    name: str
    size: float


def read_tasks(path: Path) -> Iterator[tuple[Device, EventTable]]:
    """The events of task_time.csv, including copies, events and placeholders.

    Rows without times are left out.
    """
    columns = columns_of(path, _TASKS)
    names = Numbering([""])
    name = columns.coded("kernel_name", clean_cell, names)
    kind = columns.coded("kernel_type", clean_cell, names)
    start = columns.wholes("task_start(us)")
    duration = columns.wholes("task_time(us)")
    device = columns.wholes("device_id")
    timed = (start != NO_NUMBER) & (duration != NO_NUMBER)
    kind = np.where(kind == NO_TEXT, 0, kind)
    name = np.where(name == NO_TEXT, kind, name)
    events = task_events(
        start, duration, columns.wholes("stream_id"), name, kind, tuple(names)
    )
    for number in np.unique(device[timed]).tolist():
        yield known_number(number), events.select(timed & (device == number))


def _of(table: Mapping[Device, _Item], device: Device, alone: bool) -> _Item | None:
    if device in table:
        return table[device]
    if alone and len(table) == 1:
        return next(iter(table.values()))
    return None


def _steps(
    events: EventTable,
    kernels: Sequence[Kernel] | None,
    table: Sequence[ProfilerStep] | None,
) -> Sequence[ProfilerStep] | None:
    """The steps from the timeline if it shows work of the device in them, else from the
    tables.
    """
    marked = profiler_steps(events)
    if marked and any(step.computing_ns is not None for step in marked):
        return marked
    work = events.of_kind(*DEVICE_KINDS)
    return steps_of_tables(kernels, work, table, copies=shows_copies(events)) or marked


def read_steps(path: Path) -> Iterator[tuple[Device, ProfilerStep]]:
    """step_trace_time.csv; a device of -1 means none (torch_npu writes it if the rank
    is unknown).
    """
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
        if device is not None and device < 0:
            device = None
        yield device, step


def read_types(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """op_statistic.csv, which excludes collectives."""
    for row in rows_of(path, limit=MAX_ROWS):
        kind = row.text("type")
        total = row.duration("total time(us)")
        count = row.whole("count")
        if kind is None or total is None or count is None:
            continue
        yield row.whole("device_id"), NamedTotal(kind, count, total)


def read_calls(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """api_statistic.csv; its Device_id is the word host."""
    for row in rows_of(path, limit=MAX_ROWS):
        name = row.text("api name")
        total = row.duration("time(us)")
        count = row.whole("count")
        if name is None or total is None or count is None:
            continue
        yield None, NamedTotal(name, count, total, row.text("level") or "")


def read_cpu_nodes(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """data_preprocess.csv, summed by node and device: the work of the device's own CPU."""
    columns = columns_of(
        path, {"node": "text", "total_time(us)": "duration", "device_id": "whole"}
    )
    names = Numbering[str]()
    node = columns.coded("node", clean_cell, names)
    device, time = columns.wholes("device_id"), columns.wholes("total_time(us)")
    texts = list(names)
    for rows in alike_rows((node != NO_TEXT) & (time != NO_NUMBER), device, node):
        first = rows[0]
        total = NamedTotal(
            texts[node[first]], rows.size, int(time[rows].sum()), "aicpu"
        )
        yield known_number(int(device[first])), total


def read_operators(path: Path) -> Iterator[tuple[Device, NamedTotal]]:
    """The host's self times of operator_details.csv by operator; it has one row per
    call, and multi-line call stacks.
    """
    columns = columns_of(path, {"name": "text", _SELF_TIME: "time"})
    names = Numbering[str]()
    name = columns.coded("name", clean_cell, names)
    named = name != NO_TEXT
    name = name[named]
    # Self times are differences, which are slightly below zero in older builds.
    time = columns.wholes(_SELF_TIME)[named]
    totals = totals_by_name(name, np.where(time == NO_NUMBER, 0, time), len(names))
    counts = counts_by_name(name, len(names))
    for text, count, total in zip(names, counts.tolist(), totals.tolist()):
        yield None, NamedTotal(text, count, total)


def read_allocations(path: Path) -> Iterator[tuple[Device, AllocationTotal]]:
    """operator_memory.csv, summed by operator; a negative size is a release.

    Memory allocated before the recording has no allocation time; memory that outlives
    it has no release time.
    """
    columns = columns_of(
        path,
        {
            "name": "text",
            "size(kb)": "number",
            **_OWNER,
            _ALLOCATED: "timestamp",
            _RELEASED: "timestamp",
        },
    )
    names = Numbering[str]()
    name = columns.coded("name", clean_cell, names)
    size = columns.real("size(kb)") * _KIBIBYTE
    start, end = columns.wholes(_ALLOCATED), columns.wholes(_RELEASED)
    owner = _owners(columns)
    for rows in alike_rows((name != NO_TEXT) & (size >= 0), owner):
        device = known_number(int(owner[rows[0]]))
        for total in allocation_totals(
            list(names), name[rows], size[rows], start[rows], end[rows]
        ):
            yield device, total


def read_peaks(path: Path) -> Iterator[tuple[Device, _Peak]]:
    """The peaks of memory_record.csv.

    The times of the rows are not used, so the peaks stay valid even if a spreadsheet
    has rounded the times.
    """
    columns = columns_of(
        path, {"component": "text", **dict.fromkeys(_PARTS, "number"), **_OWNER}
    )
    components = _Components(columns)
    sizes = {part: columns.real(column) for column, part in _PARTS.items()}
    for device, component, rows in components.groups(components.named):
        for part, size in sizes.items():
            own = size[rows]
            present = own[~np.isnan(own)]
            if present.size:
                yield (
                    device,
                    _Peak(
                        f"{component}.{part}",
                        float(present.max(initial=0.0)) * _MEBIBYTE,
                    ),
                )


class _Components:
    """The component of the framework and the device of each row of a table of memory."""

    def __init__(self, columns: TableColumns) -> None:
        names = Numbering[str]()
        self._component = columns.coded("component", clean_cell, names)
        self._names = list(names)
        self._owner = _owners(columns)
        self.named = self._component != NO_TEXT

    def groups(self, chosen: Mask) -> Iterator[tuple[Device, str, Positions]]:
        """The chosen rows of each component of each device."""
        for rows in alike_rows(chosen, self._owner, self._component):
            first = rows[0]
            yield (
                known_number(int(self._owner[first])),
                self._names[self._component[first]],
                rows,
            )


def read_held(path: Path) -> Iterator[tuple[Device, tuple[str, Readings]]]:
    """The memory that each component held on a device over time, by memory_record.csv.

    Rows with times that a spreadsheet has rounded are left out.
    """
    sizes = {
        column: part
        for column, part in _PARTS.items()
        if part in ("allocated", "reserved")
    }
    columns = columns_of(
        path,
        {
            "component": "text",
            "timestamp(us)": "timestamp",
            **dict.fromkeys(sizes, "number"),
            **_OWNER,
        },
    )
    components = _Components(columns)
    time = columns.wholes("timestamp(us)")
    for device, component, rows in components.groups(
        components.named & (time != NO_NUMBER)
    ):
        for column, part in sizes.items():
            size = columns.real(column)[rows]
            if (size > 0).any():
                present = ~np.isnan(size)
                held = Readings.of(time[rows[present]], size[present] * _MEBIBYTE, "B")
                yield device, (held_name(component, part), held)


def held_name(component: str, part: str) -> str:
    """The name of the readings of a component; PTA is the framework's allocator
    (torch_npu).
    """
    if component == "PTA":
        return f"memory {part}"
    return f"{component} memory {part}"


def read_module_peaks(path: Path) -> Iterator[tuple[Device, _Peak]]:
    """The peaks of npu_module_mem.csv, e.g. ``module.HCCL.reserved``, without zeros.

    Few of its some eighty modules hold memory; its GE is not the GE of
    memory_record.csv.
    """
    for device, (name, size) in read_peaks(path):
        if size:
            yield device, _Peak(f"module.{name}", size)


def _owners(columns: TableColumns) -> IntColumn:
    """The device of each row: from ``NPU:3`` in the columns Device Type and Device,
    else from Device_id.
    """
    numbers = Numbering[int]()
    owner = columns.wholes("device_id")
    for column in ("device", "device type"):
        code = columns.coded(column, _number_behind_colon, numbers)
        owner = np.where(code == NO_TEXT, owner, np.array([*numbers, NO_NUMBER])[code])
    return owner


def _number_behind_colon(cell: str) -> int | None:
    number = (clean_cell(cell) or "").rpartition(":")[2]
    if not number.isdecimal() or len(number) >= _DEVICE_DIGITS:
        return None
    return int(number)
