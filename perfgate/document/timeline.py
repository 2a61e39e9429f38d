"""A timeline as its page draws it: the spans of every track, column by column, packed into few bytes. Times are nanoseconds."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from perfgate.document.message import Message

TrackSide = Literal["host", "device", "gaps", "rank"]
SpanKind = Literal[
    "host_op",
    "compute",
    "copy",
    "comm",
    "annotation",
    "device_annotation",
    "runtime",
    "python",
    "memory",
    "other",
    "gap",  # the device was idle
    "fused",
]
SPAN_KINDS: tuple[SpanKind, ...] = get_args(SpanKind)


class TimelineTrack(msgspec.Struct, frozen=True):
    """A thread of the host, a stream of the device, the gaps of the device, or one of many ranks; and how many spans it has."""

    name: str
    side: TrackSide
    spans: int


class DrawnCounter(msgspec.Struct, frozen=True):
    """The readings of a counter over time, each in force until the next.

    ``time`` holds one in LEB128 a reading, since the reading before, of the first since the recording began; ``value`` a double
    a reading, the lowest byte first; both are compressed (gzip). ``unit`` is Hz, B or B/s, which the page scales, or as
    recorded.
    """

    name: str
    unit: str
    readings: int
    time: bytes
    value: bytes


class DrawnTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of one device of one rank and of its host, by track and start, the longer of two that begin together first.

    Every column is compressed (gzip), and all but ``kind`` hold a number per span in LEB128: seven bits a byte, the lowest
    first, the highest bit set while more follow.
    """

    label: str
    length: int
    texts: list[str]
    tracks: list[TimelineTrack]
    # Since the previous span on the same track began; of a track's first span, since the recording began.
    start: bytes
    duration: bytes
    # A position in ``texts``.
    name: bytes
    # A byte per span: a position in SPAN_KINDS.
    kind: bytes
    # One more than a position in ``texts``; 0 for none.
    shape: bytes
    # One more than a position among the spans; 0 for none.
    launch: bytes
    counters: list[DrawnCounter] = []
    # Missing parts.
    notes: list[Message] = []
