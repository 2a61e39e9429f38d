"""``perfgate trace diff``: the differences between the recordings of two sides, by
operator or by line.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.message import Message, distinct, english
from perfgate.document.trace import (
    DiffChange,
    DiffCost,
    DiffDocument,
    DiffKey,
    DiffRow,
    DiffTimeline,
    DiffTotals,
    TopKind,
)
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.trace.trace import (
    Choice,
    ChosenTimeline,
    choose,
    notes_of,
    several_recordings,
)
from perfgate.trace.analysis.comparable import (
    ComparablePart,
    comparable_part,
    with_units,
)
from perfgate.trace.analysis.rows import UnitWork, unit_work
from perfgate.trace.model.events import DEVICE_KINDS
from perfgate.trace.model.steps import shows_copies
from perfgate.trace.readers.contradictions import possible_losses

_NS = 1e9
# On a shared machine, an operator's time differs by this much between two recordings of
# one program.
TOLERANCE = 0.05
# The most names to keep of steps that are left out, and of replaced kernels per side.
_MOST_NAMES = 5
_THREADS = 2


def trace_diff(
    bases: Sequence[Path],
    heads: Sequence[Path],
    choice: Choice,
    *,
    tolerance: float = TOLERANCE,
    by: DiffKey = "operator",
) -> DiffDocument:
    """The differences in every timeline common to all recordings.

    Times are the same if their ratio is within ``tolerance`` of 1, and of several
    recordings if their ranges overlap. Raises UsageError if the recordings have no
    timeline in common, or one counts by steps and another cannot.
    """
    paths = [*bases, *heads]
    notes: list[Message] = []
    recordings = [_by_label(choose(path, choice), notes) for path in paths]
    if all(len(recording) == 1 for recording in recordings):
        recordings = _under_one_label(recordings, next(iter(recordings[len(bases)])))
    shared = _shared_labels(paths, recordings, recordings[len(bases)])
    timelines = []
    for label in shared:
        parts = [_comparable(recording[label], notes) for recording in recordings]
        picks = _with_the_same_steps(parts, notes)
        _refuse_lost_device(picks)
        works = _equally_whole(picks, _works(picks, by), notes)
        if by == "operator":
            works = _equally_fine(works, notes)
        before, after = works[: len(bases)], works[len(bases) :]
        _require_one_unit(label, before, after)
        timelines.append(_diff(label, before, after, choice, tolerance))
    labels: set[str] = set()
    every_pick: list[ChosenTimeline] = []
    for recording in recordings:
        labels.update(recording)
        every_pick += recording.values()
    return DiffDocument(
        base=list(map(str, bases)),
        head=list(map(str, heads)),
        by=by,
        tolerance=tolerance,
        timelines=timelines,
        unmatched=sorted(labels.difference(shared)),
        notes=[*notes_of(every_pick), *distinct(notes)],
    )


# The chosen timelines of one recording, or of the recordings in one folder, by name.
_Labelled = dict[str, ChosenTimeline]


def _by_label(chosen: Sequence[ChosenTimeline], notes: list[Message]) -> _Labelled:
    """The timelines by name, with a note on each that a folder has several of, such as
    the cycles of a profiler.
    """
    several = several_recordings(chosen)
    by_label: _Labelled = {}
    for pick in chosen:
        label = pick.timeline.label
        if several:
            label = f"{pick.recording.path.name}, {label}"
        if label in by_label:
            notes.append(
                Message(
                    "notes.timeline-repeats",
                    {"path": str(pick.recording.path), "label": label},
                )
            )
        else:
            by_label[label] = pick
    return by_label


def _under_one_label(recordings: Sequence[_Labelled], label: str) -> list[_Labelled]:
    """Recordings of one timeline each: they are compared whatever their ranks and
    devices are.
    """
    renamed = []
    for recording in recordings:
        (pick,) = recording.values()
        renamed.append({label: pick})
    return renamed


def _shared_labels(
    paths: Sequence[Path], recordings: Sequence[_Labelled], first: _Labelled
) -> list[str]:
    """The timelines that all recordings have, in the order of ``first``.

    Raises UsageError if there are none.
    """
    shared = list(first)
    for recording in recordings:
        shared = [label for label in shared if label in recording]
    if not shared:
        contents = [
            f"{path}: {', '.join(recording)}"
            for path, recording in zip(paths, recordings)
        ]
        raise UsageError(
            "no timeline is in all recordings ({held}); choose with --rank and --device",
            held="; ".join(contents),
        )
    return shared


class _ComparablePick(NamedTuple):
    """A timeline with its complete steps, and whether it lost events."""

    pick: ChosenTimeline
    part: ComparablePart
    lacks_events: bool

    @property
    def lacks_some(self) -> bool:
        return self.lacks_events or bool(self.part.left_out)


def _comparable(pick: ChosenTimeline, notes: list[Message]) -> _ComparablePick:
    """The complete steps of a timeline, with a note on the others.

    Raises DocumentError if work is missing and no step is known to be complete.
    """
    loss, path = pick.recording.loss, pick.recording.path
    lacks_events = (loss is not None and loss.is_of_events) or bool(
        possible_losses(pick.timeline)
    )
    part = comparable_part(
        pick.timeline,
        lacks_events=lacks_events,
        is_cut=loss is not None and loss.is_cut,
    )
    if not part.is_whole:
        raise _incomparable(pick)
    if part.left_out:
        count = len(part.left_out)
        units = count + len(part.names)
        names = ", ".join(part.left_out[:_MOST_NAMES])
        notes.append(
            Message(
                "notes.steps-left-out",
                {"path": str(path), "count": count, "units": units, "named": names},
            )
        )
    return _ComparablePick(pick._replace(timeline=part.timeline), part, lacks_events)


def _with_the_same_steps(
    parts: Sequence[_ComparablePick], notes: list[Message]
) -> list[ChosenTimeline]:
    """The timelines with the steps that all of them have, if any of them lacks some.

    Steps of one program differ, the first from all others: without the first on one
    side alone, the other looks slower.
    """
    if not any(comparable.lacks_some for comparable in parts):
        return [comparable.pick for comparable in parts]
    shared = set(parts[0].part.names)
    for comparable in parts[1:]:
        shared.intersection_update(comparable.part.names)
    picks = []
    for pick, part, _ in parts:
        timeline = with_units(part, shared)
        if timeline is not part.timeline:
            notes.append(
                Message("notes.same-steps-left-out", {"path": str(pick.recording.path)})
            )
        picks.append(pick._replace(timeline=timeline))
    return picks


def _refuse_lost_device(picks: Sequence[ChosenTimeline]) -> None:
    """Raises DocumentError for a file that is cut off before all work of a device, if
    another recording has some.
    """
    cut = []
    for pick in picks:
        has_work = pick.timeline.events.is_work.any()
        if (
            not has_work
            and pick.recording.loss is not None
            and pick.recording.loss.is_cut
        ):
            cut.append(pick)
    if cut and len(cut) < len(picks):
        raise _incomparable(cut[0])


def _incomparable(pick: ChosenTimeline) -> DocumentError:
    reasons = [english(note) for note in notes_of([pick])[:2]]
    return DocumentError(
        "{path}: {label} cannot be compared, because {why}, and no step of it is known to be complete; record it again",
        path=pick.recording.path,
        label=pick.timeline.label,
        why="; ".join(reasons),
    )


def _works(picks: Sequence[ChosenTimeline], by: DiffKey) -> list[UnitWork]:
    """The work of each recording, two at a time: most of it is loops that release
    Python's lock.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        # A thread has none of this one's settings, such as further patterns of
        # communication.
        tasks = [
            pool.submit(copy_context().run, unit_work, pick.timeline, by=by)
            for pick in picks
        ]
        return [task.result() for task in tasks]


