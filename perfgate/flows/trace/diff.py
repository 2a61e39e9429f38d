"""``perfgate trace diff``: the differences between the recordings of two sides, by operator or by line."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.message import Message, MessageValue, distinct, english
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
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.job import ChosenTimeline, choose, notes_of
from perfgate.trace.analysis.comparable import comparable_part
from perfgate.trace.analysis.rows import UnitWork, unit_work
from perfgate.trace.model.events import DEVICE_KINDS

_NS = 1e9
# On a shared machine, an operator's time differs by this much between two recordings of one program.
TOLERANCE = 0.05
# The most names of replaced kernels to keep per side.
_MOST_NAMES = 5
_THREADS = 2
# What a row may be apart by, and the note if one recording lacks it.
_FORMS = {"shape": "notes.shapes-differ", "line": "notes.lines-differ"}


def trace_diff(
    bases: Sequence[Path],
    heads: Sequence[Path],
    choice: Choice,
    *,
    tolerance: float = TOLERANCE,
    by: DiffKey = "operator",
) -> DiffDocument:
    """The differences in every timeline common to all recordings.

    Times are the same if their ratio is within ``tolerance`` of 1, and of several recordings if their ranges overlap. Raises
    UsageError if the recordings have no timeline in common, or one counts by steps and another cannot.
    """
    sides = [[_by_label(choose(path, choice)) for path in paths] for paths in (bases, heads)]
    recordings = [recording for side in sides for recording in side]
    if all(len(recording) == 1 for recording in recordings):
        (label,) = sides[1][0]
        sides = [[{label: next(iter(recording.values()))} for recording in side] for side in sides]
        recordings = [recording for side in sides for recording in side]
    shared = [label for label in sides[1][0] if all(label in recording for recording in recordings)]
    if not shared:
        held = "; ".join(f"{path}: {', '.join(recording)}" for path, recording in zip([*bases, *heads], recordings))
        raise UsageError("no timeline is in all recordings ({held}); choose with --rank and --device", held=held)
    compared: list[DiffTimeline] = []
    notes: list[Message] = []
    for label in shared:
        before, after = ([_comparable(recording[label], notes) for recording in side] for side in sides)
        compared.append(_diff(label, before, after, choice, tolerance, by, notes))
    return DiffDocument(
        base=[str(path) for path in bases],
        head=[str(path) for path in heads],
        by=by,
        tolerance=tolerance,
        timelines=compared,
        unmatched=sorted({label for recording in recordings for label in recording} - set(shared)),
        notes=[*notes_of([pick for recording in recordings for pick in recording.values()]), *distinct(notes)],
    )


def _comparable(pick: ChosenTimeline, notes: list[Message]) -> ChosenTimeline:
    """The complete steps of a timeline, with a note on the others.

    Raises DocumentError if work is missing and no step is known to be complete.
    """
    loss, path = pick.recording.loss, pick.recording.path
    part = comparable_part(pick.timeline, lacks_events=loss is not None and loss.is_of_events)
    if not part.is_whole:
        raise DocumentError(
            "{path}: {label} cannot be compared, because {why}, and no step of it is known to be complete; record it again",
            path=path,
            label=pick.timeline.label,
            why="; ".join(english(note) for note in notes_of([pick])[:2]),
        )
    if part.left_out:
        named = ", ".join(part.left_out[:_MOST_NAMES])
        values: dict[str, MessageValue] = {"count": len(part.left_out), "units": part.units, "named": named}
        notes.append(Message("notes.steps-left-out", {"path": str(path), **values}))
    return pick._replace(timeline=part.timeline)


def _alike(
    before: list[UnitWork], after: list[UnitWork], notes: list[Message]
) -> tuple[list[UnitWork], list[UnitWork]]:
    """The works with rows as fine as all recordings have them: without shapes, or without lines, if one recording has none."""
    works = [*before, *after]
    kinds = {row.kind for work in works for row in work.rows}
    has_lines = [any(row.line is not None for row in work.rows) for work in works]
    coarse = {
        "shape": {kind for kind in kinds if _only_some_have_shapes(works, kind)},
        "line": kinds if any(has_lines) and not all(has_lines) else set(),
    }
    notes += [Message(note) for form, note in _FORMS.items() if coarse[form]]
    if not any(coarse.values()):
        return before, after
    works = [replace(work, rows=_merged(work.rows, coarse)) for work in works]
    return works[: len(before)], works[len(before) :]


def _only_some_have_shapes(works: Sequence[UnitWork], kind: str) -> bool:
    """Whether of the recordings with rows of a kind some have their shapes and others have none."""
    rows_of = [[row for row in work.rows if row.kind == kind] for work in works]
    has = [any(row.inputs is not None for row in rows) for rows in rows_of if rows]
    return any(has) and not all(has)


def _merged(rows: Sequence[Work], coarse: Mapping[str, set[str]]) -> tuple[Work, ...]:
    """The rows without shapes or lines of some kinds; those that are then alike are added up."""
    merged: dict[tuple[str | None, ...], Work] = {}
    for row in rows:
        shape = None if row.kind in coarse["shape"] else row.inputs
        line = None if row.kind in coarse["line"] else row.line
        key = row.operator, row.kind, shape, line, None if line is None else row.launched_by
        first = merged.get(key)
        if first is None:
            merged[key] = replace(row, inputs=shape, line=line)
        else:
            merged[key] = replace(first, amount=first.amount + row.amount, calls=first.calls + row.calls)
    return tuple(merged.values())


def _by_label(chosen: Sequence[ChosenTimeline]) -> dict[str, ChosenTimeline]:
    several = len({pick.recording.path for pick in chosen}) > 1
    return {
        f"{pick.recording.path.name}, {pick.timeline.label}" if several else pick.timeline.label: pick
        for pick in chosen
    }


class _SideRow(NamedTuple):
    """A row of one side: its medians over the recordings, and the time in each of them."""

    row: Work
    times: list[float]


class _Pair(NamedTuple):
    """The rows of one operator or line on both sides; several if kernels were replaced."""

    base: Sequence[_SideRow]
    head: Sequence[_SideRow]
    change: DiffChange

    @property
    def delta(self) -> float:
        return sum(side.row.amount for side in self.head) - sum(side.row.amount for side in self.base)


def _works(picks: Sequence[ChosenTimeline], by: DiffKey) -> list[UnitWork]:
    """The work of each recording, two at a time: most of it are loops that release Python's lock."""
    with ThreadPoolExecutor(_THREADS) as pool:
        # A thread has no settings of its own, such as the folder of kept columns.
        tasks = [pool.submit(copy_context().run, unit_work, pick.timeline, by=by) for pick in picks]
        return [task.result() for task in tasks]


