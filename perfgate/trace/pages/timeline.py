"""The spans of a recording track by track, packed for the page that draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.document.timeline import (
    SPAN_KINDS,
    DrawnCounter,
    DrawnTimeline,
    TimelineTrack,
    TrackSide,
)
from perfgate.trace.analysis.gaps import CAUSES, Gaps, device_gaps
from perfgate.trace.loops import look_up
from perfgate.trace.model.arithmetic import (
    CodeColumn,
    Codes,
    IntColumn,
    Positions,
    nesting_order,
)
from perfgate.trace.model.events import DEVICE_KINDS, KINDS, EventTable
from perfgate.trace.model.launches import NOT_RECORDED
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.readings import Readings
from perfgate.trace.scanner.compressed import gzipped

# Columns of more spans are compressed several at a time.
_MANY = 100_000
_THREADS = 8
_NOTHING = np.zeros(0, dtype=np.int64)
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
    """All spans of a table of events, the gaps of its device with their causes, and its
    counters; the device's tracks first.

    A timeline of many ranks has one or two tracks per rank, and no gaps: one rank is
    idle while others are not.
    """
    texts = Numbering(events.names)
    origin = int(events.start.min()) if len(events) else 0
    # Both take as long: the gaps of the device, and the order of the spans.
    with ThreadPoolExecutor(1) as pool:
        search = None if of_ranks else pool.submit(device_gaps, events)
        layout = _Layout(events)
    device = search.result() if search else None
    idle = device.gaps if device else Gaps(_NOTHING, _NOTHING, _NOTHING)
    cause_texts = np.zeros(len(CAUSES), dtype=np.int64)
    for code in np.unique(idle.cause).tolist():
        cause_texts[code] = texts[CAUSES[code]]

    start = layout.behind(idle.start, events.start)
    duration = layout.behind(idle.duration, events.duration)
    end = int((start + duration).max(initial=origin))
    tracks = layout.tracks(len(idle), of_ranks=of_ranks)
    steps = np.diff(start, prepend=origin)
    begin = 0
    for track in tracks:
        steps[begin] = start[begin] - origin
        begin += track.spans
    no_text = np.zeros(len(idle), dtype=np.int64)
    gap_kinds = np.full(len(idle), _GAP, dtype=np.uint8)
    kinds = np.concatenate([gap_kinds, look_up(_KINDS[events.kind], layout.order)])
    columns: dict[str, Callable[[], bytes]] = {
        "start": lambda: packed(steps),
        "duration": lambda: packed(duration),
        "name": lambda: packed(layout.behind(cause_texts[idle.cause], events.name)),
        "kind": lambda: gzipped(kinds.tobytes()),
        "shape": lambda: packed(layout.behind(no_text, events.shape + 1)),
        "launch": lambda: packed(
            layout.behind(no_text, _launches(events, layout.order, len(idle)))
        ),
    }
    contents = _all_done(columns.values(), len(start))
    return DrawnTimeline(
        label=label,
        length=end - origin,
        texts=list(texts),
        tracks=tracks,
        counters=list(_counters(readings, origin, end)),
        notes=list(notes),
        **dict(zip(columns, contents)),
    )


class _Layout:
    """The order in which tracks and spans are drawn: the device's tracks first, the
    spans of a track by time.
    """

    def __init__(self, events: EventTable) -> None:
        self._events = events
        self._on_device = np.zeros(len(events.tracks), dtype=bool)
        work = np.flatnonzero(events.is_kind(*DEVICE_KINDS, "device_annotation"))
        self._on_device[events.track[work]] = True
        self._tracks = np.argsort(~self._on_device, kind="stable")
        place = np.empty(self._tracks.size, dtype=np.int32)
        place[self._tracks] = np.arange(self._tracks.size)
        everything = np.arange(len(events), dtype=np.int32)
        self.order = nesting_order(
            everything, events.start, events.duration, look_up(place, events.track)
        )

    def behind(self, of_gaps: Codes, values: Codes) -> IntColumn:
        """A column of the gaps, and behind it a column of the events in their order."""
        return np.concatenate([of_gaps, look_up(values, self.order)], dtype=np.int64)

    def tracks(self, gaps: int, *, of_ranks: bool) -> list[TimelineTrack]:
        """The tracks in the order of their spans, those without any left out."""
        counts = np.bincount(
            self._events.track, minlength=len(self._events.tracks)
        ).tolist()
        tracks = [TimelineTrack("", "gaps", gaps)] if gaps else []
        for number in filter(counts.__getitem__, self._tracks.tolist()):
            side: TrackSide = "rank"
            if not of_ranks:
                side = "device" if self._on_device[number] else "host"
            name = " / ".join(filter(None, self._events.tracks[number]))
            tracks.append(TimelineTrack(name, side, counts[number]))
        return tracks


def _launches(events: EventTable, order: CodeColumn, gaps: int) -> IntColumn:
    """For each event the place of the call that launched it among the spans, behind the
    gaps, and one more; 0 for none.
    """
    place = np.empty(order.size + 1, dtype=np.int64)
    place[order] = np.arange(gaps + 1, gaps + 1 + order.size)
    place[NOT_RECORDED] = 0  # the last one
    return look_up(place, events.launch)


def _all_done(tasks: Iterable[Callable[[], bytes]], spans: int) -> list[bytes]:
    """The results of the tasks; for many spans several run at a time, since compression
    releases Python's lock.
    """
    if spans < _MANY:
        return [task() for task in tasks]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda task: task(), tasks))


def _counters(
    readings: Mapping[str, Readings], origin: int, end: int
) -> Iterator[DrawnCounter]:
    """The readings from the begin of the first event to the end of the last, and the
    reading in force at the begin.

    Of equal consecutive readings the first is drawn.
    """
    for name, recorded in readings.items():
        in_force = int(np.searchsorted(recorded.time, origin, side="right")) - 1
        inside = slice(
            max(in_force, 0), int(np.searchsorted(recorded.time, end, side="right"))
        )
        time, value = np.maximum(recorded.time[inside], origin), recorded.value[inside]
        changes = np.flatnonzero(np.diff(value, prepend=np.nan) != 0)
        time, value = time[changes], value[changes]
        if time.size:
            steps = packed(np.diff(time, prepend=origin))
            yield DrawnCounter(
                name,
                recorded.unit,
                time.size,
                steps,
                gzipped(value.astype("<f8").tobytes()),
            )


def packed(values: IntColumn) -> bytes:
    """Non-negative numbers in LEB128, seven bits a byte and the lowest first,
    concatenated and compressed.
    """
    bits = np.uint64(7)
    rest = values.astype(np.uint64)
    rows = np.arange(rest.size)
    parts: list[npt.NDArray[Any]] = []
    owners: list[Positions] = []
    while rows.size:
        more_follow = rest > 127
        parts.append(
            (rest & np.uint64(127)).astype(np.uint8)
            | (more_follow.astype(np.uint8) << 7)
        )
        owners.append(rows)
        rows, rest = rows[more_follow], rest[more_follow] >> bits
    if not parts:
        return gzipped(b"")
    # The bytes of a number stay in their order.
    order = np.argsort(np.concatenate(owners), kind="stable")
    return gzipped(np.concatenate(parts)[order].tobytes())
