"""Record a short trace of steady calls for one step, and summarise it as a recording made elsewhere would be."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.trace.read import read_recording
from perfgate.measuring.trace.summary import DeviceSummary, summarize


def record_summary(context: StepContext, call: Callable[[], Any], *, calls: int) -> DeviceSummary:
    """Trace so many calls and return what they ran, each call a span; the trace itself is not kept.

    Raises MeasuringError where the trace is not one of so many calls on one device.
    """
    with tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".calls-") as folder:
        path = context.device.record_trace(call, calls=calls, folder=Path(folder), name="trace")
        summaries = summarize(read_recording(path).timelines)
    if len(summaries) != 1:
        raise MeasuringError(f"the trace holds {len(summaries)} devices where one was measured")
    if summaries[0].spans != calls:
        raise MeasuringError(
            f"the trace holds {summaries[0].spans} of {calls} calls, so the profiler dropped events; run again"
        )
    return summaries[0]
