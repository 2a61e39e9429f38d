"""Every event of a trace file as columns, however they were read (``perfgate.trace.scan``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.analysis import CodeColumn, IntColumn
from perfgate.trace.chrome_events import unquoted
from perfgate.trace.events import nanoseconds

# Instead of a time: none was given, or one that only its text tells.
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

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SparseColumn:
    """What few of the events have: their rows, rising, and the value of each."""

    rows: CodeColumn
    values: npt.NDArray[Any]

    def of(self, chosen: npt.NDArray[np.intp] | slice, *, count: int) -> npt.NDArray[Any]:
        """The value of each chosen event of ``count``, NO_TEXT or NO_NUMBER where it has none."""
        column = np.full(count, NO_NUMBER, dtype=self.values.dtype)
        column[self.rows] = self.values
        return column[chosen]


_ALL = slice(None)


@dataclass
class ScannedEvents:
    """All events of a file, in its order: columns of one entry each.

    ``phase`` is the character of ``ph`` (0 where it is no single one). ``category`` and ``name`` index ``texts``, values as
    they are written in JSON, or are NO_TEXT; names of arrows (``s``, ``t``, ``f``) are not kept. ``track`` indexes ``places``,
    of which each is the texts of process and thread. ``start`` and ``duration`` are nanoseconds, ABSENT or ODD_TIME; ``odd``
    has the text of the latter by row and column. ``flows`` are the numbers of arrows, below NO_NUMBER where the id is none;
    ``arguments`` are those that were asked for, whole numbers or texts. ``around`` is the file without its events.
    """

    path: Path
    advice: str
    texts: list[bytes]
    places: CodeColumn
    phase: npt.NDArray[np.uint8]
    category: CodeColumn
    name: CodeColumn
    track: CodeColumn
    start: IntColumn
    duration: IntColumn
    flows: SparseColumn
    arguments: dict[str, SparseColumn]
    odd: dict[tuple[int, str], bytes]
    around: bytes

    def __len__(self) -> int:
        return int(self.phase.size)

    @cached_property
    def words(self) -> list[str]:
        """The texts without the quotes and escapes of JSON; a value of another kind as it is written."""
        try:
            return decoded(self.texts)
        except NO_TEXT_AT_ALL:
            return [_nearly(text) for text in self.texts]

    def process_and_thread(self, chosen: npt.NDArray[np.intp]) -> tuple[CodeColumn, CodeColumn]:
        """The texts of process and thread of these events."""
        places = self.places[self.track[chosen]]
        return places[:, 0], places[:, 1]

    def flow(self, chosen: npt.NDArray[np.intp]) -> IntColumn:
        """The number of each of these arrows, NO_NUMBER where it has none."""
        return self.flows.of(chosen, count=len(self))

    def argument(self, key: str, chosen: npt.NDArray[np.intp] | slice = _ALL) -> npt.NDArray[Any]:
        """What these events, or all, say under an argument: whole numbers or NO_NUMBER, texts or NO_TEXT."""
        return self.arguments[key].of(chosen, count=len(self))

    def is_phase(self, *phases: str) -> Mask:
        is_asked = np.zeros(256, dtype=bool)
        is_asked[[ord(phase) for phase in phases]] = True
        return is_asked[self.phase]

    def flagged(self, column: CodeColumn, matches: Callable[[str], object]) -> Mask:
        """Which events have a text in this column whose word matches; each is tried once."""
        return self.judged(column, lambda code: bool(matches(self.words[code])), otherwise=False, dtype=np.bool_)

    def judged(
        self, column: CodeColumn, judge: Callable[[int], int], *, otherwise: int, dtype: type[Any] = np.int64
    ) -> npt.NDArray[Any]:
        """What a function says of each event's text in this column, by its number; each is judged once."""
        verdicts = np.full(len(self.texts) + 1, otherwise, dtype=dtype)
        for code in self.used(column):
            verdicts[code] = judge(code)
        return verdicts[column]

    def word(self, code: int) -> str:
        return self.words[code] if code >= 0 else ""

    def used(self, column: CodeColumn) -> list[int]:
        """The numbers of the texts that a column has."""
        used = np.zeros(len(self.texts) + 1, dtype=bool)
        used[column] = True
        return np.flatnonzero(used[:-1]).tolist()

    def times(self, chosen: npt.NDArray[np.intp], *, durations: bool = True) -> tuple[IntColumn, IntColumn]:
        """Start and duration of these events in nanoseconds; a duration that is not given is 0.

        Raises DocumentError that names the first event whose times are none.
        """
        start = self.start[chosen]
        duration = self.duration[chosen] if durations else np.zeros(chosen.size, dtype=np.int64)
        duration[duration == ABSENT] = 0
        strange = np.flatnonzero((start <= ODD_TIME) | (duration == ODD_TIME))
        for place in strange.tolist():
            row = int(chosen[place])
            try:
                if duration[place] == ODD_TIME:
                    text = self.odd[row, "duration"]
                    duration[place] = nanoseconds(text)
                    if duration[place] < 0:
                        raise ValueError(f"its duration {text.decode('ascii', 'replace')} is negative")
                if start[place] <= ODD_TIME:
                    start[place] = nanoseconds(self.odd.get((row, "start"), b""))
            except ValueError as error:
                self.refuse(row, error)
        return start, duration

    def refuse(self, row: int, error: ValueError | str) -> NoReturn:
        """Raise DocumentError that names the event of a row."""
        name = self.words[self.name[row]] if self.name[row] >= 0 else None
        raise DocumentError(f"{self.path}: event {row} ({name!r}): {error}; {self.advice}")

    def tracks(self, chosen: npt.NDArray[np.intp]) -> tuple[CodeColumn, list[tuple[str, str]]]:
        """The track of each of these events, and process and thread of each track, in the order of the file."""
        codes = self.track[chosen]
        first = np.full(len(self.places), codes.size)
        first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
        numbers: dict[tuple[str, str], int] = {}
        renumbered = np.zeros(first.size, dtype=np.int32)
        for code in np.argsort(first, kind="stable")[: np.count_nonzero(first < codes.size)].tolist():
            process, thread = self.places[code].tolist()
            renumbered[code] = numbers.setdefault((self._plain(process), self._plain(thread)), len(numbers))
        return renumbered[codes], list(numbers)

    def ignored(self, phases: str) -> tuple[Message, ...]:
        """A note on events of these phases, which a reader does not read; nothing where there are none."""
        counts = {phase: int((self.phase == ord(phase)).sum()) for phase in phases}
        what = ", ".join(f"{count} {_PHASES[phase]} ({phase})" for phase, count in counts.items() if count)
        return (Message("notes.events-ignored", {"path": str(self.path), "what": what}),) if what else ()

    def _plain(self, code: int) -> str:
        return unquoted(self.texts[code]) if code >= 0 else ""


