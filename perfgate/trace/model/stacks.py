"""The call stacks of a timeline as columns, and the keeper that stores them for the
next question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    IntColumn,
    Mask,
)
from perfgate.trace.model.events import EventTable

if TYPE_CHECKING:
    from perfgate.document.flame import FlameUnit


class Stacks(NamedTuple):
    """The events of a timeline's units, and the call that each lies in."""

    events: EventTable
    rows: CodeColumn | None  # positions among the timeline's events; None for all
    # the position of the call around each event on its thread, or of its launch; -1 for
    # none
    around: CodeColumn
    # the same, but a task from torch_npu's task queue leads to the call that enqueued
    # it
    called_by: CodeColumn
    track: Codes  # thread or stream
    own: IntColumn  # self time in nanoseconds
    unit: FlameUnit
    units: int
    unlaunched: int  # work of a device without a recorded launch
    # calls that outlast the call of the same kind in which they began: the profiler
    # lost an end
    cut: int

    @property
    def on_device(self) -> Mask:
        return self.events.is_work


def selected(events: EventTable, rows: CodeColumn | None) -> EventTable:
    """The events at some positions, None for all."""
    if rows is None:
        return events
    return events.select(rows.astype(np.intp))


def levels(around: CodeColumn) -> CodeColumn:
    """The nesting depth of each event."""
    depth = np.zeros(around.size, dtype=np.int32)
    active, above = np.arange(around.size, dtype=np.int32), around
    while True:
        real = above != NOTHING_AROUND
        active, above = active[real], above[real]
        if not active.size:
            return depth
        depth[active] += 1
        above = around[above]
