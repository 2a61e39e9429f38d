"""The trace of steady calls that all steps of a run look at: recorded once a shape, and
kept with the run.

The file is shared because each step runs in a separate process, and analysing a
profiler's recording in other processes may take seconds.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from perfgate.document.run import Artifact
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.counting.collect import (
    CallTrace,
    calls_within,
    read_calls,
    record_calls,
    trace_name,
)
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary, summarize

# The devices' formats: Kineto's JSON, and torch_npu's folder as an archive.
_SUFFIXES = (".json.gz", ".zip")
# A further turn is one of several, and its process differs more from another than its
# calls from each other.
_BRIEF_CALLS, _QUICK_CALLS, _FULL_CALLS = 4, 10, 20


def steady_calls(context: StepContext, shape: str) -> CallTrace:
    """The run's trace of steady calls of a shape, recorded by an earlier step or now.

    Raises MeasuringError if the device cannot record one.
    """
    name = trace_name(context.workload.name, shape)
    trace: CallTrace | None = None
    for suffix in _SUFFIXES:
        path = context.artifacts / f"{name}{suffix}"
        # The run cleared the traces of other runs before its first step.
        if path.is_file():
            trace = read_calls(path)
            break
    if trace is None:
        trace = _record(context, shape, name)
    context.kept.append(_artifact(trace.path, context.workload.name))
    return trace


def kernels_are_hidden(context: StepContext) -> bool:
    """Whether the trace of a shape shows operators and none of the kernels that this
    device should show.
    """
    shapes = context.workload.shapes
    return context.shows_kernels and any(
        steady_calls(context, shape).hides_kernels for shape in shapes
    )


def steady_summary(context: StepContext, shape: str) -> DeviceSummary:
    """The run's trace of steady calls, summarised as a recording made elsewhere would
    be; each call is a span.
    """
    (summary,) = summarize([steady_calls(context, shape).timeline])
    return summary


def _record(context: StepContext, shape: str, name: str) -> CallTrace:
    """Record some calls; the file has its name only when it is whole, because a worker
    may be killed meanwhile.
    """
    call = context.workload.caller(shape)
    most = _QUICK_CALLS if context.extent.quick else _FULL_CALLS
    if context.extent.brief:
        most = _BRIEF_CALLS
    with (
        quiet(),
        tempfile.TemporaryDirectory(dir=context.artifacts, prefix=".trace-") as folder,
    ):
        state = context.warm_up(shape, quick=1.0, full=5.0)
        calls = calls_within(state.call_ns, seconds=5.0, fewest=3, most=most)
        trace = record_calls(
            context.device, call, calls=calls, folder=Path(folder), name=name
        )
        return trace._replace(
            path=trace.path.replace(context.artifacts / trace.path.name)
        )


def _artifact(path: Path, workload: str) -> Artifact:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return Artifact(
        name=path.name,
        kind="trace",
        path=path.name,
        bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        workload=workload,
    )
