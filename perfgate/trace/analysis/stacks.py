"""Call stacks of a recording: host calls by nesting, and the device's work under the
calls that launched it, with the lines and operators that these name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfgate.errors import UsageError
from perfgate.trace.model.arithmetic import (
    NOTHING_AROUND,
    CodeColumn,
    Codes,
    IntColumn,
    Intervals,
    Mask,
    Positions,
    group_rows,
    self_times,
    totals_by_name,
)
from perfgate.trace.model.events import (
    CALL,
    DEVICE_KINDS,
    NO_TEXT,
    EventKind,
    EventTable,
)
from perfgate.trace.model.launches import NOT_RECORDED
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.spans import OUTSIDE, span_of
from perfgate.trace.model.stacks import Stacks, selected
from perfgate.trace.model.steps import unit_marks
from perfgate.trace.scanner.nesting import enclosing_calls

if TYPE_CHECKING:
    from perfgate.document.flame import FlameUnit


# torch.profiler writes a Python function as ``file.py(12): name``, 12 being its first
# line (torch 2.13), a module ``nn.Module: Linear_0``, and a function in C
# ``<built-in method relu of type object at 0x7f9a0a8cea40>``.
_FUNCTION = lazy_pattern(
    r"(?P<file>[^<].*?)\((?P<line>\d{1,9})\): (?P<name>.+)", re.DOTALL
)
_ADDRESS = lazy_pattern(r" at 0x[0-9a-fA-F]+")
# Steps and requests are numbered; their events make one stack without the number.
_NUMBERED = lazy_pattern(r"(ProfilerStep|request)#.*", re.DOTALL)
_PACKAGES = lazy_pattern(r"(?:.*/)?(?:site-packages|dist-packages|lib/python[\d.]+)/")
_FRAMEWORKS = frozenset(
    {
        "torch",
        "torch_npu",
        "torchair",
        "torchvision",
        "torchaudio",
        "transformers",
        "accelerate",
        "numpy",
        "perfgate",
    }
)
_ENQUEUE = lazy_pattern(r"Enqueue(@.*)?", re.DOTALL)
# CANN's calls nest in torch_npu's of the same thread, although Ascend's profilers show
# CANN as a separate process.
_ONE_PROCESS = frozenset({"Python", "CANN"})
# The kinds that make a stack. If a recording has none of them (plain Chrome traces),
# all events do.
_CALL_KINDS: tuple[EventKind, ...] = ("host_op", "annotation", "runtime", "python")


# Of a call: not determined yet.
_UNKNOWN = -2


NO_LAUNCHER = -1
# Operators that the profiler adds around the operator that the program called.
_NO_OPERATORS = frozenset({"record_param_comms"})


class EventFrame(NamedTuple):
    """The name of an event without parts that differ between runs; ``place`` is the
    first line of its Python function.
    """

    name: str
    place: str | None = None

    @property
    def is_project(self) -> bool:
        """Whether it is a Python function that belongs neither to Python itself nor to
        a framework.
        """
        if self.place is None:
            return False
        file = self.place.rpartition(":")[0]
        if _PACKAGES.match(file) or file.startswith("<"):
            return False
        top = file.partition("/")[0].partition(".py")[0]
        return top not in _FRAMEWORKS and top not in sys.stdlib_module_names


def stacks_of(events: EventTable, *, whole: bool = False) -> Stacks:
    """The stacks of the events in the calls or profiler steps of a timeline; of all its
    events with ``whole``, or if none is marked.

    Work of a device belongs to the unit in which it was launched, and lies under the
    call that launched it.
    """
    units = None if whole else _units(events)
    calls = _CALL_KINDS
    if not events.is_kind(*calls).any():
        calls = ("other",)
    real = events.is_kind(*calls, *DEVICE_KINDS)
    if units is not None:
        real &= (
            span_of(events, units.spans, launches=events.of_kind("runtime")) != OUTSIDE
        )
    rows = None if real.all() else np.flatnonzero(real).astype(np.int32)
    chosen = selected(events, rows)
    device = chosen.is_work
    track = np.where(device, chosen.track, _threads(chosen)[chosen.track])
    around, cut = enclosing_calls(
        chosen, track, np.flatnonzero(~device).astype(np.int32)
    )
    launched = np.where(chosen.launch == NOT_RECORDED, NOTHING_AROUND, chosen.launch)[
        device
    ]
    own = _own_times(chosen, around)
    own[device] = self_times(
        chosen.start[device], chosen.duration[device], chosen.track[device]
    )
    around[device] = launched
    return Stacks(
        events=chosen,
        rows=rows,
        around=around,
        called_by=_over_the_queue(chosen, around),
        track=track,
        own=own,
        unit="whole recording" if units is None else units.unit,
        units=1 if units is None else units.spans.start.size,
        unlaunched=int((launched == NOTHING_AROUND).sum()),
        cut=cut,
    )


def attributed_share(stacks: Stacks) -> float | None:
    """The share of the busy time with a known stack; None without work, or if neither
    stack nor launch is recorded.

    On a device that is its work under a recorded operator or function; on a CPU,
    operators under a Python function.
    """
    device = stacks.on_device
    work, callers = device, stacks.events.is_kind("host_op", "python")
    if not device.any():
        work = stacks.events.is_kind("host_op")
        callers = stacks.events.is_kind("python")
    busy = int(stacks.own[work].sum())
    if not busy or stacks.unlaunched == device.sum() > 0 or not callers.any():
        return None
    positions = np.flatnonzero(work).astype(np.int32)
    attributed = nearest_above(stacks, positions, callers) != NOTHING_AROUND
    return int(stacks.own[positions[attributed]].sum()) / busy


def operators_above(stacks: Stacks) -> CodeColumn:
    """For each event the nearest host operator that contains or launched it,
    NOTHING_AROUND for none.
    """
    everything = np.arange(len(stacks.events), dtype=np.int32)
    return nearest_above(stacks, everything, stacks.events.is_kind("host_op"))


def nearest_above(stacks: Stacks, positions: CodeColumn, targets: Mask) -> CodeColumn:
    """For the events at ``positions`` the nearest wanted event that contains or
    launched each, or NOTHING_AROUND.
    """
    everything = np.arange(targets.size, dtype=np.int32)
    nearest = _inherited(
        stacks.called_by, np.where(targets, everything, np.int32(_UNKNOWN))
    )
    above = stacks.called_by[positions]
    return np.where(above == NOTHING_AROUND, np.int32(NOTHING_AROUND), nearest[above])


def requests_served(stacks: Stacks) -> Codes:
    """The request each event served, a position among the names or NO_TEXT: its own,
    else its caller's.
    """
    request = stacks.events.request
    if (request == NO_TEXT).all():
        return request
    return _inherited(
        stacks.called_by, np.where(request == NO_TEXT, np.int32(_UNKNOWN), request)
    )


def frame(name: str, kind: EventKind) -> EventFrame:
    """The frame of an event by its name and kind.

    The line is not part of the name: it changes with edits above the function.
    """
    if kind != "python":
        numbered = _NUMBERED.fullmatch(name)
        return EventFrame(numbered[1] if numbered else name)
    function = _FUNCTION.fullmatch(name)
    if function is None:
        return EventFrame(_ADDRESS.sub("", name))
    file = function["file"]
    return EventFrame(f"{file}: {function['name']}", f"{file}:{function['line']}")


def project_places(
    events: EventTable, around: CodeColumn
) -> tuple[CodeColumn, list[str]]:
    """For each event the nearest function of the project around it, as a position in
    the list of their places.

    NOTHING_AROUND if there is none; ``around`` are positions as of ``Stacks``.
    """
    places = Numbering[str]()
    own = np.full(len(events.names) + 1, _UNKNOWN, dtype=np.int64)
    python = events.is_kind("python")
    for name in np.unique(events.name[python]).tolist():
        function = frame(events.names[name], "python")
        if function.is_project and function.place is not None:
            own[name] = places[function.place]
    direct = np.where(python, own[events.name], _UNKNOWN).astype(np.int32)
    return _inherited(around, direct), list(places)


class _Units(NamedTuple):
    """The marked units in time order."""

    spans: Intervals
    unit: FlameUnit


def _units(events: EventTable) -> _Units | None:
    """The calls that perfgate marked, else the profiler's steps, without an empty last
    one; None if there are none.
    """
    marks = unit_marks(events).marks
    if not len(marks):
        return None
    spans = marks.intervals
    if marks.names[marks.name[0]] == CALL:
        return _Units(spans, "call")
    in_last = (events.start > spans.start[-1]) & (events.start < spans.end[-1])
    has_work = (in_last & events.is_kind("host_op", *DEVICE_KINDS)).any()
    if len(marks) > 1 and not has_work:
        spans = Intervals(spans.start[:-1], spans.end[:-1])
    return _Units(spans, "profiler step")


def _threads(events: EventTable) -> Codes:
    """A number for each track, equal for tracks of one thread."""
    first: dict[str, int] = {}
    numbers = np.arange(len(events.tracks), dtype=np.int32)
    for position, (process, thread) in enumerate(events.tracks):
        if process in _ONE_PROCESS:
            numbers[position] = first.setdefault(thread, position)
    return numbers


def _own_times(events: EventTable, around: CodeColumn) -> IntColumn:
    """The self time of each call in nanoseconds."""
    own = events.duration.copy()
    inner = np.flatnonzero(around != NOTHING_AROUND)
    np.subtract.at(own, around[inner], events.duration[inner])
    return np.maximum(own, 0)


def _over_the_queue(events: EventTable, around: CodeColumn) -> CodeColumn:
    """The caller of each event, with ``Dequeue@NAME`` leading to its ``Enqueue``.

    The task queue is first in, first out, so the tasks are joined in order. If the
    numbers of tasks enqueued and dequeued differ, the recording began or ended amid
    them, and none is joined.
    """
    calls = events.is_kind(*_CALL_KINDS)
    enqueued = _by_start(events, calls & events.is_named(_ENQUEUE.fullmatch))
    dequeued = _by_start(
        events, calls & events.is_named(lambda name: name.startswith("Dequeue"))
    )
    if not dequeued.size or enqueued.size != dequeued.size:
        return around
    called = around.copy()
    called[dequeued] = enqueued
    return called


def _by_start(events: EventTable, chosen: Mask) -> Positions:
    positions = np.flatnonzero(chosen)
    return positions[np.argsort(events.start[positions], kind="stable")]


def _inherited(around: CodeColumn, values: CodeColumn) -> CodeColumn:
    """The value of each event, else of the nearest event above that has one;
    NOTHING_AROUND if none has.
    """
    open_ = np.flatnonzero(values == _UNKNOWN)
    while open_.size:
        above = around[open_]
        values[open_] = np.where(above == NOTHING_AROUND, NOTHING_AROUND, values[above])
        open_ = open_[values[open_] == _UNKNOWN]
    return values


class Launchers(NamedTuple):
    """The work of a timeline, its nanoseconds, and the function and operator that
    launched each piece.

    ``line`` and ``operator`` index the names of the events, NO_LAUNCHER if the
    recording shows none.
    """

    events: EventTable
    time: IntColumn
    line: Codes
    operator: Codes

    @property
    def has_lines(self) -> bool:
        return bool((self.line != NO_LAUNCHER).any())

    def require_lines(self) -> None:
        """Raises UsageError if no Python functions were recorded."""
        if not self.has_lines:
            raise UsageError(
                "the recording has no Python functions, so nothing has a line; record with with_stack=True, or leave out "
                "--by line"
            )

    @property
    def name(self) -> Codes:
        """The name of each piece of work in a view by line: its function, else its
        operator, else its own name.
        """
        return np.where(self.line == NO_LAUNCHER, self.operator_or_own, self.line)

    @property
    def operator_or_own(self) -> Codes:
        return np.where(self.operator == NO_LAUNCHER, self.events.group, self.operator)

    def select(self, chosen: Mask) -> Launchers:
        return Launchers(
            self.events.select(chosen),
            self.time[chosen],
            self.line[chosen],
            self.operator[chosen],
        )

    def heaviest(self, column: Codes, row: Codes, rows: int) -> list[str | None]:
        """For each row the name in a column with most of its time."""
        return heaviest_names(self.events.names, column, self.time, row, rows)


def heaviest_names(
    names: Sequence[str], column: Codes, time: IntColumn, row: Codes, rows: int
) -> list[str | None]:
    """For each row the name in a column with most of its time, None for NO_LAUNCHER."""
    first, pair = group_rows(row, column)
    totals = totals_by_name(pair, time, first.size)
    best: list[str | None] = [None] * rows
    # The last entry of a row, which stays, is the largest.
    for place in first[np.argsort(-totals, kind="stable")[::-1]].tolist():
        name = int(column[place])
        best[int(row[place])] = None if name == NO_LAUNCHER else names[name]
    return best


def launching_operators(stacks: Stacks, work: CodeColumn) -> Codes:
    """The name of the innermost operator that contains or launched each of some events,
    NO_LAUNCHER for none.
    """
    is_operator = stacks.events.is_kind("host_op") & ~stacks.events.is_named(
        _NO_OPERATORS.__contains__
    )
    return _named(stacks, nearest_above(stacks, work, is_operator))


def launchers(stacks: Stacks, kinds: tuple[EventKind, ...]) -> Launchers:
    """The launching call of each event of some kinds; for events of the host, the
    enclosing one.

    The line is the line of the innermost function of the project, else of any file; the
    operator is the innermost operator.
    """
    work = np.flatnonzero(stacks.events.is_kind(*kinds)).astype(np.int32)
    python = stacks.events.is_kind("python")
    in_project = python & stacks.events.is_named(
        lambda name: frame(name, "python").is_project
    )
    in_file = python & stacks.events.is_named(
        lambda name: frame(name, "python").place is not None
    )
    line = _named(stacks, nearest_above(stacks, work, in_project))
    missing = line == NO_LAUNCHER
    line[missing] = _named(stacks, nearest_above(stacks, work[missing], in_file))
    operator = launching_operators(stacks, work)
    events = stacks.events.select(work.astype(np.intp))
    # As everywhere, shares of the busy time use whole spans on the device and self time
    # on the host.
    if set(kinds) <= set(DEVICE_KINDS):
        return Launchers(events, events.duration, line, operator)
    operator = np.where(events.is_kind("host_op"), events.name, operator)
    time = self_times(events.start, events.duration, events.track)
    return Launchers(events, time, line, operator)


def _named(stacks: Stacks, positions: CodeColumn) -> Codes:
    return np.where(
        positions == NOTHING_AROUND, NO_LAUNCHER, stacks.events.name[positions]
    )