class Names:
    """The names of a table, made from the words of scanned texts: two spellings of one word are one name."""

    def __init__(self, scanned: ScannedEvents) -> None:
        self._scanned = scanned
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def column(
        self, codes: CodeColumn, name_of: Callable[[int], str | None] | None = None, *, absent: str | None
    ) -> CodeColumn:
        """The number of each event's name: its word, or what ``name_of`` makes of its text; NO_TEXT where that is None."""
        words = self._scanned.words

        def number(code: int) -> int:
            name = words[code] if name_of is None else name_of(code)
            return NO_TEXT if name is None else self.number(name)

        otherwise = NO_TEXT if absent is None or not (codes == NO_TEXT).any() else self.number(absent)
        return self._scanned.judged(codes, number, otherwise=otherwise, dtype=np.int32)

    def all(self) -> tuple[str, ...]:
        return tuple(self._numbers)


NO_TEXT_AT_ALL = (msgspec.MsgspecError, UnicodeDecodeError)


def decoded(texts: list[bytes]) -> list[str]:
    """The words of texts: 7 and "7" are one. Raises what msgspec does for a text that is none."""
    quoted = iter(msgspec.json.decode(b"[%b]" % b",".join(text for text in texts if text.startswith(b'"'))))
    return [next(quoted) if text.startswith(b'"') else text.decode("utf-8", "replace") for text in texts]


def _nearly(text: bytes) -> str:
    """A word also of what is no text; of names and categories that is refused before."""
    try:
        return decoded([text])[0]
    except NO_TEXT_AT_ALL:
        return text.strip(b'"').decode("utf-8", "replace")
