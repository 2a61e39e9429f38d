"""Give each device of a process a timeline of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perfgate.errors import DocumentError
from perfgate.trace.analysis import IntColumn
from perfgate.trace.events import EventTable
from perfgate.trace.recording import Timeline
from perfgate.trace.steps import profiler_steps

# In a column of device numbers: the host, and a device without a number.
HOST, UNNAMED = -1, -2
MAX_DEVICES = 256


def timelines_by_device(
    path: Path, events: EventTable, device_of: IntColumn, *, rank: int | None
) -> tuple[Timeline, ...]:
    """Return a timeline for each device, each with all of the host, which drives them; without one, the host's alone.

    Raises DocumentError for more devices than there can be.
    """
    devices = [number for number in np.unique(device_of).tolist() if number != HOST]
    if len(devices) > MAX_DEVICES:
        raise DocumentError(
            f"{path}: {len(devices)} devices, and no machine has more than {MAX_DEVICES}; the file is damaged, "
            "record it again"
        )
    timelines = []
    for device in devices or [UNNAMED]:
        own = events if len(devices) < 2 else events.select((device_of == HOST) | (device_of == device))
        timelines.append(Timeline(rank, None if device == UNNAMED else device, own, steps=profiler_steps(own)))
    return tuple(timelines)


def absent_device(timelines: Sequence[Timeline]) -> Mapping[str, str]:
    """Return the entry for a recording in which no device did anything."""
    if any(len(timeline.events.of_kind("compute", "copy", "comm")) for timeline in timelines):
        return {}
    return {"device": "nothing ran on a device while this was recorded, or the profiler was not told to look"}
