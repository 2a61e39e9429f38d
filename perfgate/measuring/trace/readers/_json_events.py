"""Cut a JSON file that holds one huge list into its members, a block at a time, so that memory stays bounded."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Optional, cast

import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError

BLOCK_BYTES = 4 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_EVENT_BYTES = 16 << 20
LOOK_BYTES = 64 << 10
# torch_npu itself warns at 1 GiB; more than this is not a trace of some hundred calls.
MAX_TRACE_BYTES = 8 << 30

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_LIST = re.compile(rb"\s*\[")
_SEPARATOR = re.compile(rb"\s*,")
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPEN, _CLOSE = (ord("["), ord("{")), (ord("]"), ord("}"))


class _Cut(NamedTuple):
    """Where the whole members in a buffer end, and whether the list ends there too."""

    end: int
    closed: bool


def event_batches(path: Path, *, block_bytes: int = BLOCK_BYTES, around: Optional[bytearray] = None) -> Iterator[bytes]:
    """Yield JSON lists that together hold every event of a trace file, in order, each hardly larger than a block.

    The file is an object with a list ``traceEvents``, or that list itself, gzipped where its name ends in ``.gz``.
    ``around`` is given the file without its events, ``{"schemaVersion": 1, "traceEvents": []}``, once all are read.
    Raises DocumentError for a file that is cut off, too large or no trace.
    """
    blocks = _blocks(path, block_bytes)
    header, buffer = _header_and_rest(path, blocks)
    first = True
    while True:
        cut = _cut(buffer, path)
        if cut.end:
            members = buffer[: cut.end] if first else _SEPARATOR.sub(b"", buffer[: cut.end], count=1)
            yield b"[" + members + b"]"
            first = False
        if cut.closed:
            after = buffer[cut.end :]
            # Reading to the end lets gzip check its sum.
            for block in blocks:
                after += block if len(after) < MAX_HEADER_BYTES else b""
            if around is not None:
                around += header + after
            return
        buffer = buffer[cut.end :]
        if len(buffer) > MAX_EVENT_BYTES + block_bytes:
            raise DocumentError(f"{path}: one event is larger than {MAX_EVENT_BYTES} bytes; this is no profiler trace")
        block = next(blocks, None)
        if block is None:
            raise DocumentError(
                f"{path}: the list of events has no end, the file is cut off; record the trace again "
                "(a job that was killed, or a full disk, leaves such files)"
            )
        buffer += block


def _blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    total = 0
    try:
        with _opened(path) as stream:
            while block := stream.read(block_bytes):
                total += len(block)
                if total > MAX_TRACE_BYTES:
                    raise DocumentError(f"{path}: more than {MAX_TRACE_BYTES} bytes of JSON; record fewer calls")
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DocumentError(f"{path}: the gzip file is cut off or damaged ({error}); record the trace again") from error
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def looks_like(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a pattern is found in the first bytes of a file; what cannot be read might be anything.

    A cheap look for readers that must tell their own files from others'; reading says what is wrong with a damaged one.
    """
    try:
        with _opened(path) as stream:
            return pattern.search(stream.read(LOOK_BYTES)) is not None
    except (EOFError, zlib.error, OSError):
        return True


def _header_and_rest(path: Path, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return what is read so far, cut behind the bracket that opens the list of events."""
    buffer = b""
    for block in blocks:
        buffer += block
        found = _BARE_LIST.match(buffer) or _EVENTS_KEY.search(buffer)
        if found:
            return buffer[: found.end()], buffer[found.end() :]
        if len(buffer) > MAX_HEADER_BYTES:
            break
    raise DocumentError(
        f"{path}: no list of trace events; a Kineto trace is a JSON object with traceEvents, as "
        "torch.profiler's export_chrome_trace writes it"
    )


def _cut(buffer: bytes, path: Path) -> _Cut:
    """Find the end of the last whole member: brackets outside strings, counted with numpy over the whole buffer."""
    text = np.frombuffer(buffer, dtype=np.uint8)
    outside = ~_in_string(text)
    opens = np.isin(text, _OPEN) & outside
    closes = np.isin(text, _CLOSE) & outside
    depth = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    list_ends = _first(closes & (depth < 0))
    if list_ends is not None:
        if buffer[list_ends : list_ends + 1] != b"]":
            raise DocumentError(f"{path}: the list of events ends with a brace; the file is damaged, record it again")
        return _Cut(end=list_ends, closed=True)
    member_ends = np.flatnonzero(closes & (depth == 0))
    return _Cut(end=int(member_ends[-1]) + 1 if member_ends.size else 0, closed=False)


def _in_string(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return whether each byte lies in a string: an odd number of quotes before it that no backslash escapes."""
    quotes = text == _QUOTE
    escapes = np.flatnonzero(text == _BACKSLASH)
    if escapes.size:
        # A run of backslashes escapes what follows when its length is odd.
        run_ends = escapes[np.concatenate((np.diff(escapes) > 1, [True]))]
        run_starts = escapes[np.concatenate(([True], np.diff(escapes) > 1))]
        odd = run_ends[(run_ends - run_starts) % 2 == 0] + 1
        quotes[odd[odd < text.size]] = False
    inside: npt.NDArray[np.bool_] = np.cumsum(quotes, dtype=np.uint8) & 1 == 1
    return inside


def _first(mask: npt.NDArray[np.bool_]) -> Optional[int]:
    index = int(np.argmax(mask)) if mask.size else 0
    return index if mask.size and mask[index] else None