def _require_one_unit(
    label: str, before: Sequence[UnitWork], after: Sequence[UnitWork]
) -> None:
    """Raises UsageError if times are of different amounts of work."""
    base, head = before[0].unit, after[-1].unit
    if base != head:
        raise UsageError(
            "{label}: base was recorded by {base} and head by {head}, so their times are of different amounts of "
            "work; record both alike",
            label=label,
            base=base,
            head=head,
        )
    units = {work.unit for work in (*before, *after)}
    if len(units) > 1:
        raise UsageError(
            "{label}: the recordings of one side count by {units}; record all alike",
            label=label,
            units=" and by ".join(sorted(units)),
        )


def _equally_whole(
    picks: Sequence[ChosenTimeline], works: list[UnitWork], notes: list[Message]
) -> list[UnitWork]:
    """The rows of the device, its copies, and those of the host, if all recordings show
    such work: what a profiler did not record was not removed.
    """
    kinds = [{row.kind for row in work.rows} for work in works]
    has_device = [not of_work.isdisjoint(DEVICE_KINDS) for of_work in kinds]
    shows_copy = []
    has_host = []
    for pick in picks:
        events = pick.timeline.events
        shows_copy.append(shows_copies(events))
        has_host.append(bool(events.is_kind("host_op").any()))
    if any(has_device) and not all(has_device):
        notes.append(Message("notes.device-on-one-side"))
        works = [_without(work, DEVICE_KINDS) for work in works]
    has_copies = any("copy" in of_work for of_work in kinds)
    if has_copies and not all(shows_copy):
        notes.append(Message("notes.copies-on-one-side"))
        works = [_without(work, ("copy",)) for work in works]
    if any(has_host) and not all(has_host):
        notes.append(Message("notes.host-on-one-side"))
        works = [_without(work, ("host",)) for work in works]
    return works


