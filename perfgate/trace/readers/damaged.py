"""Recover the intact events of a damaged trace file, and measure the loss against the
whole file.

A killed job leaves a list without an end, torch writes a file name with quotes as
invalid JSON, a copy alters a byte, and NaN is not JSON. A person viewing a trace wants
the rest of it; the gate refuses such a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.model.events import nanoseconds
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import Loss, Recording
from perfgate.trace.readers.foreign import refuse_foreign
from perfgate.trace.readers.reader import read
from perfgate.trace.scanner.chrome_events import (
    BLOCK_BYTES,
    BORDER,
    MAX_EVENT_BYTES,
    MAX_HEADER_BYTES,
    MAX_TRACE_BYTES,
    ChromeEvent,
    blocks,
    header_and_rest,
)
from perfgate.trace.scanner.compressed import (
    ReadableText,
    bare_name,
    is_compressed,
    is_json,
)

_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TIMED = frozenset("XBEsf")
_TIME = lazy_pattern(rb'"ts"\s{0,9}:\s{0,9}"?(\d{1,19}(?:\.\d{1,9})?)')
# A number that only some writers use, outside of texts: Python's json writes NaN and
# Infinity, C's printf nan and inf.
_NO_NUMBER = lazy_pattern(rb'("(?:[^"\\]|\\.)*")|[-+]?\b(?:NaN|Infinity|nan|inf)\b')
# The end of the list: what follows is the end of the file, another member, or the
# beginning of another document.
_LIST_END = lazy_pattern(rb"\s*\](?!\s*,\s*\{)")
_BLANK = b", \r\n\t"


class Piece(NamedTuple):
    """A piece of the list of events and its offset in the file without compression.

    It is a whole event, the remains of ``lost`` events, the begin of an event at which
    the file is ``cut`` off, or the text behind the list, its ``end``. ``numbers``
    counts the values in it that are not JSON, which were replaced by null.
    """

    text: bytes
    offset: int
    state: Literal["whole", "lost", "cut", "end"]
    numbers: int = 0


def salvage(path: Path) -> Recording:
    """As ``read``, but recovers the intact events of a damaged file of trace events;
    ``loss`` and a note describe the rest.

    Raises DocumentError if no event is intact, and for every other damage.
    """
    try:
        return read(path)
    except DocumentError as error:
        if not path.is_file() or not is_json(path):
            raise
        refuse_foreign(path)
        import tempfile  # intact files need none

        with tempfile.TemporaryDirectory(prefix="perfgate-salvage-") as folder:
            # Keep the name: readers recognise formats and ranks by it too.
            copy = Path(folder, bare_name(path))
            repair = _Repair(path)
            try:
                if not repair.write(copy):
                    raise
                recording = replace(read(copy), path=path)
            except DocumentError:
                raise error from None
        loss = repair.loss()
        return replace(
            recording,
            loss=loss,
            notes=(*_notes(path, loss, recording), *recording.notes),
        )


class _Repair:
    """One pass over a damaged file: intact events are copied, everything else is
    counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unpacked = ReadableText(path) if is_compressed(path) else None
        self._size = self._lost = self._pieces = self._first = self._numbers = (
            self._around
        ) = 0
        self._unended = True
        self._earliest: bytes | None = None
        self._latest: bytes | None = None

    def write(self, copy: Path) -> int:
        """Write the intact part; returns the number of events.

        Raises DocumentError for a file without a list of events.
        """
        events = 0
        with copy.open("wb") as out:
            text = self._text()
            header, rest = header_and_rest(self._path, text)
            opened, numbers = _with_nulls(header)
            self._numbers += numbers
            self._size += len(header)
            if not _is_document(opened + _plain_end(opened)):
                # A line of a log before the document, or a damaged member: only the
                # events are read.
                opened = b'{"traceEvents": ['
                self._around = len(header)
            out.write(opened)
            separator = end = b""
            behind = 0
            for piece in _pieces(rest, text, len(header)):
                self._size += len(piece.text)
                self._numbers += piece.numbers
                if piece.state == "whole":
                    out.write(separator + piece.text)
                    separator = b",\n"
                    events += 1
                elif piece.state == "lost":
                    self._lose(piece)
                elif piece.state == "end":
                    self._unended = False
                    behind += len(piece.text)
                    end += piece.text if len(end) < MAX_HEADER_BYTES else b""
            out.write(self._closing(opened, end, behind))
        return events

    def loss(self) -> Loss:
        return Loss(
            size=self._size,
            lost=self._lost + self._around,
            pieces=self._pieces,
            offset=self._first,
            around=self._around,
            numbers=self._numbers,
            is_cut=self._unended
            or (self._unpacked is not None and self._unpacked.fault == "cut"),
            wrong_checksum=self._unpacked is not None
            and self._unpacked.fault == "checksum",
            has_more=self._unpacked is not None and self._unpacked.fault == "more",
            span=_span(self._earliest, self._latest),
        )

    def _lose(self, piece: Piece) -> None:
        if not self._pieces:
            self._first = piece.offset
        self._pieces += 1
        self._lost += len(piece.text)
        times = _TIME.findall(piece.text)
        if times:
            self._earliest = self._earliest or times[0]
            self._latest = times[-1]

    def _closing(self, header: bytes, end: bytes, behind: int) -> bytes:
        """The end of the repaired file: the ``end``, of which ``behind`` bytes are in
        the file, if it is JSON.
        """
        plain = _plain_end(header)
        if self._unended:
            return plain
        replaced, numbers = _with_nulls(end)
        if _is_document(header + replaced):
            self._numbers += numbers
            return replaced
        closing = len(end) - len(end.lstrip(b"] }\r\n\t"))
        self._around += behind - closing
        # Only the brackets that follow the list are missing.
        self._unended = behind == closing
        return plain

    def _text(self) -> Iterator[bytes]:
        """Blocks of the file as far as it can be read; compressed data may be cut off
        at any byte.
        """
        if self._unpacked is None:
            yield from blocks(self._path, BLOCK_BYTES)
            return
        total = 0
        for text in self._unpacked:
            total += len(text)
            if total > MAX_TRACE_BYTES:
                raise DocumentError(
                    "{path}: more than {limit} bytes of JSON; record fewer calls",
                    path=self._path,
                    limit=MAX_TRACE_BYTES,
                )
            if text:
                yield text


