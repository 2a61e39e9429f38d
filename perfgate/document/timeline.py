"""A timeline as its page draws it: the spans of every track, column by column, packed
into few bytes. Times are nanoseconds. And many ranks as their page draws them.
"""

from __future__ import annotations

from typing import Literal, get_args

from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct
from perfgate.document.trace import RanksDocument

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


class TimelineTrack(FrozenStruct):
    """A thread of the host, a stream of the device, the gaps of the device, or one of
    many ranks; and how many spans it has.
    """

    name: str
    side: TrackSide
    spans: int


class DrawnCounter(FrozenStruct):
    """The readings of a counter over time, each in force until the next.

    ``time`` holds one in LEB128 a reading, since the reading before, of the first since
    the recording began; ``value`` a double a reading, the lowest byte first; both are
    compressed (gzip). ``unit`` is Hz, B or B/s, which the page scales, or as recorded.
    """

    name: str
    unit: str
    readings: int
    time: bytes
    value: bytes


class DrawnTimeline(FrozenStruct, kw_only=True):
    """The spans of one device of one rank and of its host, by track and start, the
    longer of two that begin together first.

    Every column is compressed (gzip), and all but ``kind`` hold a number per span in
    LEB128: seven bits a byte, the lowest first, the highest bit set while more follow.
    """

    label: str
    length: int
    texts: list[str]
    tracks: list[TimelineTrack]
    # Since the previous span on the same track began; of a track's first span, since
    # the recording began.
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


HeatKind = Literal["computing", "exposed", "free", "bubble", "late", "bandwidth"]


class HeatMap(FrozenStruct, kw_only=True):
    """A number for every rank and column, None if missing: seconds of a step, seconds
    after the first to come to a collective, or bytes a second over one kind of ``link``
    to another rank.

    ``left_out`` is how many columns are not drawn: earlier steps, and collectives with
    a smaller skew.
    """

    kind: HeatKind
    columns: list[str]
    values: list[list[float | None]]
    link: str = ""
    left_out: int = 0


class DrawnRanks(FrozenStruct, kw_only=True):
    """The findings about the ranks, the heat maps with a row for each of ``labels``,
    and the timelines of some of them.

    ``unaligned`` are the drawn ranks with a clock that no collective relates to the
    others.
    """

    document: RanksDocument
    labels: list[str]
    maps: list[HeatMap]
    timeline: DrawnTimeline | None
    unaligned: list[str]
