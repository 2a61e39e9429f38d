"""All tables of one profile: each is read once, may be missing, and is split by device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TypeVar

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.allocations import Allocations
from perfgate.trace.ascend.files import MAX_ROWS, Device, Row, by_device, rows_of
from perfgate.trace.ascend.kernels import read_kernels
from perfgate.trace.ascend.timeline import DeviceEvents, Task
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.recording import (
    AllocationTotal,
    CallTotal,
    Collective,
    Kernel,
    OperatorTime,
    ProfilerStep,
    RankLink,
    TabledStep,
    Timeline,
    TypeTotal,
)
from perfgate.trace.steps import profiler_steps, shows_copies, steps_of_tables

_Item = TypeVar("_Item")
_Reader = Callable[[Path], Iterable[tuple[Device, _Item]]]
_ByDevice = dict[Device, tuple[_Item, ...]]

_NO_DEVICE = Message("notes.no-device-recorded")
_LEVEL1 = Message("notes.table-needs-level-1")
_MEMORY = Message("notes.table-needs-memory")
_PERCENT = 100.0
# 1452.0 MB of memory_record.csv are 1522532352 bytes in the database of the same run, 18816.5 KB are 19268096.
_MEBIBYTE, _KIBIBYTE = 1 << 20, 1 << 10
_PARTS = {
    "total allocated(mb)": "allocated",
    "total reserved(mb)": "reserved",
    "total active(mb)": "active",
}
_OPERATOR_TIMES = (
    "host self duration(us)",
    "host total duration(us)",
    "device self duration(us)",
    "device total duration(us)",
)


class Tables:
    """The tables of one rank. ``absent`` says of each that is missing why that may be."""

    def __init__(self, find: Callable[[str], Sequence[Path]], *, kernels: str) -> None:
        """Read all tables; ``find`` gives the files of a table by the stem of their names, ``kernels`` is one of them."""
        self._find = find
        self.absent: dict[str, Message] = {}
        self.groups: Mapping[str, tuple[int, ...]] = {}
        self.kernels = self._read_kernels(kernels)
        self.tasks = self._read("task_time", _read_tasks)
        self._steps = self._read("step_trace_time", read_steps, "steps", _NO_DEVICE)
        self._types = self._read("op_statistic", read_types, "types", _LEVEL1)
        self._nodes = self._read("data_preprocess", read_cpu_nodes)
        self._allocations = self._read("operator_memory", read_allocations, "allocations", _MEMORY)
        self._calls = self._read("api_statistic", read_calls, "calls", _LEVEL1).get(None, ())
        operators = self._read("operator_details", read_operators, "operators", Message("notes.table-needs-cpu"))
        self._operators = operators.get(None)
        self._peaks = self._read_peaks()
        self.collectives: tuple[Collective, ...] | None = None
        self.rank_links: tuple[RankLink, ...] | None = None

    def devices(self) -> set[Device]:
        """The devices that the tables name."""
        tables: tuple[Mapping[Device, object], ...] = (self.kernels, self.tasks, self._steps, self._types)
        devices = {device for table in tables for device in table} - {None}
        return devices or set(self._peaks) - {None}

    @property
    def has_kernels_and_steps(self) -> bool:
        """Whether its tables say when each kernel ran, and in which step."""
        kernels = [kernel for rows in self.kernels.values() if len(rows) for kernel in rows[:1]]
        return bool(self._steps and kernels) and all(kernel.start_ns is not None for kernel in kernels)

    def add_steps(self, steps: Iterable[tuple[Device, TabledStep]]) -> None:
        """Take the steps of analysis.db where there is no step_trace_time.csv."""
        if not self._steps:
            self._steps = by_device(steps)
            if self._steps:
                self.absent.pop("steps", None)

    def timeline(self, rank: int | None, own: DeviceEvents, *, alone: bool) -> Timeline:
        """The timeline of a device; what names no device is ``alone``'s."""
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
            readings=own.readings,
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

    def _read_kernels(self, stem: str) -> dict[Device, Sequence[Kernel]]:
        parts = [read_kernels(path) for path in self._files(stem, "kernels", _NO_DEVICE)]
        if incomplete := sum(part.incomplete for part in parts):
            self.absent["kernels, some"] = Message("notes.rows-incomplete", {"rows": incomplete, "table": stem})
        complete: dict[Device, Sequence[Kernel]] = {}
        for device, kernels in (pair for part in parts for pair in part.by_device.items()):
            complete[device] = (*complete[device], *kernels) if device in complete else kernels
        return {device: self._with_cache_rates(kernels) for device, kernels in complete.items()}

    def _with_cache_rates(self, kernels: Sequence[Kernel]) -> Sequence[Kernel]:
        """Add the rates of l2_cache.csv to the counters of kernels where stream and task name a single kernel."""
        rates: dict[tuple[object, ...], dict[str, float]] = {}
        for path in self._find("l2_cache"):
            for row in rows_of(path):
                key = (row.whole("stream id"), row.whole("task id"), row.text("name"))
                values = {"l2_hit_rate": row.number("hit rate"), "l2_victim_rate": row.number("victim rate")}
                # A number of a task comes again after 65536 others: then nobody knows whose rate it is.
                rates[key] = {} if key in rates else {name: rate for name, rate in values.items() if rate is not None}
        if not rates:
            return kernels
        return tuple(
            kernel._replace(counters={**kernel.counters, **extra})
            if (extra := rates.get((kernel.stream, kernel.task, kernel.name)))
            else kernel
            for kernel in kernels
        )

    def _read_peaks(self) -> dict[Device, dict[str, float]]:
        devices: dict[Device, dict[str, float]] = {}
        records = [read_peaks(path) for path in self._files("memory_record", "memory", _MEMORY)]
        for table in [*records, *map(read_module_peaks, self._find("npu_module_mem"))]:
            for device, peaks in table.items():
                highest = devices.setdefault(device, {})
                highest.update({name: max(value, highest.get(name, value)) for name, value in peaks.items()})
        return devices


