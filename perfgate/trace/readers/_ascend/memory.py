"""Memory of the device: peaks by component, and what each operator allocated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.readers._ascend.cells import MAX_ROWS, Row, rows_of
from perfgate.trace.recording import AllocationTotal

# 1452.0 MB of memory_record.csv are 1522532352 bytes in the database of the same run, 18816.5 KB are 19268096.
_MEBIBYTE, _KIBIBYTE = 1 << 20, 1 << 10
_PARTS = {
    "total allocated(mb)": "allocated",
    "total reserved(mb)": "reserved",
    "total active(mb)": "active",
}


def read_module_peaks(path: Path) -> Mapping[int | None, dict[str, float]]:
    """Return the peak bytes by device of npu_module_mem.csv, e.g. ``module.HCCL.reserved``, without those of nothing.

    Its modules are some eighty, of which few hold memory; GE among them is not the GE of memory_record.csv.
    """
    return {
        device: {f"module.{name}": peak for name, peak in peaks.items() if peak}
        for device, peaks in read_peaks(path).items()
    }


def read_peaks(path: Path) -> Mapping[int | None, dict[str, float]]:
    """Return the peak bytes by device of memory_record.csv, e.g. ``PTA.reserved``.

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
    """Return operator_memory.csv by device, added up by operator; a negative size is a release."""
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
    """Return the device of ``NPU:3``, which the columns Device Type and Device hold."""
    word = row.text("device type") or row.text("device") or ""
    number = word.rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 7 else row.whole("device_id")
