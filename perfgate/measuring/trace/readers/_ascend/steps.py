"""step_trace_time.csv: the parts of every step of the profiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from perfgate.measuring.trace.events import EventTable
from perfgate.measuring.trace.readers._ascend.cells import MAX_ROWS, rows_of
from perfgate.measuring.trace.recording import ProfilerStep
from perfgate.measuring.trace.steps import STEP_NAME


def read_steps(path: Path) -> Mapping[Optional[int], tuple[ProfilerStep, ...]]:
    """Return the steps of each device; a device of -1 is none (torch_npu writes it where it knows no rank)."""
    found: dict[Optional[int], list[ProfilerStep]] = {}
    for row in rows_of(path, most=MAX_ROWS):
        device = row.whole("device_id")
        found.setdefault(None if device is None or device < 0 else device, []).append(
            ProfilerStep(
                number=row.whole("step"),
                computing_ns=row.time("computing"),
                communication_ns=row.time("communication"),
                exposed_communication_ns=row.time("communication(not overlapped)"),
                free_ns=row.time("free"),
                preparing_ns=row.time("preparing"),
            )
        )
    return {device: tuple(steps) for device, steps in found.items()}


def placed(steps: tuple[ProfilerStep, ...], events: EventTable) -> tuple[ProfilerStep, ...]:
    """Return the steps with the start and end that the host marked, where it did."""
    marks = events.of_kind("annotation")
    spans = {
        int(match[1]): (start, end)
        for name, start, end in zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist())
        if (match := STEP_NAME.fullmatch(marks.names[name]))
    }
    return tuple(
        step
        if step.number not in spans
        else step._replace(start_ns=spans[step.number][0], end_ns=spans[step.number][1])
        for step in steps
    )
