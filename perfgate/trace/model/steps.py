"""Steps of a recording, and the device's time in each: parts in nanoseconds that add up
to the step's length exactly.

A step begins when the host began it, or when the device had finished the step before.
It ends when the last of its work on the device has ended. This is the same for all
sources of steps: a timeline, an export or tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, overload

import numpy as np
from msgspec.structs import replace

from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    Codes,
    Covered,
    IntColumn,
    Intervals,
    Mask,
    joined,
)
from perfgate.trace.model.events import (
    CALL,
    DEVICE_KINDS,
    KERNEL_KINDS,
    EventKind,
    EventTable,
)
from perfgate.trace.model.faults import untimed_work
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import Kernel, ProfilerStep
from perfgate.trace.model.spans import OUTSIDE, LaunchTimes, launch_times, span_at

# The name that torch.profiler and torch_npu.profiler give the span between two calls of
# step().
STEP_NAME = re.compile(r"ProfilerStep#(\d{1,18})")
_ROUNDING_NS = 2000  # of times in whole microseconds
_LATEST = int(np.iinfo(np.int64).max)


@lru_cache(maxsize=1 << 12)
def step_number(name: str) -> int | None:
    """The number of a step by the name of its span; None for every other name."""
    match = STEP_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1])


def step_marks(events: EventTable, *kinds: EventKind) -> list[ProfilerStep]:
    """The spans ``ProfilerStep#N`` of the host, in time order; annotations unless other
    kinds are given.

    A step that is marked on several threads, or inside another step, is one.
    """
    rows = np.flatnonzero(events.is_kind(*(kinds or ("annotation",))))
    rows = events.rows_named(rows, STEP_NAME.fullmatch)
    marks = separate_marks(events.select(rows)).marks
    columns = (marks.name.tolist(), marks.start.tolist(), marks.end.tolist())
    return [
        ProfilerStep(step_number(marks.names[name]), start, end)
        for name, start, end in zip(*columns)
    ]


class SeparateMarks(NamedTuple):
    """The marks that are separate units, in time order, with their positions;
    ``clipped`` lasted beyond the next.
    """

    rows: IntColumn
    marks: EventTable
    clipped: int


def unit_marks(events: EventTable) -> SeparateMarks:
    """The calls that perfgate marked, else the profiler's steps, by their positions
    among the events.
    """
    of_user = np.flatnonzero(events.is_kind("annotation", "host_op"))
    rows = events.rows_named(of_user, CALL.__eq__)
    if not rows.size:
        rows = events.rows_named(of_user, STEP_NAME.fullmatch)
    separate = separate_marks(events.select(rows))
    return separate._replace(rows=rows[separate.rows])


def separate_marks(marks: EventTable) -> SeparateMarks:
    """Leave out marks without a length, marks around several others of their thread,
    and marks that share most of their time.

    Of the latter the first counts, and of two that begin together the longer. A mark
    that lasts beyond the begin of the mark with the next number ends there: its length
    is damaged.
    """
    is_long, duration = _beyond_next(marks)
    marks = replace(marks, duration=duration)
    rows = np.flatnonzero(~_surround_others(marks) & (marks.duration > 0))
    rows = rows[_distinct(marks.select(rows))]
    return SeparateMarks(rows, marks.select(rows), int(is_long.sum()))


def _beyond_next(marks: EventTable) -> tuple[Mask, IntColumn]:
    """Which marks last beyond the begin of the mark with the next number on their
    thread, and the duration up to it.
    """
    number = np.full(len(marks), NO_NUMBER, dtype=np.int64)
    for row, name in enumerate(marks.name.tolist()):
        known = step_number(marks.names[name])
        if known is not None:
            number[row] = known
    order = np.lexsort((marks.start, marks.track))
    before, after = order[:-1], order[1:]
    follows = (marks.track[after] == marks.track[before]) & (
        number[before] != NO_NUMBER
    )
    follows &= number[after] == number[before] + 1
    before, after = before[follows], after[follows]
    longest = marks.start[after] - marks.start[before]
    is_long = np.zeros(len(marks), dtype=bool)
    is_long[before] = marks.duration[before] > longest + _ROUNDING_NS
    duration = marks.duration.copy()
    duration[before] = np.minimum(duration[before], longest)
    return is_long, duration


def _surround_others(marks: EventTable) -> Mask:
    """Which marks contain the starts of two or more others of their thread."""
    surround = np.zeros(len(marks), dtype=bool)
    for track in np.flatnonzero(np.bincount(marks.track)).tolist():
        own = np.flatnonzero(marks.track == track)
        starts = np.sort(marks.start[own])
        first = np.searchsorted(starts, marks.start[own], side="right")
        last = np.searchsorted(starts, marks.end[own])
        surround[own] = last - first >= 2
    return surround


def _distinct(marks: EventTable) -> IntColumn:
    """The positions of marks that do not share most of their time with an earlier one."""
    order = np.lexsort((-marks.duration, marks.start))
    if order.size < 2 or (marks.start[order][1:] >= marks.end[order][:-1]).all():
        return order
    chosen = []
    last_end = -_LATEST
    for row, begin, end in zip(
        order.tolist(), marks.start[order].tolist(), marks.end[order].tolist()
    ):
        if 2 * (min(last_end, end) - begin) > end - begin:
            continue
        chosen.append(row)
        last_end = max(last_end, end)
    return np.array(chosen, dtype=np.int64)


def profiler_steps(
    events: EventTable, marks: Sequence[ProfilerStep] | None = None
) -> tuple[ProfilerStep, ...] | None:
    """The steps that the host marked, in time order; None if it marked none.

    Work belongs to the step that launched it. If the device shows no work at all, a
    step has a length and no parts.
    """
    if marks is None:
        marks = step_marks(events)
    if not marks:
        return None
    work = events.of_kind(*DEVICE_KINDS)
    if not len(work):
        return tuple(marks)
    launched = launch_times(work, events.of_kind("runtime"))
    owners = span_at(launched, windows_of(marks))
    marks = _after_earlier_work(marks, work, launched)
    untimed = untimed_work(work)
    if not untimed.any():
        return device_steps(marks, work, owners)
    steps = list(device_steps(marks, work.select(~untimed), owners[~untimed]))
    for place in np.unique(owners[untimed & (owners != OUTSIDE)]).tolist():
        # The time that the device worked for it is not known.
        steps[place] = ProfilerStep(steps[place].number)
    return tuple(steps)


def _after_earlier_work(
    marks: Sequence[ProfilerStep], work: EventTable, launched: LaunchTimes
) -> Sequence[ProfilerStep]:
    """The steps, of which the first begins when the device had finished what was
    launched before it.
    """
    first, *others = marks
    if first.start_ns is None:
        return marks
    is_earlier = (launched.time < first.start_ns) | launched.before
    finished = int(work.end[is_earlier].max(initial=first.start_ns))
    return [first._replace(start_ns=finished), *others]


class LaterSteps(Sequence[ProfilerStep]):
    """A known number of steps, worked out on access: most questions about a recording
    need none.
    """

    def __init__(
        self, count: int, work_out: Callable[[], tuple[ProfilerStep, ...]]
    ) -> None:
        self._count = count
        self._steps = cache(work_out)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> ProfilerStep: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ProfilerStep]: ...

    def __getitem__(self, index: int | slice) -> ProfilerStep | Sequence[ProfilerStep]:
        return self._steps()[index]


class MarkedSteps(LaterSteps):
    """The steps that the host marked."""

    def __init__(self, events: EventTable, marks: Sequence[ProfilerStep]) -> None:
        self.marks = tuple(marks)
        super().__init__(
            len(self.marks), lambda: profiler_steps(events, self.marks) or ()
        )

    @classmethod
    def of(cls, events: EventTable) -> MarkedSteps | None:
        """None if the host marked none."""
        marks = step_marks(events)
        if not marks:
            return None
        return cls(events, marks)


def windows_of(marks: Iterable[ProfilerStep]) -> Intervals:
    """The time of the host in each of some steps with known begin and end."""
    table = np.array(
        [(mark.start_ns, mark.end_ns) for mark in marks], dtype=np.int64
    ).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 1])


def device_steps(
    marks: Sequence[ProfilerStep],
    work: EventTable,
    owners: Codes,
    *,
    copies: bool = True,
) -> tuple[ProfilerStep, ...]:
    """The device's parts of each step; ``owners`` are the positions of the events'
    steps among the marks.

    ``copies`` is whether copies would have been recorded: else their time is in that
    before the first kernel and in the free time.
    """
    first, last = _extents(work, owners, len(marks))
    steps: list[ProfilerStep] = []
    windows = []
    for mark, first_ns, last_ns in zip(marks, first.tolist(), last.tolist()):
        start = _start(mark, steps[-1] if steps else None)
        end: int | None = last_ns
        if last_ns == -_LATEST:
            # If the device had no work, the step is as long as the host's.
            end = None if start is None else mark.end_ns
        if end is None:
            steps.append(ProfilerStep(mark.number))
        elif start is None:
            # A step without a known start has the window of its work.
            steps.append(ProfilerStep(mark.number, None, end))
            windows.append(ProfilerStep(mark.number, first_ns, last_ns))
        else:
            steps.append(ProfilerStep(mark.number, start, max(end, start)))
            windows.append(steps[-1])
    parts = iter(_parts(work, windows_of(windows), copies=copies))
    for place, step in enumerate(steps):
        if step.end_ns is not None:
            own = next(parts)
            # Without a known start the time before the first kernel is not known
            # either.
            preparing = None if step.start_ns is None else own.preparing_ns
            steps[place] = own._replace(
                number=step.number,
                start_ns=step.start_ns,
                end_ns=step.end_ns,
                preparing_ns=preparing,
            )
    return tuple(steps)


def _extents(
    work: EventTable, owners: Codes, steps: int
) -> tuple[IntColumn, IntColumn]:
    """The first start and the last end of the work of each step; of a step without
    work, ends of time.
    """
    first, last = np.full(steps, _LATEST), np.full(steps, -_LATEST)
    start, end = work.start, work.end
    inside = owners != OUTSIDE
    if not inside.all():
        owners, start, end = owners[inside], start[inside], end[inside]
    np.minimum.at(first, owners, start)
    np.maximum.at(last, owners, end)
    return first, last


def _start(mark: ProfilerStep, before: ProfilerStep | None) -> int | None:
    """The time between two consecutive steps belongs to the later one."""
    if before is None or before.end_ns is None:
        return mark.start_ns
    if (
        mark.number is not None
        and before.number is not None
        and mark.number == before.number + 1
    ):
        return before.end_ns
    if mark.start_ns is None:
        return None
    return max(mark.start_ns, before.end_ns)


def _parts(
    work: EventTable, windows: Intervals, *, copies: bool
) -> Iterator[ProfilerStep]:
    """The device's time in each window by activity; all but ``communication`` add up to
    the window.
    """
    kernels = _covered(work, *KERNEL_KINDS)
    first = _first_inside(kernels.intervals, windows)
    of_kernels = kernels.within(windows)
    before = copied = np.zeros_like(first)
    if copies and work.is_kind("copy").any():
        of_copies = _covered(work, "copy")
        before = of_copies.within(Intervals(windows.start, first))
        either = Covered(joined(kernels.intervals, of_copies.intervals))
        copied = either.within(windows) - of_kernels
    del kernels
    communication = _covered(work, "comm").within(windows)
    computed = with_fused = of_kernels
    is_fused = work.is_kind("fused").any()
    if communication.any() or is_fused:
        computed = with_fused = _covered(work, "compute").within(windows)
    if is_fused:
        with_fused = _covered(work, "compute", "fused").within(windows)
    preparing = first - windows.start - before
    columns = (
        computed,
        with_fused - computed,
        communication,
        of_kernels - with_fused,
        copied,
        preparing,
        windows.end - windows.start - of_kernels - copied - preparing,
    )
    for computing, fused, in_collectives, exposed, copying, lead, free in zip(
        *(column.tolist() for column in columns)
    ):
        yield ProfilerStep(
            None,
            computing_ns=computing,
            fused_ns=fused,
            communication_ns=in_collectives,
            exposed_communication_ns=exposed,
            exposed_copies_ns=copying if copies else None,
            preparing_ns=lead,
            free_ns=free,
        )


def _covered(work: EventTable, *kinds: EventKind) -> Covered:
    chosen = work.is_kind(*kinds)
    if chosen.all():
        return Covered(work.intervals)
    start = work.start[chosen]
    return Covered(Intervals(start, start + work.duration[chosen]))


def _first_inside(kernels: Intervals, windows: Intervals) -> IntColumn:
    """The start of the first kernel of each window; the window's own start if it has
    none.
    """
    if not kernels.start.size:
        return windows.start
    place = np.searchsorted(kernels.end, windows.start, side="right")
    exists = place < kernels.start.size
    begin = np.maximum(
        kernels.start[place.clip(max=kernels.start.size - 1)], windows.start
    )
    return np.where(exists & (begin < windows.end), begin, windows.start)


def steps_of_tables(
    kernels: Sequence[Kernel] | None,
    work: EventTable,
    table: Sequence[ProfilerStep] | None,
    *,
    copies: bool,
) -> Sequence[ProfilerStep] | None:
    """The steps according to tables, if no timeline marks them; None if the tables have
    none.

    The table of kernels has the time of each step's work, the table of steps the host's
    lead before it. A step that only the latter lists has its parts as written.
    """
    rows = {row.number: row for row in table or ()}
    table_of_kernels = KernelTable.of(kernels or ())
    present = (table_of_kernels.numbers["step"] != NO_NUMBER) & (
        table_of_kernels.start != NO_NUMBER
    )
    owned = table_of_kernels.select(present)
    if not len(owned):
        # The table of steps ascribes the time of copies to the parts without kernels.
        return (
            tuple(row._replace(preparing_ns=_preparing(row)) for row in rows.values())
            or None
        )
    numbers = owned.steps

    def work_out() -> tuple[ProfilerStep, ...]:
        step = np.searchsorted(np.array(numbers), owned.numbers["step"]).astype(
            np.int32
        )
        first = np.full(len(numbers), _LATEST)
        np.minimum.at(first, step, owned.start)
        marks = []
        for step_number, begin in zip(numbers, first.tolist()):
            preparing = _preparing(rows.get(step_number))
            marks.append(
                ProfilerStep(
                    step_number, None if preparing is None else begin - preparing
                )
            )
        return device_steps(
            marks, work, _owners(work, owned.start, step), copies=copies
        )

    return LaterSteps(len(numbers), work_out)


def shows_copies(events: EventTable) -> bool:
    """Whether copies on the device would be among the events.

    A table of kernels has no row for a copy (sample msinsight-910B-alexnet-2501), so it
    alone does not show them; nor do events derived from it, which are all kernels and
    marks of steps.
    """
    kernels = events.of_kind(*KERNEL_KINDS)
    derived = events.of_kind(*KERNEL_KINDS, "annotation")
    return len(events) > len(derived) and (
        len(kernels) > 0 or len(events.of_kind("copy")) > 0
    )


def _preparing(row: ProfilerStep | None) -> int | None:
    """None for a time below zero, which builds before March 2026 may write, and which
    is meaningless.
    """
    if row is None or row.preparing_ns is None or row.preparing_ns < 0:
        return None
    return row.preparing_ns


def _owners(work: EventTable, starts: IntColumn, steps: Codes) -> Codes:
    """The position of each event's step: of the kernel that starts when it does, and a
    copy's of the kernel before it.
    """
    if np.array_equal(starts, work.start) and (starts[1:] > starts[:-1]).all():
        owners = steps.copy()
    else:
        # Of several kernels that start at once the last row of the table counts.
        at, last = np.unique(starts[::-1], return_index=True)
        step_at = steps[::-1][last]
        place = np.minimum(np.searchsorted(at, work.start), at.size - 1)
        owners = np.where(at[place] == work.start, step_at[place], OUTSIDE)
    if not work.is_kind("copy").any():
        return owners
    order = np.argsort(work.start, kind="stable")
    is_kernel = ~work.is_kind("copy")[order]
    before = np.maximum.accumulate(np.where(is_kernel, np.arange(order.size), -1))
    owners[order] = np.where(before < 0, OUTSIDE, owners[order][before])
    return owners
