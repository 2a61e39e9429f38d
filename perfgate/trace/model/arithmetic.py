"""Arithmetic on trace events: exact integer nanoseconds in and out, whole columns at a
time.

An interval is half open, ``[start, end)``; an interval of length zero is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace import loops

IntColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
CodeColumn = npt.NDArray[np.int32]
Codes = npt.NDArray[
    np.integer[Any]
]  # whole numbers of any width: positions in a list, or -1 for none
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
NOTHING_AROUND = -1
# Stands for an unknown number.
NO_NUMBER = -(1 << 63)
Rows = Mask | Positions
# Numbers are marked in a table if it has at most this many places per row; else they
# are sorted.
_PLACES_A_ROW = 8
_FEWEST_PLACES = 1 << 16


def seconds(nanoseconds: float | None) -> float | None:
    if nanoseconds is None:
        return None
    return nanoseconds / 1e9


def known_number(number: int) -> int | None:
    """A number of a column, None for NO_NUMBER."""
    if number == NO_NUMBER:
        return None
    return number


def number_of(value: int | None) -> int:
    """A value as the number of a column, NO_NUMBER for None."""
    if value is None:
        return NO_NUMBER
    return value


class TimeSpan(NamedTuple):
    """A stretch of time, in nanoseconds."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Intervals(NamedTuple):
    """Starts and ends in nanoseconds, two arrays of one length."""

    start: IntColumn
    end: IntColumn

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())


def union(intervals: Intervals) -> Intervals:
    """The time covered by any of the intervals: sorted, disjoint, not even touching.

    Sorted by start, a new piece begins at each start beyond the largest end so far.
    """
    start, end = _sorted(intervals)
    if (start[1:] > end[:-1]).all():
        return Intervals(start, end)  # as kernels of one stream are
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Intervals(start[opens], reach[closes])


def union_length(intervals: Intervals) -> int:
    """The nanoseconds covered by any of the intervals."""
    return union(intervals).length


def gaps(intervals: Intervals, window: tuple[int, int]) -> Intervals:
    """The parts of a window that none of the intervals covers."""
    first, last = window
    covered = union(intervals)
    start = np.concatenate(([first], np.clip(covered.end, first, last))).astype(
        np.int64
    )
    end = np.concatenate((np.clip(covered.start, first, last), [last])).astype(np.int64)
    open_parts = end > start
    return Intervals(start[open_parts], end[open_parts])


def joined(first: Intervals, second: Intervals) -> Intervals:
    return Intervals(
        np.concatenate((first.start, second.start)),
        np.concatenate((first.end, second.end)),
    )


class Covered:
    """The time that intervals cover, for queries of many windows at once."""

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = union(intervals)
        start, end = self.intervals
        self._before = np.zeros(start.size + 1, dtype=np.int64)
        lengths = np.subtract(end, start, out=self._before[1:])
        np.cumsum(lengths, out=lengths)

    def within(self, windows: Intervals) -> IntColumn:
        """The nanoseconds covered of each window."""
        covered: IntColumn = self._until(windows.end) - self._until(windows.start)
        return covered

    def _until(self, times: IntColumn) -> IntColumn:
        if not self.intervals.start.size:
            return np.zeros(times.size, dtype=np.int64)
        begun = np.searchsorted(self.intervals.start, times, side="right")
        place = np.maximum(begun - 1, 0)
        last = (
            np.minimum(times, self.intervals.end[place]) - self.intervals.start[place]
        )
        return np.where(begun > 0, self._before[place] + last, 0)


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """The time that two lists of intervals, each sorted and disjoint, both cover."""
    starts = np.sort(np.concatenate((first.start, second.start)))
    ends = np.sort(np.concatenate((first.end, second.end)))
    # Each list covers a point once at most, so both cover it from the second start on
    # until the first end after it.
    opened = np.searchsorted(starts, starts, side="right") - np.searchsorted(
        ends, starts, side="right"
    )
    begin = np.unique(starts[opened == 2])
    return Intervals(begin, ends[np.searchsorted(ends, begin, side="right")])


