"""Keep user code's output in a log of bounded size, also while it is written, and quote
it only as data.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MAX_LOG_BYTES = 32 * 1024**2
KEPT_BYTES = 1024**2
TAIL_BYTES = 4_000
_DROPPED = b"\n[perfgate: the log grew over 32 MiB; what stood here is dropped]\n"
# linux/falloc.h: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_PUNCH_HOLE = 0x02 | 0x01


def bound_log(path: str | Path, *, begins: int = 0) -> None:
    """Free the space of the middle of a log that is being written, behind ``begins``,
    once it exceeds its bound.

    The middle becomes a hole, so that no byte moves and no text is lost that is written
    meanwhile; ``cut_log`` closes it. A file system that knows no holes (NFS before
    version 4.2) gets the log cut while it is written.
    """
    with suppress(OSError), open(path, "r+b", opener=only_a_file) as log:
        size = log.seek(0, os.SEEK_END)
        if size - begins > MAX_LOG_BYTES and not _punched(
            log.fileno(), begins + KEPT_BYTES, size - KEPT_BYTES
        ):
            _cut(log, begins)


def cut_log(path: str | Path, *, begins: int = 0) -> None:
    """Drop the middle of a log, behind ``begins``, if it exceeds its bound and its
    writers have ended.
    """
    with suppress(OSError), open(path, "r+b", opener=only_a_file) as log:
        if log.seek(0, os.SEEK_END) - begins > MAX_LOG_BYTES:
            _cut(log, begins)


def _punched(descriptor: int, start: int, end: int) -> bool:
    library = ctypes.CDLL(None)
    # The offsets are of 64 bits, which ctypes does not assume.
    library.fallocate.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int64,
    ]
    return bool(library.fallocate(descriptor, _PUNCH_HOLE, start, end - start) == 0)


def _cut(log: BinaryIO, begins: int) -> None:
    """The end is written behind the beginning before the rest is cut off: a reader
    finds the end at any moment.
    """
    log.seek(-KEPT_BYTES, os.SEEK_END)
    end = log.read()
    log.seek(begins + KEPT_BYTES)
    log.write(_DROPPED + end)
    log.truncate()


def log_tail(path: Path) -> str | None:
    """The end of a log, None for an empty log."""
    try:
        with open(path, "rb", opener=only_a_file) as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - TAIL_BYTES))
            return log.read().decode(errors="replace").replace("\0", "").strip() or None
    except OSError:
        return None


def read_log(path: Path) -> bytes:
    """A log up to its bound; empty if it is missing or not a regular file."""
    try:
        with open(path, "rb", opener=only_a_file) as log:
            return log.read(MAX_LOG_BYTES)
    except OSError:
        return b""


def one_line(text: str, *, limit: int = 200) -> str:
    """A text from a worker as one harmless line: in a CI log, a separate line could be
    a command to the host.
    """
    return "".join(
        character if character.isprintable() else " " for character in text[:limit]
    ).strip()


def only_a_file(path: str, flags: int) -> int:
    """Open a file that a worker may have replaced: we may read files that it may not,
    and a pipe never ends.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
