"""A rank's profiled steps: operators, collectives, and the time of communication only.

It is read from the Chrome trace of torch.profiler with recorded shapes. Collectives are counted at their host calls
(``c10d::…``), which are the same for all backends: gloo, NCCL and HCCL.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perfgate.document.job import CollectiveCount, RankCounts
from perfgate.errors import ResultsError
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
        if path.stat().st_size > _MOST_BYTES:
            raise ResultsError(
                "the trace of rank {rank} has more than {most} MiB; lower `steps` of the workload",
                rank=rank,
                most=_MOST_BYTES >> 20,
            )
        events = [event for event in msgspec.json.decode(path.read_bytes(), type=_Trace).traceEvents if event.ph == "X"]
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultsError("the trace of rank {rank} cannot be read: {error}", rank=rank, error=error) from error
    operators = [event for event in events if event.cat == "cpu_op"]
    counts = Counter(event.name for event in operators)
    moved: Counter[str] = Counter()
    for event in operators:
        if event.name.startswith(_COLLECTIVE):
            moved[event.name] += _elements(event.args.get("Input Dims"))
    collectives = [
        CollectiveCount(name=name.removeprefix(_COLLECTIVE).rstrip("_"), count=count, elements=moved[name])
        for name, count in sorted(counts.items())
        if name.startswith(_COLLECTIVE)
    ]
    # Kernels of the device, or work of gloo's threads.
    communicating = [
        event
        for event in events
        if event.cat in ("kernel", "user_annotation") and event.name.lower().startswith(_COMMUNICATION)
    ]
    communication, computing = union(_intervals(communicating)), union(_computing(events))
    return RankCounts(
        rank=rank,
        steps=steps,
        operators=sum(counts.values()),
        syncs=counts[_SYNC],
        calls=sum(collective.count for collective in collectives),
        collectives=collectives,
        communication=communication.length / 1e9 / steps,
        exposed=(communication.length - intersection(communication, computing).length) / 1e9 / steps,
        by_name={name: count for name, count in sorted(counts.items()) if not name.startswith(_COLLECTIVE)},
    )


def _computing(events: list[_Event]) -> Intervals:
    """The times of computing on the device or, without one, in host operators other than collectives."""
    kernels = [event for event in events if event.cat == "kernel"]
    if kernels:
        return _intervals(event for event in kernels if not event.name.lower().startswith(_COMMUNICATION))
    return _intervals(
        event for event in events if event.cat == "cpu_op" and not event.name.startswith((_COLLECTIVE, "gloo:"))
    )


def _intervals(events: Iterable[_Event]) -> Intervals:
    times = np.array([(event.ts, event.ts + event.dur) for event in events], dtype=np.float64).reshape(-1, 2)
    nanoseconds = np.round(times * 1e3).astype(np.int64)
    return Intervals(nanoseconds[:, 0], nanoseconds[:, 1])


def _elements(dims: Any) -> int:
    """The elements of the first tensor, or list of tensors, of a call; 0 if the trace does not have them."""
    first: list[Any] = next((shape for shape in dims if shape), []) if isinstance(dims, list) else []
    shapes = first if first and isinstance(first[0], list) else [first]
    return sum(math.prod(shape) for shape in shapes if shape and all(isinstance(size, int) for size in shape))
