"""``perfgate trace``: the largest costs, the idle gaps of devices, and the lengths of steps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfgate import trace
from perfgate.document.message import Message
from perfgate.document.trace import (
    CauseTotal,
    GapDocument,
    GapRow,
    GapTimeline,
    PhaseTotal,
    SlowestRank,
    StepDocument,
    StepRow,
    StepTimeline,
    TopDocument,
    TopKey,
    TopRow,
    TopTimeline,
)
from perfgate.errors import UsageError
from perfgate.flows.trace.choice import Choice
from perfgate.system.memory import keep_freed_memory
from perfgate.trace.analysis.comparable import cut_ends
from perfgate.trace.analysis.fillers import gap_groups
from perfgate.trace.analysis.gaps import CAUSES, Gaps, device_gaps
from perfgate.trace.analysis.phases import FORWARD, Batch, batches
from perfgate.trace.analysis.rows import TopOperator, top
from perfgate.trace.model.arithmetic import seconds
from perfgate.trace.model.faults import aligned, believed
from perfgate.trace.model.recording import ProfilerStep, Recording, Timeline
from perfgate.trace.model.steps import profiler_steps
from perfgate.trace.readers.contradictions import doubts_about

_NS = 1e9
_MOST_NAMED = 8
_NOTHING = Message("trace.nothing-collected")
_NO_DEVICE = Message("trace.nothing-on-device")
_NO_TIMELINE = Message("trace.no-timeline")
_NO_STEPS = Message("trace.no-steps")


class ChosenTimeline(NamedTuple):
    """A timeline, and the recording it is from."""

    recording: Recording
    timeline: Timeline


def trace_top(path: Path, choice: Choice, *, by: TopKey, host: bool, longer: float | None = None) -> TopDocument:
    """The rows of every chosen timeline; with ``longer``, only those of single runs longer than that many seconds.

    Raises UsageError and DocumentError with a remedy.
    """
    chosen = choose(path, choice)
    return TopDocument(
        format=format_of(chosen),
        by=by,
        timelines=[top_timeline(pick, choice, by, host, longer) for pick in chosen],
        notes=notes_of(chosen),
    )


def trace_gaps(path: Path, choice: Choice, *, exposed: bool, shortest: float) -> GapDocument:
    """The gaps of every chosen timeline that last ``shortest`` seconds or longer."""
    chosen = choose(path, choice)
    timelines = [gap_timeline(pick, choice, exposed, round(shortest * _NS)) for pick in chosen]
    return GapDocument(format=format_of(chosen), timelines=timelines, notes=notes_of(chosen))


def trace_steps(path: Path, choice: Choice, *, step_by: str | None = None) -> StepDocument:
    """The steps of every chosen timeline, or its annotations that match ``step_by``.

    Raises UsageError for an invalid regular expression.
    """
    try:
        re.compile(step_by or "")
    except re.error as error:
        raise UsageError(
            "--step-by {step_by!r} is not a regular expression: {error}",
            step_by=step_by,
            error=error,
        ) from error
    chosen = choose(path, choice)
    timelines = [step_timeline(pick, choice, step_by) for pick in chosen]
    cut = [note for pick in chosen for note in _cut_ends(pick.timeline)]
    return StepDocument(
        format=format_of(chosen),
        slowest_rank=_slowest(pick.timeline for pick in chosen),
        timelines=timelines,
        notes=[*notes_of(chosen), *cut],
    )


def _cut_ends(timeline: Timeline) -> Iterator[Message]:
    if cut := cut_ends(timeline):
        named = ", ".join(f"{name} ({count})" for name, count, _ in cut[:_MOST_NAMED])
        yield Message("notes.cut-ends", {"usual": cut[0][2], "named": named})


def notes_of(chosen: Sequence[ChosenTimeline]) -> list[Message]:
    """What cannot be true or is missing first: losses, impossible times, contradictions, then the recordings' other notes."""
    recordings = list({id(pick.recording): pick.recording for pick in chosen}.values())
    lost = [note for recording in recordings if recording.loss for note in recording.notes]
    others = [note for recording in recordings if not recording.loss for note in recording.notes]
    several = len(recordings) > 1
    labels = [f"{pick.recording.path.name}, " * several + pick.timeline.label for pick in chosen]
    doubts = doubts_about(list(zip(labels, (pick.timeline for pick in chosen))))
    return [*lost, *doubts, *others]


