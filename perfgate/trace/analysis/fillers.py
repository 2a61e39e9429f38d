"""The host's activity while its device was idle: the Python frame and the operator that fill each gap."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from perfgate.document.trace import GapCause, GapGroupRow
from perfgate.trace.analysis.gaps import DeviceGaps, Gaps
from perfgate.trace.model.arithmetic import Codes, IntColumn
from perfgate.trace.model.events import DEVICE_KINDS, EventTable
from perfgate.trace.model.launches import NOT_RECORDED
from perfgate.trace.model.patterns import lazy_pattern

# A filler covers at least half of its gap, or a tenth if the clocks of host and device differ, so that the place of the
# gap is uncertain. Only the longest gaps are examined, one by one.
_FILLS, _FILLS_UNCERTAIN, _MOST_GAPS = 0.5, 0.1, 300
# A function with its file: ``model.py(12): forward``; a built-in function has none.
_IN_FILE = lazy_pattern(r"\S+\.py\(\d+\): ")


def gap_groups(
    events: EventTable, device: DeviceGaps, *, uncertain: bool = False
) -> list[GapGroupRow]:
    """The longest gaps grouped by filler, the costliest group first; ``uncertain`` is whether the clocks differ."""
    longest = device.gaps.longest(_MOST_GAPS)
    host = _Host(events, longest, _FILLS_UNCERTAIN if uncertain else _FILLS)
    ends = _Ends(events, longest)
    groups: dict[_Filler, list[int]] = defaultdict(list)
    for place, gap in enumerate(longest):
        ended_by, track = ends.at(gap.start_ns + gap.duration_ns)
        frame, operator = host.fillers(place, track)
        groups[_Filler(frame, operator, ended_by, gap.cause)].append(gap.duration_ns)
    rows = []
    for filler, durations in groups.items():
        row = GapGroupRow(
            frame=filler.frame,
            operator=filler.operator,
            ended_by=filler.ended_by,
            cause=filler.cause,
            count=len(durations),
            total=sum(durations) / 1e9,
            longest=max(durations) / 1e9,
            share=sum(durations) / device.window_ns,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.total)


class _Filler(NamedTuple):
    """The properties that the gaps of a group share, as in GapGroupRow."""

    frame: str | None
    operator: str | None
    ended_by: str | None
    cause: GapCause


class _Ends:
    """The event that ends each of some gaps, and the host's track that launched it."""

    def __init__(self, events: EventTable, gaps: Gaps) -> None:
        work = np.flatnonzero(events.is_kind(*DEVICE_KINDS))
        ends = np.unique(gaps.start + gaps.duration)
        begun = events.start[work]
        place = np.minimum(np.searchsorted(ends, begun), ends.size - 1)
        work = work[ends[place] == begun] if ends.size else work[:0]
        self._events = events
        self._work = work[np.argsort(events.start[work], kind="stable")]
        self._start = events.start[self._work]

    def at(self, time: int) -> tuple[str | None, int | None]:
        place = int(np.searchsorted(self._start, time))
        if place >= self._start.size or int(self._start[place]) != time:
            return None, None
        events, work = self._events, self._work[place]
        launch = int(events.launch[work])
        track = None if launch == NOT_RECORDED else int(events.track[launch])
        return events.names[events.name[work]], track


class _Host:
    """Host events that may fill a gap, grouped into classes of similar length and sorted by time.

    Lengths in a class differ by less than a factor of two, which bounds how long before a gap an overlapping event can begin:
    a lookup examines only a few events of each class, however many there are.
    """

    def __init__(self, events: EventTable, gaps: Gaps, fills: float) -> None:
        self._gaps = gaps
        self._fills = fills
        chosen = np.flatnonzero(events.is_kind("python", "host_op", "runtime"))
        shortest = fills * int(gaps.duration.min()) if len(gaps) else 0.0
        chosen = chosen[events.duration[chosen] >= shortest]
        length = np.frexp(events.duration[chosen].astype(np.float64))[1].astype(
            np.uint8
        )
        order = np.argsort(events.start[chosen], kind="stable")
        order = order[np.argsort(length[order], kind="stable")]
        self._row = chosen[order]
        self._events = events.select(self._row)
        self._is_python = self._events.is_kind("python")
        self._in_file = self._events.is_named(_IN_FILE.match)
        self._ranges = self._near(length[order])

    def fillers(self, place: int, track: int | None) -> tuple[str | None, str | None]:
        """The innermost Python function and the innermost other event that fill a gap, of the track or of any."""
        events, gap = self._events, self._gaps[place]
        near = np.concatenate(
            [
                np.arange(0),
                *(np.arange(first[place], last[place]) for first, last in self._ranges),
            ]
        )
        begins = events.start[near]
        ends = begins + events.duration[near]
        gap_end = gap.start_ns + gap.duration_ns
        inside = np.minimum(ends, gap_end) - np.maximum(begins, gap.start_ns)
        fills = near[inside >= self._fills * gap.duration_ns]
        # The innermost event is the shortest, sorted last.
        fills = fills[np.lexsort((self._row[fills], -events.duration[fills]))]
        on_track = events.track[fills] == track
        if track is not None and on_track.any():
            fills = fills[on_track]
        functions = fills[self._is_python[fills]]
        calls = fills[~self._is_python[fills]]
        function = self._last(functions[self._in_file[functions]]) or self._last(
            functions
        )
        return function, self._last(calls)

    def _near(self, length: Codes) -> list[tuple[Codes, Codes]]:
        """For each class of lengths, the range of its events that may overlap each gap."""
        ranges: list[tuple[Codes, Codes]] = []
        if not length.size:
            return ranges
        borders = np.flatnonzero(np.diff(length, prepend=0, append=0)).tolist()
        for begin, end in itertools.pairwise(borders):
            starts = self._events.start[begin:end]
            longest = 1 << int(length[begin])
            first = np.searchsorted(starts, self._gaps.start - longest)
            last = np.searchsorted(starts, self._gaps.start + self._gaps.duration)
            ranges.append((begin + first, begin + last))
        return ranges

    def _last(self, places: IntColumn) -> str | None:
        return (
            self._events.names[self._events.name[places[-1]]] if places.size else None
        )
