"""The part of a timeline that can be compared with another recording: its complete
units, with times that can be true.

A recording may begin or end in the middle of a step, lose events, or have times of
zero. A step that lacks work would look faster than a complete one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfgate.trace.loops import look_up
from perfgate.trace.model.arithmetic import NO_NUMBER, Intervals, Mask, Positions
from perfgate.trace.model.events import (
    CALL,
    EventTable,
    EventTableBuilder,
    joined_events,
)
from perfgate.trace.model.faults import time_faults
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.spans import OUTSIDE, span_of
from perfgate.trace.model.steps import STEP_NAME, step_number, unit_marks

_FEWEST = 3  # units that establish the usual amount of work
_NO_ROWS = np.zeros(0, dtype=np.intp)


class ComparablePart(NamedTuple):
    """A timeline with its complete units alone, their names, and the names of those
    ``left_out``.

    Calls have their place in the recording as a name. ``is_whole`` is false if the
    recording lacks work and no unit is known to be complete.
    """

    timeline: Timeline
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    is_whole: bool


class CutUnit(NamedTuple):
    """A unit at the begin or the end of a recording with less work than usual: its
    pieces of work, and the usual number.
    """

    name: str
    pieces: int
    usual: int


class _Units(NamedTuple):
    """Marked calls or steps in time order: the event of each, or none, its number, and
    its time.
    """

    rows: Positions
    names: tuple[str, ...]
    spans: Intervals


def comparable_part(
    timeline: Timeline, *, lacks_events: bool, is_cut: bool
) -> ComparablePart:
    """The complete units of a timeline; ``lacks_events`` is whether part of its file is
    lost, ``is_cut`` all behind a byte.
    """
    events = timeline.events
    faults = time_faults(events).positions
    is_damaged = lacks_events or faults.size > 0
    units = _marked(events) or _tabled(timeline)
    if units is None:
        return ComparablePart(timeline, (), (), not is_damaged)
    intact = np.ones(len(events), dtype=bool)
    intact[faults] = False
    complete = _complete(
        events, units.spans, intact, is_damaged=is_damaged, is_cut=is_cut
    )
    if not complete.any():
        return ComparablePart(timeline, (), units.names, False)
    if complete.all() and not faults.size and units.rows.size:
        return ComparablePart(timeline, units.names, (), True)
    names = np.array(units.names)
    chosen = _with_units(timeline, units, complete, intact)
    return ComparablePart(
        chosen, tuple(names[complete].tolist()), tuple(names[~complete].tolist()), True
    )


def with_units(part: ComparablePart, names: Collection[str]) -> Timeline:
    """The timeline of a part with its units of these names alone; unchanged if it has
    none of them, or no others.
    """
    stays = np.array([name in names for name in part.names], dtype=bool)
    if stays.all() or not stays.any():
        return part.timeline
    units = _marked(part.timeline.events) or _tabled(part.timeline)
    if units is None or len(units.names) != stays.size:
        return part.timeline
    everything = np.ones(len(part.timeline.events), dtype=bool)
    return _with_units(part.timeline, units, stays, everything)


def cut_ends(timeline: Timeline) -> list[CutUnit]:
    """The units at the begin and the end with less work than usual."""
    units = _marked(timeline.events) or _tabled(timeline)
    if units is None:
        return []
    everything = np.ones(len(timeline.events), dtype=bool)
    counts = _counts(timeline.events, units.spans, everything)
    usual = _usual(counts)
    cut = np.flatnonzero(~_without_ends(counts, usual))
    return [
        CutUnit(units.names[place], int(counts[place]), usual) for place in cut.tolist()
    ]


def _marked(events: EventTable) -> _Units | None:
    units = unit_marks(events)
    if not units.rows.size:
        return None
    names = []
    for place, code in enumerate(units.marks.name.tolist()):
        number = step_number(events.names[code])
        names.append(str(place if number is None else number))
    return _Units(units.rows, tuple(names), units.marks.intervals)


def _tabled(timeline: Timeline) -> _Units | None:
    """The steps of the table of kernels, each from its first kernel to the first kernel
    of the next step.
    """
    kernels = timeline.kernel_columns
    present = (kernels.numbers["step"] != NO_NUMBER) & (kernels.start != NO_NUMBER)
    if not present.any():
        return None
    kernels = kernels.select(present)
    begun = {}
    for number in kernels.steps:
        begun[number] = int(kernels.start[kernels.numbers["step"] == number].min())
    first = min(begun.values())
    for row in timeline.step_table or ():
        # The table of steps also has steps without a kernel.
        if row.number is not None:
            begun.setdefault(row.number, first - 1)
    in_order = sorted(begun, key=lambda number: (begun[number], number))
    start = np.array([begun[number] for number in in_order], dtype=np.int64)
    last = int((kernels.start + kernels.duration).max()) + 1
    end = np.append(start[1:], last)
    return _Units(_NO_ROWS, tuple(map(str, in_order)), Intervals(start, end))


def _counts(events: EventTable, spans: Intervals, intact: Mask) -> Positions:
    """The pieces of work of each unit: work of the device, else operators of the host."""
    work = events.select(events.is_work & intact)
    if not len(work):
        work = events.of_kind("host_op")
    owners = span_of(work, spans, launches=events.of_kind("runtime"))
    return np.bincount(owners[owners != OUTSIDE], minlength=spans.start.size)


def _complete(
    events: EventTable,
    spans: Intervals,
    intact: Mask,
    *,
    is_damaged: bool,
    is_cut: bool,
) -> Mask:
    """Which units are complete.

    Most units of a damaged file are complete, but of a file that is cut off most may
    lack the same: profilers write all operators before all kernels.
    """
    if not is_damaged:
        counts = _counts(events, spans, intact)
        return _without_ends(counts, _usual(counts))
    # An event may be lost, or have lost its name: complete units have the same work
    # under the same names.
    launches = events.of_kind("runtime")
    faulty = events.select(~intact)
    owners = span_of(faulty, spans, launches=launches)
    complete = np.ones(spans.start.size, dtype=bool)
    complete[owners[owners != OUTSIDE]] = False
    model = _amount_of_most_events if is_cut else _most_common
    no_launches = events.select(_NO_ROWS)
    for chosen, launched_by in (
        (events.is_work, launches),
        (events.is_kind("host_op"), no_launches),
        (events.is_kind("runtime"), no_launches),
    ):
        work = events.select(chosen & intact)
        _exclude_unlike(complete, work, spans, launched_by, model)
    # A single unit has no other to agree with, and a few of many may have lost the
    # same.
    agree = int(complete.sum())
    if agree > 1 and 2 * agree >= complete.size:
        return complete
    return np.zeros_like(complete)


_Amounts = npt.NDArray[np.uint64]


def _exclude_unlike(
    complete: Mask,
    work: EventTable,
    spans: Intervals,
    launches: EventTable,
    model: Callable[[_Amounts, Positions], np.uint64],
) -> None:
    """Mark units as incomplete if their work differs from the work of the model."""
    owners = span_of(work, spans, launches=launches)
    inside = owners != OUTSIDE
    amounts = np.zeros(spans.start.size, dtype=np.uint64)
    np.add.at(amounts, owners[inside], _numbers_of_names(work)[inside])
    counts = np.bincount(owners[inside], minlength=spans.start.size)
    if complete.any():
        complete &= amounts == model(amounts[complete], counts[complete])


def _numbers_of_names(work: EventTable) -> npt.NDArray[np.uint64]:
    """A number for each event by its name, so that equal sums mean equal names and
    counts.
    """
    numbers = np.array([_number(name) for name in work.names] or [0], dtype=np.uint64)
    return look_up(numbers, work.group)


def _number(name: str) -> int:
    from hashlib import blake2b  # here, because only damaged recordings need it

    content = name.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def _amount_of_most_events(amounts: _Amounts, counts: Positions) -> np.uint64:
    most: np.uint64 = amounts[np.argmax(counts)]
    return most


def _most_common(amounts: _Amounts, counts: Positions) -> np.uint64:
    """The amount of most units; of several such amounts, the amount with more events."""
    values, first, units = np.unique(amounts, return_index=True, return_counts=True)
    order = np.lexsort((counts[first], units))
    most: np.uint64 = values[order[-1]]
    return most


def _usual(counts: Positions) -> int:
    """The number of pieces that most units have, 0 if there is none or too few units
    have it.
    """
    number, units = Counter(counts.tolist()).most_common(1)[0]
    if units < _FEWEST or 2 * units < counts.size:
        return 0
    return int(number)


def _without_ends(counts: Positions, usual: int) -> Mask:
    """All units except the first and last units with less work than usual."""
    complete = np.ones(counts.size, dtype=bool)
    if counts.size < _FEWEST or not usual:
        return complete
    whole = np.flatnonzero(counts >= usual)
    complete[: whole[0]] = False
    complete[whole[-1] + 1 :] = False
    return complete


def _with_units(
    timeline: Timeline, units: _Units, complete: Mask, intact: Mask
) -> Timeline:
    """A timeline with intact events that marks the complete units alone."""
    events = timeline.events
    is_mark = events.is_named(lambda name: name == CALL or STEP_NAME.fullmatch(name))
    stays = intact & ~(is_mark & events.is_kind("annotation", "host_op"))
    if units.rows.size:
        stays[units.rows[complete]] = True
        return replace(timeline, events=events.select(stays))
    builder = EventTableBuilder()
    numbers = []
    for place in np.flatnonzero(complete).tolist():
        begin, end = int(units.spans.start[place]), int(units.spans.end[place])
        name = units.names[place]
        builder.add(
            begin,
            end - begin,
            track=("steps", ""),
            name=f"ProfilerStep#{name}",
            kind="annotation",
        )
        numbers.append(int(name))
    kernels = timeline.kernel_columns
    own = kernels.select(np.isin(kernels.numbers["step"], numbers))
    return replace(
        timeline,
        events=joined_events(events.select(stays), builder.table()),
        kernels=own,
    )
