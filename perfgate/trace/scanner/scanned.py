"""Every event of a trace file as columns, however they were read
(``perfgate.trace.scanner.scan``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.loops import first_places, look_up
from perfgate.trace.model.arithmetic import CodeColumn, Codes, IntColumn, Mask, one_of
from perfgate.trace.model.events import constant, nanoseconds
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.scanner import library
from perfgate.trace.scanner.chrome_events import request_of, unquoted

# Stand for a time that is missing, and for one that only its text represents.
ABSENT, ODD_TIME = -(1 << 63), -(1 << 63) + 1
NO_TEXT, NO_NUMBER = -1, -1
# Chrome's trace event format, "Event Descriptions".
_PHASES = {
    "B": "begins",
    "E": "ends",
    "b": "begins of asynchronous spans",
    "e": "ends of asynchronous spans",
    "n": "instants of asynchronous spans",
    "C": "counters",
    "i": "instants",
    "I": "instants",
}


class SparseColumn(NamedTuple):
    """A value that few of the events have: their rows, and the value of each."""

    rows: CodeColumn
    values: npt.NDArray[Any]

    def dense(self, count: int) -> npt.NDArray[Any]:
        """The value of each of ``count`` events, NO_TEXT or NO_NUMBER for those without
        one.
        """
        column = np.full(count, NO_NUMBER, dtype=self.values.dtype)
        column[self.rows] = self.values
        return column

    def select(self, chosen: Mask, place: CodeColumn) -> SparseColumn:
        """The values of the chosen events; ``place`` is the position of each event
        among them.
        """
        stays = chosen[self.rows]
        return SparseColumn(place[self.rows[stays]], self.values[stays])

    def with_others(
        self, others: SparseColumn, place: CodeColumn, count: int
    ) -> SparseColumn:
        """The values of these and other events, which follow ``count`` events;
        ``place`` is the new position of each event.
        """
        rows = place[np.concatenate((self.rows, others.rows + count))]
        return SparseColumn(rows, np.concatenate((self.values, others.values)))


class ScannedTexts:
    """The texts behind the columns of a file's events: every text once, as it is
    written in JSON, and every place.

    A place is the texts of process and thread. ``odd`` has the texts of times that are
    not plain numbers, by event and column; ``uniform_bytes`` is that of TraceText.
    """

    def __init__(
        self,
        path: Path,
        advice: Activity,
        texts: list[bytes],
        places: CodeColumn,
        odd: dict[tuple[int, str], bytes],
        *,
        uniform_bytes: int = 0,
    ) -> None:
        self.path = path
        self.advice = advice
        self.texts = texts
        self.places = places
        self.odd = odd
        self.uniform_bytes = uniform_bytes

    @cached_property
    def words(self) -> list[str]:
        """The texts without the quotes and escapes of JSON; a value of another kind as
        it is written.
        """
        try:
            return decoded(self.texts)
        except NO_TEXT_AT_ALL:
            return [_nearly(text) for text in self.texts]

    def word(self, code: int) -> str:
        return self.words[code] if code >= 0 else ""

    def used(self, column: CodeColumn) -> list[int]:
        """The numbers of the texts that a column has."""
        first = first_places(column, len(self.texts))[1:]  # without NO_TEXT
        return np.flatnonzero(first >= 0).tolist()

    def judged(
        self,
        column: CodeColumn,
        judge: Callable[[int], int],
        *,
        otherwise: int,
        dtype: type[Any] = np.int64,
    ) -> npt.NDArray[Any]:
        """The result of a function for each event's text in this column, by its number;
        it is called once per text.
        """
        verdicts = np.full(len(self.texts) + 1, otherwise, dtype=dtype)
        for code in self.used(column):
            verdicts[code] = judge(code)
        return look_up(verdicts, column)

    def flagged(self, column: CodeColumn, matches: Callable[[str], object]) -> Mask:
        """The events with a text in this column that matches; each text is tried once."""
        return self.judged(
            column,
            lambda code: bool(matches(self.words[code])),
            otherwise=False,
            dtype=np.bool_,
        )

    def number_tracks(
        self, *events: ScannedEvents
    ) -> tuple[list[CodeColumn], list[tuple[str, str]]]:
        """The track of each event, and process and thread of each track, in the order
        of the file.
        """
        last = np.iinfo(np.int64).max
        first = np.full(len(self.places), last)
        for rows in events:
            begins = first_places(rows.track, len(self.places))[1:]
            there = begins >= 0
            first[there] = np.minimum(first[there], rows.event[begins[there]])
        numbers = Numbering[tuple[str, str]]()
        renumbered = np.zeros(first.size, dtype=np.int32)
        present = np.count_nonzero(first < last)
        for code in np.argsort(first, kind="stable")[:present].tolist():
            process, thread = self.places[code].tolist()
            renumbered[code] = numbers[self._plain(process), self._plain(thread)]
        return [look_up(renumbered, rows.track) for rows in events], list(numbers)

    def refuse(self, event: int, name: int, error: ValueError | Activity) -> NoReturn:
        """Raise DocumentError that names an event."""
        word = self.words[name] if name >= 0 else None
        raise DocumentError(
            "{path}: event {event} ({word!r}): {fault}; {advice}",
            path=self.path,
            event=event,
            word=word,
            fault=error.args[0] if isinstance(error, ValueError) else error,
            advice=self.advice,
        )

    def overwritten(self) -> tuple[Message, ...]:
        """A note on a part of the file that another one took the place of; empty if
        there is none.
        """
        if not self.uniform_bytes:
            return ()
        return (
            Message(
                "notes.overwritten",
                {"path": str(self.path), "bytes": self.uniform_bytes},
            ),
        )

    def _plain(self, code: int) -> str:
        return unquoted(self.texts[code]) if code >= 0 else ""


class ScannedEvents(msgspec.Struct):
    """Some events of a file, in its order: columns of one entry each.

    ``event`` is the number of each in the file, ``phase`` the character of ``ph`` (0 if
    it is not a single one). ``category`` and ``name`` index the texts or are NO_TEXT;
    names of arrows (``s``, ``t``, ``f``) are not kept. ``track`` indexes the places.
    ``start`` and ``duration`` are nanoseconds, ABSENT or ODD_TIME. ``flows`` are the
    numbers of arrows, below NO_NUMBER if the id is invalid; ``arguments`` are the
    requested arguments, whole numbers or texts.
    """

    of: ScannedTexts
    phase: npt.NDArray[np.uint8]
    event: CodeColumn
    category: CodeColumn
    name: CodeColumn
    track: CodeColumn
    start: IntColumn
    duration: IntColumn
    flows: SparseColumn
    arguments: dict[str, SparseColumn]

    def __len__(self) -> int:
        return int(self.phase.size)

    def select(self, chosen: Mask) -> ScannedEvents:
        rows, place = np.flatnonzero(chosen), np.cumsum(chosen, dtype=np.int32) - 1
        members: dict[str, Any] = {
            name: getattr(self, name).take(rows) for name in library.MEMBERS
        }
        arguments = {
            key: column.select(chosen, place) for key, column in self.arguments.items()
        }
        return replace(
            self, flows=self.flows.select(chosen, place), arguments=arguments, **members
        )

    def with_others(self, others: ScannedEvents) -> ScannedEvents:
        """These and others of the file, in its order."""
        if not len(others):
            return self
        order = np.argsort(np.concatenate((self.event, others.event)), kind="stable")
        place = np.empty(order.size, dtype=np.int32)
        place[order] = np.arange(order.size, dtype=np.int32)
        members: dict[str, Any] = {}
        for name in library.MEMBERS:
            column = np.concatenate((getattr(self, name), getattr(others, name)))
            members[name] = column[order]
        arguments = {}
        for key, values in self.arguments.items():
            arguments[key] = values.with_others(others.arguments[key], place, len(self))
        flows = self.flows.with_others(others.flows, place, len(self))
        return replace(self, flows=flows, arguments=arguments, **members)

    def process_and_thread(self) -> tuple[CodeColumn, CodeColumn]:
        """The texts of process and thread of each event."""
        places = self.of.places[self.track]
        return places[:, 0], places[:, 1]

    def flow(self) -> IntColumn:
        """The number of each arrow, NO_NUMBER for none."""
        return self.flows.dense(len(self))

    def argument(self, key: str) -> npt.NDArray[Any]:
        """The value of an argument for each event: whole numbers or NO_NUMBER, texts or
        NO_TEXT.
        """
        return self.arguments[key].dense(len(self))

    def numbers(self, key: str) -> Codes:
        """The same of whole numbers, in four bytes each if all fit."""
        column = self.arguments[key]
        if column.values.max(initial=0) > np.iinfo(np.int32).max:
            return column.dense(len(self))
        return SparseColumn(column.rows, column.values.astype(np.int32)).dense(
            len(self)
        )

    def is_phase(self, *phases: str) -> Mask:
        return one_of(self.phase, map(ord, phases))

    def times(self, *, durations: bool = True) -> tuple[IntColumn, IntColumn]:
        """Start and duration of each event in nanoseconds; a duration that is not given
        is 0.

        Raises DocumentError that names the first event with invalid times.
        """
        start = self.start
        duration = self.duration if durations else np.zeros(start.size, dtype=np.int64)
        absent = duration == ABSENT
        if absent.any():
            duration = np.where(absent, 0, duration)
        odd = np.flatnonzero((start <= ODD_TIME) | (duration == ODD_TIME))
        if not odd.size:
            return start, duration
        start, duration = start.copy(), duration.copy()
        for row in odd.tolist():
            event = int(self.event[row])
            try:
                if duration[row] == ODD_TIME:
                    duration[row] = _duration(self.of.odd[event, "duration"])
                if start[row] <= ODD_TIME:
                    start[row] = nanoseconds(self.of.odd.get((event, "start"), b""))
            except ValueError as error:
                self.of.refuse(event, int(self.name[row]), error)
        return start, duration

    def ignored(self, phases: str) -> tuple[Message, ...]:
        """A note on events of these phases, which a reader ignores; empty if there are
        none.
        """
        ignored = []
        for phase in phases:
            count = int((self.phase == ord(phase)).sum())
            if count:
                ignored.append(f"{count} {_PHASES[phase]} ({phase})")
        if not ignored:
            return ()
        return (
            Message(
                "notes.events-ignored",
                {"path": str(self.of.path), "what": ", ".join(ignored)},
            ),
        )

    def of_unknown_phase(self, known: str) -> tuple[Message, ...]:
        """A note on events of other phases than these, which their profiler does not
        write; empty if there are none.
        """
        counts = np.bincount(self.phase)
        unknown = []
        for code in np.flatnonzero(counts).tolist():
            # JAX ends its list with an empty event.
            if code and chr(code) not in known:
                unknown.append(f"{counts[code]} {chr(code)}")
        if not unknown:
            return ()
        return (
            Message(
                "notes.unknown-phases",
                {"path": str(self.of.path), "what": ", ".join(unknown)},
            ),
        )


def _duration(text: bytes) -> int:
    """Raises ValueError for a text that is not a duration."""
    duration = nanoseconds(text)
    if duration < 0:
        raise ValueError(
            Activity(
                "its duration {duration} is negative",
                duration=text.decode("ascii", "replace"),
            )
        )
    return duration


class TrackNames(NamedTuple):
    """The names and labels of processes, and the names of threads by process and
    thread, by their ids.
    """

    processes: dict[str, str]
    labels: dict[str, str]
    threads: dict[tuple[str, str], str]


# The arguments of an event that names a track.
TRACK_NAME, TRACK_LABELS = "name", "labels"


def track_names(others: ScannedEvents) -> TrackNames:
    """The names of the tracks of a file by its events of metadata."""
    names = TrackNames({}, {}, {})
    rows = others.select(others.is_phase("M"))
    (track,), keys = rows.of.number_tracks(rows)
    columns = rows.name, rows.argument(TRACK_NAME), rows.argument(TRACK_LABELS)
    for number, *codes in zip(track.tolist(), *(column.tolist() for column in columns)):
        kind, name, labels = map(rows.of.word, codes)
        process, thread = keys[number]
        if kind == "thread_name":
            names.threads[process, thread] = name
        elif kind == "process_name":
            names.processes[process] = name
        elif kind == "process_labels":
            names.labels[process] = labels
    return names


class ScannedFile(NamedTuple):
    """All events of a file: complete events (phase ``X``) apart from the others; and
    the file without its events.

    ``read_arrows`` gives the arrows (``s``, ``t``, ``f``). They may be half of a file,
    and most readers do without.
    """

    texts: ScannedTexts
    complete: ScannedEvents
    others: ScannedEvents
    read_arrows: Callable[[], ScannedEvents]
    around: bytes


class Names:
    """The names of a table, made from the words of scanned texts: two spellings of one
    word are one name.
    """

    def __init__(self, texts: ScannedTexts) -> None:
        self._texts = texts
        self._numbers = Numbering[str]()

    def column(
        self,
        codes: CodeColumn,
        name_of: Callable[[int], str | None] | None = None,
        *,
        absent: str | None,
    ) -> CodeColumn:
        """The number of each event's name: its word, or the result of ``name_of`` for
        its text; NO_TEXT if that is None.
        """
        name_of = name_of or self._texts.words.__getitem__
        otherwise = NO_TEXT
        if (codes == NO_TEXT).any():
            otherwise = self._numbers.code(absent)
        return self._texts.judged(
            codes,
            lambda code: self._numbers.code(name_of(code)),
            otherwise=otherwise,
            dtype=np.int32,
        )

    def sparse(
        self,
        column: SparseColumn,
        count: int,
        name_of: Callable[[int], str | None] | None = None,
    ) -> CodeColumn:
        """The same for a value that few of ``count`` events have; NO_TEXT for all
        others.
        """
        return SparseColumn(
            column.rows, self.column(column.values, name_of, absent=None)
        ).dense(count)

    def all(self) -> tuple[str, ...]:
        return tuple(self._numbers)


def requests_named(
    spans: ScannedEvents, names: Names, key: str, marks: Codes
) -> CodeColumn:
    """The request that each span served: by an argument, else, of the spans at
    ``marks``, by their names.
    """
    argument, words = spans.arguments[key], spans.of.words
    request: CodeColumn = constant("request", NO_TEXT, len(spans))
    if argument.rows.size:
        request = names.sparse(argument, len(spans))
    marks = marks[request[marks] == NO_TEXT]
    named = names.column(
        spans.name[marks], lambda code: request_of(None, words[code]), absent=None
    )
    if (named != NO_TEXT).any():
        request = request.copy()
        request[marks] = named
    return request


NO_TEXT_AT_ALL = (msgspec.MsgspecError, UnicodeDecodeError)


def decoded(texts: list[bytes]) -> list[str]:
    """The words of texts: 7 and "7" are one. Raises msgspec's error for an invalid
    text.
    """
    in_quotes = [text for text in texts if text.startswith(b'"')]
    quoted = iter(msgspec.json.decode(b"[%b]" % b",".join(in_quotes)))
    return [
        next(quoted) if text.startswith(b'"') else text.decode("utf-8", "replace")
        for text in texts
    ]


def _nearly(text: bytes) -> str:
    """A word even for invalid text; in names and categories that was refused before."""
    try:
        return decoded([text])[0]
    except NO_TEXT_AT_ALL:
        return text.strip(b'"').decode("utf-8", "replace")
