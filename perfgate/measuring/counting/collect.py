"""Record a trace of steady calls and read it back."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate import trace
from perfgate.document.message import Message, UnmeasuredError
from perfgate.measuring.devices.device import Call, Device
from perfgate.trace.model.arithmetic import Intervals
from perfgate.trace.model.events import CALL, DEVICE_KINDS, KERNEL_KINDS, EventTable
from perfgate.trace.model.recording import Timeline
from perfgate.trace.readers.ascend.archive import pack

# Characters of a shape in the name of a file, of which Linux allows 255.
_MOST_NAME = 100


class CallTrace(NamedTuple):
    """A trace of some calls on one device, and the file it was read from."""

    timeline: Timeline
    calls: int
    path: Path

    @property
    def events(self) -> EventTable:
        return self.timeline.events

    def host_ops(self) -> EventTable:
        """Of all threads, those that began while calls were made."""
        spans = self.events.named(CALL)
        ops = self.events.of_kind("host_op")
        return ops.select(
            (ops.start >= spans.start.min()) & (ops.start < spans.end.max())
        )

    def spans(self) -> Intervals:
        """The calls, in order."""
        calls = self.events.named(CALL).of_kind("annotation")
        order = np.argsort(calls.start, kind="stable")
        return Intervals(calls.start[order], calls.end[order])

    def by_length(self) -> tuple[list[int], list[int]]:
        """The numbers of the faster and of the slower half of the calls: disturbances
        make a call slower.
        """
        spans = self.spans()
        order = np.argsort(spans.end - spans.start, kind="stable")
        half = (order.size + 1) // 2
        return sorted(order[:half].tolist()), sorted(order[half:].tolist())

    def of_faster_half(self) -> EventTable:
        """The events without the marks of the slower half of the calls."""
        calls = self.spans()
        _, slower = self.by_length()
        events = self.events
        middle = events.start + events.duration // 2
        dropped = np.zeros(len(events), dtype=bool)
        for call in slower:
            dropped |= (middle >= calls.start[call]) & (middle < calls.end[call])
        marks = np.isin(
            events.name,
            [code for code, name in enumerate(events.names) if name == CALL],
        )
        return events.select(~(dropped & marks))

    def device_work(self) -> EventTable:
        return self.events.of_kind(*DEVICE_KINDS)

    @property
    def hides_kernels(self) -> bool:
        """Whether operators ran and no work of a device is recorded: unknown then, and
        not none.
        """
        return not len(self.device_work()) and len(self.host_ops()) > 0

    def kernels(self) -> EventTable:
        """The kernels, including collectives but not copies."""
        return self.events.of_kind(*KERNEL_KINDS)


def record_calls(
    device: Device, call: Call, *, calls: int, folder: Path, name: str
) -> CallTrace:
    """Trace ``calls`` calls into a file ``name`` in ``folder`` and read it back.

    Raises MeasuringError if the trace has another number of calls, and DocumentError if
    it cannot be read.
    """
    trace = read_calls(device.record_trace(call, calls=calls, folder=folder, name=name))
    if trace.calls != calls:
        raise UnmeasuredError(
            Message(
                "operators.events-dropped",
                {"path": trace.path.name, "found": trace.calls, "calls": calls},
            )
        )
    return trace


def trace_calls(
    device: Device, call: Call, *, calls: int, within: Path | None = None
) -> CallTrace:
    """Trace ``calls`` calls, and leave no file; the profiler writes below the folder
    ``within``.
    """
    with tempfile.TemporaryDirectory(dir=within, prefix=".trace-") as folder:
        return record_calls(
            device, call, calls=calls, folder=Path(folder), name="trace"
        )


def read_calls(path: Path) -> CallTrace:
    """Read a recording of calls on one device. Raises MeasuringError if it is of none
    or of several.
    """
    timelines = trace.read(path).timelines
    if len(timelines) != 1:
        raise UnmeasuredError(
            Message(
                "operators.too-many-devices",
                {"path": path.name, "devices": len(timelines)},
            )
        )
    calls = timelines[0].events.named(CALL).of_kind("annotation")
    return CallTrace(timeline=timelines[0], calls=len(calls), path=path)


def keep_recording(recording: Path, path: Path) -> Path:
    """Keep an analysed recording as one file: ``path`` with the suffix of its format.
    Returns the file.
    """
    if recording.is_dir():
        file = path.with_name(path.name + ".zip")
        pack(recording, file)
        return file
    return Path(
        shutil.copyfile(
            recording, path.with_name(path.name + "".join(recording.suffixes))
        )
    )


def calls_within(call_ns: float, *, seconds: float, fewest: int, most: int) -> int:
    return int(np.clip(seconds * 1e9 / max(call_ns, 1.0), fewest, most))


def trace_name(workload: str, shape: str) -> str:
    """The file name of a trace without its suffix; other characters than letters,
    digits, dots, dashes and underscores become dashes.

    A changed or shortened name gets some digits of its hash, so that no two shapes
    share a file.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", shape)[:_MOST_NAME]
    if plain != shape:
        digits = hashlib.sha256(shape.encode(errors="backslashreplace")).hexdigest()
        plain += f"-{digits[:8]}"
    return f"trace-{workload}-{plain}"
