"""The counters of a trace file: events of phase C, with the values of one or several series as arguments."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import Any

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
# Ascend's keys: Read(MB/s), Hit Rate(%), MHz, KB. Other writers call a single series value, or by the counter's own name.
_UNIT_IN_KEY = lazy_pattern(r"(.*?)\s*\(([^()]+)\)")
_UNITS = frozenset({"Hz", "MHz", "B", "bytes", "KB", "MB", "B/s", "MB/s", "GB/s", "W", "mV", "%"})
_NO_NAMES = frozenset({"value", "counter", ""})
_ID = lazy_pattern(r"(^|[ _])id$", re.IGNORECASE)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])


# A process, the name of one series of its values, and these, as recorded.
CounterSeries = tuple[str, str, Readings]


def read_counters(counters: ScannedEvents) -> tuple[list[CounterSeries], Mask]:
    """The series of events of phase C, in the order in which they begin, and which events hold no number or no plain time."""
    process, _ = counters.process_and_thread()
    texts = counters.of.texts
    unread = np.ones(len(counters), dtype=bool)
    series: dict[tuple[int, int, str, str], tuple[array[int], array[float]]] = {}
    columns = process, counters.name, counters.argument(COUNTER_ARGUMENTS), counters.start
    for row, (owner, name, arguments, time) in enumerate(zip(*(column.tolist() for column in columns))):
        is_timed = time > ODD_TIME and arguments >= 0
        for key, ids, value in _values(texts[arguments]) if is_timed else ():
            place = (owner, name, key, ids)
            if place not in series and len(series) == _MOST_SERIES:
                continue
            times, values = series.setdefault(place, (array("q"), array("d")))
            times.append(time)
            values.append(value)
            unread[row] = False
    keys: dict[tuple[int, int], set[str]] = {}
    for owner, name, key, _ in series:
        keys.setdefault((owner, name), set()).add(key)
    word = counters.of.word
    found = []
    for (owner, name, key, ids), (times, values) in series.items():
        label, unit = _label(word(name), key, alone=len(keys[owner, name]) == 1)
        found.append((word(owner), label + ids, Readings.of(np.array(times), np.array(values), unit)))
    return found, unread


def _values(arguments: bytes) -> Iterator[tuple[str, str, float]]:
    """The numbers of an object, each with its key and the ids beside it; a number may stand in quotes.

    An id tells several counters of one name apart (Acc PMU's acc_id), so it becomes part of the name.
    """
    try:
        members = _ARGUMENTS.decode(arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    ids = "".join(f" {value}" for key, value in members.items() if _ID.search(key))
    for key, value in members.items():
        if _ID.search(key) or isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if abs(number) < MOST:
            yield key, ids, number


def _label(name: str, key: str, *, alone: bool) -> tuple[str, str]:
    """The name of a series, and its unit."""
    in_key = _UNIT_IN_KEY.fullmatch(key)
    part, unit = (in_key[1], in_key[2]) if in_key else ("", key) if key in _UNITS else (key, "")
    is_said = part.lower() in _NO_NAMES or name.lower().endswith(part.lower())
    return (name if is_said or (alone and unit) else f"{name} {part}"), unit
