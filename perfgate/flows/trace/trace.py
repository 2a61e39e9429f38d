"""``perfgate trace``: the largest costs, the idle gaps of devices, and the lengths of
steps.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
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
from perfgate.system.memory import keep_freed_memory
from perfgate.trace.analysis.gaps import CAUSES, Gaps, device_gaps
from perfgate.trace.analysis.rows import TopOperator, top
from perfgate.trace.model.arithmetic import seconds
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.faults import aligned, believed, time_faults
from perfgate.trace.model.recording import ProfilerStep, Recording, Timeline
from perfgate.trace.model.steps import profiler_steps
from perfgate.trace.readers.contradictions import doubts_about

if TYPE_CHECKING:
    from perfgate.trace.analysis.phases import Batch


_NS = 1e9
_MOST_NAMED = 8
_NOTHING = Message("trace.nothing-collected")
_NO_DEVICE = Message("trace.nothing-on-device")
_NO_TIMELINE = Message("trace.no-timeline")
_NO_STEPS = Message("trace.no-steps")


class Choice(NamedTuple):
    """The timelines to show, and the number of rows of each; None means all."""

    rank: int | None = None
    device: int | None = None
    limit: int | None = None


class ChosenTimeline(NamedTuple):
    """A timeline, and the recording it is from."""

    recording: Recording
    timeline: Timeline


def trace_top(
    path: Path, choice: Choice, *, by: TopKey, host: bool, longer: float | None
) -> TopDocument:
    """The rows of every chosen timeline; with ``longer``, only rows of single runs
    longer than that number of seconds.

    Raises UsageError and DocumentError with a remedy.
    """
    chosen = choose(path, choice)
    return TopDocument(
        format=format_of(chosen),
        by=by,
        timelines=[top_timeline(pick, choice, by, host, longer) for pick in chosen],
        notes=notes_of(chosen),
    )


def trace_gaps(
    path: Path, choice: Choice, *, exposed: bool, shortest: float
) -> GapDocument:
    """The gaps of every chosen timeline that last ``shortest`` seconds or longer."""
    chosen = choose(path, choice)
    timelines = [
        gap_timeline(pick, choice, exposed, round(shortest * _NS)) for pick in chosen
    ]
    return GapDocument(
        format=format_of(chosen), timelines=timelines, notes=notes_of(chosen)
    )


def trace_steps(path: Path, choice: Choice, *, step_by: str | None) -> StepDocument:
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
    notes = notes_of(chosen)
    for pick in chosen:
        notes += _cut_ends(pick.timeline)
    return StepDocument(
        format=format_of(chosen),
        slowest_rank=_slowest(pick.timeline for pick in chosen),
        timelines=timelines,
        notes=notes,
    )


def _cut_ends(timeline: Timeline) -> list[Message]:
    """A note on units at the begin and the end that have less work than usual; empty if
    there are none.
    """
    from perfgate.trace.analysis.comparable import cut_ends

    cut = cut_ends(timeline)
    if not cut:
        return []
    names = [f"{unit.name} ({unit.pieces})" for unit in cut[:_MOST_NAMED]]
    return [
        Message("notes.cut-ends", {"usual": cut[0].usual, "named": ", ".join(names)})
    ]


def notes_of(chosen: Sequence[ChosenTimeline]) -> list[Message]:
    """Losses, impossible times and contradictions come first, then the other notes of
    the recordings.
    """
    recordings = {id(pick.recording): pick.recording for pick in chosen}
    losses: list[Message] = []
    caveats: list[Message] = []
    for recording in recordings.values():
        losses += recording.incomplete
        if recording.loss:
            losses += recording.notes
        else:
            caveats += recording.notes
    labelled = []
    for recording, timeline in chosen:
        label = timeline.label
        if len(recordings) > 1:
            label = f"{recording.path.name}, {label}"
        labelled.append((label, timeline))
    return [*losses, *doubts_about(labelled), *caveats]


def several_recordings(chosen: Sequence[ChosenTimeline]) -> bool:
    """Whether the timelines come from more than one recording, so that their names need
    its name.
    """
    return len({pick.recording.path for pick in chosen}) > 1


def numbered(labels: Iterable[str]) -> list[str]:
    """The labels, with a number from the second of one name on: a folder may hold the
    cycles of a profiler.
    """
    recordings: Counter[str] = Counter()
    distinct = []
    for label in labels:
        recordings[label] += 1
        number = recordings[label]
        distinct.append(label if number == 1 else f"{label}, recording {number}")
    return distinct


def choose(path: Path, choice: Choice) -> list[ChosenTimeline]:
    """The chosen timelines. Raises UsageError if a recording holds none of them."""
    chosen = []
    labels: dict[str, None] = {}
    for recording in recordings_of(path):
        for timeline in recording.timelines:
            labels[timeline.label] = None
            is_rank = choice.rank in (None, timeline.rank)
            if is_rank and choice.device in (None, timeline.device):
                chosen.append(ChosenTimeline(recording, timeline))
    if not chosen:
        there = "; ".join(labels) or "nothing"
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

    traces = [artifact.path for artifact in read_run(document).traces]
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


def _without_impossible_share(row: TopRow) -> TopRow:
    """The row without a share above 100 %, of events that overlap in a stream."""
    if row.share is None or row.share <= 1:
        return row
    return msgspec.structs.replace(row, share=None)


def top_timeline(
    pick: ChosenTimeline, choice: Choice, by: TopKey, host: bool, longer: float | None
) -> TopTimeline:
    reason = _NOTHING
    longer_ns = None
    if longer is not None:
        reason = Message("trace.none-longer", {"seconds": longer})
        longer_ns = round(longer * _NS)
    table = top(pick.timeline, by=by, host=host, longer_ns=longer_ns)
    rows = [top_row(row, table.base_ns) for row in table.rows[: choice.limit]]
    if table.side == "device" and time_faults(pick.timeline.events).overlapping.size:
        rows = [_without_impossible_share(row) for row in rows]
    return TopTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        side=table.side,
        base=table.base_ns / _NS,
        rows_in_all=len(table.rows),
        rows=rows,
        reason=None if rows else reason,
    )


def gap_timeline(
    pick: ChosenTimeline, choice: Choice, exposed: bool, shortest_ns: int
) -> GapTimeline:
    from perfgate.trace.analysis.gaps import gap_groups

    intact = believed(pick.timeline.events)
    events = aligned(intact)
    device = device_gaps(events, exposed=exposed)
    if device is None:
        return _without_gaps(pick)
    origin = int(events.start.min())
    gaps = device.gaps.select(device.gaps.duration >= shortest_ns)
    rows = []
    for gap in gaps.longest(choice.limit):
        start = (gap.start_ns - origin) / _NS
        rows.append(
            GapRow(start=start, duration=gap.duration_ns / _NS, cause=gap.cause)
        )
    groups = gap_groups(events, device, uncertain=events is not intact)
    return GapTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        origin_ns=origin,
        window=device.window_ns / _NS,
        busy=device.busy_ns / _NS,
        gaps_in_all=len(gaps),
        causes=_causes(device.window_ns, gaps),
        gaps=rows,
        groups=groups[: choice.limit],
    )


def _without_gaps(pick: ChosenTimeline) -> GapTimeline:
    """The answer for a timeline that shows no work of a device, with the reason."""
    reason = pick.recording.absent.get("device", _NO_DEVICE)
    if pick.timeline.tells_of_device:
        reason = _NO_TIMELINE
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
        reason=reason,
    )


def _causes(window_ns: int, gaps: Gaps) -> list[CauseTotal]:
    totals = []
    for code, cause in enumerate(CAUSES):
        lengths = gaps.duration[gaps.cause == code]
        if lengths.size:
            total = int(lengths.sum())
            totals.append(
                CauseTotal(
                    cause=cause,
                    count=lengths.size,
                    total=total / _NS,
                    share=total / window_ns,
                )
            )
    return sorted(totals, key=lambda cause: -cause.total)


def step_timeline(
    pick: ChosenTimeline, choice: Choice, step_by: str | None
) -> StepTimeline:
    from perfgate.trace.analysis.phases import FORWARD, batches

    recorded = pick.timeline.events
    # A serving engine may also mark profiler steps, one a batch, which name no phases.
    marked = batches(recorded, step_by)
    steps: Sequence[ProfilerStep] = ()
    if not step_by:
        steps = pick.timeline.steps or ()
    if not marked and not steps and not step_by:
        marked = batches(recorded, FORWARD)
    if marked:
        steps = profiler_steps(recorded, [batch.mark for batch in marked]) or ()
    reason = None
    if not steps:
        reason = pick.recording.absent.get("steps", _NO_STEPS)
    origin = _origin(recorded, steps)
    rows = []
    for step, batch in zip(steps[: choice.limit], marked or itertools.repeat(None)):
        rows.append(_step(step, origin, batch))
    return StepTimeline(
        path=str(pick.recording.path),
        rank=pick.timeline.rank,
        device=pick.timeline.device,
        origin_ns=origin,
        steps_in_all=len(steps),
        steps=rows,
        reason=reason,
        phases=_phases(steps, marked),
    )


def _origin(recorded: EventTable, steps: Sequence[ProfilerStep]) -> int | None:
    """The start of the first event, else of the first step."""
    events = believed(recorded)
    if len(events):
        return int(events.start.min())
    starts = [step.start_ns for step in steps if step.start_ns is not None]
    return min(starts, default=None)


def _phases(steps: Sequence[ProfilerStep], marked: Sequence[Batch]) -> list[PhaseTotal]:
    steps_of: dict[str, list[ProfilerStep]] = defaultdict(list)
    requests_of: dict[str, list[int | None]] = defaultdict(list)
    for step, batch in zip(steps, marked):
        if batch.phase:
            steps_of[batch.phase].append(step)
            requests_of[batch.phase].append(batch.requests)
    totals = []
    for phase, in_phase in steps_of.items():
        total = PhaseTotal(
            phase=phase,
            count=len(in_phase),
            length=seconds(_median(step.length_ns for step in in_phase)),
            computing=seconds(_median(step.computing_ns for step in in_phase)),
            free=seconds(_median(step.free_ns for step in in_phase)),
            requests=_median(requests_of[phase]),
        )
        totals.append(total)
    return totals


def _median(numbers: Iterable[int | None]) -> float | None:
    intact = [number for number in numbers if number is not None]
    return float(np.median(intact)) if intact else None


def _step(step: ProfilerStep, origin: int | None, batch: Batch | None) -> StepRow:
    row = StepRow(
        number=step.number,
        start=None,
        length=seconds(step.length_ns),
        computing=seconds(step.computing_ns),
        communication=seconds(step.communication_ns),
        exposed_communication=seconds(step.exposed_communication_ns),
        exposed_copies=seconds(step.exposed_copies_ns),
        fused=step.fused_ns / _NS if step.fused_ns else None,
        preparing=seconds(step.preparing_ns),
        free=seconds(step.free_ns),
    )
    if step.start_ns is not None and origin is not None:
        row = msgspec.structs.replace(row, start=(step.start_ns - origin) / _NS)
    if batch is not None:
        row = msgspec.structs.replace(row, phase=batch.phase, requests=batch.requests)
    return row


def _slowest(timelines: Iterable[Timeline]) -> SlowestRank | None:
    import statistics  # only this command needs these

    from perfgate.trace.analysis.ranks import FEWEST_RANKS, SLOW_RANK

    own: dict[int, float] = {}
    for timeline in timelines:
        lengths = [step.own_ns for step in timeline.steps or ()]
        intact = [length for length in lengths if length is not None]
        if timeline.rank is not None and intact:
            # The slowest of several devices of one rank makes the others wait.
            own[timeline.rank] = max(
                own.get(timeline.rank, 0.0), statistics.median(intact)
            )
    if len(own) < FEWEST_RANKS:
        return None
    slowest = max(own, key=lambda rank: (own[rank], -rank))
    if own[slowest] <= SLOW_RANK * statistics.median_low(own.values()):
        return None
    return SlowestRank(
        rank=slowest,
        own=own[slowest] / _NS,
        behind=(own[slowest] - min(own.values())) / _NS,
    )