def _plain_end(header: bytes) -> bytes:
    """The end of a document without anything behind its list."""
    return b"]" if header.lstrip().startswith(b"[") else b"]}"


def _notes(path: Path, loss: Loss, recording: Recording) -> Iterator[Message]:
    """The losses, a note for each cause, the most important first."""
    file = {"path": str(path)}
    if loss.is_cut:
        yield Message(
            "notes.cut-off",
            {**file, "size": loss.size, "seconds": _seconds_recorded(recording)},
        )
    if loss.pieces:
        place = {
            "count": loss.pieces,
            "share": (loss.lost - loss.around) / loss.size,
            "offset": loss.offset,
        }
        yield Message("notes.salvaged", {**file, **place})
    if loss.span is not None and not loss.is_cut:
        begin, _ = _window(recording) or (0, 0)
        first, last = loss.span
        yield Message(
            "notes.lost-span",
            {"first": (first - begin) / 1e9, "last": (last - begin) / 1e9},
        )
    if loss.around:
        yield Message(
            "notes.around-the-list",
            {**file, "size": loss.around, "share": loss.around / loss.size},
        )
    if loss.wrong_checksum:
        yield Message("notes.wrong-checksum", file)
    if loss.has_more:
        yield Message("notes.more-behind", file)
    if loss.numbers:
        yield Message("notes.no-json-numbers", {**file, "count": loss.numbers})


def _seconds_recorded(recording: Recording) -> float:
    """The time from the first to the last intact event."""
    begin, end = _window(recording) or (0, 0)
    return (end - begin) / 1e9


def _window(recording: Recording) -> tuple[int, int] | None:
    tables = [
        timeline.events for timeline in recording.timelines if len(timeline.events)
    ]
    if not tables:
        return None
    begin = min(int(table.start.min()) for table in tables)
    return begin, max(int(table.end.max()) for table in tables)


def _span(earliest: bytes | None, latest: bytes | None) -> tuple[int, int] | None:
    if earliest is None or latest is None:
        return None
    try:
        first, last = nanoseconds(earliest), nanoseconds(latest)
    except ValueError:  # a damaged time
        return None
    return min(first, last), max(first, last)


