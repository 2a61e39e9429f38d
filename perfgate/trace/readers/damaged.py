"""Recover the intact events of a damaged trace file, and count the lost bytes.

A killed job leaves a list without an end, torch writes a file name with quotes as invalid JSON, and NaN is not JSON either. A
person viewing a trace wants the rest of it; the gate refuses such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.trace.model.events import nanoseconds
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.reader import read
from perfgate.trace.scanner.chrome_events import (
    BLOCK_BYTES,
    BORDER,
    MAX_EVENT_BYTES,
    MAX_TRACE_BYTES,
    ChromeEvent,
    blocks,
    header_and_rest,
)
from perfgate.trace.scanner.compressed import bare_name, is_json, readable

_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TIMED = frozenset("XBEsf")


class Event(NamedTuple):
    """The text of one event, or of the remains of some, and its offset in the uncompressed file."""

    text: bytes
    offset: int
    is_whole: bool


def salvage(path: Path) -> Recording:
    """As ``read``, but recovers the intact events of a damaged file of trace events, with a note on the lost ones.

    Raises DocumentError if no event is intact, and for every other damage.
    """
    try:
        return read(path)
    except DocumentError:
        if not path.is_file() or not is_json(path):
            raise
        import tempfile  # intact files need none

        with tempfile.TemporaryDirectory(prefix="perfgate-salvage-") as folder:
            # Keep the name: readers recognise formats and ranks by it too.
            copy = Path(folder, bare_name(path))
            size, lost, pieces, first = _copy_whole_events(path, copy)
            if lost == size:
                raise
            recording = replace(read(copy), path=path)
        if not pieces:
            return recording
        note = Message("notes.salvaged", {"path": str(path), "count": pieces, "share": lost / size, "offset": first})
        return replace(recording, notes=(*recording.notes, note))


def _copy_whole_events(path: Path, copy: Path) -> tuple[int, int, int, int]:
    """The bytes of all events, those of the lost pieces, the number of these pieces, and the offset of the first."""
    size = lost = pieces = first = 0
    with copy.open("wb") as out:
        text = _readable(path)
        header, rest = header_and_rest(path, text)
        out.write(header)
        separator = b""
        for event in _pieces(rest, text, len(header)):
            size += len(event.text)
            if event.is_whole:
                out.write(separator + event.text)
                separator = b",\n"
            else:
                first = first if pieces else event.offset
                pieces += 1
                lost += len(event.text)
        out.write(b"]" if header.lstrip().startswith(b"[") else b"]}")
    return size, lost, pieces, first


def _readable(path: Path) -> Iterator[bytes]:
    """Blocks of the file as far as it can be read; compressed data may be cut off at any byte."""
    if path.suffix == ".json":
        yield from blocks(path, BLOCK_BYTES)
        return
    total = 0
    for text in readable(path):
        total += len(text)
        if total > MAX_TRACE_BYTES:
            raise DocumentError(
                "{path}: more than {limit} bytes of JSON; record fewer calls", path=path, limit=MAX_TRACE_BYTES
            )
        if text:
            yield text


def _pieces(buffer: bytes, more: Iterator[bytes], offset: int) -> Iterator[Event]:
    while True:
        block = next(more, b"")
        buffer += block
        borders = [found.start() + 1 for found in BORDER.finditer(buffer)]
        if not block:
            yield from _judged(buffer, borders, offset, is_end=True)
            return
        if borders:
            end = borders[-1]
            yield from _judged(buffer[:end], borders[:-1], offset, is_end=False)
            buffer, offset = buffer[end:], offset + end
        elif len(buffer) > MAX_EVENT_BYTES:
            yield Event(buffer, offset, is_whole=False)
            buffer, offset = b"", offset + len(buffer)


def _judged(text: bytes, borders: list[int], offset: int, *, is_end: bool) -> Iterator[Event]:
    """The events between two borders; if together they are not valid JSON, each by itself, from border to border."""
    begin = len(text) - len(text.lstrip(b", \r\n\t"))
    try:
        decoded = msgspec.json.decode(b"[%b]" % text[begin:], type=list[msgspec.Raw])
    except _NOT_JSON:
        pass
    else:
        for raw in decoded:
            yield Event(bytes(raw), offset + begin, _is_event(bytes(raw)))
        return
    for start, end in zip([begin, *borders], [*borders, len(text)]):
        piece = text[start:end].strip(b", \r\n\t")
        if is_end and end == len(text):
            yield from _last(piece, offset + start)
        elif piece:
            yield Event(piece, offset + start, _is_event(piece))


def _last(piece: bytes, offset: int) -> Iterator[Event]:
    """The last event, which the end of the list and other members of the file may follow; or the remains of a truncated one."""
    ends = [place + 1 for place in range(len(piece)) if piece[place : place + 1] == b"}"][:64]
    whole = next((end for end in ends if _is_event(piece[:end])), None)
    if whole is not None:
        yield Event(piece[:whole], offset, is_whole=True)
    elif piece.strip(b"]} \r\n\t"):
        yield Event(piece, offset, is_whole=False)


def _is_event(text: bytes) -> bool:
    """Whether a text is an event with valid times."""
    try:
        event = msgspec.json.decode(text, type=ChromeEvent)
        if event.ph in _TIMED:
            nanoseconds(bytes(event.ts))
            return not event.dur or event.ph != "X" or nanoseconds(bytes(event.dur)) >= 0
    except (*_NOT_JSON, ValueError):
        return False
    return True