def overlap_length(first: Intervals, second: Intervals) -> int:
    """The nanoseconds covered by both: |A| + |B| - |A or B|."""
    either = union_length(joined(first, second))
    return union_length(first) + union_length(second) - either


def begun_within_others(intervals: Intervals, track: Codes) -> Mask:
    """Which intervals begin while one of another track lasts."""
    lasting = _lasting(intervals, intervals.start)
    for number in np.unique(track).tolist():
        own = track == number
        of_track = Intervals(intervals.start[own], intervals.end[own])
        lasting[own] -= _lasting(of_track, of_track.start)
    return lasting > 0


def _lasting(intervals: Intervals, moments: IntColumn) -> IntColumn:
    """How many intervals began before each moment and did not end until then."""
    began = np.searchsorted(np.sort(intervals.start), moments, side="left")
    ended = np.searchsorted(np.sort(intervals.end), moments, side="right")
    return began - ended


def one_of(column: Codes, values: Iterable[int]) -> Mask:
    """Whether each number is one of a few values: in a column of bytes a tenth of the
    time of a table of them.
    """
    is_value = np.zeros(column.size, dtype=bool)
    for value in values:
        is_value |= column == value
    return is_value


# Rows that are alike: the first row of each group, and the group of every row.
Groups = tuple[Positions, CodeColumn]


def group_rows(*columns: Codes) -> Groups:
    """Number the rows that agree in all columns, in the order of their values.

    The values of a column are whole numbers that lie near one another.
    """
    rows = columns[0].size
    if not rows:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int32)
    lows = [int(column.min()) for column in columns]
    widths = [int(column.max()) - low + 1 for column, low in zip(columns, lows)]
    if math.prod(widths) <= _most_places(rows):
        groups = loops.grouped(columns, lows, widths)
        if groups is not None:
            return groups
    order = np.lexsort(columns[::-1])
    begins = np.zeros(rows, dtype=bool)
    begins[0] = True
    for column in columns:
        in_order = column[order]
        begins[1:] |= in_order[1:] != in_order[:-1]
    group = np.empty(rows, dtype=np.int32)
    group[order] = np.cumsum(begins) - 1
    return order[begins], group


def distinct_rows(columns: Sequence[Codes]) -> Groups:
    """The rows that agree in all columns of any numbers; groups are in the order of
    their first rows.
    """
    first, group = group_rows(*map(compact, columns))
    order = np.argsort(first)
    number = np.empty(order.size, dtype=np.int32)
    number[order] = np.arange(order.size)
    return first[order], number[group]


def distinct(column: Codes) -> list[int]:
    """Every number of a column once, in the order of the rows."""
    first, _ = distinct_rows([column])
    numbers: list[int] = column[first].tolist()
    return numbers


def in_order(column: Codes) -> Codes:
    """Every number of a column once, the least first: numpy's unique hashes them, which
    takes several times as long.
    """
    ordered = np.sort(column)
    is_first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def count_among(column: Codes, others: Codes) -> int:
    """How many numbers of a column are also in another: numpy's isin hashes both, which
    takes several times as long.
    """
    if not others.size:
        return 0
    ordered = np.sort(others)
    values = np.sort(column)
    place = np.searchsorted(ordered, values).clip(max=ordered.size - 1)
    return int(np.count_nonzero(ordered[place] == values))


def compact(column: Codes) -> Codes:
    """Numbers that lie near one another, in the order of a column that may hold
    NO_NUMBER and any others.
    """
    if not column.size:
        return column
    low, high = int(column.min()), int(column.max())
    if low == NO_NUMBER != high:
        is_known = column != NO_NUMBER
        low = int(column.min(where=is_known, initial=high)) - 1
        column = np.where(is_known, column, low)
    if high - low > _most_places(column.size):
        return np.unique(column, return_inverse=True)[1]
    return column


