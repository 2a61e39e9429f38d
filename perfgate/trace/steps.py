"""Steps of a recording, and what the device did in each: parts in nanoseconds that add up to the step's length exactly.

A step begins where the host began it, or where the device had done the step before. It ends when the last of its work on the
device has ended. This is the same whatever the steps are read from: a timeline, an export or tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import IntColumn, Intervals, joined, union, union_length
from perfgate.trace.events import DEVICE_KINDS, KERNEL_KINDS, EventKind, EventTable
from perfgate.trace.kernel_table import NO_NUMBER, KernelTable
from perfgate.trace.recording import Kernel, ProfilerStep, TabledStep
from perfgate.trace.spans import OUTSIDE, span_of

# What torch.profiler and torch_npu.profiler name the span between two calls of step().
STEP_NAME = re.compile(r"ProfilerStep#(\d{1,18})")
_LATEST = int(np.iinfo(np.int64).max)


class Mark(NamedTuple):
    """When the host was in a step or a call, by the recording's clock; ``start_ns`` is None where nothing says."""

    number: int | None
    start_ns: int | None
    end_ns: int | None = None


def step_number(name: str) -> int | None:
    """The number of a step by the name of its span; None for every other name."""
    match = STEP_NAME.fullmatch(name)
    return int(match[1]) if match else None


def step_marks(events: EventTable, *kinds: EventKind) -> list[Mark]:
    """The spans ``ProfilerStep#N`` of the host, in time order; annotations unless other kinds are given."""
    marks = events.of_kind(*(kinds or ("annotation",)))
    marks = marks.select(marks.is_named(STEP_NAME.fullmatch))
    rows = zip(marks.name.tolist(), marks.start.tolist(), marks.end.tolist())
    steps = [Mark(step_number(marks.names[name]), start, end) for name, start, end in rows]
    return sorted(steps, key=lambda mark: mark.start_ns or 0)


def profiler_steps(events: EventTable, marks: Sequence[Mark] | None = None) -> tuple[ProfilerStep, ...] | None:
    """The steps that the host marked, in time order; None where it marked none.

    Work belongs to the step that launched it. Where the device shows no work at all, a step has a length and no parts.
    """
    marks = step_marks(events) if marks is None else marks
    if not marks:
        return None
    work = events.of_kind(*DEVICE_KINDS)
    if not len(work):
        return tuple(ProfilerStep(mark.number, mark.start_ns, mark.end_ns) for mark in marks)
    return device_steps(marks, work, span_of(work, windows_of(marks), launches=events.of_kind("runtime")))


def windows_of(marks: Iterable[Mark]) -> Intervals:
    """When the host was in each of some steps whose begin and end are known."""
    table = np.array([(mark.start_ns, mark.end_ns) for mark in marks], dtype=np.int64).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 1])


def device_steps(
    marks: Sequence[Mark], work: EventTable, owners: IntColumn, *, copies: bool = True
) -> tuple[ProfilerStep, ...]:
    """What the device did in each step; ``owners`` are the positions of the events' steps among the marks.

    ``copies`` says whether copies would have been recorded: else their time is in that before the first kernel and in the
    free time.
    """
    first, last = np.full(len(marks), _LATEST), np.full(len(marks), -_LATEST)
    inside = owners != OUTSIDE
    np.minimum.at(first, owners[inside], work.start[inside])
    np.maximum.at(last, owners[inside], work.end[inside])
    device = _Device(work, copies=copies)
    steps: list[ProfilerStep] = []
    for mark, first_ns, last_ns in zip(marks, first.tolist(), last.tolist()):
        start = _start(mark, steps[-1] if steps else None)
        idle = last_ns == -_LATEST
        if idle and (start is None or mark.end_ns is None):
            steps.append(ProfilerStep(mark.number))
        elif start is None:
            steps.append(device.step(mark.number, first_ns, last_ns)._replace(start_ns=None, preparing_ns=None))
        else:
            # Where the device had nothing to do, the step is as long as the host was in it.
            end = mark.end_ns if idle and mark.end_ns is not None else last_ns
            steps.append(device.step(mark.number, start, max(end, start)))
    return tuple(steps)


def _start(mark: Mark, before: ProfilerStep | None) -> int | None:
    """What passes between two steps that follow each other belongs to the later one."""
    if before is None or before.end_ns is None:
        return mark.start_ns
    if mark.number is not None and before.number is not None and mark.number == before.number + 1:
        return before.end_ns
    return None if mark.start_ns is None else max(mark.start_ns, before.end_ns)


