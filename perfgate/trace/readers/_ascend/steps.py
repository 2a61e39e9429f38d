"""step_trace_time.csv: the parts of every step of the profiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfgate.trace.readers._ascend.cells import MAX_ROWS, rows_of
from perfgate.trace.recording import TabledStep


def read_steps(path: Path) -> Mapping[int | None, tuple[TabledStep, ...]]:
    """Return the steps of each device; a device of -1 is none (torch_npu writes it where it knows no rank)."""
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
