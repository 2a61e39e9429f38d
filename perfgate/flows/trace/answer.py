"""``perfgate trace REC``: the bottleneck of the device, the largest costs, and the
operators and lines that cause them.
"""

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
    DiffTimeline,
    StepSpread,
    StepTimeline,
    TopRow,
    TopTimeline,
    WindowPart,
    WindowPartName,
)
from perfgate.flows.trace.diff import trace_diff
from perfgate.flows.trace.trace import (
    Choice,
    ChosenTimeline,
    choose,
    format_of,
    gap_timeline,
    notes_of,
    step_timeline,
    top_timeline,
)
from perfgate.trace.analysis.gaps import CAUSES, device_gaps
from perfgate.trace.analysis.rows import host_kinds
from perfgate.trace.analysis.stacks import NO_LAUNCHER, Launchers, launchers, stacks_of
from perfgate.trace.model.arithmetic import joined, union
from perfgate.trace.model.events import DEVICE_KINDS, EventKind, EventTable
from perfgate.trace.model.faults import believed

_NS = 1e9
_SHOWN = 3


def trace_answer(path: Path, choice: Choice, *, base: Path | None) -> AnswerDocument:
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
    steps = step_timeline(pick, Choice(), None)
    answer = AnswerTimeline(
        gaps=gap_timeline(pick, choice, False, 0),
        top=_with_launchers(top, launched),
        window=None,
        busy=None,
        parts=[],
        bound=None,
        communication=None,
        exposed=None,
        copies=None,
        exposed_copies=None,
        concurrent=None,
        has_lines=launched.has_lines,
        steps=_spread(steps),
        phases=steps.phases,
    )
    work = _work(events)
    if work is not None:
        return _with_work(answer, work, _parts(events, work), _concurrent(events))
    work = _work_of_steps(steps)
    if work is None:
        return answer
    concurrent = None
    if len(events):
        concurrent = _concurrent(events)
    return _with_work(
        answer,
        work,
        _shares({**work.alone, "unknown": _total(steps, "free")}),
        concurrent,
    )


def _with_work(
    answer: AnswerTimeline,
    work: _Work,
    parts: list[WindowPart],
    concurrent: float | None,
) -> AnswerTimeline:
    """The answer with the times of a device."""
    answer = msgspec.structs.replace(
        answer,
        communication=work.communication,
        exposed=work.alone["communication"],
        copies=work.copies,
        exposed_copies=work.alone["copies"],
        concurrent=concurrent,
    )
    if not parts:
        return answer
    busy = sum(part.time for part in parts if part.part in work.alone)
    return msgspec.structs.replace(
        answer,
        top=_shares_of(answer.top, busy),
        window=sum(part.time for part in parts),
        busy=busy,
        parts=parts,
        bound=parts[0].part,
    )


def _shares_of(top: TopTimeline, busy: float) -> TopTimeline:
    """The rows with shares of the busy time: a table of kernels lacks the collectives
    that a table of steps counts.
    """
    if top.side != "device" or busy <= top.base:
        return top
    rows = []
    for row in top.rows:
        share = None if row.share is None else row.total / busy
        rows.append(msgspec.structs.replace(row, share=share))
    return msgspec.structs.replace(top, base=busy, rows=rows)


def _changes(base: Path, head: Path, choice: Choice) -> DiffDocument:
    """The changes since ``base``: half of the rows for other work, the others for the
    largest changes of time.

    Two recordings of one program run the same work, but on a busy machine any of its
    times may differ by more than a change of the program causes.
    """
    document = trace_diff([base], [head], choice._replace(limit=None))
    timelines: list[DiffTimeline] = []
    for timeline in document.timelines:
        rows = _other_work_first(timeline.rows, choice.limit or _SHOWN)
        timelines.append(msgspec.structs.replace(timeline, rows=rows))
    return msgspec.structs.replace(document, timelines=timelines)


