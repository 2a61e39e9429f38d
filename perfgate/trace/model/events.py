"""One table for every trace, independent of the profiler: integer nanoseconds and
interned names, column by column.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import field
from msgspec.structs import force_setattr, replace

from perfgate.locale import Activity
from perfgate.trace.loops import first_places, look_up
from perfgate.trace.model.arithmetic import (
    CodeColumn,
    Codes,
    IntColumn,
    Intervals,
    Mask,
    Positions,
    one_of,
)
from perfgate.trace.model.launches import NO_CORRELATION as NO_CORRELATION  # noqa: PLC0414 - of an event's column
from perfgate.trace.model.launches import NOT_RECORDED, launch_positions
from perfgate.trace.model.numbering import Numbering

# The host event around every call that perfgate profiles, which separates the calls in
# a trace.
CALL = "perfgate.call"

EventKind = Literal[
    "host_op",  # a framework operator on a host thread
    "compute",  # a kernel on the device
    "copy",  # a copy or fill by the device's copy engine
    "comm",  # a kernel of a collective
    "annotation",  # a span the user named, on the host
    "device_annotation",  # such a span as it lies on the device's timeline
    "runtime",  # a call into the driver: launch, synchronisation
    "python",  # a Python function
    "memory",  # an allocation or release
    "other",
    "fused",  # a kernel that computes and communicates at once
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
DEVICE_KINDS: tuple[EventKind, ...] = ("compute", "copy", "comm", "fused")
KERNEL_KINDS: tuple[EventKind, ...] = ("compute", "comm", "fused")
KIND_CODES: dict[EventKind, int] = dict(Numbering(KINDS))
NO_TEXT = -1  # of an event without a request or without shapes
COLUMN_TYPES: dict[str, type[np.integer[Any]]] = {
    **dict.fromkeys(("start", "duration", "correlation"), np.int64),
    **dict.fromkeys(("track", "name", "group", "request", "shape"), np.int32),
    "kind": np.uint8,
}
# Start and duration stay below, so that their sum fits 64 bits: 2^62 ns is 146 years.
MAX_NS = 1 << 62
# Threads of tracks that hold work of several streams: collectives of any group, and
# work of streams that are not recorded.
COLLECTIVE_TRACK, UNKNOWN_STREAMS = "Communication", "Streams"
# No GPU or NPU finishes a piece of work in less. The shortest in recordings are a copy
# of 580 ns on an NPU (sample msinsight-910B-alexnet-2501) and a kernel of 640 ns on an
# MI300.
SHORTEST_WORK_NS = 100


def _absent() -> Codes:
    """One value for all events, as of a column that was not recorded."""
    return np.array(NO_TEXT)


class EventTable(msgspec.Struct, frozen=True, dict=True):
    """Spans of a trace. All columns have one entry per event, in the order of the file;
    a single value counts for all.

    ``name``, ``group``, ``request`` and ``shape`` index ``names``; the last two may be
    NO_TEXT. A trace may have many millions of events, so an index takes four bytes and
    a kind one: other columns are converted. A correlation takes four if the reader
    knows that all fit. Arithmetic with them needs int64.
    """

    start: IntColumn  # nanoseconds on the trace's clock
    duration: IntColumn
    track: Codes  # indexes ``tracks``
    name: Codes
    kind: Codes  # indexes KINDS
    # the name in a table of operators: a kernel's type if the profiler knows it, else
    # its name
    group: Codes
    names: tuple[str, ...]
    tracks: tuple[tuple[str, str], ...]  # process and thread, or device and stream
    # Joins a launch on the host with the work it started on the device; NO_CORRELATION
    # for none.
    correlation: Codes = field(default_factory=_absent)
    request: Codes = field(default_factory=_absent)  # the request it served
    shape: Codes = field(
        default_factory=_absent
    )  # the shapes of its inputs in the profiler's notation
    # Work of a device that takes less was recorded wrongly. An operation of a TPU may
    # take a few nanoseconds.
    shortest_ns: int = 0

    def __post_init__(self) -> None:
        for column, dtype in COLUMN_TYPES.items():
            values = np.asarray(getattr(self, column))
            if column != "correlation" or values.dtype != np.int32:
                values = values.astype(dtype, copy=False)
            if not values.ndim:
                values = np.broadcast_to(values, self.start.size)
            force_setattr(self, column, values)

    def __len__(self) -> int:
        return int(self.start.size)

    @cached_property
    def end(self) -> IntColumn:
        return self.start + self.duration

    @property
    def intervals(self) -> Intervals:
        return Intervals(self.start, self.end)

    @cached_property
    def is_work(self) -> Mask:
        """Which events are work of a device."""
        return self.is_kind(*DEVICE_KINDS)

    @cached_property
    def work_rows(self) -> Positions:
        """The positions of the work of a device."""
        return np.flatnonzero(self.is_work)

    @cached_property
    def launch(self) -> CodeColumn:
        """The position of the runtime call that launched each event of a device;
        NOT_RECORDED for none and for host events.
        """
        work = self.work_rows
        calls = np.flatnonzero(self.is_kind("runtime"))
        called = launch_positions(
            self.correlation[work], self.correlation[calls], self.start[calls]
        )
        joined = np.flatnonzero(called != NOT_RECORDED)
        launch = np.full(len(self), NOT_RECORDED, dtype=np.int32)
        launch[work[joined]] = calls[called[joined]]
        return launch

    def columns(self) -> dict[str, IntColumn | list[str | None]]:
        """The columns with words for the numbers of names, as pandas and polars make a
        data frame of them.

        ``start_ns`` and ``duration_ns`` are arrays. ``name``, ``type`` (the name of the
        group), ``kind``, ``process``, ``thread``, ``request`` and ``shape`` are lists,
        with None for no request and no shape.
        """
        return {
            "start_ns": self.start,
            "duration_ns": self.duration,
            "name": _texts(self.names, self.name),
            "type": _texts(self.names, self.group),
            "kind": _texts(KINDS, self.kind),
            "process": _texts((process for process, _ in self.tracks), self.track),
            "thread": _texts((thread for _, thread in self.tracks), self.track),
            "request": _texts(self.names, self.request),
            "shape": _texts(self.names, self.shape),
        }

    def select(self, chosen: Mask | Positions) -> EventTable:
        """The events chosen by a mask, or by positions in their order; names and tracks
        keep their numbers.
        """
        if chosen.dtype == bool:
            if chosen.all():
                return self
            chosen = np.flatnonzero(chosen)  # taking by a mask costs four times as much
        rows: Positions = chosen.astype(np.intp, copy=False)
        columns: dict[str, Any] = {}
        for column in COLUMN_TYPES:
            if column != "group" or self.group is not self.name:
                columns[column] = _chosen(getattr(self, column), rows)
        # If every event is its own group, names and groups share one array in memory.
        columns.setdefault("group", columns["name"])
        return replace(self, **columns)

    def is_kind(self, *kinds: EventKind) -> Mask:
        return one_of(self.kind, (KIND_CODES[kind] for kind in kinds))

    def is_named(self, matches: Callable[[str], object]) -> Mask:
        """Which events have a name that matches; each name is tried once."""
        # Indexing with four bytes a number takes twice as long.
        matching = np.array([bool(matches(name)) for name in self.names], dtype=bool)
        return matching.take(self.name)

    def rows_named(
        self, rows: Positions | CodeColumn, matches: Callable[[str], object]
    ) -> Positions:
        """The rows whose names match; the names of other events are not tried."""
        name = look_up(self.name, rows.astype(np.int32, copy=False))
        used = first_places(name, len(self.names))[1:] >= 0
        matching = np.zeros(len(self.names), dtype=bool)
        for code in np.flatnonzero(used).tolist():
            matching[code] = bool(matches(self.names[code]))
        return rows[matching.take(name)].astype(np.intp, copy=False)

    def of_kind(self, *kinds: EventKind) -> EventTable:
        return self.select(self.is_kind(*kinds))

    def named(self, name: str) -> EventTable:
        return self.select(self.is_named(name.__eq__))


def _texts(names: Iterable[str], numbers: Codes) -> list[str | None]:
    texts: list[str | None] = np.array([*names, None], dtype=object)[
        numbers
    ].tolist()  # NO_TEXT is the last place
    return texts


def constant(column: str, value: int, size: int) -> npt.NDArray[Any]:
    """A column of one value, which takes no memory and cannot be written to."""
    return np.broadcast_to(COLUMN_TYPES[column](value), size)


def _chosen(column: npt.NDArray[Any], rows: Positions) -> npt.NDArray[Any]:
    if column.size and column.strides == (0,):
        return np.broadcast_to(column[0], rows.size)
    return column.take(rows)


def joined_events(first: EventTable, second: EventTable) -> EventTable:
    """The events of two tables, one behind the other."""
    names = Numbering(first.names)
    tracks = Numbering(first.tracks)
    number_of = names.codes((*second.names, None))  # NO_TEXT is the last place
    track_of = tracks.codes(second.tracks)
    values = {}
    for column in COLUMN_TYPES:
        added = getattr(second, column)
        if column in ("name", "group", "request", "shape"):
            added = number_of[added]
        elif column == "track" and len(second):
            added = track_of[added]
        values[column] = np.concatenate([getattr(first, column), added])
    shortest_ns = max(first.shortest_ns, second.shortest_ns)
    return EventTable(
        **values, names=tuple(names), tracks=tuple(tracks), shortest_ns=shortest_ns
    )


_TYPE_CODES: dict[type[np.integer[Any]], str] = {
    np.int64: "q",
    np.int32: "i",
    np.uint8: "B",
}


class EventTableBuilder:
    """Collects events one by one."""

    def __init__(self) -> None:
        self._columns = {
            column: array(_TYPE_CODES[dtype]) for column, dtype in COLUMN_TYPES.items()
        }
        self._names = Numbering[str]()
        self._tracks = Numbering[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._columns["start"])

    def add(
        self,
        start: int,
        duration: int,
        *,
        track: tuple[str, str],
        name: str,
        kind: EventKind,
        correlation: int = NO_CORRELATION,
        group: str | None = None,
        request: str | None = None,
        shape: str | None = None,
    ) -> None:
        """Add one event; times in nanoseconds, both below MAX_NS in magnitude. Without
        a ``group`` it stands for itself.
        """
        columns, names = self._columns, self._names
        columns["start"].append(start)
        columns["duration"].append(duration)
        columns["track"].append(self._tracks[track])
        columns["name"].append(names[name])
        columns["kind"].append(KIND_CODES[kind])
        columns["correlation"].append(correlation)
        columns["group"].append(names[group or name])
        columns["request"].append(names.code(request))
        columns["shape"].append(names.code(shape))

    def table(self) -> EventTable:
        """The events collected so far; the columns are views, so do not add events
        afterwards.
        """
        columns: dict[str, Any] = {}
        for column, values in self._columns.items():
            columns[column] = np.frombuffer(values, COLUMN_TYPES[column])
        return EventTable(
            **columns, names=tuple(self._names), tracks=tuple(self._tracks)
        )


_MAX_NUMBER_TEXT = 64
_DIGITS = 19  # of microseconds since 1970 with three decimals


def nanoseconds(text: bytes) -> int:
    """The nanoseconds of a JSON number (or string) of microseconds, exactly; below a
    nanosecond half to even.

    Raises ValueError for text that is not a number, and for times outside of 146 years.
    """
    whole, _, fraction = text.strip(b'"').partition(b".")
    digits = whole + fraction.ljust(3, b"0")
    if whole and len(fraction) <= 3 and len(digits) <= _DIGITS and digits.isdigit():
        plain = int(digits)
        if plain <= MAX_NS // 1000 * 1000:
            return plain
    return _nanoseconds_of_any(text)


def nanoseconds_of_milliseconds(text: bytes) -> int:
    """The nanoseconds of a JSON number of milliseconds, half to even.

    Raises ValueError as ``nanoseconds`` does.
    """
    return _nanoseconds_of_any(text, unit_ns=1_000_000)


def _nanoseconds_of_any(text: bytes, *, unit_ns: int = 1000) -> int:
    """Take signs, more decimals, exponents and quotes, as older torch_npu writes them."""
    plain = text.strip(b'" ').decode("ascii", errors="replace")
    if len(plain) > _MAX_NUMBER_TEXT:
        raise ValueError(Activity("time {text!r}... is not a number", text=plain[:20]))
    try:
        exact = Decimal(plain)
    except InvalidOperation:
        raise ValueError(
            Activity("time {text!r} is not a number", text=plain)
        ) from None
    # The bound comes first: an exponent of a billion must not become digits.
    if not exact.is_finite() or not -MAX_NS // unit_ns <= exact <= MAX_NS // unit_ns:
        raise ValueError(
            Activity("time {text!r} is outside the range of 146 years", text=plain)
        )
    return int((exact * unit_ns).to_integral_value())
