"""Summary of each device of a recording: its profiler steps, the work in each of them,
and its duration.

Values that the recording does not hold are None, never guesses. Times are integer
nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from perfgate.trace.analysis.operators import OperatorTotal, operator_totals
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    Codes,
    Intervals,
    distinct_rows,
    total_groups,
)
from perfgate.trace.model.events import (
    CALL,
    DEVICE_KINDS,
    KERNEL_KINDS,
    NO_TEXT,
    EventKind,
    EventTable,
)
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.kernel_table import CodedValues, KernelTable, kernel_table
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.recording import ProfilerStep, Timeline
from perfgate.trace.model.spans import (
    COLLECTIVES,
    DEVICE_COPIES,
    KERNEL_METRICS,
    OUTSIDE,
    Work,
    WorkItem,
    count_work,
    span_of,
)
from perfgate.trace.model.steps import (
    STEP_NAME,
    MarkedSteps,
    profiler_steps,
    shows_copies,
    step_marks,
    windows_of,
)

Unit = Literal["profiler step", "call", "whole recording"]


class StepTotals(NamedTuple):
    """Nanoseconds of all steps together: their length, and the parts that add up to it
    (all but ``communication_ns``).
    """

    length_ns: int
    computing_ns: int
    fused_ns: int
    communication_ns: int
    exposed_communication_ns: int
    exposed_copies_ns: int | None
    preparing_ns: int
    free_ns: int


class OwnedEvents(NamedTuple):
    """Events, and the number of the span that each belongs to, OUTSIDE for none."""

    events: EventTable
    owners: Codes

    def inside(self) -> EventTable:
        """The events that belong to a span."""
        inside = self.owners != OUTSIDE
        if inside.all():
            return self.events
        return self.events.select(inside)

    def when(self, span: int, *kinds: EventKind) -> Intervals:
        """The intervals in which events of these kinds ran for a span."""
        return self.events.select(self.owners == span).of_kind(*kinds).intervals


@dataclass(frozen=True)
class DeviceSummary:
    """One device of one rank, under the name it has in documents.

    ``spans`` is the number of recordings of the ``unit``; ``steps`` has one entry per
    span, or none for a whole recording. ``totals`` are the kernels, or the framework
    operators if ``on_host`` is set, and ``counted`` is the number of events they come
    from. The counters in ``absent`` were not recorded. ``collectives`` are the
    nanoseconds spent in each kind of collective, over all spans. ``work`` is event by
    event: the kernels first, then copies if a table of kernels lacks them.
    """

    shape: str
    timeline: Timeline
    unit: Unit
    spans: int
    on_host: bool
    totals: tuple[OperatorTotal, ...]
    counted: int
    works: tuple[Work, ...]
    absent: frozenset[str]
    steps: tuple[ProfilerStep, ...]
    collectives: Counter[str]
    work: tuple[OwnedEvents, ...]

    def lengths(self) -> list[int] | None:
        """The nanoseconds of each span; None if one of them is unknown, or none takes
        any time.
        """
        lengths = [step.length_ns for step in self.steps]
        if None in lengths or not any(lengths):
            return None
        return cast("list[int]", lengths)

    def parts(self) -> StepTotals | None:
        """The parts of all spans of the device together; None if the parts of any span
        are unknown.
        """
        lengths = self.lengths()
        parts = dict(zip(ProfilerStep._fields, zip(*self.steps)))
        if lengths is None or None in parts["computing_ns"]:
            return None
        totals: dict[str, Any] = {"length_ns": sum(lengths)}
        for part in StepTotals._fields[1:]:
            totals[part] = sum(filter(None, parts[part]))
        if None in parts["exposed_copies_ns"]:
            totals["exposed_copies_ns"] = None
        return StepTotals(**totals)

    def kernels(self) -> KernelTable:
        """The rows of the table of kernels that belong to a span; empty if there is no
        such table.
        """
        rows = self.timeline.kernel_columns
        if not len(rows):
            return rows
        return rows.select(self.work[0].owners != OUTSIDE)

    @property
    def kernel_table(self) -> KernelTable:
        """The rows of ``kernels`` without collectives."""
        rows = self.kernels()
        return rows.select(~rows.is_collective)


# The units of a recording, in order. Profiler steps have numbers; either all units have
# times of the host, or none has.
_Spans = Sequence[ProfilerStep]


def summarize(timelines: Sequence[Timeline]) -> list[DeviceSummary]:
    return [
        _summarize(timeline, shape)
        for timeline, shape in zip(timelines, shape_names(timelines))
    ]


def kernels_of(timeline: Timeline) -> KernelTable:
    """The kernels that ran for the profiler steps or calls of a recording, including
    collectives.

    Without a table of kernels they come from the device's events, which have only a
    name and a duration.
    """
    _, spans = _spans(timeline)
    if timeline.kernels is not None:
        return timeline.kernel_columns.select(_owners(timeline, spans) != OUTSIDE)
    events = _by_time(timeline.events.of_kind(*KERNEL_KINDS), timeline, spans).inside()
    texts = Numbering(events.names)
    core = np.where(events.is_kind("comm"), texts["COMMUNICATION"], NO_TEXT)
    return kernel_table(
        {"start_ns": events.start, "duration_ns": events.duration},
        {"name": events.name, "type": events.group, "core": core},
        CodedValues(texts),
    )


def shape_names(timelines: Sequence[Timeline]) -> list[str]:
    """The names of the timelines in a document: their rank if that is unique, else rank
    and device.

    A device's number depends on the placement of the job, so two recordings of one
    program may differ in it.
    """
    ranks = [timeline.rank for timeline in timelines]
    if ranks == [None]:
        return ["all"]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return [f"rank {rank}" for rank in ranks]
    recordings: Counter[str] = Counter()
    names = []
    for timeline in timelines:
        recordings[timeline.label] += 1
        # Two recordings of one rank: the profiler's schedule was repeated.
        number = recordings[timeline.label]
        name = timeline.label
        if number > 1:
            name = f"{name}, recording {number}"
        names.append(name)
    return names


def _summarize(timeline: Timeline, shape: str) -> DeviceSummary:
    unit, spans = _spans(timeline)
    on_host = not _device_work(timeline, spans) and not timeline.tells_of_device
    work_of = _host_work if on_host else _device_work
    parts = work_of(timeline, spans)
    works = _works(parts, spans)
    if len(works) > 1 and not works[-1] and any(works):
        # The profiler was stopped right after step(), so the last step is empty (sample
        # mi250).
        spans = spans[:-1]
        parts = work_of(timeline, spans)
        works = _works(parts, spans)
    if not parts:
        works = _collective_works(timeline, spans)
    totals = []
    counted = 0
    for part in parts:
        events = part.inside()
        totals += operator_totals(events, calls=len(spans))
        counted += len(events)
    return DeviceSummary(
        shape=shape,
        timeline=timeline,
        unit=unit,
        spans=len(spans),
        on_host=on_host,
        totals=tuple(sorted(totals, key=lambda total: (-total.typical_ns, total.name))),
        counted=counted,
        works=tuple(works),
        absent=_absent(timeline, spans, parts, on_host=on_host),
        steps=_steps(timeline, unit, spans, on_host=on_host),
        collectives=_collective_times(timeline, parts),
        work=tuple(parts),
    )


def _spans(timeline: Timeline) -> tuple[Unit, _Spans]:
    """The profiler steps, else the calls of perfgate's own trace, else the whole
    recording.
    """
    marks = step_marks(timeline.events, "annotation", "host_op")
    numbers = {step.number for step in timeline.steps or () if step.number is not None}
    if marks and numbers <= {mark.number for mark in marks}:
        return "profiler step", marks
    windows = _step_windows(timeline, marks)
    present = sorted(numbers or windows.keys() or timeline.kernel_columns.steps)
    if present and windows.keys() >= set(present):
        return "profiler step", [windows[number] for number in present]
    if present:
        return "profiler step", [ProfilerStep(number) for number in present]
    calls = timeline.events.named(CALL).of_kind("annotation")
    if len(calls):
        times = sorted(zip(calls.start.tolist(), calls.end.tolist()))
        return "call", [ProfilerStep(None, start, end) for start, end in times]
    return "whole recording", [ProfilerStep(None)]


def _are_timed(spans: _Spans) -> bool:
    return spans[0].start_ns is not None


def _step_windows(
    timeline: Timeline, marks: Sequence[ProfilerStep]
) -> dict[int, ProfilerStep]:
    """The interval of each numbered profiler step on the host, else on the device."""
    windows = {}
    for step in timeline.steps or ():
        if (
            step.number is not None
            and step.start_ns is not None
            and step.end_ns is not None
        ):
            windows[step.number] = ProfilerStep(step.number, step.start_ns, step.end_ns)
    for mark in marks:
        if mark.number is not None:
            windows[mark.number] = mark
    return windows


def _device_work(timeline: Timeline, spans: _Spans) -> list[OwnedEvents]:
    """The work of the device: the table of kernels, if there is one, and the copies,
    which it never contains.
    """
    if timeline.kernels is None:
        parts = [_by_time(timeline.events.of_kind(*DEVICE_KINDS), timeline, spans)]
    else:
        copies = _by_time(timeline.events.of_kind("copy"), timeline, spans)
        parts = [_by_step(timeline, spans), copies]
    return [part for part in parts if len(part.events)]


def _host_work(timeline: Timeline, spans: _Spans) -> list[OwnedEvents]:
    ops = timeline.events.of_kind("host_op")
    # In 2021 torch.profiler's steps were operators.
    return [_by_time(ops.select(~ops.is_named(STEP_NAME.fullmatch)), timeline, spans)]


def _works(parts: Iterable[OwnedEvents], spans: _Spans) -> list[Work]:
    works = [Work() for _ in spans]
    for part in parts:
        count_work(works, part.events, part.owners)
    return works


def _by_time(events: EventTable, timeline: Timeline, spans: _Spans) -> OwnedEvents:
    """Assign events to spans by launch time; if the times of spans are unknown, a
    single span owns all events.
    """
    if _are_timed(spans):
        launches = timeline.events.of_kind("runtime")
        return OwnedEvents(
            events, span_of(events, windows_of(spans), launches=launches)
        )
    return OwnedEvents(events, np.full(len(events), _only_span(spans), dtype=np.int64))


def _only_span(spans: _Spans) -> int:
    """The position of the only span, which owns everything; OUTSIDE if there are
    several.
    """
    return 0 if len(spans) == 1 else OUTSIDE


def _by_step(timeline: Timeline, spans: _Spans) -> OwnedEvents:
    """The rows of the table of kernels as events of the steps that own them."""
    table = timeline.kernel_columns
    # Rows without a start would nest in each other on a shared track.
    row = np.where(table.start == NO_NUMBER, np.arange(len(table)), NO_NUMBER)
    cores, streams = table.codes["core"], table.numbers["stream"]
    first, track = distinct_rows([cores, streams, row])
    processes = (*table.texts, "")  # NO_TEXT is the last place
    tracks = []
    for number, (core, stream) in enumerate(
        zip(cores[first].tolist(), streams[first].tolist())
    ):
        tracks.append((processes[core], f"{stream} {number}"))
    events = replace(table.events, track=track, tracks=tuple(tracks))
    return OwnedEvents(events, _owners(timeline, spans))


def _owners(timeline: Timeline, spans: _Spans) -> Codes:
    """The step of each kernel according to the profiler; by time if the profiler names
    no steps at all.
    """
    table = timeline.kernel_columns
    if not table.steps:
        return _by_time(table.events, timeline, spans).owners
    positions = _positions(spans)
    numbers, row = np.unique(table.numbers["step"], return_inverse=True)
    owners = [positions.get(number, OUTSIDE) for number in numbers.tolist()]
    return np.array(owners, dtype=np.int32)[row]


def _positions(spans: _Spans) -> dict[int | None, int]:
    """The positions of numbered steps."""
    positions = {step.number: position for position, step in enumerate(spans)}
    positions.pop(None, None)
    return positions


def _absent(
    timeline: Timeline, spans: _Spans, device: Sequence[OwnedEvents], *, on_host: bool
) -> frozenset[str]:
    """The counters that the recording cannot give."""
    if on_host:
        return frozenset(KERNEL_METRICS)
    if not device and timeline.collectives:
        return frozenset(KERNEL_METRICS) - {COLLECTIVES}
    if not device:
        return frozenset(KERNEL_METRICS)
    if shows_copies(timeline.events) and (_are_timed(spans) or len(spans) == 1):
        return frozenset()
    return frozenset({DEVICE_COPIES})


def _steps(
    timeline: Timeline, unit: Unit, spans: _Spans, *, on_host: bool
) -> tuple[ProfilerStep, ...]:
    """The steps of the recording, or equivalent entries for perfgate's own calls; empty
    if it marks neither.
    """
    if unit == "whole recording":
        return ()
    if unit == "call":
        return profiler_steps(timeline.events, spans) or ()
    if on_host or timeline.steps is None:
        return tuple(spans)
    if isinstance(timeline.steps, MarkedSteps):
        # A number may stand for several steps, of several cycles of the profiler.
        of_mark = dict(zip(timeline.steps.marks, timeline.steps))
        return tuple(of_mark.get(step, step) for step in spans)
    on_device = {step.number: step for step in timeline.steps}
    return tuple(on_device.get(step.number, step) for step in spans)


def _collective_works(timeline: Timeline, spans: _Spans) -> list[Work]:
    """Collectives counted from their own table; used if there is no other source."""
    works = [Work() for _ in spans]
    positions = _positions(spans)
    for collective in timeline.collectives or ():
        owner = positions.get(collective.step, _only_span(spans))
        if owner != OUTSIDE:
            works[owner][WorkItem("comm", type_by_name(collective.name))] += 1
    return works


def _collective_times(
    timeline: Timeline, device: Sequence[OwnedEvents]
) -> Counter[str]:
    """The nanoseconds of each kind of collective: from their own table, else from
    kernels.
    """
    times: Counter[str] = Counter()
    if timeline.collectives is not None:
        for collective in timeline.collectives:
            times[type_by_name(collective.name)] += collective.elapsed_ns or 0
        return times
    for part in device:
        events = part.inside().of_kind("comm")
        for group in total_groups(events.duration, events.group):
            times[events.names[events.group[group.first]]] += group.total
    return times
