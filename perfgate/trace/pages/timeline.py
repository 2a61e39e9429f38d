"""The spans of a recording track by track, packed for the page that draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.document.timeline import SPAN_KINDS, DrawnCounter, DrawnTimeline, TimelineTrack, TrackSide
from perfgate.trace.analysis.gaps import CAUSES, Gaps, device_gaps
from perfgate.trace.loops import leb128, look_up
from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn, Mask, nesting_order
from perfgate.trace.model.events import DEVICE_KINDS, KINDS, EventTable
from perfgate.trace.model.launches import NOT_RECORDED
from perfgate.trace.model.readings import Readings
from perfgate.trace.scanner.compressed import gzipped

# Columns of more spans are compressed several at a time.
_MANY = 100_000
_THREADS = 8
_GAP = SPAN_KINDS.index("gap")
_KINDS = np.array([SPAN_KINDS.index(kind) for kind in KINDS], dtype=np.uint8)


def drawn_timeline(
    events: EventTable,
    label: str,
    notes: Sequence[Message] = (),
    readings: Mapping[str, Readings] = MappingProxyType({}),
    *,
    of_ranks: bool = False,
) -> DrawnTimeline:
    """All spans of a table of events, the gaps of its device with their causes, and its counters; the device's tracks first.

    A timeline of many ranks has one or two tracks per rank, and no gaps: one rank is idle while others are not.
    """
    texts = {name: number for number, name in enumerate(events.names)}
    origin = int(events.start.min()) if len(events) else 0
    # Both take as long: the gaps of the device, and the order of the spans.
    with ThreadPoolExecutor(1) as other:
        search = None if of_ranks else other.submit(device_gaps, events)
        on_device = np.zeros(len(events.tracks), dtype=bool)
        on_device[events.track[np.flatnonzero(events.is_kind(*DEVICE_KINDS, "device_annotation"))]] = True
        in_order = np.argsort(~on_device, kind="stable")
        place_of = np.empty(in_order.size, dtype=np.int32)
        place_of[in_order] = np.arange(in_order.size)
        everything = np.arange(len(events), dtype=np.int32)
        order = nesting_order(everything, events.start, events.duration, look_up(place_of, events.track))
    device = search.result() if search else None

    nothing = np.zeros(len(device.gaps) if device else 0, dtype=np.int64)
    idle = device.gaps if device else Gaps(nothing, nothing, nothing)
    text_of = np.zeros(len(CAUSES), dtype=np.int64)
    for code in np.unique(idle.cause).tolist():
        text_of[code] = texts.setdefault(CAUSES[code], len(texts))

    def behind(gap_values: Codes, values: Codes) -> IntColumn:
        return np.concatenate([gap_values, look_up(values, order)], dtype=np.int64)

    start, duration = behind(idle.start, events.start), behind(idle.duration, events.duration)
    tracks = _tracks(events, in_order, len(idle), on_device, of_ranks=of_ranks)
    steps = np.diff(start, prepend=origin)
    begins = np.cumsum([0, *(track.spans for track in tracks[:-1])]) if tracks else nothing
    steps[begins] = start[begins] - origin
    end = int((start + duration).max(initial=origin))
    kind = np.concatenate([nothing.astype(np.uint8) + _GAP, look_up(_KINDS[events.kind], order)])
    columns: dict[str, Callable[[], bytes]] = {
        "start": lambda: packed(steps),
        "duration": lambda: packed(duration),
        "name": lambda: packed(behind(text_of[idle.cause], events.name)),
        "kind": lambda: gzipped(kind.tobytes()),
        "shape": lambda: packed(behind(nothing, events.shape + 1)),
        "launch": lambda: packed(behind(nothing, _launches(events, order, len(idle)))),
    }
    return DrawnTimeline(
        label=label,
        length=end - origin,
        texts=list(texts),
        tracks=tracks,
        counters=list(_counters(readings, origin, end)),
        notes=list(notes),
        **dict(zip(columns, _all_done(columns.values(), len(start)))),
    )


def _launches(events: EventTable, order: CodeColumn, gaps: int) -> IntColumn:
    """For each event the place of the call that launched it among the spans, behind the gaps, and one more; 0 for none."""
    place = np.empty(order.size + 1, dtype=np.int64)
    place[order] = np.arange(gaps + 1, gaps + 1 + order.size)
    place[NOT_RECORDED] = 0  # the last one
    return look_up(place, events.launch)


def _all_done(tasks: Iterable[Callable[[], bytes]], spans: int) -> list[bytes]:
    """What the tasks return; of many spans, several at a time, for compressing needs no lock of Python's."""
    if spans < _MANY:
        return [task() for task in tasks]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda task: task(), tasks))


def _counters(readings: Mapping[str, Readings], origin: int, end: int) -> Iterator[DrawnCounter]:
    """The readings from the begin of the first event to the end of the last, and the one in force at the begin.

    Of several equal ones that follow each other the first is drawn.
    """
    for name, recorded in readings.items():
        in_force = int(np.searchsorted(recorded.time, origin, side="right")) - 1
        inside = slice(max(in_force, 0), int(np.searchsorted(recorded.time, end, side="right")))
        time, value = np.maximum(recorded.time[inside], origin), recorded.value[inside]
        changes = np.flatnonzero(np.diff(value, prepend=np.nan) != 0)
        time, value = time[changes], value[changes]
        if time.size:
            steps = packed(np.diff(time, prepend=origin))
            yield DrawnCounter(name, recorded.unit, time.size, steps, gzipped(value.astype("<f8").tobytes()))


def _tracks(events: EventTable, in_order: Codes, gaps: int, on_device: Mask, *, of_ranks: bool) -> list[TimelineTrack]:
    """The tracks in the order of their spans, those without any left out."""
    counts = np.bincount(events.track, minlength=len(events.tracks)).tolist()
    tracks = [TimelineTrack("", "gaps", gaps)] if gaps else []
    for number in filter(counts.__getitem__, in_order.tolist()):
        side: TrackSide = "rank" if of_ranks else "device" if on_device[number] else "host"
        name = " / ".join(part for part in events.tracks[number] if part)
        tracks.append(TimelineTrack(name, side, counts[number]))
    return tracks


def packed(values: IntColumn) -> bytes:
    """Non-negative numbers in LEB128, concatenated and compressed."""
    numbers = leb128(values)
    return gzipped(_leb128(values) if numbers is None else numbers)


def _leb128(values: IntColumn) -> bytes:
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