def _read_tasks(path: Path) -> Iterator[tuple[Device, Task]]:
    """task_time.csv, which holds copies, events and place holders too. Rows without times are left out."""
    for row in rows_of(path, limit=MAX_ROWS):
        start, duration = row.timestamp("task_start(us)"), row.duration("task_time(us)")
        if start is not None and duration is not None:
            kind = row.text("kernel_type") or ""
            name = row.text("kernel_name") or kind
            yield row.whole("device_id"), Task(name, kind, row.whole("stream_id"), start, duration)


def _of(table: Mapping[Device, _Item], device: Device, alone: bool) -> _Item | None:
    if device in table:
        return table[device]
    return next(iter(table.values())) if alone and len(table) == 1 else None


def _steps(
    events: EventTable, kernels: Sequence[Kernel] | None, table: Sequence[TabledStep] | None
) -> tuple[ProfilerStep, ...] | None:
    """The steps by the timeline where it shows the device at work in them, else by the tables."""
    marked = profiler_steps(events)
    if marked and any(step.computing_ns is not None for step in marked):
        return marked
    return steps_of_tables(kernels, events.of_kind(*DEVICE_KINDS), table, copies=shows_copies(events)) or marked


def read_steps(path: Path) -> Iterator[tuple[Device, TabledStep]]:
    """step_trace_time.csv; a device of -1 is none (torch_npu writes it where it knows no rank)."""
    for row in rows_of(path, limit=MAX_ROWS):
        device = row.whole("device_id")
        step = TabledStep(
            number=row.whole("step"),
            computing_ns=row.time("computing"),
            communication_ns=row.time("communication"),
            exposed_communication_ns=row.time("communication(not overlapped)"),
            free_ns=row.time("free"),
            preparing_ns=row.time("preparing"),
            bubble_ns=row.time("bubble"),
        )
        yield None if device is None or device < 0 else device, step


def read_types(path: Path) -> Iterator[tuple[Device, TypeTotal]]:
    """op_statistic.csv; collectives are not in it."""
    for row in rows_of(path, limit=MAX_ROWS):
        kind, total, count = row.text("type"), row.duration("total time(us)"), row.whole("count")
        if kind is None or total is None or count is None:
            continue
        share = row.number("ratio(%)")
        yield (
            row.whole("device_id"),
            TypeTotal(
                type=kind,
                core=row.text("core type"),
                count=count,
                total_ns=total,
                shortest_ns=row.duration("min time(us)"),
                longest_ns=row.duration("max time(us)"),
                share=None if share is None else share / _PERCENT,
            ),
        )


