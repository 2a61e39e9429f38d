"""trace_view.json and msprof's timeline: spans, flows and counters, as columns."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.locale import Activity
from perfgate.trace.model.arithmetic import (
    Codes,
    FloatColumn,
    IntColumn,
    Mask,
    count_among,
    group_rows,
)
from perfgate.trace.model.events import KIND_CODES, SHORTEST_WORK_NS, EventTable
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.readings import (
    CORE_CLOCK,
    MEMORY_READ,
    MEMORY_WRITE,
    Direction,
    Readings,
    link_traffic,
)
from perfgate.trace.readers.ascend.kinds import is_unknown_task
from perfgate.trace.scanner.counters import MOST, read_counters
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scan import scan
from perfgate.trace.scanner.scanned import (
    NO_TEXT,
    TRACK_LABELS,
    TRACK_NAME,
    Names,
    ScannedEvents,
    TrackNames,
    requests_named,
    track_names,
)

_FLOW = "HostToDevice"
# Both ends of these arrows are at the begins of events (3,254 of 3,254 in four recorded
# samples).
_AT_EVENTS = frozenset({"async_npu", "async_task_queue", "fwdbwd"})
_FREQUENCY = "AI Core Freq"
# HBM 0/Read, HBM 3/Write: one of the memories, every 20 ms (sample
# msinsight-910B-alexnet-2501). Its MB are MiB: every value is a whole number of bytes
# divided by 2 ** 20.
_MEMORY = {access: re.compile(rf"HBM \d+/{access}$") for access in ("Read", "Write")}
_MEBIBYTE = 1 << 20
# Written as a share under the unit %: 0.785 where the database of the same run has 78.5
# (sample msinsight-910B-alexnet-2501).
_SHARE = re.compile(r"LLC \d+ \w+/Hit Rate$")
# All as written: versions differ in which of them are words or numbers, and most events
# need none of them.
_TASK_TYPE, _INPUTS, _REQUEST = "Task Type", "Input Dims", "request_id"
_MEGAHERTZ = "MHz"
# Posted writes, requests to read and the data that answer them, in MiB a second as the
# memory's (msprof's exporters of both formats); a database has the same in bytes.
_PCIE = re.compile(r"PCIe_(?:post|nonpost|cpl) (Tx|Rx)")
_PCIE_KINDS = 3
_WAYS: dict[str, Direction] = {"Tx": "sent", "Rx": "received"}
_RATES = {"Read": (MEMORY_READ, "Read(MB/s)"), "Write": (MEMORY_WRITE, "Write(MB/s)")}
_Key = tuple[str, str]


class Detail(NamedTuple):
    """The arguments of an event that determine its kind, besides its name."""

    category: str
    task_type: str
    has_inputs: bool


class Flows(NamedTuple):
    """One end of the arrows from host to device: the arrow's id, its track (number in
    ``View.keys``) and its time.
    """

    flow: IntColumn
    track: Codes
    time: IntColumn


class View(msgspec.Struct, frozen=True):
    """A timeline as in the file. Every event still has kind ``other``; ``detail``
    indexes ``details``.

    ``keys`` are process and thread id of each track. ``readings`` are the counters of
    the device over time, by process id.
    """

    events: EventTable
    detail: Codes
    details: tuple[Detail, ...]
    keys: tuple[_Key, ...]
    starts: Flows
    ends: Flows
    bare_arrows: int  # ends of other arrows at which no event begins
    overwritten: tuple[Message, ...]
    names: TrackNames
    readings: dict[str, dict[str, Readings]]

    @property
    def is_unknown(self) -> list[bool]:
        """Whether each of the details names a task of unknown type."""
        return [is_unknown_task(detail.task_type) for detail in self.details]


def read_view(path: Path) -> View:
    """Raises DocumentError, which names the fault and its place, for any other file."""
    rates = [argument for _, argument in _RATES.values()]
    keys = (
        _TASK_TYPE,
        _INPUTS,
        _MEGAHERTZ,
        TRACK_NAME,
        TRACK_LABELS,
        _REQUEST,
        *rates,
        COUNTER_ARGUMENTS,
    )
    texts, spans, others, read_arrows, _ = scan(
        path, texts=keys, arrows=True, advice=Activity("analyse the profile again")
    )
    # The ends of the arrows from a call to the work it started on a device.
    arrows = read_arrows()
    is_flow = arrows.of.flagged(arrows.category, _FLOW.__eq__)
    starts = arrows.select(is_flow & arrows.is_phase("s"))
    ends = arrows.select(is_flow & arrows.is_phase("f"))
    bare_arrows = _bare_arrows(
        spans,
        arrows.select(arrows.of.flagged(arrows.category, _AT_EVENTS.__contains__)),
    )
    del read_arrows, arrows, is_flow  # as many arrows as spans: free their memory first
    # Arrows may be on threads without spans, so their tracks count too.
    (track, of_starts, of_ends), tracks = texts.number_tracks(spans, starts, ends)
    detail, details = _details(spans)
    return View(
        events=replace(_events(spans), track=track, tracks=tuple(tracks)),
        detail=detail,
        details=details,
        keys=tuple(tracks),
        starts=Flows(starts.flow(), of_starts, starts.times(durations=False)[0]),
        ends=Flows(ends.flow(), of_ends, ends.times(durations=False)[0]),
        bare_arrows=bare_arrows,
        overwritten=texts.overwritten(),
        names=track_names(others),
        readings=_readings(others.select(others.is_phase("C"))),
    )


def _bare_arrows(spans: ScannedEvents, arrows: ScannedEvents) -> int:
    """The number of ends of arrows at which no span of their track begins."""
    begins, _ = spans.times()
    ends, _ = arrows.times(durations=False)
    tracks = len(spans.of.places)
    return ends.size - count_among(
        ends * tracks + arrows.track, begins * tracks + spans.track
    )


def _events(spans: ScannedEvents) -> EventTable:
    start, duration = spans.times()
    texts, names = spans.of, Names(spans.of)
    name = names.column(spans.name, absent="")
    request = requests_named(
        spans, names, _REQUEST, np.arange(len(spans), dtype=np.int32)
    )
    return EventTable(
        start=start,
        duration=duration,
        track=np.zeros(len(spans), dtype=np.int32),
        name=name,
        kind=np.full(len(spans), KIND_CODES["other"], dtype=np.uint8),
        group=name,
        request=request,
        shape=names.sparse(
            spans.arguments[_INPUTS],
            len(spans),
            lambda code: texts.words[code].replace(";\r\n", ";"),
        ),
        names=names.all(),
        tracks=(),
        shortest_ns=SHORTEST_WORK_NS,
    )


def _details(spans: ScannedEvents) -> tuple[Codes, tuple[Detail, ...]]:
    """The detail of each span, and all details in file order."""
    category = spans.category
    task_type = spans.argument(_TASK_TYPE)
    word = spans.of.word
    has_inputs = spans.argument(_INPUTS) != NO_TEXT
    first, row = group_rows(category, task_type, has_inputs.astype(np.int8))
    numbers = Numbering[Detail]()
    codes = []
    for span in first.tolist():
        detail = Detail(
            word(int(category[span])),
            word(int(task_type[span])),
            bool(has_inputs[span]),
        )
        codes.append(numbers[detail])
    return np.array(codes, dtype=np.int32)[row], tuple(numbers)


def _readings(counters: ScannedEvents) -> dict[str, dict[str, Readings]]:
    """The clock of the core, the traffic of the memory and all other counters as
    recorded, each by process id.
    """
    readings: dict[str, dict[str, Readings]] = defaultdict(dict)
    is_clock = counters.of.flagged(counters.name, _FREQUENCY.__eq__)
    for pid, clocks in _by_process(counters, is_clock, _MEGAHERTZ):
        time, _ = clocks.times(durations=False)
        readings[pid][CORE_CLOCK] = Readings.of(
            time, _numbers(clocks, _MEGAHERTZ) * 1e6, "Hz"
        )
    remaining = ~(is_clock & (counters.argument(_MEGAHERTZ) != NO_TEXT))
    for access, (name, argument) in _RATES.items():
        is_memory = counters.of.flagged(counters.name, _MEMORY[access].match)
        remaining &= ~(is_memory & (counters.argument(argument) != NO_TEXT))
        for pid, traffic in _by_process(counters, is_memory, argument):
            time, _ = traffic.times(durations=False)
            rates = _numbers(traffic, argument) * _MEBIBYTE
            readings[pid][name] = Readings.summed(
                time, rates, traffic.name.astype(np.int64), "B/s"
            )
    series, _ = read_counters(counters.select(remaining))
    for pid, name, recorded in series:
        readings[pid].setdefault(name, _in_base_units(name, recorded))
    for of_process in readings.values():
        for way, direction in _WAYS.items():
            kinds = _transfers(of_process, way)
            if len(kinds) == _PCIE_KINDS:  # every kind of transfer was counted
                of_process[link_traffic("PCIe", direction)] = Readings.total(kinds)
    return readings


def _in_base_units(name: str, recorded: Readings) -> Readings:
    """The file does not name the unit; these are the units of a database."""
    if _SHARE.match(name):
        return replace(recorded, value=recorded.value * 100)
    if _PCIE.fullmatch(name):
        return replace(recorded, value=recorded.value * _MEBIBYTE, unit="B/s")
    return recorded


def _transfers(readings: Mapping[str, Readings], way: str) -> list[Readings]:
    """All kinds of transfers over PCIe in one direction."""
    kinds = []
    for name, recorded in readings.items():
        match = _PCIE.fullmatch(name)
        if match and match[1] == way:
            kinds.append(recorded)
    return kinds


def _by_process(
    counters: ScannedEvents, chosen: Mask, argument: str
) -> Iterator[tuple[str, ScannedEvents]]:
    """The chosen events that have an argument, by process id."""
    counters = counters.select(chosen & (counters.argument(argument) != NO_TEXT))
    process, _ = counters.process_and_thread()
    for code in np.unique(process).tolist():
        yield counters.of.word(code), counters.select(process == code)


def _numbers(counters: ScannedEvents, argument: str) -> FloatColumn:
    """The numbers of an argument.

    Raises DocumentError, which names the first event with an argument that is not a
    number.
    """
    codes, back = np.unique(counters.argument(argument), return_inverse=True)
    numbers = np.zeros(codes.size)
    for place, code in enumerate(codes.tolist()):
        text = counters.of.texts[code].strip(b'"')
        try:
            numbers[place] = float(text)
        except ValueError:
            numbers[place] = math.nan
        if not abs(numbers[place]) < MOST:
            first = int(np.argmax(back == place))
            word = text[:20].decode("ascii", "replace")
            error = Activity(
                "its {argument} {word!r} is not a number", argument=argument, word=word
            )
            counters.of.refuse(
                int(counters.event[first]), int(counters.name[first]), error
            )
    return numbers[back]