def _diff(
    label: str,
    bases: Sequence[ChosenTimeline],
    heads: Sequence[ChosenTimeline],
    choice: Choice,
    tolerance: float,
    by: DiffKey,
    notes: list[Message],
) -> DiffTimeline:
    works = _works([*bases, *heads], by)
    before, after = works[: len(bases)], works[len(bases) :]
    if by == "operator":
        before, after = _alike(before, after, notes)
    units = {work.unit for work in (*before, *after)}
    if before[0].unit != after[-1].unit:
        raise UsageError(
            "{label}: base was recorded by {base} and head by {head}, so their times are of different amounts of "
            "work; record both alike",
            label=label,
            base=before[0].unit,
            head=after[-1].unit,
        )
    if len(units) > 1:
        raise UsageError(
            "{label}: the recordings of one side count by {units}; record all alike",
            label=label,
            units=" and by ".join(sorted(units)),
        )
    pairs = _pairs(_side(before), _side(after), tolerance)
    changed = [pair for pair in pairs if pair.change != "same"]
    several = len(before) + len(after) > 2
    return DiffTimeline(
        label=label,
        unit=before[0].unit,
        units=(before[0].units, after[0].units),
        base=_median_totals(before),
        head=_median_totals(after),
        base_each=[work.totals for work in before] if several else [],
        head_each=[work.totals for work in after] if several else [],
        rows_in_all=len(changed),
        same=len(pairs) - len(changed),
        rows=[_row(pair, several) for pair in changed[: choice.limit]],
    )


def _side(works: Sequence[UnitWork]) -> list[_SideRow]:
    """The rows of the recordings of one side, paired; a recording that lacks a row took no time for it."""
    rows = [_SideRow(row, [row.amount]) for row in works[0].rows]
    for number, work in enumerate(works[1:], start=1):
        by_row = {id(side.row): side for side in rows}
        joined = []
        for pair in align([side.row for side in rows], work.rows):
            times = by_row[id(pair.base)].times if pair.base is not None else [0.0] * number
            joined.append(_SideRow(pair.base or pair.row, [*times, pair.head.amount if pair.head else 0.0]))
        rows = joined
    if len(works) == 1:
        return rows
    return [_SideRow(replace(side.row, amount=statistics.median(side.times)), side.times) for side in rows]


