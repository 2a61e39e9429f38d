"""Tables of totals, each as pairs of device and row: steps, types of kernels, calls, operators, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.ascend.files import MAX_ROWS, Device, Row, rows_of
from perfgate.trace.recording import AllocationTotal, CallTotal, OperatorTime, TabledStep, TypeTotal

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
    """operator_memory.csv, added up by operator; a negative size is a release."""
    totals: dict[tuple[Device, str], AllocationTotal] = {}
    for row in rows_of(path):
        name, kilobytes = row.text("name"), row.number("size(kb)")
        if name is None or kilobytes is None or kilobytes < 0:
            continue
        key = _memory_device(row), name
        totals[key] = totals.get(key, AllocationTotal(name)).plus(kilobytes * _KIBIBYTE)
        _refuse_too_many(totals, path)
    return ((device, total) for (device, _), total in totals.items())


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