def alike_rows(chosen: Mask, *columns: Codes) -> list[Positions]:
    """The chosen rows with equal values in some columns, together; in the order of the
    first of them.
    """
    rows = np.flatnonzero(chosen)
    if not rows.size:
        return []
    _, number = distinct_rows([column[rows] for column in columns])
    in_order = rows[np.argsort(number, kind="stable")]
    ends = np.cumsum(np.bincount(number))
    return np.split(in_order, ends[:-1])


def rows_by(column: Codes) -> list[CodeColumn]:
    """The rows of each value of a column, the least first."""
    if not column.size:
        return []
    short = _short(column)
    order = np.argsort(short, kind="stable").astype(np.int32)
    values = short[order]
    borders = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.split(order, borders)


def last_rows(column: IntColumn, values: IntColumn) -> IntColumn:
    """The last position of each of some values in a column, -1 if it has none."""
    if not column.size:
        return np.full(values.size, -1)
    order = np.argsort(column, kind="stable")
    place = np.searchsorted(column[order], values, side="right") - 1
    row = order[place]
    return np.where(column[row] == values, row, -1)


def _most_places(rows: int) -> int:
    """The most places that a table of numbers may have for this number of rows; for
    more they are sorted.
    """
    return max(_PLACES_A_ROW * rows, _FEWEST_PLACES)


def totals_by_name(name: Codes, value: IntColumn, names: int) -> IntColumn:
    """The sum of the values of each name id below ``names``.

    Integers throughout: numpy's bincount would sum in float64.
    """
    totals = np.zeros(names, dtype=np.int64)
    np.add.at(totals, name, value)
    return totals


class GroupTotal(NamedTuple):
    """Rows that agree in some columns: the first of them, their number, and the sum of
    their values.
    """

    first: int
    number: int
    total: int


def total_groups(values: IntColumn, *columns: Codes) -> list[GroupTotal]:
    """The rows that agree in all columns with the sum of their values, in the order of
    the columns' values.
    """
    first, row = group_rows(*columns)
    counts = counts_by_name(row, first.size)
    totals = totals_by_name(row, values, first.size)
    return list(map(GroupTotal, first.tolist(), counts.tolist(), totals.tolist()))


def counts_by_name(name: Codes, names: int) -> IntColumn:
    """How many events have each name id below ``names``."""
    return np.bincount(name, minlength=names).astype(np.int64)


def self_times(start: IntColumn, duration: IntColumn, track: Codes) -> IntColumn:
    """The nanoseconds of each event minus the events directly inside it on the same
    track.

    Events of a track are expected to nest, as calls on a thread do. If one outlasts the
    event it began in, only the part inside is subtracted, so that no self time is
    negative.
    """
    own = duration.copy()
    order = _nested(start, duration, track)
    if order is None:
        return own
    around = _around(start, duration, track, order)
    inner = np.flatnonzero(around != NOTHING_AROUND)
    outer = around[inner]
    end = np.minimum(start[inner] + duration[inner], start[outer] + duration[outer])
    inside = end - start[inner]
    np.subtract.at(own, outer, np.maximum(inside, 0))
    return np.maximum(own, 0)


def enclosing(start: IntColumn, duration: IntColumn, track: Codes) -> IntColumn:
    """For each event the position of the event on its track that directly contains it,
    NOTHING_AROUND for none.

    Of two events that cover the same time, the first in the columns contains the other.
    A span of no length neither contains anything nor lies in anything.
    """
    order = _nested(start, duration, track)
    if order is None:
        return np.full(start.size, NOTHING_AROUND, dtype=np.int64)
    return _around(start, duration, track, order)


def _nested(start: IntColumn, duration: IntColumn, track: Codes) -> CodeColumn | None:
    """Spans with a length in the order in which they nest; None if none does, as with
    kernels of a stream.
    """
    order = nesting_order(
        np.flatnonzero(duration > 0).astype(np.int32), start, duration, track
    )
    end = start[order]
    end += duration[order]
    early = start[order[1:]] < end[:-1]
    early &= track[order[1:]] == track[order[:-1]]
    return order if early.any() else None