def _pairs(base: Sequence[_SideRow], head: Sequence[_SideRow], tolerance: float) -> list[_Pair]:
    """Every row of both sides once, the largest change of time first."""
    before, after = ({id(side.row): side for side in sides} for sides in (base, head))
    pairs, gone, new = [], [], []
    for aligned in align([side.row for side in base], [side.row for side in head]):
        if aligned.base is None:
            new.append(after[id(aligned.head)])
        elif aligned.head is None:
            gone.append(before[id(aligned.base)])
        else:
            one, other = before[id(aligned.base)], after[id(aligned.head)]
            change: DiffChange = aligned.change(tolerance=tolerance)
            overlap = max(one.times) >= min(other.times) and max(other.times) >= min(one.times)
            if len(one.times) + len(other.times) > 2 and overlap and change in ("slower", "faster"):
                change = "same"  # several recordings of one program differ as much
            pairs.append(_Pair([one], [other], change))
    return sorted(
        [*pairs, *_replaced(gone, new)], key=lambda pair: (-abs(pair.delta), (pair.head or pair.base)[0].row.operator)
    )


def _replaced(gone: Sequence[_SideRow], new: Sequence[_SideRow]) -> Iterator[_Pair]:
    """Kernels of only one side: replaced if the other side has some under the same operator and line, else removed or added."""
    places: dict[tuple[str, str | None, str | None], tuple[list[_SideRow], list[_SideRow]]] = defaultdict(
        lambda: ([], [])
    )
    for which, sides in enumerate((gone, new)):
        for side in sides:
            places[side.row.kind, side.row.launched_by, side.row.line][which].append(side)
    for (kind, operator, line), (before, after) in places.items():
        if kind in DEVICE_KINDS and (operator or line) and before and after:
            yield _Pair(_most_time_first(before), _most_time_first(after), "replaced")
        else:
            yield from (_Pair([side], [], "removed") for side in before)
            yield from (_Pair([], [side], "added") for side in after)


def _most_time_first(sides: Sequence[_SideRow]) -> list[_SideRow]:
    return sorted(sides, key=lambda side: (-side.row.amount, side.row.operator))


def _row(pair: _Pair, several: bool) -> DiffRow:
    first = (pair.head or pair.base)[0].row
    replaced = pair.change == "replaced"
    one = AlignedWork(*(side[0].row if side else None for side in (pair.base, pair.head)))
    base, head = _times(pair.base), _times(pair.head)
    return DiffRow(
        name=first.operator,
        kind=cast(TopKind, first.kind),
        change=pair.change,
        base=_cost(pair.base, several),
        head=_cost(pair.head, several),
        delta=pair.delta / _NS,
        # Replacing kernels do the same work, however often they run.
        by_count=0.0 if replaced else one.by_count / _NS,
        by_speed=pair.delta / _NS if replaced else one.by_speed / _NS,
        # The smallest and largest difference between a recording of head and one of base.
        delta_range=((min(head) - max(base)) / _NS, (max(head) - min(base)) / _NS) if several else None,
        before=[side.row.operator for side in pair.base[:_MOST_NAMES]] if replaced else [],
        after=[side.row.operator for side in pair.head[:_MOST_NAMES]] if replaced else [],
    )


def _times(sides: Sequence[_SideRow]) -> list[float]:
    """The time of all rows together in each recording; a single 0 without rows."""
    return [sum(times) for times in zip(*(side.times for side in sides))] or [0.0]


def _cost(sides: Sequence[_SideRow], several: bool) -> DiffCost | None:
    if not sides:
        return None
    first = sides[0].row
    return DiffCost(
        time=sum(side.row.amount for side in sides) / _NS,
        count=sum(side.row.calls for side in sides),
        shapes=first.inputs,
        line=first.line,
        operator=first.launched_by,
        times=[time / _NS for time in _times(sides)] if several else [],
    )


def _median_totals(works: Sequence[UnitWork]) -> DiffTotals:
    medians: dict[str, float | None] = {}
    for field in DiffTotals.__struct_fields__:
        known = [value for work in works if (value := getattr(work.totals, field)) is not None]
        medians[field] = statistics.median(known) if known else None
    return DiffTotals(**medians)
