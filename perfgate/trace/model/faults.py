"""Times of a device's work that cannot be true.

A profiler that lost a buffer leaves zeros, an overflowed counter leaves any length, and
a clock that was set jumps. No total, share or comparison may rest on such times.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    Codes,
    FloatColumn,
    IntColumn,
    Mask,
    enclosing,
)
from perfgate.trace.model.events import (
    COLLECTIVE_TRACK,
    DEVICE_KINDS,
    KIND_CODES,
    UNKNOWN_STREAMS,
    EventTable,
)
from perfgate.trace.model.launches import NOT_RECORDED

# Kernels of one graph run side by side although the profiler gives them one stream
# (cudaGraphLaunch, hipGraphLaunch, aclmdlRIExecuteAsync).
_GRAPH_LAUNCH = re.compile(r"graph_?launch|aclmdl|ModelExecute", re.IGNORECASE)
# A kernel may begin while the previous kernel drains (programmatic dependent launch),
# but not run under it for most of its time.
_MOST_UNDER = 0.5
_UNLIKE = 10
_RARELY = 0.01
_MICROSECOND_NS = 1000
# A clock that jumped leaves a gap of more than this, and of many times all other time.
# A server may idle as long; then no work is launched before the gap that runs after it.
_JUMP_NS = 1_000_000_000
_JUMP = 20
_BINS = 64
_DAY_NS = 86_400_000_000_000
# Times of host and device are matched to within microseconds.
_CLOCK_NS = 1000
_FOUND = "_time_faults"  # of an EventTable, as its cached properties
_MIXED_TRACKS = (COLLECTIVE_TRACK, UNKNOWN_STREAMS)
_NONE = np.zeros(0, dtype=np.int64)
_WORK = frozenset(KIND_CODES[kind] for kind in DEVICE_KINDS)


class TimeFaults(NamedTuple):
    """Positions of events with times that cannot be true; ``work`` is the number of a
    device's events.

    ``untimed`` are events of a device without a duration, or with one that no device
    reaches; ``overlapping`` last beyond the start of the next event of their stream;
    ``apart`` are events of a device or its host that lie further from all others than
    these last together.
    """

    work: int
    untimed: IntColumn
    overlapping: IntColumn
    apart: IntColumn

    @property
    def positions(self) -> IntColumn:
        return np.unique(np.concatenate((self.untimed, self.overlapping, self.apart)))


class ClockOffset(NamedTuple):
    """Work that begins before the call that launched it: the device's clock is at least
    ``behind_ns`` behind the host's.

    ``before_operator_ns`` is how long before its operator typical work begins, None if
    it begins within it.
    """

    early: int
    launched: int
    behind_ns: int
    before_operator_ns: int | None


def time_faults(events: EventTable) -> TimeFaults:
    """Searched once for each table."""
    if _FOUND not in vars(events):
        vars(events)[_FOUND] = _search(events)
    result: TimeFaults = vars(events)[_FOUND]
    return result


def _search(events: EventTable) -> TimeFaults:
    work = events.work_rows
    if not work.size:
        return TimeFaults(0, _NONE, _NONE, _NONE)
    untimed = _untimed(events, work)
    timed = np.flatnonzero(~untimed)
    overlapping = timed[_overlapping(events, work[timed])]
    host = np.flatnonzero(~events.is_kind(*DEVICE_KINDS, "python", "memory"))
    is_believed = ~untimed
    is_believed[overlapping] = False
    everything = np.concatenate((work[is_believed], host))
    apart = everything[_apart(events, everything)]
    return TimeFaults(work.size, work[untimed], work[overlapping], apart)


def untimed_work(events: EventTable) -> Mask:
    """Which events are work of a device without a time."""
    mask = np.zeros(len(events), dtype=bool)
    work = events.work_rows
    mask[work[_untimed(events, work)]] = True
    return mask


def clock_offset(events: EventTable) -> ClockOffset | None:
    """None if most work begins after its launch."""
    work = np.flatnonzero(events.launch != NOT_RECORDED)
    launch = events.launch[work]
    lead = events.start[launch] - events.start[work]
    early = lead > _CLOCK_NS
    if not early.any() or 2 * int(early.sum()) <= work.size:
        return None
    return ClockOffset(
        early=int(early.sum()),
        launched=work.size,
        behind_ns=int(np.median(lead[early])),
        before_operator_ns=_before_operator(events, work[early], launch[early]),
    )


def _before_operator(events: EventTable, work: IntColumn, launch: Codes) -> int | None:
    """How long typical work begins before the operator around its launch; None if it
    does not, or none is recorded.
    """
    calls = np.flatnonzero(events.is_kind("host_op", "runtime"))
    around = enclosing(events.start[calls], events.duration[calls], events.track[calls])
    is_operator = events.is_kind("host_op")[calls]
    operator = np.searchsorted(calls, launch)
    while (is_inside := (operator != NOTHING_AROUND) & ~is_operator[operator]).any():
        operator[is_inside] = around[operator[is_inside]]
    present = operator != NOTHING_AROUND
    if not present.any():
        return None
    lead = int(
        np.median(events.start[calls[operator[present]]] - events.start[work[present]])
    )
    if lead <= 0:
        return None
    return lead


def believed(events: EventTable) -> EventTable:
    """The events with a known place in time; a window around them is as long as they
    are.
    """
    faults = time_faults(events)
    unknown = np.concatenate((faults.untimed, faults.apart))
    if not unknown.size:
        return events
    stays = np.ones(len(events), dtype=bool)
    stays[unknown] = False
    return events.select(stays)


def aligned(events: EventTable) -> EventTable:
    """The events with the device's times moved onto the host's clock, if work begins
    before its launch.
    """
    offset = clock_offset(events)
    if offset is None:
        return events
    on_device = events.is_kind(*DEVICE_KINDS, "device_annotation")
    return replace(
        events, start=np.where(on_device, events.start + offset.behind_ns, events.start)
    )


def _untimed(events: EventTable, work: IntColumn) -> Mask:
    """Which pieces of ``work`` have no time."""
    duration = events.duration[work]
    lacking: Mask = duration < max(events.shortest_ns, 1)
    if not lacking.any() or (duration % _MICROSECOND_NS).any():
        return lacking
    # Whole microseconds, as profilers of 2021 wrote them: a kernel of less than one has
    # none (sample cuda-kineto).
    faulty: Mask = lacking & (
        (events.start[work] == 0) | ~are_short(duration, events.group[work])
    )
    return faulty


def are_short(duration: IntColumn, group: Codes) -> Mask:
    """Which events belong to a group with some duration so short that a coarse clock
    may read 0 instead.
    """
    timed = duration > 0
    shortest = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, group[timed], duration[timed])
    short: Mask = shortest[group] <= 2 * _MICROSECOND_NS
    return short


def _overlapping(events: EventTable, work: IntColumn) -> IntColumn:
    """The places among ``work`` of the pieces that last over most of the next one of
    their stream.
    """
    is_mixed = np.array(
        [thread in _MIXED_TRACKS for _, thread in events.tracks], dtype=bool
    )
    of_stream = np.flatnonzero(~is_mixed[events.track[work]])
    if of_stream.size < 2:
        return _NONE
    order = of_stream[
        np.lexsort((events.start[work[of_stream]], events.track[work[of_stream]]))
    ]
    rows = work[order]
    start = events.start[rows]
    end = events.end[rows]
    track = events.track[rows]
    close = (track[1:] == track[:-1]) & (start[1:] < end[:-1])
    if not close.any():
        return _NONE
    under = np.minimum(end[1:], end[:-1]) - start[1:]
    name = events.name[rows]
    is_repeated = (end[1:] == end[:-1]) & (name[1:] == name[:-1])
    is_under = (under > _MOST_UNDER * (end[1:] - start[1:])) & (
        (start[1:] > start[:-1]) | is_repeated
    )
    places = np.flatnonzero(close & is_under)
    launch = events.launch[rows[places]]
    present = launch != NOT_RECORDED
    of_graph = np.zeros(places.size, dtype=bool)
    of_graph[present] = events.is_named(_GRAPH_LAUNCH.search)[launch[present]]
    # Whether a graph launched the others is not recorded. Of these only a length unlike
    # all others of its name is a fault, and of a graph's kernels too, if hardly any
    # others run side by side.
    doubtful = ~present
    if int(of_graph.sum()) <= _RARELY * work.size:
        doubtful |= of_graph
    alone = present & ~of_graph
    if doubtful.any():
        pieces = rows[places[doubtful]]
        alone[doubtful] = events.duration[pieces] > _UNLIKE * _usual_durations(
            events, work, events.group[pieces]
        )
    chosen: IntColumn = order[places[alone]]
    return chosen


def _usual_durations(events: EventTable, work: IntColumn, groups: Codes) -> FloatColumn:
    """The median duration of the work of each group."""
    group, duration = events.group[work], events.duration[work]
    usual = np.zeros(len(events.names))
    for code in np.unique(groups).tolist():
        usual[code] = np.median(duration[group == code])
    return usual[groups]


def _is_mostly_empty(start: IntColumn, end: int) -> bool:
    """Whether nothing starts in most of the window: a look at a few bins is cheaper
    than sorting millions of events.
    """
    low = int(start.min())
    width = (end - low) // _BINS + 1
    filled = np.flatnonzero(np.bincount((start - low) // width, minlength=_BINS))
    return int(np.diff(filled, append=_BINS).max(initial=0)) > _BINS * 3 // 4


def _apart(events: EventTable, rows: IntColumn) -> IntColumn:
    """The places among ``rows`` of the events on the smaller side of a jump, or of work
    that outlasts all else together.
    """
    start, end = events.start[rows], events.end[rows]
    if start.size < 2:
        return _NONE
    length = int(end.max()) - int(start.min())
    if length <= _JUMP_NS or not _is_mostly_empty(start, int(end.max())):
        return _NONE
    longest = int(np.argmax(end - start))
    if events.kind[rows[longest]] in _WORK:
        length_of_rest = int(np.delete(end, longest).max()) - int(
            np.delete(start, longest).min()
        )
        if int(end[longest] - start[longest]) > max(_JUMP_NS, _JUMP * length_of_rest):
            return np.array([longest])
    order = np.argsort(start, kind="stable")
    in_order = start[order]
    gaps = in_order[1:] - np.maximum.accumulate(end[order])[:-1]
    place = int(np.argmax(gaps))
    gap, jump = int(gaps[place]), in_order[place + 1]
    if gap <= max(_JUMP_NS, _JUMP * (length - gap)):
        return _NONE
    after = start >= jump
    if gap < _DAY_NS:
        launch = events.launch[rows]
        launched = np.flatnonzero(launch != NOT_RECORDED)
        launched_after = events.start[launch[launched]] >= jump
        if (launched_after == after[launched]).all():
            return _NONE
    if 2 * int(after.sum()) > after.size:
        after = ~after
    return np.flatnonzero(after)
