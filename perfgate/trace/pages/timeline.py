"""The spans of a recording track by track, packed for the page that draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.document.timeline import SPAN_KINDS, DrawnTimeline, TimelineTrack, TrackSide
from perfgate.trace.analysis.gaps import CAUSES, Gaps, device_gaps
from perfgate.trace.model.arithmetic import Codes, IntColumn
from perfgate.trace.model.events import DEVICE_KINDS, KINDS, EventTable
from perfgate.trace.model.spans import NOT_RECORDED, launch_positions

_GAP = SPAN_KINDS.index("gap")
_KINDS = np.array([SPAN_KINDS.index(kind) for kind in KINDS], dtype=np.uint8)


def drawn_timeline(
    events: EventTable, label: str, notes: Sequence[Message] = (), *, of_ranks: bool = False
) -> DrawnTimeline:
    """All spans of a table of events, and the gaps of its device with their causes; the device's tracks first.

    A timeline of many ranks has one or two tracks per rank, and no gaps: one rank is idle while others are not.
    """
    texts = {name: number for number, name in enumerate(events.names)}
    origin = int(events.start.min()) if len(events) else 0
    on_device = np.zeros(len(events.tracks), dtype=bool)
    on_device[events.track[events.is_kind(*DEVICE_KINDS, "device_annotation")]] = True
    order = np.lexsort((-events.duration, events.start, events.track, ~on_device[events.track]))
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    launch = np.full(len(events), NOT_RECORDED, dtype=np.int64)
    work, calls = np.flatnonzero(events.is_kind(*DEVICE_KINDS)), np.flatnonzero(events.is_kind("runtime"))
    called = launch_positions(events.correlation[work], events.correlation[calls], events.start[calls])
    joined = called != NOT_RECORDED
    launch[work[joined]] = place[calls[called[joined]]]
    launch = launch[order]

    device = None if of_ranks else device_gaps(events)
    nothing = np.zeros(len(device.gaps) if device else 0, dtype=np.int64)
    idle = device.gaps if device else Gaps(nothing, nothing, nothing)
    text_of = np.zeros(len(CAUSES), dtype=np.int64)
    for code in np.unique(idle.cause).tolist():
        text_of[code] = texts.setdefault(CAUSES[code], len(texts))

    def behind(gap_values: Codes, values: Codes) -> IntColumn:
        return np.concatenate([gap_values, values], dtype=np.int64)

    start = behind(idle.start, events.start[order])
    duration = behind(idle.duration, events.duration[order])
    track = behind(nothing - 1, events.track[order])
    begins = np.diff(track, prepend=-2) != 0
    steps = np.where(begins, start - origin, np.diff(start, prepend=origin))
    return DrawnTimeline(
        label=label,
        length=int((start + duration).max(initial=origin)) - origin,
        texts=list(texts),
        tracks=_tracks(events, track, on_device, of_ranks=of_ranks),
        start=packed(steps),
        duration=packed(duration),
        name=packed(behind(text_of[idle.cause], events.name[order])),
        kind=np.concatenate([nothing.astype(np.uint8) + _GAP, _KINDS[events.kind[order]]]).tobytes(),
        shape=packed(behind(nothing, events.shape[order] + 1)),
        launch=packed(behind(nothing, np.where(launch == NOT_RECORDED, 0, launch + len(idle) + 1))),
        notes=list(notes),
    )


def _tracks(
    events: EventTable, track: IntColumn, on_device: npt.NDArray[np.bool_], *, of_ranks: bool
) -> list[TimelineTrack]:
    """The tracks in the order of their spans."""
    numbers, first, counts = np.unique(track, return_index=True, return_counts=True)
    tracks = []
    for place in np.argsort(first).tolist():
        number = int(numbers[place])
        side: TrackSide = "gaps" if number < 0 else "rank" if of_ranks else "device" if on_device[number] else "host"
        name = "" if number < 0 else " / ".join(part for part in events.tracks[number] if part)
        tracks.append(TimelineTrack(name, side, int(counts[place])))
    return tracks


def packed(values: IntColumn) -> bytes:
    """Non-negative numbers in LEB128, concatenated."""
    rest = values.astype(np.uint64)
    size = np.ones(rest.size, dtype=np.int64)
    for more in range(1, 10):
        size += rest >= np.uint64(1 << (7 * more))
    ends = np.cumsum(size)
    out: npt.NDArray[np.uint8] = np.empty(int(ends[-1]) if ends.size else 0, dtype=np.uint8)
    at = ends - size
    for position in range(int(size.max(initial=0))):
        there = size > position
        more_follow = np.where(size[there] > position + 1, 128, 0)
        out[at[there] + position] = (rest[there] & np.uint64(127)).astype(np.int64) | more_follow
        rest = rest >> np.uint64(7)
    return out.tobytes()