def _pieces(buffer: bytes, more: Iterator[bytes], offset: int) -> Iterator[Piece]:
    while True:
        block = next(more, b"")
        buffer += block
        borders = [border.start() + 1 for border in BORDER.finditer(buffer)]
        end = len(buffer)
        if block:
            # The event at the last border may go on in the next block.
            end = borders.pop() if borders else 0
        if end:
            has_ended = False
            for piece in _judged(buffer[:end], borders, offset, is_end=not block):
                yield piece
                has_ended |= piece.state == "end"
            if has_ended:
                yield Piece(buffer[end:], offset + end, "end")
                for text in more:
                    yield Piece(text, 0, "end")
                return
            buffer = buffer[end:]
            offset += end
        elif len(buffer) > MAX_EVENT_BYTES:
            yield Piece(buffer, offset, "lost")
            offset += len(buffer)
            buffer = b""
        if not block:
            return


def _judged(
    text: bytes, borders: list[int], offset: int, *, is_end: bool
) -> Iterator[Piece]:
    """The events between two borders; if together they are not valid JSON, each by
    itself, from border to border.
    """
    begin = len(text) - len(text.lstrip(_BLANK))
    try:
        decoded = msgspec.json.decode(b"[%b]" % text[begin:], type=list[msgspec.Raw])
    except _NOT_JSON:
        pass
    else:
        for raw in decoded:
            yield _event_or_lost(bytes(raw), offset + begin)
        return
    for start, end in zip([begin, *borders], [*borders, len(text)]):
        piece = text[start:end]
        place = offset + start + len(piece) - len(piece.lstrip(_BLANK))
        piece = piece.strip(_BLANK)
        if not piece:
            continue
        for part in _alone(piece, place, is_last=is_end and end == len(text)):
            yield part
            if part.state == "end":
                if text[end:]:
                    yield Piece(text[end:], offset + end, "end")
                return


def _alone(piece: bytes, offset: int, *, is_last: bool) -> Iterator[Piece]:
    """One event, or the last one with the text behind the list, or damaged text."""
    if _is_event(piece):
        yield Piece(piece, offset, "whole")
        return
    replaced, numbers = _with_nulls(piece)
    if numbers and _is_event(replaced):
        yield Piece(replaced, offset, "whole", numbers)
        return
    ended = _LIST_END.match(piece)
    if ended:
        yield Piece(piece[ended.start() :], offset, "end")
        return
    size = _first_member(replaced)
    ended = _LIST_END.match(replaced, size) if size else None
    if ended is not None:
        yield _event_or_lost(replaced[:size], offset)
        yield Piece(replaced[size:], offset + size, "end", numbers)
        return
    behind = _LIST_END.search(piece) if is_last and not size else None
    if behind is not None:
        # A damaged last event, and the end of the list behind it.
        yield Piece(piece[: behind.start()], offset, "lost")
        yield Piece(piece[behind.start() :], offset + behind.start(), "end")
        return
    if size and is_last:
        # The file ends between two events or in the next one.
        yield _event_or_lost(replaced[:size], offset)
        piece = replaced[size:].strip(_BLANK)
        offset += size
    if piece:
        yield Piece(piece, offset, "cut" if is_last else "lost")


def _event_or_lost(text: bytes, offset: int) -> Piece:
    return Piece(text, offset, "whole" if _is_event(text) else "lost")


def _first_member(text: bytes) -> int:
    """The size of the JSON object that a text begins with; 0 if it begins with none."""
    if not text.startswith(b"{"):
        return 0
    import json  # intact files need none

    words = text.decode("utf-8", "surrogateescape")
    try:
        _, size = json.JSONDecoder().raw_decode(words)
    except (ValueError, RecursionError):
        return 0
    return len(words[:size].encode("utf-8", "surrogateescape"))


def _with_nulls(text: bytes) -> tuple[bytes, int]:
    """The text with null for each value that only its writer takes for a number, in
    UTF-8, and how many values that changed.

    All texts of an event that are not UTF-8 count as one value.
    """
    count = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[1] is not None:
            return match[1]
        count += 1
        return b"null"

    mended = _NO_NUMBER.sub(replaced, text)
    try:
        mended.decode()
    except UnicodeDecodeError:
        return mended.decode("utf-8", "replace").encode(), count + 1
    return mended, count


def _is_document(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except _NOT_JSON:
        return False
    return True


def _is_event(text: bytes) -> bool:
    """Whether a text is an event with valid times."""
    try:
        event = msgspec.json.decode(text, type=ChromeEvent)
        if event.ts and len(event.ph) != 1:
            return False
        if event.ph in _TIMED:
            nanoseconds(bytes(event.ts))
            return (
                not event.dur or event.ph != "X" or nanoseconds(bytes(event.dur)) >= 0
            )
    except (*_NOT_JSON, ValueError):
        return False
    return True
