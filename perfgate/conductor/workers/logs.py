"""What user code prints: it goes into a log of bounded size, and is quoted only as data."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_LOG_BYTES = 32 * 1024**2
KEPT_BYTES = 1024**2
TAIL_BYTES = 4_000
_DROPPED = b"\n[perfgate: the log grew over 32 MiB; what stood here is dropped]\n"


def log_tail(path: Path) -> str | None:
    """The end of a log, None when nothing was printed."""
    try:
        with open(path, "rb", opener=_only_a_file) as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - TAIL_BYTES))
            return log.read().decode(errors="replace").replace("\0", "").strip() or None
    except OSError:
        return None


def read_log(path: Path) -> bytes:
    """A log up to its bound; nothing where there is none, or something else in its place."""
    try:
        with open(path, "rb", opener=_only_a_file) as log:
            return log.read(MAX_LOG_BYTES)
    except OSError:
        return b""


def bound_log(path: Path) -> None:
    """Drop the middle of a log that has outgrown its bound, also while it is written to.

    Its writers append (O_APPEND), so that they go on at the new end.
    """
    try:
        with open(path, "r+b", opener=_only_a_file) as log:
            size = log.seek(0, os.SEEK_END)
            if size <= MAX_LOG_BYTES:
                return
            log.seek(size - KEPT_BYTES)
            end = log.read(KEPT_BYTES)
            log.truncate(KEPT_BYTES)
        with open(path, "ab", opener=_only_a_file) as log:
            log.write(_DROPPED + end)
    except OSError:
        return


def one_line(text: str, *, limit: int = 200) -> str:
    """A text from a worker as one harmless line: in a CI log, a line of its own could be a command to the host."""
    return "".join(character if character.isprintable() else " " for character in text[:limit]).strip()


def _only_a_file(path: str, flags: int) -> int:
    """Open a file that a worker can put something else in the place of: we may read what it may not, and a pipe never ends."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
