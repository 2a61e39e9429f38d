"""A rank's profiled steps: operators, collectives, and the time of communication only.

It is read from the Chrome trace of torch.profiler with recorded shapes. Collectives are
counted at their host calls (``c10d::…``), which are the same for all backends: gloo,
NCCL and HCCL.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfgate.document.job import CollectiveCount, RankCounts
from perfgate.errors import ResultsError
from perfgate.system.logs import only_a_file
from perfgate.trace.model.arithmetic import Intervals, intersection, union

# A few steps of a job are some megabytes.
_MOST_BYTES = 1 << 29
_COLLECTIVE = "c10d::"
# Copies one number to the host, and so waits for the device.
_SYNC = "aten::_local_scalar_dense"
_COMMUNICATION = ("gloo:", "nccl", "hccl", "hcom")


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 - the name in the file


def read_counts(path: Path, rank: int, steps: int) -> RankCounts:
    """Raises ResultsError if the file is not such a trace."""
    try:
        with open(path, "rb", opener=only_a_file) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ResultsError(
                "the trace of rank {rank} has more than {most} MiB; lower `steps` of the workload",
                rank=rank,
                most=_MOST_BYTES >> 20,
            )
        trace = msgspec.json.decode(content, type=_Trace)
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultsError(
            "the trace of rank {rank} cannot be read: {error}", rank=rank, error=error
        ) from error
    events = _Events()
    for event in trace.traceEvents:
        if event.ph == "X":
            events.add(event)
    collectives = []
    by_name = {}
    for name, count in sorted(events.counts.items()):
        if name.startswith(_COLLECTIVE):
            short = name.removeprefix(_COLLECTIVE).rstrip("_")
            collectives.append(
                CollectiveCount(name=short, count=count, elements=events.elements[name])
            )
        else:
            by_name[name] = count
    communication = union(_intervals(events.communicating))
    # Without a device, host operators compute.
    computing = union(
        _intervals(events.kernels if events.has_kernels else events.host_operators)
    )
    return RankCounts(
        rank=rank,
        steps=steps,
        operators=events.counts.total(),
        syncs=events.counts[_SYNC],
        calls=sum(collective.count for collective in collectives),
        collectives=collectives,
        communication=communication.length / 1e9 / steps,
        exposed=(communication.length - intersection(communication, computing).length)
        / 1e9
        / steps,
        by_name=by_name,
    )


@dataclass
class _Events:
    """The events of a trace: calls and tensor elements by operator, and the events of
    communicating and computing.
    """

    counts: Counter[str] = field(default_factory=Counter)
    elements: Counter[str] = field(default_factory=Counter)
    communicating: list[_Event] = field(default_factory=list)
    kernels: list[_Event] = field(default_factory=list)
    host_operators: list[_Event] = field(default_factory=list)
    has_kernels: bool = False

    def add(self, event: _Event) -> None:
        communicates = event.name.lower().startswith(_COMMUNICATION)
        if event.cat == "cpu_op":
            self.counts[event.name] += 1
            if event.name.startswith(_COLLECTIVE):
                self.elements[event.name] += _elements(event.args.get("Input Dims"))
            elif not event.name.startswith("gloo:"):
                self.host_operators.append(event)
        elif event.cat == "kernel":
            self.has_kernels = True
            if communicates:
                self.communicating.append(event)
            else:
                self.kernels.append(event)
        elif event.cat == "user_annotation" and communicates:
            # Work of gloo's threads.
            self.communicating.append(event)


def _intervals(events: Iterable[_Event]) -> Intervals:
    times = np.array(
        [(event.ts, event.ts + event.dur) for event in events], dtype=np.float64
    ).reshape(-1, 2)
    nanoseconds = np.round(times * 1e3).astype(np.int64)
    return Intervals(nanoseconds[:, 0], nanoseconds[:, 1])


def _elements(dims: Any) -> int:
    """The elements of the first tensor, or list of tensors, of a call; 0 if the trace
    does not have them.
    """
    if not isinstance(dims, list):
        return 0
    arguments = list(filter(None, dims))
    if not arguments:
        return 0
    shapes: list[Any] = arguments[:1]
    if isinstance(arguments[0][0], list):
        shapes = arguments[0]
    elements = 0
    for shape in filter(None, shapes):
        if all(isinstance(size, int) for size in shape):
            elements += math.prod(shape)
    return elements