def _other_work_first(rows: Sequence[DiffRow], limit: int) -> list[DiffRow]:
    """Up to half of the rows are of other work, most time first; the rest have the
    largest changes of time.
    """
    other_work = [row for row in rows if row.change not in ("slower", "faster")]
    other_work.sort(key=_most_time, reverse=True)
    retimed = len(rows) - len(other_work)
    chosen = other_work[: max(limit // 2, limit - retimed)]
    chosen += [row for row in rows if row not in chosen]
    return chosen[:limit]


def _most_time(row: DiffRow) -> float:
    times = [0.0]
    for cost in (row.base, row.head):
        if cost is not None:
            times.append(cost.time)
    return max(times)


class _Work(NamedTuple):
    """Seconds in which collectives and copies ran, and seconds of each kind of work
    outside those listed before it.

    The time of copies is None if they were not recorded.
    """

    communication: float
    copies: float | None
    alone: dict[WindowPartName, float]


# Each counts only outside computing and the kinds before it.
_BEHIND_COMPUTING: tuple[tuple[WindowPartName, EventKind], ...] = (
    ("fused", "fused"),
    ("communication", "comm"),
    ("copies", "copy"),
)


def _work(events: EventTable) -> _Work | None:
    """None if no work ran on a device."""
    if not events.is_work.any():
        return None
    covered = union(events.of_kind("compute").intervals)
    alone: dict[WindowPartName, float] = {"computing": covered.length / _NS}
    lengths: dict[WindowPartName, float] = {}
    for name, kind in _BEHIND_COMPUTING:
        own = union(events.of_kind(kind).intervals)
        before = covered
        covered = union(joined(before, own))
        lengths[name] = own.length / _NS
        alone[name] = (covered.length - before.length) / _NS
    return _Work(lengths["communication"], lengths["copies"], alone)


def _work_of_steps(timeline: StepTimeline) -> _Work | None:
    """The same from the profiler's table of steps, for recordings without a timeline."""
    for step in timeline.steps:
        if step.computing is None or step.exposed_communication is None:
            return None
    if not timeline.steps:
        return None
    alone: dict[WindowPartName, float] = {
        "computing": _total(timeline, "computing"),
        "fused": _total(timeline, "fused"),
        "communication": _total(timeline, "exposed_communication"),
        "copies": _total(timeline, "exposed_copies"),
    }
    return _Work(_total(timeline, "communication"), None, alone)


def _total(timeline: StepTimeline, part: str) -> float:
    """The seconds of a part of all steps."""
    return sum(getattr(step, part) or 0.0 for step in timeline.steps)


def _parts(events: EventTable, work: _Work) -> list[WindowPart]:
    """The work of the device and the causes of its gaps; empty if all its work has no
    length.
    """
    device = device_gaps(events)
    if device is None:
        return []
    times = dict(work.alone)
    idle = (
        np.bincount(
            device.gaps.cause, weights=device.gaps.duration, minlength=len(CAUSES)
        )
        / _NS
    )
    for cause, time in zip(CAUSES, idle.tolist()):
        if time:
            times[cast("WindowPartName", cause)] = time
    return _shares(times)


def _shares(times: dict[WindowPartName, float]) -> list[WindowPart]:
    """The parts that took any time, the longest first."""
    window = sum(times.values())
    parts = [
        WindowPart(part=part, time=time, share=time / window)
        for part, time in times.items()
        if time > 0
    ]
    return sorted(parts, key=lambda part: -part.time)


def _concurrent(events: EventTable) -> float:
    """The seconds in which two or more kernels computed at once."""
    spans = events.of_kind("compute").intervals
    times = np.concatenate([spans.start, spans.end])
    steps = np.repeat([1, -1], spans.start.size)
    order = np.lexsort((steps, times))
    is_open = np.cumsum(steps[order])
    lengths = np.diff(times[order])
    return int(lengths[is_open[:-1] > 1].sum()) / _NS


def _with_launchers(top: TopTimeline, launched: Launchers) -> TopTimeline:
    """The rows, each with the operator and the line that launched most of it."""
    events = launched.events
    codes = {events.names[code]: code for code in np.unique(events.group).tolist()}
    rows: list[TopRow] = []
    for row in top.rows:
        own = launched.select(events.group == codes.get(row.name, NO_LAUNCHER))
        everything = np.zeros(len(own.events), dtype=np.int32)
        (operator,) = own.heaviest(own.operator, everything, 1)
        (line,) = own.heaviest(own.line, everything, 1)
        if operator == row.name:
            operator = None
        rows.append(msgspec.structs.replace(row, operator=operator, line=line))
    return msgspec.structs.replace(top, rows=rows)


def _spread(timeline: StepTimeline) -> StepSpread | None:
    """None if no steps are known."""
    lengths: list[float] = []
    longest = 0.0
    slowest = None
    for step in timeline.steps:
        if step.length is None:
            continue
        if not lengths or step.length > longest:
            longest = step.length
            slowest = step.number
        lengths.append(step.length)
    if not lengths:
        return None
    return StepSpread(
        count=len(lengths),
        median=statistics.median(lengths),
        shortest=min(lengths),
        longest=longest,
        slowest=slowest,
    )