def choose(path: Path, choice: Choice) -> list[ChosenTimeline]:
    """The chosen timelines. Raises UsageError if a recording holds none of them."""
    timelines = [
        ChosenTimeline(recording, timeline) for recording in recordings_of(path) for timeline in recording.timelines
    ]
    chosen = [
        pick
        for pick in timelines
        if choice.rank in (None, pick.timeline.rank) and choice.device in (None, pick.timeline.device)
    ]
    if not chosen:
        there = "; ".join(dict.fromkeys(pick.timeline.label for pick in timelines)) or "nothing"
        raise UsageError(
            "{path}: no timeline of that rank and device; it holds: {there}",
            path=path,
            there=there,
        )
    return chosen


def recordings_of(path: Path) -> list[Recording]:
    """Read a recording, or the stored traces of a perfgate run."""
    if path.is_dir() and (path / "head" / "run.json").is_file():
        raise UsageError(
            "{path} holds the runs of two sides; name {head} or {base}",
            path=path,
            head=path / "head",
            base=path / "base",
        )
    keep_freed_memory()
    document = path / "run.json" if path.is_dir() else path
    if document.name != "run.json" or not document.is_file():
        return [trace.salvage(path)]
    # Importing schemas and drawing takes longer than reading a small recording.
    from perfgate.document.files import read_run
    from perfgate.flows.shared.trees import artifact_path

    traces = [artifact.path for artifact in read_run(document).artifacts if artifact.kind == "trace"]
    if not traces:
        raise UsageError(
            "{document}: this run kept no trace; the step top-ops records one: perfgate run --steps 4",
            document=document,
        )
    return [trace.read(artifact_path(document, name)) for name in traces]


def format_of(chosen: Sequence[ChosenTimeline]) -> str:
    return ", ".join(sorted({pick.recording.format for pick in chosen}))


def top_row(row: TopOperator, base_ns: int) -> TopRow:
    """An operator with its share of a time."""
    return TopRow(
        name=row.name,
        kind=row.kind,
        count=row.count,
        total=row.total_ns / _NS,
        share=row.total_ns / base_ns if base_ns else None,
        shapes=row.shapes,
        operator=row.operator,
    )


def top_timeline(pick: ChosenTimeline, choice: Choice, by: TopKey, host: bool, longer: float | None) -> TopTimeline:
    table = top(pick.timeline, by=by, host=host, longer_ns=None if longer is None else round(longer * _NS))
    nothing = _NOTHING if longer is None else Message("trace.none-longer", {"seconds": longer})
    rows = [top_row(row, table.base_ns) for row in table.rows[: choice.limit]]
    return TopTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        side=table.side,
        base=table.base_ns / _NS,
        rows_in_all=len(table.rows),
        rows=rows,
        reason=None if rows else nothing,
    )


def gap_timeline(pick: ChosenTimeline, choice: Choice, exposed: bool, shortest_ns: int) -> GapTimeline:
    known = believed(pick.timeline.events)
    events = aligned(known)
    device = device_gaps(events, exposed=exposed)
    if device is None:
        return GapTimeline(
            path=str(pick.recording.path),
            rank=pick.timeline.rank,
            device=pick.timeline.device,
            origin_ns=None,
            window=None,
            busy=None,
            gaps_in_all=0,
            causes=[],
            gaps=[],
            reason=_NO_TIMELINE if pick.timeline.tells_of_device else pick.recording.absent.get("device", _NO_DEVICE),
        )
    origin = int(events.start.min())
    gaps = device.gaps.select(device.gaps.duration >= shortest_ns)
    longest = gaps.longest(choice.limit)
    return GapTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        origin_ns=origin,
        window=(device.end_ns - device.start_ns) / _NS,
        busy=device.busy_ns / _NS,
        gaps_in_all=len(gaps),
        causes=_causes(device.end_ns - device.start_ns, gaps),
        gaps=[
            GapRow(start=(gap.start_ns - origin) / _NS, duration=gap.duration_ns / _NS, cause=gap.cause)
            for gap in longest
        ],
        groups=gap_groups(events, device, uncertain=events is not known)[: choice.limit],
    )