def read_calls(path: Path) -> Iterator[tuple[Device, CallTotal]]:
    """api_statistic.csv; its Device_id is the word host."""
    for row in rows_of(path, limit=MAX_ROWS):
        name, total, count = row.text("api name"), row.duration("time(us)"), row.whole("count")
        if name is None or total is None or count is None:
            continue
        level = row.text("level") or ""
        yield None, CallTotal(level, name, count, total, row.duration("min(us)"), row.duration("max(us)"))


def read_cpu_nodes(path: Path) -> Iterator[tuple[Device, CallTotal]]:
    """data_preprocess.csv, added up by node and by device: what the device's own CPU ran."""
    totals: dict[tuple[Device, str], CallTotal] = {}
    for row in rows_of(path):
        name, time = row.text("node"), row.duration("total_time(us)")
        if name is None or time is None:
            continue
        key = row.whole("device_id"), name
        total = totals.get(key)
        totals[key] = CallTotal(
            level="aicpu",
            name=name,
            count=total.count + 1 if total else 1,
            total_ns=total.total_ns + time if total else time,
            shortest_ns=min(total.shortest_ns or 0, time) if total else time,
            longest_ns=max(total.longest_ns or 0, time) if total else time,
        )
        _refuse_too_many(totals, path)
    return ((device, total) for (device, _), total in totals.items())


def read_operators(path: Path) -> Iterator[tuple[Device, OperatorTime]]:
    """operator_details.csv, added up by operator; it has a row a call, and call stacks over many lines."""
    totals: dict[str, list[int]] = {}
    for row in rows_of(path):
        name = row.text("name")
        if name is None:
            continue
        sums = totals.setdefault(name, [0, 0, 0, 0, 0])
        sums[0] += 1
        for position, column in enumerate(_OPERATOR_TIMES, start=1):
            # Times of nested operators are differences, so that older builds write a self time a little below zero.
            sums[position] += row.time(column) or 0
        _refuse_too_many(totals, path)
    return ((None, OperatorTime(name, *sums)) for name, sums in totals.items())


def read_allocations(path: Path) -> Iterator[tuple[Device, AllocationTotal]]:
    """operator_memory.csv, added up by operator; a negative size is a release.

    What was there before the recording has no time of allocation, and what outlives it none of release.
    """
    listed: dict[Device, Allocations] = {}
    for row in rows_of(path):
        name, kilobytes = row.text("name"), row.number("size(kb)")
        if name is None or kilobytes is None or kilobytes < 0:
            continue
        allocations = listed.setdefault(_memory_device(row), Allocations())
        times = row.timestamp("allocation time(us)"), row.timestamp("release time(us)")
        allocations.add(name, kilobytes * _KIBIBYTE, *times)
        _refuse_too_many(allocations, path)
    return ((device, total) for device, allocations in listed.items() for total in allocations.totals())


def read_peaks(path: Path) -> Mapping[Device, dict[str, float]]:
    """The peak bytes by device of memory_record.csv, e.g. ``PTA.reserved``.

    The times of the rows are not used, so that a table a spreadsheet has rounded them in still tells its peaks.
    """
    devices: dict[Device, dict[str, float]] = {}
    for row in rows_of(path):
        component = row.text("component")
        if component is None:
            continue
        peaks = devices.setdefault(_memory_device(row), {})
        for column, part in _PARTS.items():
            megabytes = row.number(column)
            if megabytes is not None:
                name = f"{component}.{part}"
                peaks[name] = max(peaks.get(name, 0.0), megabytes * _MEBIBYTE)
        _refuse_too_many(peaks, path)
    return devices


def read_module_peaks(path: Path) -> Mapping[Device, dict[str, float]]:
    """The peak bytes by device of npu_module_mem.csv, e.g. ``module.HCCL.reserved``, without those of nothing.

    Its modules are some eighty, of which few hold memory; GE among them is not the GE of memory_record.csv.
    """
    return {
        device: {f"module.{name}": peak for name, peak in peaks.items() if peak}
        for device, peaks in read_peaks(path).items()
    }


def _memory_device(row: Row) -> Device:
    """The device of ``NPU:3``, which the columns Device Type and Device hold."""
    word = row.text("device type") or row.text("device") or ""
    number = word.rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 7 else row.whole("device_id")


def _refuse_too_many(names: Sized, path: Path) -> None:
    if len(names) > MAX_ROWS:
        raise DocumentError(f"{path}: more than {MAX_ROWS} names; profile fewer steps, or the table is damaged")