def _without(work: UnitWork, kinds: Collection[str]) -> UnitWork:
    return work._replace(rows=tuple(row for row in work.rows if row.kind not in kinds))


def _equally_fine(works: list[UnitWork], notes: list[Message]) -> list[UnitWork]:
    """Rows as fine as all recordings have them: without shapes, or without lines, if
    one recording has none.
    """
    without_shapes = _kinds_without_shapes(works)
    has_lines = set()
    for work in works:
        has_lines.add(any(row.line is not None for row in work.rows))
    without_lines = len(has_lines) > 1
    if without_shapes:
        notes.append(Message("notes.shapes-differ"))
    if without_lines:
        notes.append(Message("notes.lines-differ"))
    if not without_shapes and not without_lines:
        return works
    return [
        work._replace(rows=_merged(work.rows, without_shapes, without_lines))
        for work in works
    ]


def _kinds_without_shapes(works: Sequence[UnitWork]) -> set[str]:
    """The kinds that have shapes in some recordings and no shapes in others."""
    with_shapes: set[str] = set()
    bare: set[str] = set()
    for work in works:
        shaped = {row.kind for row in work.rows if row.inputs is not None}
        with_shapes |= shaped
        bare |= {row.kind for row in work.rows} - shaped
    return with_shapes & bare


def _merged(
    rows: Sequence[Work], without_shapes: set[str], without_lines: bool
) -> tuple[Work, ...]:
    """The rows without shapes of some kinds, or without lines; rows that are then alike
    are added up.
    """
    merged: dict[tuple[str | None, ...], Work] = {}
    for row in rows:
        coarse = row
        if row.kind in without_shapes:
            coarse = replace(coarse, inputs=None)
        if without_lines:
            coarse = replace(coarse, line=None)
        operator = None if coarse.line is None else row.launched_by
        key = row.operator, row.kind, coarse.inputs, coarse.line, operator
        first = merged.get(key)
        if first is not None:
            coarse = replace(
                first, amount=first.amount + row.amount, calls=first.calls + row.calls
            )
        merged[key] = coarse
    return tuple(merged.values())


class _SideRow(NamedTuple):
    """A row of one side: its medians over the recordings, and the time and the number of
    calls in each of them.
    """

    row: Work
    times: list[float]
    calls: list[float]


class _Pair(NamedTuple):
    """The rows of one operator or line on both sides; several if kernels were replaced."""

    base: Sequence[_SideRow]
    head: Sequence[_SideRow]
    change: DiffChange

    @property
    def delta(self) -> float:
        return _total(self.head) - _total(self.base)

    @property
    def first(self) -> Work:
        """The first row of head, else of base."""
        return (self.head or self.base)[0].row


def _total(sides: Sequence[_SideRow]) -> float:
    """The median over the recordings of the time of all rows together."""
    return statistics.median(_times(sides))


def _diff(
    label: str,
    before: Sequence[UnitWork],
    after: Sequence[UnitWork],
    choice: Choice,
    tolerance: float,
) -> DiffTimeline:
    pairs = _pairs(_side(before), _side(after), tolerance)
    changed = [pair for pair in pairs if pair.change != "same"]
    several = len(before) + len(after) > 2
    timeline = DiffTimeline(
        label=label,
        unit=before[0].unit,
        units=(before[0].units, after[0].units),
        base=_median_totals(before),
        head=_median_totals(after),
        rows_in_all=len(changed),
        same=len(pairs) - len(changed),
        rows=[_row(pair, several) for pair in changed[: choice.limit]],
    )
    if not several:
        return timeline
    base_each = [work.totals for work in before]
    head_each = [work.totals for work in after]
    return msgspec.structs.replace(timeline, base_each=base_each, head_each=head_each)


def _side(works: Sequence[UnitWork]) -> list[_SideRow]:
    """The rows of the recordings of one side, paired; a recording that lacks a row took
    no time for it.
    """
    rows = [_SideRow(row, [row.amount], [row.calls]) for row in works[0].rows]
    if len(works) == 1:
        return rows
    for number, work in enumerate(works[1:], start=1):
        side_of = {id(side.row): side for side in rows}
        joined = []
        for pair in align([side.row for side in rows], work.rows):
            times = calls = [0.0] * number
            if pair.base is not None:
                _, times, calls = side_of[id(pair.base)]
            time = own_calls = 0.0
            if pair.head is not None:
                time, own_calls = pair.head.amount, pair.head.calls
            joined.append(
                _SideRow(pair.base or pair.row, [*times, time], [*calls, own_calls])
            )
        rows = joined
    medians = []
    for row, times, calls in rows:
        typical = replace(
            row, amount=statistics.median(times), calls=statistics.median(calls)
        )
        medians.append(_SideRow(typical, times, calls))
    return medians


