"""Kernels of a table as events, where no timeline shows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfgate.trace.analysis import IntColumn
from perfgate.trace.ascend.kinds import type_by_name
from perfgate.trace.events import KIND_CODES, NO_CORRELATION, NO_TEXT, EventTable
from perfgate.trace.kernel_table import NO_NUMBER, KernelTable


def kernel_events(table: KernelTable, track: IntColumn, tracks: Sequence[tuple[str, str]]) -> EventTable:
    """An event a kernel, in their order; one whose start is not known begins at 0."""
    name = table.codes["name"]
    numbers = {text: number for number, text in enumerate(table.texts)}
    by_name = np.full(len(numbers), NO_TEXT, dtype=np.int64)
    for code in np.unique(name[table.codes["type"] == NO_TEXT]).tolist():
        by_name[code] = numbers.setdefault(type_by_name(table.texts[code]), len(numbers))
    nothing = np.full(len(table), NO_TEXT, dtype=np.int64)
    return EventTable(
        start=np.where(table.start == NO_NUMBER, 0, table.start),
        duration=table.duration,
        track=track,
        name=name,
        kind=np.where(table.is_collective, KIND_CODES["comm"], KIND_CODES["compute"]),
        correlation=np.full(len(table), NO_CORRELATION, dtype=np.int64),
        group=np.where(table.codes["type"] == NO_TEXT, by_name[name], table.codes["type"]),
        request=nothing,
        shape=nothing,
        names=tuple(numbers),
        tracks=tuple(tracks),
    )
