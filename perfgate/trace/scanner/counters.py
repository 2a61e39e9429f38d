"""The counters of a trace file: events of phase C, with the values of one or several
series as arguments.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from perfgate.trace.model.arithmetic import Mask
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.readings import Readings
from perfgate.trace.scanner.library import COUNTER_ARGUMENTS
from perfgate.trace.scanner.scanned import ODD_TIME, ScannedEvents

# No counter reaches this; a larger value, or one that is not a number, is damage.
MOST = 1e15
# A damaged file may have any keys.
_MOST_SERIES = 500
# Ascend's keys: Read(MB/s), Hit Rate(%), MHz, KB. Other writers call a single series
# value, or by the counter's own name.
_UNIT_IN_KEY = lazy_pattern(r"(.*?)\s*\(([^()]+)\)")
_UNITS = frozenset(
    {"Hz", "MHz", "B", "bytes", "KB", "MB", "B/s", "MB/s", "GB/s", "W", "mV", "%"}
)
_NO_NAMES = frozenset({"value", "counter", ""})
_ID = lazy_pattern(r"(^|[ _])id$", re.IGNORECASE)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])


class CounterSeries(NamedTuple):
    """One series of the values of a counter of a process, as recorded."""

    process: str
    name: str
    readings: Readings


class _Place(NamedTuple):
    """The texts of a counter's process and name, the key of one series, and the ids
    next to it.
    """

    process: int
    name: int
    key: str
    ids: str


def read_counters(counters: ScannedEvents) -> tuple[list[CounterSeries], Mask]:
    """The series of events of phase C, in the order in which they begin, and which
    events hold no number or no plain time.
    """
    process, _ = counters.process_and_thread()
    arguments = counters.argument(COUNTER_ARGUMENTS)
    unread = np.ones(len(counters), dtype=bool)
    series: dict[_Place, tuple[array[int], array[float]]] = {}
    readable = np.flatnonzero((counters.start > ODD_TIME) & (arguments >= 0))
    for row in readable.tolist():
        for key, ids, value in _values(counters.of.texts[arguments[row]]):
            place = _Place(int(process[row]), int(counters.name[row]), key, ids)
            if place not in series and len(series) == _MOST_SERIES:
                continue
            times, values = series.setdefault(place, (array("q"), array("d")))
            times.append(int(counters.start[row]))
            values.append(value)
            unread[row] = False
    keys: dict[tuple[int, int], set[str]] = defaultdict(set)
    for place in series:
        keys[place.process, place.name].add(place.key)
    word = counters.of.word
    rows = []
    for place, (times, values) in series.items():
        alone = len(keys[place.process, place.name]) == 1
        label, unit = _label(word(place.name), place.key, alone=alone)
        readings = Readings.of(np.array(times), np.array(values), unit)
        rows.append(CounterSeries(word(place.process), label + place.ids, readings))
    return rows, unread


def _values(arguments: bytes) -> Iterator[tuple[str, str, float]]:
    """The numbers of an object, each with its key and the ids next to it; a number may
    be in quotes.

    An id distinguishes counters of one name (Acc PMU's acc_id), so it becomes part of
    the name.
    """
    try:
        members = _ARGUMENTS.decode(arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    ids = "".join(f" {value}" for key, value in members.items() if _ID.search(key))
    for key, value in members.items():
        if (
            _ID.search(key)
            or isinstance(value, bool)
            or not isinstance(value, (int, float, str))
        ):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if abs(number) < MOST:
            yield key, ids, number


def _label(name: str, key: str, *, alone: bool) -> tuple[str, str]:
    """The name of a series, and its unit."""
    part, unit = key, ""
    in_key = _UNIT_IN_KEY.fullmatch(key)
    if in_key:
        part, unit = in_key[1], in_key[2]
    elif key in _UNITS:
        part, unit = "", key
    in_name = part.lower() in _NO_NAMES or name.lower().endswith(part.lower())
    if in_name or (alone and unit):
        return name, unit
    return f"{name} {part}", unit
