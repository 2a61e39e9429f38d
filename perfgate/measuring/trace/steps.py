"""Profiler steps of a timeline, and what its device did in each: exact nanoseconds that add up to the step."""

from __future__ import annotations

import re
from typing import Optional

import numpy as np

from perfgate.measuring.trace.analysis import IntColumn, Intervals, exposed_length, union, union_length
from perfgate.measuring.trace.events import DEVICE_KINDS, EventKind, EventTable
from perfgate.measuring.trace.launches import launch_starts, launched_or_began
from perfgate.measuring.trace.recording import ProfilerStep

# What torch.profiler and torch_npu.profiler name the span between two calls of step().
STEP_NAME = re.compile(r"ProfilerStep#(\d{1,18})")


def profiler_steps(events: EventTable) -> Optional[tuple[ProfilerStep, ...]]:
    """Return the steps that annotations ``ProfilerStep#N`` of the host mark, in time order; None where there are none.

    The device runs behind the host. As in PyTorch's TensorBoard plugin a step therefore lasts until what was launched in
    it has ended, and the next one begins there; what no launch is recorded for belongs to the step in which it began.
    Computing, exposed communication and free time add up to the step. A copy counts as free time, as Ascend's profiler has
    it. Where the device shows no work at all, a step has no parts.
    """
    numbers = {code: int(match[1]) for code, name in enumerate(events.names) if (match := STEP_NAME.fullmatch(name))}
    marks = events.of_kind("annotation")
    marks = marks.select(np.isin(marks.name, list(numbers)))
    if not len(marks):
        return None
    marks = marks.select(np.argsort(marks.start, kind="stable"))
    work = events.of_kind(*DEVICE_KINDS)
    starts, ends = _windows(marks, work, launch_starts(work, events.of_kind("runtime")))
    spans = zip((numbers[code] for code in marks.name.tolist()), starts, ends)
    if not len(work):
        return tuple(ProfilerStep(number, start, end) for number, start, end in spans)
    computing, communication = _covered(work, "compute"), _covered(work, "comm")
    return tuple(_step(number, start, end, computing, communication) for number, start, end in spans)


def _windows(marks: EventTable, work: EventTable, launched: IntColumn) -> tuple[list[int], list[int]]:
    """Return where each step starts and ends when the device's part is taken to it."""
    began = launched_or_began(work, launched)
    owner = np.searchsorted(marks.start, began, side="right") - 1
    last = np.full(len(marks) + 1, np.iinfo(np.int64).min)
    # What belongs to no step (before the first, between two) gets the spare place.
    owner[(owner < 0) | (began >= marks.end[owner])] = len(marks)
    np.maximum.at(last, owner, work.end)
    ends = np.maximum.accumulate(np.maximum(marks.end, last[:-1]))
    starts = np.maximum(marks.start, np.concatenate((marks.start[:1], ends[:-1])))
    return starts.tolist(), np.maximum(ends, starts).tolist()


def _covered(work: EventTable, kind: EventKind) -> Intervals:
    return union(work.of_kind(kind).intervals)


def _step(number: int, start: int, end: int, computing: Intervals, communication: Intervals) -> ProfilerStep:
    computed, communicated = _within(computing, start, end), _within(communication, start, end)
    exposed = exposed_length(communicated, computed)
    busy = union_length(computed)
    return ProfilerStep(
        number=number,
        start_ns=start,
        end_ns=end,
        computing_ns=busy,
        communication_ns=union_length(communicated),
        exposed_communication_ns=exposed,
        free_ns=end - start - busy - exposed,
    )


def _within(covered: Intervals, start: int, end: int) -> Intervals:
    """Return the parts of sorted, disjoint intervals inside a window."""
    first = int(np.searchsorted(covered.end, start, side="right"))
    last = int(np.searchsorted(covered.start, end, side="left"))
    return Intervals(np.maximum(covered.start[first:last], start), np.minimum(covered.end[first:last], end))
