"""What the host did while its device had nothing to do: the Python frame and the operator that fill each gap."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from perfgate.document.trace import GapCause
from perfgate.trace.analysis import IntColumn
from perfgate.trace.events import DEVICE_KINDS, EventTable
from perfgate.trace.gaps import Gaps
from perfgate.trace.spans import NOT_RECORDED, launch_positions

# What fills a gap covers at least half of it. The longest gaps are looked at, one by one.
_FILLS, _MOST_GAPS = 0.5, 300
# A function with its file: ``model.py(12): forward``; a built-in function has none.
_IN_FILE = re.compile(r"\S+\.py\(\d+\): ")


class GapGroup(NamedTuple):
    """Gaps of one cause that the same frame and operator of the host fill, before the same kernel.

    ``frame`` is the innermost Python function, ``operator`` the innermost framework operator or driver call, and ``ended_by``
    what the device ran next; None if not recorded.
    """

    frame: str | None
    operator: str | None
    ended_by: str | None
    cause: GapCause
    gaps: int
    total_ns: int
    longest_ns: int


def gap_groups(events: EventTable, gaps: Gaps) -> list[GapGroup]:
    """The longest gaps by what fills them, the group that costs most first."""
    longest = gaps.select(np.argsort(-gaps.duration, kind="stable")[:_MOST_GAPS])
    host = _Host(events)
    ends = _Ends(events)
    groups: dict[tuple[str | None, str | None, str | None, GapCause], list[int]] = defaultdict(list)
    for gap in longest:
        ended_by, track = ends.at(gap.start_ns + gap.duration_ns)
        frame, operator = host.fillers(gap.start_ns, gap.start_ns + gap.duration_ns, track)
        groups[frame, operator, ended_by, gap.cause].append(gap.duration_ns)
    found = [
        GapGroup(*key, gaps=len(durations), total_ns=sum(durations), longest_ns=max(durations))
        for key, durations in groups.items()
    ]
    return sorted(found, key=lambda group: -group.total_ns)


class _Ends:
    """The event that ends each gap, and the host's track that launched it."""

    def __init__(self, events: EventTable) -> None:
        work = events.of_kind(*DEVICE_KINDS)
        self._work = work.select(np.argsort(work.start, kind="stable"))
        self._launches = events.of_kind("runtime")
        self._launch = launch_positions(self._work.correlation, self._launches.correlation, self._launches.start)

    def at(self, time: int) -> tuple[str | None, int | None]:
        place = int(np.searchsorted(self._work.start, time))
        if place >= len(self._work) or int(self._work.start[place]) != time:
            return None, None
        launch = int(self._launch[place])
        track = None if launch == NOT_RECORDED else int(self._launches.track[launch])
        return self._work.names[self._work.name[place]], track


class _Host:
    """Events of the host, the longest first: only those at least half as long as a gap can fill it."""

    def __init__(self, events: EventTable) -> None:
        chosen = np.flatnonzero(events.is_kind("python", "host_op", "runtime"))
        order = chosen[np.argsort(-events.duration[chosen], kind="stable")]
        self._events = events.select(order)
        self._is_python = self._events.is_kind("python")
        self._in_file = self._events.is_named(_IN_FILE.match)

    def fillers(self, start: int, end: int, track: int | None) -> tuple[str | None, str | None]:
        """The innermost Python function and the innermost other event that fill a stretch, of the track or of any."""
        events = self._events
        count = int(np.searchsorted(-events.duration, -_FILLS * (end - start), side="right"))
        begins, lengths = events.start[:count], events.duration[:count]
        inside = np.minimum(begins + lengths, end) - np.maximum(begins, start)
        fills = np.flatnonzero(inside >= _FILLS * (end - start))
        if track is not None and (events.track[fills] == track).any():
            fills = fills[events.track[fills] == track]
        # The innermost is the shortest, which comes last.
        return (
            self._last(fills[self._is_python[fills] & self._in_file[fills]])
            or self._last(fills[self._is_python[fills]]),
            self._last(fills[~self._is_python[fills]]),
        )

    def _last(self, places: IntColumn) -> str | None:
        return self._events.names[self._events.name[places[-1]]] if places.size else None
