"""All tables of one profile: each is read once, may be missing, and is split by device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from perfgate.trace.ascend.files import rows_of
from perfgate.trace.ascend.kernels import read_kernels
from perfgate.trace.ascend.timeline import DeviceEvents, Task, read_tasks
from perfgate.trace.ascend.totals import (
    read_allocations,
    read_calls,
    read_cpu_nodes,
    read_module_peaks,
    read_operators,
    read_peaks,
    read_steps,
    read_types,
)
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
Device = int | None
_ByDevice = dict[Device, tuple[_Item, ...]]

_NO_DEVICE = "the profiler recorded no device, or its analysis failed"
_LEVEL1 = "torch_npu writes it from profiler level 1 on"
_MEMORY = "it is written with profile_memory=True"


class Tables:
    """The tables of one rank. ``absent`` says of each that is missing why that may be."""

    def __init__(self, find: Callable[[str], Sequence[Path]], *, kernels: str) -> None:
        """Read all tables; ``find`` gives the files of a table by the stem of their names, ``kernels`` is one of them."""
        self._find = find
        self.absent: dict[str, str] = {}
        self.kernels = self._read_kernels(kernels)
        self.tasks: _ByDevice[Task] = self._by_device("task_time", read_tasks)
        self._steps: _ByDevice[TabledStep] = self._by_device("step_trace_time", read_steps, "steps", _NO_DEVICE)
        self._types: _ByDevice[TypeTotal] = self._by_device("op_statistic", read_types, "types", _LEVEL1)
        self._nodes: _ByDevice[CallTotal] = self._by_device("data_preprocess", read_cpu_nodes)
        self._allocations: _ByDevice[AllocationTotal] = self._by_device(
            "operator_memory", read_allocations, "allocations", _MEMORY
        )
        self._calls: tuple[CallTotal, ...] = self._all("api_statistic", read_calls, "calls", _LEVEL1)
        self._operators: tuple[OperatorTime, ...] = self._all(
            "operator_details", read_operators, "operators", "it is written with ProfilerActivity.CPU"
        )
        self._peaks = self._read_peaks()
        self.collectives: tuple[Collective, ...] | None = None
        self.rank_links: tuple[RankLink, ...] | None = None

    def devices(self) -> set[Device]:
        tables = (self.kernels, self.tasks, self._steps, self._types)
        named: set[Device] = {device for table in tables for device in table if device is not None}
        return named or {device for device in self._peaks if device is not None}

    def add_steps(self, steps: Mapping[Device, tuple[TabledStep, ...]]) -> None:
        """Take the steps of analysis.db where there is no step_trace_time.csv."""
        if not self._steps:
            self._steps = dict(steps)
            if self._steps:
                self.absent.pop("steps", None)

    def timeline(self, rank: int | None, found: DeviceEvents, *, alone: bool) -> Timeline:
        """The timeline of a device; what names no device is ``alone``'s."""
        device, events = found.device, found.events
        table, kernels = _of(self._steps, device, alone), _of(self.kernels, device, alone)
        own = (self._calls, _of(self._nodes, device, alone) or ())
        return Timeline(
            rank=rank,
            device=device,
            events=events,
            kernels=kernels,
            steps=_steps(events, kernels, table),
            step_table=table,
            collectives=self.collectives if alone else None,
            memory=_peaks_of(self._peaks, device, alone),
            rank_links=self.rank_links if alone else None,
            types=_of(self._types, device, alone),
            calls=own[0] + own[1] or None,
            operators=self._operators or None,
            allocations=_of(self._allocations, device, alone),
            core_frequency=found.frequency,
        )

    def _read_kernels(self, stem: str) -> _ByDevice[Kernel]:
        incomplete = 0
        found: _ByDevice[Kernel] = {}
        for path in self._files(stem, "kernels", _NO_DEVICE):
            table = read_kernels(path)
            incomplete += table.incomplete
            for device, kernels in table.by_device.items():
                found[device] = found.get(device, ()) + kernels
        if incomplete:
            self.absent["kernels, some"] = f"{incomplete} rows of {stem} lack cells"
        return {device: self._with_cache(kernels) for device, kernels in found.items()}

    def _with_cache(self, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        """The kernels with the rates of l2_cache.csv among their counters, where stream and task name one kernel."""
        rates: dict[tuple[object, ...], dict[str, float]] = {}
        for path in self._find("l2_cache"):
            for row in rows_of(path):
                key = (row.whole("stream id"), row.whole("task id"), row.text("name"))
                hit, victim = row.number("hit rate"), row.number("victim rate")
                values = {"l2_hit_rate": hit, "l2_victim_rate": victim}
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
        found: dict[Device, dict[str, float]] = {}
        records = [read_peaks(path) for path in self._files("memory_record", "memory", _MEMORY)]
        for table in [*records, *(read_module_peaks(path) for path in self._find("npu_module_mem"))]:
            for device, peaks in table.items():
                known = found.setdefault(device, {})
                for name, value in peaks.items():
                    known[name] = max(value, known.get(name, value))
        return found

    def _files(self, stem: str, what: str = "", reason: str = "") -> Sequence[Path]:
        paths = self._find(stem)
        if not paths and what:
            self.absent[what] = f"there is no {stem}.csv: {reason}"
        return paths

    def _by_device(
        self,
        stem: str,
        reader: Callable[[Path], Mapping[Device, tuple[_Item, ...]]],
        what: str = "",
        reason: str = "",
    ) -> _ByDevice[_Item]:
        found: _ByDevice[_Item] = {}
        for path in self._files(stem, what, reason):
            for device, items in reader(path).items():
                found[device] = found.get(device, ()) + items
        return found

    def _all(self, stem: str, reader: Callable[[Path], tuple[_Item, ...]], what: str, reason: str) -> tuple[_Item, ...]:
        return tuple(item for path in self._files(stem, what, reason) for item in reader(path))


def _of(table: _ByDevice[_Item], device: Device, alone: bool) -> tuple[_Item, ...] | None:
    if device in table:
        return table[device]
    return next(iter(table.values())) if alone and len(table) == 1 else None


def _steps(
    events: EventTable, kernels: Sequence[Kernel] | None, table: Sequence[TabledStep] | None
) -> tuple[ProfilerStep, ...] | None:
    marked = profiler_steps(events)
    if marked and any(step.computing_ns is not None for step in marked):
        return marked
    return steps_of_tables(kernels, events.of_kind(*DEVICE_KINDS), table, copies=shows_copies(events)) or marked


def _peaks_of(peaks: dict[Device, dict[str, float]], device: Device, alone: bool) -> dict[str, float]:
    if device in peaks:
        return peaks[device]
    return next(iter(peaks.values())) if alone and len(peaks) == 1 else {}
