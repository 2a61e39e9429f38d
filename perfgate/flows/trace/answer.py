"""``perfgate trace REC``: the bottleneck of the device, the largest costs, and the operators and lines that cause them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np

from perfgate.document.trace import (
    AnswerDocument,
    AnswerTimeline,
    DiffDocument,
    DiffRow,
    StepSpread,
    StepTimeline,
    TopRow,
    TopTimeline,
    WindowPart,
    WindowPartName,
)
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.diff import trace_diff
from perfgate.flows.trace.job import (
    ChosenTimeline,
    choose,
    format_of,
    gap_timeline,
    notes_of,
    step_timeline,
    top_timeline,
)
from perfgate.trace.analysis.gaps import CAUSES, device_gaps
from perfgate.trace.analysis.lines import Launchers, launchers
from perfgate.trace.analysis.rows import host_kinds
from perfgate.trace.analysis.stacks import stacks_of
from perfgate.trace.model.arithmetic import Intervals, joined, union
from perfgate.trace.model.events import DEVICE_KINDS, EventKind, EventTable
from perfgate.trace.model.faults import believed

_NS = 1e9
_SHOWN = 3


def trace_answer(path: Path, choice: Choice, *, base: Path | None = None) -> AnswerDocument:
    """The overview of every chosen timeline, and its changes since ``base``.

    Raises UsageError and DocumentError with a remedy.
    """
    chosen = choose(path, choice)
    limited = choice._replace(limit=choice.limit or _SHOWN)
    return AnswerDocument(
        format=format_of(chosen),
        timelines=[_answer(pick, limited) for pick in chosen],
        changes=None if base is None else _changes(base, path, limited),
        notes=notes_of(chosen),
    )


def _answer(pick: ChosenTimeline, choice: Choice) -> AnswerTimeline:
    events = believed(pick.timeline.events)
    top = top_timeline(pick, choice, "type", False, None)
    kinds = DEVICE_KINDS if top.side == "device" else host_kinds(events)
    launched = launchers(stacks_of(pick.timeline.events, whole=True), kinds)
    work, steps = _work(events), step_timeline(pick, Choice(), None)
    parts = _parts(events, work)
    if work is None and (work := _work_of_steps(steps)) is not None:
        parts = _shares({**work.alone, "unknown": sum(step.free or 0.0 for step in steps.steps)})
    is_busy = {part for part, _ in _SORTS}
    busy = sum(part.time for part in parts if part.part in is_busy) if parts else None
    return AnswerTimeline(
        gaps=gap_timeline(pick, choice, False, 0),
        top=_shares_of(_with_launchers(top, launched), busy),
        window=sum(part.time for part in parts) if parts else None,
        busy=busy,
        parts=parts,
        bound=parts[0].part if parts else None,
        communication=work.communication if work else None,
        exposed=work.alone["communication"] if work else None,
        copies=work.copies if work else None,
        exposed_copies=work.alone["copies"] if work else None,
        concurrent=_concurrent(events.of_kind("compute").intervals) / _NS if len(events) and work else None,
        has_lines=launched.has_lines,
        steps=_spread(steps),
        phases=steps.phases,
    )


def _shares_of(top: TopTimeline, busy: float | None) -> TopTimeline:
    """The rows with shares of the busy time: a table of kernels lacks the collectives that a table of steps counts."""
    if busy is None or top.side != "device" or busy <= top.base:
        return top
    rows = [msgspec.structs.replace(row, share=row.total / busy) for row in top.rows]
    return msgspec.structs.replace(top, base=busy, rows=rows)


def _changes(base: Path, head: Path, choice: Choice) -> DiffDocument:
    """The changes since ``base``: half of the rows for other work, the others for the largest changes of time.

    Two recordings of one program run the same work, but on a busy machine any of its times may differ by more than a change of
    the program causes.
    """
    document = trace_diff([base], [head], choice._replace(limit=None))
    timelines = [
        msgspec.structs.replace(timeline, rows=_other_work_first(timeline.rows, choice.limit or _SHOWN))
        for timeline in document.timelines
    ]
    return msgspec.structs.replace(document, timelines=timelines)


def _other_work_first(rows: Sequence[DiffRow], limit: int) -> list[DiffRow]:
    """``rows`` are in the order of the change of time; those of other work that are chosen take the most time of all such."""
    other_work = [row for row in rows if row.change not in ("slower", "faster")]
    other_work.sort(key=lambda row: -max(cost.time for cost in (row.base, row.head) if cost is not None))
    first = other_work[: max(limit // 2, limit - (len(rows) - len(other_work)))]
    return [*first, *(row for row in rows if row not in first)][:limit]


class _Work(NamedTuple):
    """Seconds in which collectives and copies ran, and seconds of each kind of work outside those listed before it.

    The time of copies is None if they were not recorded.
    """

    communication: float
    copies: float | None
    alone: dict[WindowPartName, float]


_SORTS: tuple[tuple[WindowPartName, EventKind], ...] = (
    ("computing", "compute"),
    ("fused", "fused"),
    ("communication", "comm"),
    ("copies", "copy"),
)


def _work(events: EventTable) -> _Work | None:
    """None if nothing ran on a device."""
    if not events.is_kind(*DEVICE_KINDS).any():
        return None
    covered = union(events.of_kind("compute").intervals)
    alone: dict[WindowPartName, float] = {"computing": covered.length / _NS}
    lengths: dict[WindowPartName, float] = {}
    for name, kind in _SORTS[1:]:
        own = union(events.of_kind(kind).intervals)
        before, covered = covered, union(joined(covered, own))
        lengths[name], alone[name] = own.length / _NS, (covered.length - before.length) / _NS
    return _Work(lengths["communication"], lengths["copies"], alone)


def _work_of_steps(timeline: StepTimeline) -> _Work | None:
    """The same from the profiler's table of steps, for recordings without a timeline."""
    steps = [step for step in timeline.steps if step.computing is not None and step.exposed_communication is not None]
    if not steps or len(steps) < len(timeline.steps):
        return None
    alone: dict[WindowPartName, float] = {
        "computing": sum(step.computing or 0.0 for step in steps),
        "fused": sum(step.fused or 0.0 for step in steps),
        "communication": sum(step.exposed_communication or 0.0 for step in steps),
        "copies": sum(step.exposed_copies or 0.0 for step in steps),
    }
    return _Work(sum(step.communication or 0.0 for step in steps), None, alone)


