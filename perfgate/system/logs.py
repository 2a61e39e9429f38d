"""Keep user code's output in a log of bounded size, also while it is written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_LOG_BYTES = 32 * 1024**2
KEPT_BYTES = 1024**2
_DROPPED = b"\n[perfgate: the log grew over 32 MiB; what stood here is dropped]\n"


def bound_log(path: str | Path, *, begins: int = 0) -> None:
    """Drop the middle of a log behind ``begins`` once it exceeds its bound.

    Its writers append (O_APPEND), so that they go on at the new end.
    """
    try:
        with open(path, "r+b", opener=only_a_file) as log:
            size = log.seek(0, os.SEEK_END)
            if size - begins <= MAX_LOG_BYTES:
                return
            log.seek(size - KEPT_BYTES)
            end = log.read(KEPT_BYTES)
            log.truncate(begins + KEPT_BYTES)
        with open(path, "ab", opener=only_a_file) as log:
            log.write(_DROPPED + end)
    except OSError:
        return


def only_a_file(path: str, flags: int) -> int:
    """Open a file that a worker may have replaced: we may read files that it may not, and a pipe never ends."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