def _pairs(
    base: Sequence[_SideRow], head: Sequence[_SideRow], tolerance: float
) -> list[_Pair]:
    """Every row of both sides once, the largest change of time first."""
    before = {id(side.row): side for side in base}
    after = {id(side.row): side for side in head}
    pairs = []
    removed = []
    added = []
    for aligned in align([side.row for side in base], [side.row for side in head]):
        if aligned.base is None:
            added.append(after[id(aligned.head)])
        elif aligned.head is None:
            removed.append(before[id(aligned.base)])
        else:
            old, new = before[id(aligned.base)], after[id(aligned.head)]
            change: DiffChange = aligned.change(tolerance=tolerance)
            if change in ("slower", "faster") and _ranges_overlap(old.times, new.times):
                change = "same"
            pairs.append(_Pair([old], [new], change))
    pairs += _replaced(removed, added)
    pairs.sort(key=lambda pair: (-abs(pair.delta), pair.first.operator))
    return pairs


def _ranges_overlap(old: Sequence[float], new: Sequence[float]) -> bool:
    """Whether the times of several recordings of one side reach the times of the other
    side.
    """
    several = len(old) + len(new) > 2
    return several and max(old) >= min(new) and max(new) >= min(old)


def _replaced(
    removed: Sequence[_SideRow], added: Sequence[_SideRow]
) -> Iterator[_Pair]:
    """Kernels of only one side: replaced if the other side has some under the same
    operator and line, else removed or added.
    """
    places: dict[
        tuple[str, str | None, str | None], tuple[list[_SideRow], list[_SideRow]]
    ]
    places = defaultdict(lambda: ([], []))
    for side in removed:
        places[side.row.kind, side.row.launched_by, side.row.line][0].append(side)
    for side in added:
        places[side.row.kind, side.row.launched_by, side.row.line][1].append(side)
    for (kind, operator, line), (before, after) in places.items():
        if kind in DEVICE_KINDS and (operator or line) and before and after:
            yield _Pair(_most_time_first(before), _most_time_first(after), "replaced")
            continue
        for side in before:
            yield _Pair([side], [], "removed")
        for side in after:
            yield _Pair([], [side], "added")


def _most_time_first(sides: Sequence[_SideRow]) -> list[_SideRow]:
    return sorted(sides, key=lambda side: (-side.row.amount, side.row.operator))


def _row(pair: _Pair, several: bool) -> DiffRow:
    base, head = _times(pair.base), _times(pair.head)
    row = DiffRow(
        name=pair.first.operator,
        kind=cast(TopKind, pair.first.kind),
        change=pair.change,
        base=_cost(pair.base, several),
        head=_cost(pair.head, several),
        delta=pair.delta / _NS,
        by_count=0.0,
        by_speed=pair.delta / _NS,
    )
    if several:
        # The smallest and largest difference between a recording of head and one of
        # base.
        row = msgspec.structs.replace(
            row,
            delta_range=((min(head) - max(base)) / _NS, (max(head) - min(base)) / _NS),
        )
    if pair.change == "replaced":
        # Replacing kernels do the same work, however often they run.
        return msgspec.structs.replace(
            row, before=_names(pair.base), after=_names(pair.head)
        )
    aligned = AlignedWork(_only_row(pair.base), _only_row(pair.head))
    return msgspec.structs.replace(
        row, by_count=aligned.by_count / _NS, by_speed=aligned.by_speed / _NS
    )


def _names(sides: Sequence[_SideRow]) -> list[str]:
    return [side.row.operator for side in sides[:_MOST_NAMES]]


def _only_row(sides: Sequence[_SideRow]) -> Work | None:
    return sides[0].row if sides else None


def _times(sides: Sequence[_SideRow]) -> list[float]:
    """The time of all rows together in each recording; a single 0 without rows."""
    by_recording = zip(*[side.times for side in sides])
    return list(map(sum, by_recording)) or [0.0]


def _cost(sides: Sequence[_SideRow], several: bool) -> DiffCost | None:
    if not sides:
        return None
    first = sides[0].row
    times = _times(sides) if several else []
    calls = map(sum, zip(*[side.calls for side in sides]))
    return DiffCost(
        time=_total(sides) / _NS,
        count=statistics.median(calls),
        shapes=first.inputs,
        line=first.line,
        operator=first.launched_by,
        times=[time / _NS for time in times],
    )


def _median_totals(works: Sequence[UnitWork]) -> DiffTotals:
    medians: dict[str, float | None] = {}
    by_field = zip(*[msgspec.structs.astuple(work.totals) for work in works])
    for field, values in zip(DiffTotals.__struct_fields__, by_field):
        recorded = [value for value in values if value is not None]
        medians[field] = None
        if recorded:
            medians[field] = statistics.median(recorded)
    return DiffTotals(**medians)