def _causes(window_ns: int, gaps: Gaps) -> list[CauseTotal]:
    totals = []
    for code, cause in enumerate(CAUSES):
        lengths = gaps.duration[gaps.cause == code]
        if lengths.size:
            total = int(lengths.sum())
            totals.append(CauseTotal(cause=cause, count=lengths.size, total=total / _NS, share=total / window_ns))
    return sorted(totals, key=lambda one: -one.total)


def step_timeline(pick: ChosenTimeline, choice: Choice, step_by: str | None) -> StepTimeline:
    # A serving engine may also mark profiler steps, one a batch, which tell no phases.
    found = batches(pick.timeline.events, step_by)
    steps: Sequence[ProfilerStep] = () if step_by else pick.timeline.steps or ()
    if not found and not steps and not step_by:
        found = batches(pick.timeline.events, FORWARD)
    if found:
        steps = profiler_steps(pick.timeline.events, [batch.mark for batch in found]) or ()
    starts = [step.start_ns for step in steps if step.start_ns is not None]
    events = believed(pick.timeline.events)
    origin = int(events.start.min()) if len(events) else min(starts, default=None)
    return StepTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        origin_ns=origin,
        steps_in_all=len(steps),
        steps=[
            _step(step, origin, batch) for step, batch in zip(steps[: choice.limit], found or itertools.repeat(None))
        ],
        reason=None if steps else pick.recording.absent.get("steps", _NO_STEPS),
        phases=_phases(steps, found),
    )


def _phases(steps: Sequence[ProfilerStep], found: Sequence[Batch]) -> list[PhaseTotal]:
    by_phase: dict[str, list[tuple[ProfilerStep, Batch]]] = {}
    for step, batch in zip(steps, found):
        if batch.phase:
            by_phase.setdefault(batch.phase, []).append((step, batch))
    return [
        PhaseTotal(
            phase=phase,
            count=len(of_phase),
            length=seconds(_median(step.length_ns for step, _ in of_phase)),
            computing=seconds(_median(step.computing_ns for step, _ in of_phase)),
            free=seconds(_median(step.free_ns for step, _ in of_phase)),
            requests=_median(batch.requests for _, batch in of_phase),
        )
        for phase, of_phase in by_phase.items()
    ]


def _median(numbers: Iterable[int | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.median(known)) if known else None


def _step(step: ProfilerStep, origin: int | None, batch: Batch | None) -> StepRow:
    return StepRow(
        number=step.number,
        start=None if step.start_ns is None or origin is None else (step.start_ns - origin) / _NS,
        length=seconds(step.length_ns),
        computing=seconds(step.computing_ns),
        communication=seconds(step.communication_ns),
        exposed_communication=seconds(step.exposed_communication_ns),
        exposed_copies=seconds(step.exposed_copies_ns),
        fused=step.fused_ns / _NS if step.fused_ns else None,
        preparing=seconds(step.preparing_ns),
        free=seconds(step.free_ns),
        phase=batch.phase if batch else None,
        requests=batch.requests if batch else None,
    )


def _slowest(timelines: Iterable[Timeline]) -> SlowestRank | None:
    import statistics  # only this command needs these

    from perfgate.trace.analysis.ranks import FEWEST_RANKS, SLOW_RANK

    own: dict[int, float] = {}
    for timeline in timelines:
        lengths = [own_ns for step in timeline.steps or () if (own_ns := step.own_ns) is not None]
        if timeline.rank is not None and lengths:
            # The slowest of several devices of one rank makes the others wait.
            own[timeline.rank] = max(own.get(timeline.rank, 0.0), statistics.median(lengths))
    rank = max(own, key=lambda rank_number: (own[rank_number], -rank_number), default=None)
    if rank is None or len(own) < FEWEST_RANKS or own[rank] <= SLOW_RANK * statistics.median_low(own.values()):
        return None
    return SlowestRank(rank=rank, own=own[rank] / _NS, behind=(own[rank] - min(own.values())) / _NS)
