"""Assign each event of a device to its call or step, by its launch on the host, and
count the work of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfgate.trace.model.arithmetic import (
    Codes,
    IntColumn,
    Intervals,
    Mask,
    counts_by_name,
    group_rows,
)
from perfgate.trace.model.events import DEVICE_KINDS, KINDS, EventKind, EventTable
from perfgate.trace.model.launches import (
    NO_CORRELATION,
    NOT_RECORDED,
    launch_positions,
)
from perfgate.trace.model.patterns import lazy_pattern

OUTSIDE = -1
_NEVER = int(np.iinfo(np.int64).max)
# The counters that a recording of a device gives, by metric name.
KERNELS = "counters.kernels"
FORMAT_CONVERSIONS = "counters.format_conversions"
DEVICE_COPIES = "counters.device_copies"
COLLECTIVES = "counters.collectives"
KERNEL_METRICS = (KERNELS, FORMAT_CONVERSIONS, DEVICE_COPIES, COLLECTIVES)

# TransData on Ascend (also as trans_TransData_3 if the profiler knows no types; sample
# msinsight-910B-alexnet-2501), and cuDNN's nchwToNhwcKernel and nhwcToNchwKernel.
_FORMAT_CONVERSION = lazy_pattern(r"transdata|nchwtonhwc|nhwctonchw", re.IGNORECASE)
# Launching one kernel: Node@launch of CANN, cudaLaunchKernel, cuLaunchKernelEx,
# hipLaunchKernel …
KERNEL_LAUNCH = lazy_pattern(r"Node@launch|(cuda|hip|cu)\w*LaunchKernel")


class WorkItem(NamedTuple):
    """Something that runs: ``compute``, ``copy`` or ``comm`` on a device, ``host_op``
    on a CPU; and its type, or its name.
    """

    kind: EventKind
    name: str


Work = Counter[WorkItem]


def work_by_span(events: EventTable, spans: Intervals) -> list[Work]:
    """The device's work for each span, in the order of the spans, which must be sorted
    and must not overlap.
    """
    device = events.of_kind(*DEVICE_KINDS)
    owners = span_of(device, spans, launches=events.of_kind("runtime"))
    works = [Work() for _ in range(spans.start.size)]
    count_work(works, device, owners)
    return works


def count_work(works: Sequence[Work], events: EventTable, owners: Codes) -> None:
    """Add events to the work of their spans; ``owners`` are the numbers of the spans,
    event by event.
    """
    first, row = group_rows(owners, events.kind, events.group)
    order = np.argsort(first)
    counts, first = counts_by_name(row, first.size)[order], first[order]
    # One item for all spans: there are as many of them as kernels in a step, and of
    # steps thousands.
    first_of_item, item = group_rows(events.kind[first], events.group[first])
    items = [
        WorkItem(KINDS[events.kind[at]], events.names[events.group[at]])
        for at in first[first_of_item].tolist()
    ]
    for owner, number, count in zip(
        owners[first].tolist(), item.tolist(), counts.tolist()
    ):
        if owner != OUTSIDE:
            works[owner][items[number]] += count


def span_of(events: EventTable, spans: Intervals, *, launches: EventTable) -> IntColumn:
    """The number of the span that each event belongs to, OUTSIDE for none.

    Work belongs to the span in which the host launched it, if the trace links the two:
    the device may run it when the host is already in a later call. Else it belongs to
    the span in which it began, unless it was launched before the recording.
    """
    return span_at(launch_times(events, launches), spans)


class LaunchTimes(NamedTuple):
    """When the host launched each event, or it began if its launch was not recorded;
    and which events were launched before the recording.
    """

    time: IntColumn
    before: Mask


def launch_times(events: EventTable, launches: EventTable) -> LaunchTimes:
    launch = launch_positions(events.correlation, launches.correlation, launches.start)
    launched = starts_of_launches(events.start, launch, launches)
    return LaunchTimes(
        launched_or_began(events, launched),
        launched_before(events, launched, launches.correlation),
    )


def span_at(launched: LaunchTimes, spans: Intervals) -> IntColumn:
    """As ``span_of``."""
    number = np.searchsorted(spans.start, launched.time, side="right") - 1
    # Events before the first span have number -1, and so the last end.
    ends = np.append(spans.end, np.iinfo(np.int64).min)
    number[(launched.time >= ends[number]) | launched.before] = OUTSIDE
    return number


def launched_before(work: EventTable, launched: IntColumn, calls: Codes) -> Mask:
    """The work that was in the queue of the device when the recording began: its launch
    is not recorded, its number is below those of all recorded ``calls``, and its stream
    runs it before all work with a launch. ``launched`` is as of ``starts_of_launches``.

    torch.profiler does not wait for the device before it records the first step. In
    five recordings of CUDA and ROCm (HTA, TraceLens) 3,426 of 3,426 such events have
    numbers just below the first call's.
    """
    joined = launched != NOT_RECORDED
    first = np.full(len(work.tracks), _NEVER)
    np.minimum.at(first, work.track[joined], work.start[joined])
    first[first == _NEVER] = -_NEVER  # a stream without any launch
    numbers = calls[calls > NO_CORRELATION].astype(np.int64)
    least = numbers.min(initial=_NEVER)
    before: Mask = ~joined & (work.correlation > NO_CORRELATION)
    before &= (work.correlation < least) & (work.start < first[work.track])
    return before


def launched_or_began(work: EventTable, launched: IntColumn) -> IntColumn:
    """The time at which each event was launched or, if its launch was not recorded,
    began.
    """
    return np.where(launched == NOT_RECORDED, work.start, launched)


def launch_starts(work: EventTable, launches: EventTable) -> IntColumn:
    """For each event of a device the nanosecond at which the host began to launch it,
    or NOT_RECORDED.
    """
    launch = launch_positions(work.correlation, launches.correlation, launches.start)
    return starts_of_launches(work.start, launch, launches)


def starts_of_launches(begun: IntColumn, launch: Codes, calls: EventTable) -> IntColumn:
    """The nanosecond at which the host began to launch work that began at ``begun``, or
    NOT_RECORDED.

    ``launch`` is the position of its call, or NOT_RECORDED. A launch of length zero at
    the very moment of its kernel is the profiler's placeholder, as in PrivateUse1
    runtimes (sample torch-native-privateuse1), and carries no information.
    """
    starts = np.full(begun.size, NOT_RECORDED, dtype=np.int64)
    joined = np.flatnonzero(launch != NOT_RECORDED)
    call = launch[joined]
    started = calls.start[call]
    real = (calls.duration[call] > 0) | (started != begun[joined])
    starts[joined[real]] = started[real]
    return starts


def is_format_conversion(name: str) -> bool:
    """Whether a kernel, by its type or name, only brings a tensor into another layout
    or format.
    """
    return _FORMAT_CONVERSION.search(name) is not None