def _parts(events: EventTable, work: _Work | None) -> list[WindowPart]:
    device = device_gaps(events)
    if work is None or device is None:
        return []
    idle = np.bincount(device.gaps.cause, weights=device.gaps.duration, minlength=len(CAUSES)) / _NS
    causes = {cause: time for cause, time in zip(CAUSES, idle.tolist()) if time}
    return _shares({**work.alone, **cast("dict[WindowPartName, float]", causes)})


def _shares(times: dict[WindowPartName, float]) -> list[WindowPart]:
    """The parts that took any time, the longest first."""
    window = sum(times.values())
    parts = [WindowPart(part=part, time=time, share=time / window) for part, time in times.items() if time > 0]
    return sorted(parts, key=lambda part: -part.time)


def _concurrent(spans: Intervals) -> int:
    """The nanoseconds in which two or more spans overlap."""
    times = np.concatenate([spans.start, spans.end])
    steps = np.repeat([1, -1], spans.start.size)
    order = np.lexsort((steps, times))
    is_open = np.cumsum(steps[order])
    return int(np.diff(times[order])[is_open[:-1] > 1].sum())


def _with_launchers(top: TopTimeline, launched: Launchers) -> TopTimeline:
    """The rows, each with the operator and the line that launched most of it."""
    events = launched.events
    places = {events.names[code]: code for code in np.unique(events.group).tolist()}

    def complete(row: TopRow) -> TopRow:
        own = launched.select(events.group == places.get(row.name, -1))
        everything = np.zeros(len(own.events), dtype=np.int32)
        (operator,) = own.heaviest(own.operator, everything, 1)
        (line,) = own.heaviest(own.line, everything, 1)
        return msgspec.structs.replace(row, operator=None if operator == row.name else operator, line=line)

    return msgspec.structs.replace(top, rows=[complete(row) for row in top.rows])


def _spread(timeline: StepTimeline) -> StepSpread | None:
    """None if no steps are known."""
    known = [(step.length, step.number) for step in timeline.steps if step.length is not None]
    if not known:
        return None
    longest, slowest = max(known, key=lambda step: step[0])
    lengths = [length for length, _ in known]
    return StepSpread(
        count=len(known), median=statistics.median(lengths), shortest=min(lengths), longest=longest, slowest=slowest
    )