def _around(
    start: IntColumn, duration: IntColumn, track: Codes, order: CodeColumn
) -> IntColumn:
    around = np.full(start.size, NOTHING_AROUND, dtype=np.int64)
    borders = np.flatnonzero(np.diff(track[order])) + 1
    for group in np.split(order, borders):
        parent = _parents(start[group], start[group] + duration[group])
        inner = np.flatnonzero(parent >= 0)
        around[group[inner]] = group[parent[inner]]
    return around


def last_until(end: IntColumn, begun: IntColumn, times: IntColumn) -> IntColumn:
    """The last of the first ``begun`` spans that ends at a time or later, -1 for none;
    for many times at once.

    Spans are halved as in a tree that stores the latest end of each branch: upwards
    until a branch to the left of the current one reaches the time, and down again to
    its last span that does.
    """
    latest = [end]
    while latest[-1].size > 1:
        latest.append(np.maximum.reduceat(latest[-1], np.arange(0, latest[-1].size, 2)))
    node = np.full(times.size, -1)
    level = np.zeros(times.size, dtype=np.int8)
    right = begun
    for height, ends in enumerate(latest):
        open_ = np.flatnonzero((node < 0) & (right & 1 == 1))
        before = right[open_] - 1
        reaches = ends[before] >= times[open_]
        node[open_[reaches]] = before[reaches]
        level[open_[reaches]] = height
        right = right >> 1
    for height in range(len(latest) - 1, 0, -1):
        down = np.flatnonzero((node >= 0) & (level >= height))
        below = latest[height - 1]
        second = 2 * node[down] + 1
        exists = second < below.size
        reaches = below[second.clip(max=below.size - 1)] >= times[down]
        node[down] = np.where(exists & reaches, second, second - 1)
    return node


def nesting_order(
    spans: CodeColumn, start: IntColumn, duration: IntColumn, track: Codes
) -> CodeColumn:
    """Some spans by track, start and, the longer first, duration; equal spans keep
    their order.

    They are positions in the columns, in their order. Three sorts would do the same. A
    file mostly has the spans of a track in the order of time, and few of them begin
    together.
    """
    order = spans[np.argsort(_short(loops.look_up(track, spans)), kind="stable")]
    begin = loops.look_up(start, order)
    tracks = loops.look_up(track, order)
    same_track = tracks[1:] == tracks[:-1]
    if (same_track & (begin[1:] < begin[:-1])).any():
        for own in np.split(order, np.flatnonzero(~same_track) + 1):
            own[:] = own[np.argsort(start[own], kind="stable")]
        begin = start[order]
    together = same_track & (begin[1:] == begin[:-1])
    if together.any():
        in_a_group = np.zeros(order.size, dtype=bool)
        in_a_group[1:] = together
        in_a_group[:-1] |= together
        few = order[in_a_group]
        order[in_a_group] = few[
            np.lexsort((few, -duration[few], start[few], track[few]))
        ]
    return order


def _short(column: Codes) -> Codes:
    """The column in two bytes a number, which numpy sorts by radix, if its values fit."""
    if column.size and column.min() >= 0 and column.max() < 1 << 16:
        return column.astype(np.uint16)
    return column


def _parents(start: IntColumn, end: IntColumn) -> IntColumn:
    """The position of the span each span lies directly in, -1 for the outermost.

    The spans are sorted by start, longer spans first, and none is empty. The depth of
    span i is the number of spans before it that have not ended when it starts; its
    parent is the last span before it that is one level up.
    """
    count = start.size
    position = np.arange(count, dtype=np.int64)
    depth = position - np.searchsorted(np.sort(end), start, side="right")
    keys = depth * count + position
    by_depth = np.argsort(keys, kind="stable")
    one_level_up = (depth - 1) * count + position
    above = np.searchsorted(keys[by_depth], one_level_up) - 1
    return np.where(depth > 0, by_depth[np.maximum(above, 0)], -1)


def _sorted(intervals: Intervals) -> Intervals:
    """The intervals that cover any time, by their start."""
    start, end = intervals
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if (start[1:] >= start[:-1]).all():
        return Intervals(start, end)
    order = np.argsort(start, kind="stable")
    return Intervals(start[order], end[order])
