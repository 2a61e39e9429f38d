"""The idle gaps of a device and their causes: exact integer nanoseconds over all its
streams.

The cause of a gap is inferred from the event that ends it and the host call that
launched this event.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args, overload

import numpy as np

from perfgate.document.trace import GapCause, GapGroupRow
from perfgate.trace.model.arithmetic import (
    Codes,
    Covered,
    IntColumn,
    Intervals,
    Mask,
    Positions,
    gaps,
    intersection,
    joined,
    union,
)
from perfgate.trace.model.cycles import pauses
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.launches import NOT_RECORDED
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.spans import launched_before, starts_of_launches

CAUSES: tuple[GapCause, ...] = get_args(GapCause)
# When work was launched that was in the queue as the recording began.
_LONG_AGO = int(np.iinfo(np.int64).min)

# Calls that return when the device is done: cudaStreamSynchronize,
# hipDeviceSynchronize, AscendCL@aclrtSynchronizeStream…, and blocking copies (samples
# cuda-hta, msinsight-910B-alexnet-2501).
_WAIT = lazy_pattern(
    r"synchroni[sz]e|hipMemcpyWithStream$|^(?:cuda|hip)Memcpy$|aclrtMemcpy$",
    re.IGNORECASE,
)


# A filler covers at least half of its gap, or a tenth if the clocks of host and device
# differ, so that the place of the gap is uncertain. Only the longest gaps are examined,
# one by one.
_FILLS, _FILLS_UNCERTAIN, _MOST_GAPS = 0.5, 0.1, 300
# A function with its file: ``model.py(12): forward``; a built-in function has none.
_IN_FILE = lazy_pattern(r"\S+\.py\(\d+\): ")


class Gap(NamedTuple):
    """An interval without computing, by the recording's clock."""

    start_ns: int
    duration_ns: int
    cause: GapCause


class Gaps(Sequence[Gap]):
    """Gaps in time order, as columns: nanoseconds, and a position among CAUSES."""

    def __init__(self, start: IntColumn, duration: IntColumn, cause: Codes) -> None:
        self.start = start
        self.duration = duration
        self.cause = cause

    def __len__(self) -> int:
        return self.start.size

    @overload
    def __getitem__(self, place: int) -> Gap: ...
    @overload
    def __getitem__(self, place: slice) -> Gaps: ...
    def __getitem__(self, place: int | slice) -> Gap | Gaps:
        if isinstance(place, slice):
            return Gaps(self.start[place], self.duration[place], self.cause[place])
        return Gap(
            int(self.start[place]), int(self.duration[place]), CAUSES[self.cause[place]]
        )

    def __iter__(self) -> Iterator[Gap]:
        for start, duration, cause in zip(
            self.start.tolist(), self.duration.tolist(), self.cause.tolist()
        ):
            yield Gap(start, duration, CAUSES[cause])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gaps) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def select(self, chosen: Mask | Positions) -> Gaps:
        return Gaps(self.start[chosen], self.duration[chosen], self.cause[chosen])

    def longest(self, count: int | None) -> Gaps:
        """The ``count`` longest gaps, None for all; the longest first, and of equal
        gaps the first in time.
        """
        candidates = np.arange(len(self))
        if count is not None and 0 < count < len(self):
            least = np.partition(self.duration, -count)[-count]
            candidates = np.flatnonzero(self.duration >= least)
        order = np.argsort(-self.duration[candidates], kind="stable")
        return self.select(candidates[order][:count])


class DeviceGaps(NamedTuple):
    """The gaps of one device in time order, between its first event and the end of its
    last.

    ``busy_ns`` is the time in which anything ran, on any stream. Pauses of the profiler
    between its cycles are no part of the gaps or of ``window_ns``.
    """

    start_ns: int
    end_ns: int
    busy_ns: int
    window_ns: int
    gaps: Gaps


