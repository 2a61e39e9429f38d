"""Tables of totals: steps, types of kernels, calls of the host's libraries, framework operators, memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.ascend.files import MAX_ROWS, Row, rows_of
from perfgate.trace.recording import AllocationTotal, CallTotal, OperatorTime, TabledStep, TypeTotal

_PERCENT = 100.0


def read_types(path: Path) -> Mapping[int | None, tuple[TypeTotal, ...]]:
    """Op_statistic.csv by device; collectives are not in it."""
    found: dict[int | None, list[TypeTotal]] = {}
    for row in rows_of(path, most=MAX_ROWS):
        kind, total, count = row.text("type"), row.lasting("total time(us)"), row.whole("count")
        if kind is None or total is None or count is None:
            continue
        share = row.number("ratio(%)")
        found.setdefault(row.whole("device_id"), []).append(
            TypeTotal(
                type=kind,
                core=row.text("core type"),
                count=count,
                total_ns=total,
                shortest_ns=row.lasting("min time(us)"),
                longest_ns=row.lasting("max time(us)"),
                share=None if share is None else share / _PERCENT,
            )
        )
    return {device: tuple(totals) for device, totals in found.items()}


def read_calls(path: Path) -> tuple[CallTotal, ...]:
    """Api_statistic.csv; its Device_id is the word host."""
    return tuple(total for row in rows_of(path, most=MAX_ROWS) if (total := _call(row)) is not None)


def _call(row: Row) -> CallTotal | None:
    name, total, count = row.text("api name"), row.lasting("time(us)"), row.whole("count")
    if name is None or total is None or count is None:
        return None
    return CallTotal(
        level=row.text("level") or "",
        name=name,
        count=count,
        total_ns=total,
        shortest_ns=row.lasting("min(us)"),
        longest_ns=row.lasting("max(us)"),
    )


def read_cpu_nodes(path: Path) -> Mapping[int | None, tuple[CallTotal, ...]]:
    found: dict[int | None, dict[str, CallTotal]] = {}
    for row in rows_of(path):
        name, time = row.text("node"), row.lasting("total_time(us)")
        if name is None or time is None:
            continue
        totals = found.setdefault(row.whole("device_id"), {})
        known = totals.get(name)
        totals[name] = CallTotal(
            level="aicpu",
            name=name,
            count=known.count + 1 if known else 1,
            total_ns=known.total_ns + time if known else time,
            shortest_ns=min(known.shortest_ns or 0, time) if known else time,
            longest_ns=max(known.longest_ns or 0, time) if known else time,
        )
        _bound(totals, path)
    return {device: tuple(totals.values()) for device, totals in found.items()}


def read_operators(path: Path) -> tuple[OperatorTime, ...]:
    """Operator_details.csv, added up by operator; it has a row a call, and call stacks over many lines."""
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
        _bound(totals, path)
    return tuple(OperatorTime(name, *sums) for name, sums in totals.items())


_OPERATOR_TIMES = (
    "host self duration(us)", "host total duration(us)", "device self duration(us)", "device total duration(us)",
)  # fmt: skip


def _bound(totals: Mapping[str, object], path: Path) -> None:
    if len(totals) > MAX_ROWS:
        raise DocumentError(f"{path}: more than {MAX_ROWS} names; profile fewer steps")


def read_steps(path: Path) -> Mapping[int | None, tuple[TabledStep, ...]]:
    """The steps of each device; a device of -1 is none (torch_npu writes it where it knows no rank)."""
    found: dict[int | None, list[TabledStep]] = {}
    for row in rows_of(path, most=MAX_ROWS):
        device = row.whole("device_id")
        found.setdefault(None if device is None or device < 0 else device, []).append(
            TabledStep(
                number=row.whole("step"),
                computing_ns=row.time("computing"),
                communication_ns=row.time("communication"),
                exposed_communication_ns=row.time("communication(not overlapped)"),
                free_ns=row.time("free"),
                preparing_ns=row.time("preparing"),
            )
        )
    return {device: tuple(steps) for device, steps in found.items()}


# 1452.0 MB of memory_record.csv are 1522532352 bytes in the database of the same run, 18816.5 KB are 19268096.
_MEBIBYTE, _KIBIBYTE = 1 << 20, 1 << 10
_PARTS = {
    "total allocated(mb)": "allocated",
    "total reserved(mb)": "reserved",
    "total active(mb)": "active",
}


def read_module_peaks(path: Path) -> Mapping[int | None, dict[str, float]]:
    """The peak bytes by device of npu_module_mem.csv, e.g. ``module.HCCL.reserved``, without those of nothing.

    Its modules are some eighty, of which few hold memory; GE among them is not the GE of memory_record.csv.
    """
    return {
        device: {f"module.{name}": peak for name, peak in peaks.items() if peak}
        for device, peaks in read_peaks(path).items()
    }


def read_peaks(path: Path) -> Mapping[int | None, dict[str, float]]:
    """The peak bytes by device of memory_record.csv, e.g. ``PTA.reserved``.

    The times of the rows are not used, so that a table a spreadsheet has rounded them in still tells its peaks.
    """
    found: dict[int | None, dict[str, float]] = {}
    for row in rows_of(path):
        component = row.text("component")
        if component is None:
            continue
        peaks = found.setdefault(_device(row), {})
        for column, part in _PARTS.items():
            megabytes = row.number(column)
            if megabytes is not None:
                name = f"{component}.{part}"
                peaks[name] = max(peaks.get(name, 0.0), megabytes * _MEBIBYTE)
        if len(peaks) > MAX_ROWS:
            raise DocumentError(f"{path}: more than {MAX_ROWS} components; the table is damaged")
    return found


def read_allocations(path: Path) -> Mapping[int | None, tuple[AllocationTotal, ...]]:
    """Operator_memory.csv by device, added up by operator; a negative size is a release."""
    found: dict[int | None, dict[str, AllocationTotal]] = {}
    for row in rows_of(path):
        name, kilobytes = row.text("name"), row.number("size(kb)")
        if name is None or kilobytes is None or kilobytes < 0:
            continue
        size = kilobytes * _KIBIBYTE
        totals = found.setdefault(_device(row), {})
        known = totals.get(name, AllocationTotal(name, 0, 0.0, 0.0))
        totals[name] = AllocationTotal(name, known.count + 1, known.total_bytes + size, max(known.largest_bytes, size))
        if len(totals) > MAX_ROWS:
            raise DocumentError(f"{path}: more than {MAX_ROWS} operators; profile fewer steps")
    return {device: tuple(totals.values()) for device, totals in found.items()}


def _device(row: Row) -> int | None:
    """The device of ``NPU:3``, which the columns Device Type and Device hold."""
    word = row.text("device type") or row.text("device") or ""
    number = word.rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 7 else row.whole("device_id")
