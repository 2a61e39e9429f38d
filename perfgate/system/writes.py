"""Tell whether files were written since they were watched, under whichever of their
names.

A new hard link changes the time of an inode's last change as writing does: a package
manager that links its cache into another environment touches the files of this one. The
kernel reports which of the two it was (inotify(7)).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
from pathlib import Path

_MODIFY, _CLOSE_WRITE, _DELETE_SELF = 0x2, 0x8, 0x400
# Of the kernel itself: the file system is gone, or events were lost. That a watch is
# gone counts as an event of its file.
_UNMOUNT, _OVERFLOW = 0x2000, 0x4000
_LOST = _UNMOUNT | _OVERFLOW
_EVENT = struct.Struct("iIII")  # watch, what happened, cookie, length of the name
_MOST_BYTES = 1 << 16


class WriteWatch:
    """Watches files until it is dropped.

    A file that cannot be watched counts as written.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watches: dict[str, int] = {}
        self._written: set[int] = set()
        self._is_blind = self._events < 0

    def __del__(self) -> None:
        if self._events >= 0:
            os.close(self._events)

    def add(self, path: str) -> None:
        """Watch the file at a path, or the target of a link."""
        if self._is_blind:
            return
        watch = self._libc.inotify_add_watch(
            self._events, os.fsencode(path), _MODIFY | _CLOSE_WRITE | _DELETE_SELF
        )
        if watch >= 0:
            self._watches[path] = watch

    def is_unwritten(self, path: str) -> bool:
        """Whether no process has written to the file since it was watched, and none has
        it open to write.
        """
        watch = self._watches.get(path)
        # First: a process that closed the file before has left an event, and a mapping
        # that is written leaves none until then.
        if watch is None or _has_writer(Path(path)):
            return False
        self._read()
        return not self._is_blind and watch not in self._written

    def _read(self) -> None:
        while not self._is_blind:
            try:
                events = os.read(self._events, _MOST_BYTES)
            except BlockingIOError:
                return
            self._note(events)

    def _note(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            watch, happened, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            self._written.add(watch)
            self._is_blind = self._is_blind or bool(happened & _LOST)


def _has_writer(path: Path) -> bool:
    """Whether a process has the file open to write; the kernel grants no read lease of
    such a file (fcntl(2)).
    """
    try:
        with path.open("rb") as file:
            # A process that opens it meanwhile breaks the lease: by a signal that is
            # ignored unless handled.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:  # no lease for files of others: code of the sides runs as this user
        return os.access(path, os.W_OK)
    return False