def device_gaps(events: EventTable, *, exposed: bool = False) -> DeviceGaps | None:
    """The gaps in which the device of a timeline was idle; None if the timeline shows
    no work at all.

    ``exposed`` adds the intervals in which only copies or collectives ran.
    """
    work = events.work_rows
    begun = events.start[work]
    busy = union(Intervals(begun, begun + events.duration[work]))
    if not busy.start.size:
        return None
    start, end = int(busy.start[0]), int(busy.end[-1])
    paused = pauses(events)
    idle = gaps(joined(busy, paused), (start, end))
    window_ns = busy.length + idle.length
    idle_gaps = Gaps(idle.start, idle.end - idle.start, _causes(idle, events, work))
    if exposed:
        idle_gaps = _with_exposed(idle_gaps, events)
    return DeviceGaps(start, end, busy.length, window_ns, idle_gaps)


def _with_exposed(idle: Gaps, events: EventTable) -> Gaps:
    """The gaps, and the intervals in which only copies or collectives ran."""
    computing = events.of_kind("compute").intervals
    communication = events.of_kind("comm").intervals
    copies = events.of_kind("copy").intervals
    alone = _exposed(communication, computing, "communication")
    copied = _exposed(copies, joined(computing, communication), "copy")
    every = Gaps(
        np.concatenate((idle.start, alone.start, copied.start)),
        np.concatenate((idle.duration, alone.duration, copied.duration)),
        np.concatenate((idle.cause, alone.cause, copied.cause)),
    )
    return every.select(np.lexsort((every.duration, every.start)))


def _causes(idle: Intervals, events: EventTable, work: IntColumn) -> Codes:
    """The cause of each gap; ``work`` are the positions of the device's events."""
    if not idle.end.size:
        return np.zeros(0, dtype=np.int64)
    never = np.iinfo(np.int64).max
    begun = events.start[work]
    launched = starts_of_launches(begun, events.launch[work], events)
    calls = events.correlation[events.is_kind("runtime")]
    is_before = launched_before(events.select(work), launched, calls)
    launched[launched == NOT_RECORDED] = never
    launched[is_before] = _LONG_AGO
    place = np.searchsorted(idle.end, begun).clip(max=idle.end.size - 1)
    ending = np.flatnonzero(idle.end[place] == begun)
    # Of several events that start together, the first to be launched ends the gap.
    launch = np.full(idle.end.size, never)
    np.minimum.at(launch, place[ending], launched[ending])
    launch[launch == never] = NOT_RECORDED
    late = launch >= idle.start
    return np.select(
        [launch == NOT_RECORDED, late & _waiting(events, idle), late],
        [
            CAUSES.index("unknown"),
            CAUSES.index("synchronization"),
            CAUSES.index("host"),
        ],
        CAUSES.index("queue"),
    )


def _waiting(events: EventTable, idle: Intervals) -> Mask:
    """Whether the host was in a call that waits for the device when an idle interval
    began, or for at least half of it.

    A blocking copy is such a call: it may begin after the device has run dry, and delay
    all later work.
    """
    is_wait = events.is_kind("runtime") & events.is_named(_WAIT.search)
    waits = union(events.select(is_wait).intervals)
    if not waits.start.size:
        return np.zeros(idle.start.size, dtype=np.bool_)
    before = np.searchsorted(waits.start, idle.start, side="right") - 1
    at_begin = (before >= 0) & (idle.start <= waits.end[before])
    waited = Covered(waits).within(idle)
    waiting: Mask = at_begin | (2 * waited >= idle.end - idle.start)
    return waiting


def _exposed(intervals: Intervals, hiding: Intervals, cause: GapCause) -> Gaps:
    """The parts of ``intervals`` that ``hiding`` does not cover."""
    alone = union(intervals)
    if alone.start.size:
        window = int(alone.start[0]), int(alone.end[-1])
        alone = intersection(alone, gaps(hiding, window))
    return Gaps(
        alone.start,
        alone.end - alone.start,
        np.full(alone.start.size, CAUSES.index(cause)),
    )


def gap_groups(
    events: EventTable, device: DeviceGaps, *, uncertain: bool
) -> list[GapGroupRow]:
    """The longest gaps grouped by filler, the costliest group first; ``uncertain`` is
    whether the clocks differ.
    """
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
        work = events.work_rows
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
    """Host events that may fill a gap, grouped into classes of similar length and
    sorted by time.

    Lengths in a class differ by less than a factor of two, which bounds how long before
    a gap an overlapping event can begin: a lookup examines only a few events of each
    class, however many there are.
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
        """The innermost Python function and the innermost other event that fill a gap,
        of the track or of any.
        """
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
