"""One table for every trace, whatever profiler wrote it: integer nanoseconds and interned names, column by column."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from perfgate.trace.analysis import IntColumn, Intervals

# The host event around every call that perfgate profiles, by which calls are told apart in a trace.
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
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
DEVICE_KINDS: tuple[EventKind, ...] = ("compute", "copy", "comm")
KERNEL_KINDS: tuple[EventKind, ...] = ("compute", "comm")
KIND_CODES: dict[EventKind, int] = {kind: code for code, kind in enumerate(KINDS)}
# Kernels of collectives by how their names begin: NCCL and RCCL (sample cuda-hta/nccl_data), HCCL (hcom_allReduce_).
COLLECTIVE_PREFIXES = ("nccl", "rccl", "hccl", "hcom_")
NO_CORRELATION = -1
NO_TEXT = -1  # of an event without a request or without shapes
# Start and duration stay below, so that their sum fits 64 bits: 2^62 ns is 146 years.
MAX_NS = 1 << 62


@dataclass(frozen=True)
class EventTable:
    """Spans of a trace. All columns have one entry per event and are int64, in the order of the file.

    ``start`` and ``duration`` are nanoseconds on the trace's clock; ``track`` indexes ``tracks`` (process and thread,
    or device and stream), ``name`` indexes ``names``, ``kind`` indexes KINDS; ``correlation`` joins a launch on the
    host with what it started on the device, NO_CORRELATION where there is none. ``group`` indexes ``names`` too: what a
    table of operators counts the event under, a kernel's type where the profiler knows it, else its name. ``request``
    (whose request it served) and ``shape`` (the shapes of its inputs as the profiler words them) index ``names`` or are
    NO_TEXT.
    """

    start: IntColumn
    duration: IntColumn
    track: IntColumn
    name: IntColumn
    kind: IntColumn
    correlation: IntColumn
    group: IntColumn
    request: IntColumn
    shape: IntColumn
    names: tuple[str, ...]
    tracks: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def end(self) -> IntColumn:
        return self.start + self.duration

    @property
    def intervals(self) -> Intervals:
        return Intervals(self.start, self.end)

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> EventTable:
        """The events chosen by a mask, or by positions in their order; names and tracks keep their numbers."""
        return replace(
            self,
            start=self.start[chosen],
            duration=self.duration[chosen],
            track=self.track[chosen],
            name=self.name[chosen],
            kind=self.kind[chosen],
            correlation=self.correlation[chosen],
            group=self.group[chosen],
            request=self.request[chosen],
            shape=self.shape[chosen],
        )

    def is_kind(self, *kinds: EventKind) -> npt.NDArray[np.bool_]:
        return np.isin(self.kind, [KIND_CODES[kind] for kind in kinds])

    def is_named(self, matches: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        """Which events have a name that matches; each name is tried once."""
        return np.isin(self.name, [code for code, name in enumerate(self.names) if matches(name)])

    def of_kind(self, *kinds: EventKind) -> EventTable:
        return self.select(self.is_kind(*kinds))

    def named(self, name: str) -> EventTable:
        return self.select(self.is_named(lambda text: text == name))


def joined_events(first: EventTable, second: EventTable) -> EventTable:
    """The events of two tables, one behind the other."""
    names = {name: number for number, name in enumerate(first.names)}
    tracks = {track: number for number, track in enumerate(first.tracks)}
    text = np.array([names.setdefault(name, len(names)) for name in second.names] + [NO_TEXT], dtype=np.int64)
    place = np.array([tracks.setdefault(track, len(tracks)) for track in second.tracks], dtype=np.int64)
    moved = {
        **{column: text[getattr(second, column)] for column in ("name", "group", "request", "shape")},
        "track": place[second.track] if len(second) else second.track,
    }
    columns = ("start", "duration", "track", "name", "kind", "correlation", "group", "request", "shape")
    values = {
        column: np.concatenate([getattr(first, column), moved.get(column, getattr(second, column))])
        for column in columns
    }
    return EventTable(**values, names=tuple(names), tracks=tuple(tracks))


class EventTableBuilder:
    """Collects events one by one in 72 bytes each."""

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in range(9))
        self._names: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(
        self,
        start: int,
        duration: int,
        *,
        track: tuple[str, str],
        name: str,
        kind: EventKind,
        correlation: int,
        group: str | None = None,
        request: str | None = None,
        shape: str | None = None,
    ) -> None:
        """Add one event; times in nanoseconds, both below MAX_NS in magnitude. Without a ``group`` it stands for itself."""
        starts, durations, tracks, names, kinds, correlations, groups, requests, shapes = self._columns
        starts.append(start)
        durations.append(duration)
        tracks.append(self._tracks.setdefault(track, len(self._tracks)))
        names.append(self._number(name))
        kinds.append(KIND_CODES[kind])
        correlations.append(correlation)
        groups.append(names[-1] if group is None else self._number(group))
        requests.append(NO_TEXT if request is None else self._number(request))
        shapes.append(NO_TEXT if shape is None else self._number(shape))

    def table(self) -> EventTable:
        """What was collected; the columns are views, so add nothing afterwards."""
        start, duration, track, name, kind, correlation, group, request, shape = (
            np.frombuffer(column, np.int64) for column in self._columns
        )
        return EventTable(
            start=start,
            duration=duration,
            track=track,
            name=name,
            kind=kind,
            correlation=correlation,
            group=group,
            request=request,
            shape=shape,
            names=tuple(self._names),
            tracks=tuple(self._tracks),
        )

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


_MAX_NUMBER_TEXT = 64
_DIGITS = 19  # of microseconds since 1970 with three decimals


def nanoseconds(text: bytes) -> int:
    """The nanoseconds of a JSON number (or string) of microseconds, exactly; below a nanosecond half to even.

    Raises ValueError for what is no number, and outside of 146 years.
    """
    whole, _, fraction = text.strip(b'"').partition(b".")
    digits = whole + fraction.ljust(3, b"0")
    if whole and len(fraction) <= 3 and len(digits) <= _DIGITS and digits.isdigit():
        plain = int(digits)
        if plain <= MAX_NS // 1000 * 1000:
            return plain
    return _nanoseconds_of_any(text)


def nanoseconds_of_milliseconds(text: bytes) -> int:
    """The nanoseconds of a JSON number of milliseconds, half to even. Raises ValueError as ``nanoseconds`` does."""
    return _nanoseconds_of_any(text, unit_ns=1_000_000)


def _nanoseconds_of_any(text: bytes, *, unit_ns: int = 1000) -> int:
    """Take signs, more decimals, exponents and quotes, as older torch_npu writes them."""
    plain = text.strip(b'" ').decode("ascii", errors="replace")
    if len(plain) > _MAX_NUMBER_TEXT:
        raise ValueError(f"time {plain[:20]!r}... is no number")
    try:
        exact = Decimal(plain)
    except InvalidOperation:
        raise ValueError(f"time {plain!r} is no number") from None
    # The bound comes first: an exponent of a billion must not become digits.
    if not exact.is_finite() or not -MAX_NS // unit_ns <= exact <= MAX_NS // unit_ns:
        raise ValueError(f"time {plain!r} lies outside of 146 years")
    return int((exact * unit_ns).to_integral_value())
