"""The part of a timeline that can be compared with another recording: its complete units, with times that can be true.

A recording may begin or end in the middle of a step, lose events, or have times of zero. A step that lacks work would look
faster than a complete one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace.model.arithmetic import Intervals
from perfgate.trace.model.events import CALL, DEVICE_KINDS, EventTable, EventTableBuilder, joined_events
from perfgate.trace.model.faults import time_faults
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import NO_NUMBER
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.spans import OUTSIDE, span_of
from perfgate.trace.model.steps import STEP_NAME, distinct_marks, step_number

_FEWEST = 3  # units that tell what is usual
_NO_ROWS = np.zeros(0, dtype=np.intp)


class ComparablePart(NamedTuple):
    """A timeline with its complete units alone, the names of those ``left_out``, and the number of all.

    ``is_whole`` is false if the recording lacks work and no unit is known to be complete.
    """

    timeline: Timeline
    left_out: tuple[str, ...]
    units: int
    is_whole: bool


class _Units(NamedTuple):
    """Marked calls or steps in time order: the event of each, or none, its number, and its time."""

    rows: npt.NDArray[np.intp]
    names: tuple[str, ...]
    spans: Intervals


def comparable_part(timeline: Timeline, *, lacks_events: bool) -> ComparablePart:
    """The complete units of a timeline; ``lacks_events`` is whether part of its file is lost."""
    events = timeline.events
    faults = time_faults(events).positions
    is_damaged = lacks_events or faults.size > 0
    units = _marked(events) or _tabled(timeline)
    if units is None:
        return ComparablePart(timeline, (), 0, not is_damaged)
    intact = np.ones(len(events), dtype=bool)
    intact[faults] = False
    complete = _complete(events, units.spans, intact, is_damaged=is_damaged)
    if not complete.any():
        return ComparablePart(timeline, units.names, len(units.names), False)
    if complete.all() and not faults.size and units.rows.size:
        return ComparablePart(timeline, (), len(units.names), True)
    left_out = tuple(name for name, kept in zip(units.names, complete.tolist()) if not kept)
    chosen = _with_units(timeline, units, complete, intact)
    return ComparablePart(chosen, left_out, len(units.names), True)


def cut_ends(timeline: Timeline) -> list[tuple[str, int, int]]:
    """The units at the begin and the end with less work than usual: name, pieces of work, and the usual number."""
    units = _marked(timeline.events) or _tabled(timeline)
    if units is None:
        return []
    everything = np.ones(len(timeline.events), dtype=bool)
    counts = _counts(timeline.events, units.spans, everything)
    usual = _usual(counts)
    complete = _without_ends(counts, usual)
    return [
        (name, count, usual) for name, count, kept in zip(units.names, counts.tolist(), complete.tolist()) if not kept
    ]


def _marked(events: EventTable) -> _Units | None:
    marks = np.flatnonzero(events.is_kind("annotation", "host_op") & events.is_named(CALL.__eq__))
    if not marks.size:
        marks = np.flatnonzero(events.is_kind("annotation", "host_op") & events.is_named(STEP_NAME.fullmatch))
    rows = marks[distinct_marks(events.select(marks))]
    if not rows.size:
        return None
    names = [events.names[code] for code in events.name[rows].tolist()]
    numbers = [step_number(name) for name in names]
    return _Units(
        rows,
        tuple(str(place if number is None else number) for place, number in enumerate(numbers)),
        Intervals(events.start[rows], events.end[rows]),
    )


def _tabled(timeline: Timeline) -> _Units | None:
    """The steps of the table of kernels, from the first kernel of each to that of the next."""
    kernels = KernelTable.of(timeline.kernels or ())
    known = (kernels.numbers["step"] != NO_NUMBER) & (kernels.start != NO_NUMBER)
    if not known.any():
        return None
    kernels = kernels.select(known)
    numbers = {number: int(kernels.start[kernels.numbers["step"] == number].min()) for number in kernels.steps}
    # The table of steps has those without a kernel too.
    empty = {row.number for row in timeline.step_table or () if row.number is not None} - numbers.keys()
    first = min(numbers.values())
    begun = sorted(
        [*((begin, number) for number, begin in numbers.items()), *((first - 1, number) for number in empty)]
    )
    start = np.array([begin for begin, _ in begun], dtype=np.int64)
    last = int((kernels.start + kernels.duration).max()) + 1
    names = tuple(str(number) for _, number in begun)
    return _Units(np.zeros(0, dtype=np.intp), names, Intervals(start, np.append(start[1:], last)))


def _counts(events: EventTable, spans: Intervals, intact: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """The pieces of work of each unit: those of the device, else the operators of the host."""
    work = events.select(events.is_kind(*DEVICE_KINDS) & intact)
    if not len(work):
        work = events.of_kind("host_op")
    owners = span_of(work, spans, launches=events.of_kind("runtime"))
    return np.bincount(owners[owners != OUTSIDE], minlength=spans.start.size)


def _complete(
    events: EventTable, spans: Intervals, intact: npt.NDArray[np.bool_], *, is_damaged: bool
) -> npt.NDArray[np.bool_]:
    if not is_damaged:
        counts = _counts(events, spans, intact)
        return _without_ends(counts, _usual(counts))
    # An event may be lost, or have lost its name: complete units have the same work under the same names.
    launches = events.of_kind("runtime")
    complete = np.ones(spans.start.size, dtype=bool)
    faulty = events.select(~intact)
    owners = span_of(faulty, spans, launches=launches)
    complete[owners[owners != OUTSIDE]] = False
    for kinds in (DEVICE_KINDS, ("host_op",), ("runtime",)):
        work = events.select(events.is_kind(*kinds) & intact)
        owners = span_of(work, spans, launches=launches if kinds == DEVICE_KINDS else work.select(_NO_ROWS))
        inside = owners != OUTSIDE
        amounts = np.zeros(spans.start.size, dtype=np.uint64)
        np.add.at(amounts, owners[inside], _numbers_of_names(work)[inside])
        counts = np.bincount(owners[inside], minlength=spans.start.size)
        if complete.any():
            complete &= amounts == _most_common(amounts[complete], counts[complete])
    # One alone agrees with nothing, and a few of many may have lost the same.
    agree = int(complete.sum())
    return complete if agree > 1 and 2 * agree >= complete.size else np.zeros_like(complete)


def _numbers_of_names(work: EventTable) -> npt.NDArray[np.uint64]:
    """A number for each event by its name, so that the sum over a unit tells which names it has how often."""
    numbers = np.array([_number(name) for name in work.names] or [0], dtype=np.uint64)
    found: npt.NDArray[np.uint64] = numbers[work.group]
    return found


def _number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _most_common(amounts: npt.NDArray[np.uint64], counts: npt.NDArray[np.intp]) -> np.uint64:
    """The amount of most units; of several, that of more events."""
    values, first, units = np.unique(amounts, return_index=True, return_counts=True)
    most: np.uint64 = values[np.lexsort((counts[first], units))[-1]]
    return most


def _usual(counts: npt.NDArray[np.intp]) -> int:
    """The number of pieces that most units have, 0 if there is none or too few units tell."""
    number, units = Counter(counts.tolist()).most_common(1)[0]
    return int(number) if units >= _FEWEST and 2 * units >= counts.size else 0


def _without_ends(counts: npt.NDArray[np.intp], usual: int) -> npt.NDArray[np.bool_]:
    """All units but the first and the last ones that have less work than usual."""
    complete = np.ones(counts.size, dtype=bool)
    if counts.size < _FEWEST or not usual:
        return complete
    enough = np.flatnonzero(counts >= usual)
    complete[: enough[0]] = complete[enough[-1] + 1 :] = False
    return complete


def _with_units(
    timeline: Timeline, units: _Units, complete: npt.NDArray[np.bool_], intact: npt.NDArray[np.bool_]
) -> Timeline:
    """A timeline with intact events that marks the complete units alone."""
    events = timeline.events
    steps = events.is_kind("annotation", "host_op") & events.is_named(
        lambda name: name == CALL or STEP_NAME.fullmatch(name)
    )
    stays = intact & ~steps
    if units.rows.size:
        stays[units.rows[complete]] = True
        return replace(timeline, events=events.select(stays))
    builder = EventTableBuilder()
    for begin, end, name, kept in zip(
        units.spans.start.tolist(), units.spans.end.tolist(), units.names, complete.tolist()
    ):
        if kept:
            builder.add(begin, end - begin, track=("steps", ""), name=f"ProfilerStep#{name}", kind="annotation")
    kernels = KernelTable.of(timeline.kernels or ())
    numbers = {int(name) for name, kept in zip(units.names, complete.tolist()) if kept}
    own = kernels.select(np.isin(kernels.numbers["step"], sorted(numbers)))
    return replace(timeline, events=joined_events(events.select(stays), builder.table()), kernels=own)