class _Device:
    """When a device computed, sent and copied: sorted and disjoint stretches."""

    def __init__(self, work: EventTable, *, copies: bool) -> None:
        self._computing = union(work.of_kind("compute").intervals)
        self._communication = union(work.of_kind("comm").intervals)
        self._kernels = union(work.of_kind(*KERNEL_KINDS).intervals)
        self._copies = union(work.of_kind("copy").intervals) if copies else None

    def step(self, number: int | None, start: int, end: int) -> ProfilerStep:
        """The parts of a window, which add up to it."""
        computing, kernels = (_within(covered, start, end) for covered in (self._computing, self._kernels))
        first = int(kernels.start[0]) if kernels.start.size else start
        copied = copied_before = None
        if self._copies is not None:
            copying = _within(self._copies, start, end)
            copied = union_length(joined(kernels, copying)) - kernels.length
            copied_before = _within(copying, start, first).length
        preparing = first - start - (copied_before or 0)
        exposed = kernels.length - computing.length
        return ProfilerStep(
            number=number,
            start_ns=start,
            end_ns=end,
            computing_ns=computing.length,
            communication_ns=_within(self._communication, start, end).length,
            exposed_communication_ns=exposed,
            exposed_copies_ns=copied,
            preparing_ns=preparing,
            free_ns=end - start - computing.length - exposed - (copied or 0) - preparing,
        )


def _within(covered: Intervals, start: int, end: int) -> Intervals:
    """The parts of sorted, disjoint intervals inside a window."""
    first = int(np.searchsorted(covered.end, start, side="right"))
    last = int(np.searchsorted(covered.start, end, side="left"))
    return Intervals(np.maximum(covered.start[first:last], start), np.minimum(covered.end[first:last], end))


def steps_of_tables(
    kernels: Sequence[Kernel] | None, work: EventTable, table: Sequence[TabledStep] | None, *, copies: bool
) -> tuple[ProfilerStep, ...] | None:
    """The steps that tables tell, where no timeline marks them; None where they tell of none.

    The table of kernels says when each step's work ran, that of steps how long before it the host began. A step that only
    the latter tells of has its parts as they are written.
    """
    rows = {row.number: row for row in table or ()}
    table_of_kernels = KernelTable.of(kernels or ())
    number, start = table_of_kernels.numbers["step"], table_of_kernels.start
    known = (number != NO_NUMBER) & (start != NO_NUMBER)
    owned = table_of_kernels.select(known)
    if not len(owned):
        return tuple(_as_written(row) for row in rows.values()) or None
    numbers, step = np.unique(number[known], return_inverse=True)
    first = np.full(numbers.size, _LATEST)
    np.minimum.at(first, step.reshape(-1), owned.start)
    marks = []
    for step_number, begin in zip(numbers.tolist(), first.tolist()):
        preparing = _preparing(rows.get(step_number))
        marks.append(Mark(step_number, None if preparing is None else begin - preparing))
    return device_steps(marks, work, _owners(work, owned.start, step.reshape(-1)), copies=copies)


def shows_copies(events: EventTable) -> bool:
    """Whether copies on the device would be among the events.

    A table of kernels has no row for a copy (sample msinsight-910B-alexnet-2501), so it alone says nothing of them; nor do
    events that were made of it, which are all kernels.
    """
    kernels = events.of_kind(*KERNEL_KINDS)
    return len(events) > len(kernels) > 0 or len(events.of_kind("copy")) > 0


def _preparing(row: TabledStep | None) -> int | None:
    """None for a time below zero, which builds of before March 2026 may write, and which tells nothing."""
    return None if row is None or row.preparing_ns is None or row.preparing_ns < 0 else row.preparing_ns


def _owners(work: EventTable, starts: IntColumn, steps: IntColumn) -> IntColumn:
    """The position of each event's step: of the kernel that starts when it does, and a copy's of the kernel before it."""
    # Of several kernels that start at once the last one of the table counts.
    at, last = np.unique(starts[::-1], return_index=True)
    place = np.minimum(np.searchsorted(at, work.start), at.size - 1)
    owners = np.where(at[place] == work.start, steps[::-1][last][place], OUTSIDE)
    order = np.argsort(work.start, kind="stable")
    is_kernel = ~work.is_kind("copy")[order]
    before = np.maximum.accumulate(np.where(is_kernel, np.arange(order.size), -1))
    owners[order] = np.where(before < 0, OUTSIDE, owners[order][before])
    return owners


def _as_written(row: TabledStep) -> ProfilerStep:
    """A row of the table of steps, which ascribes the time of copies to the parts that are no kernel's."""
    return ProfilerStep(
        number=row.number,
        computing_ns=row.computing_ns,
        communication_ns=row.communication_ns,
        exposed_communication_ns=row.exposed_communication_ns,
        free_ns=row.free_ns,
        preparing_ns=_preparing(row),
    )
