"""The line in front of the machine lock: a folder of numbered tickets, each locked by the process that waits.

A ticket's lock ends with its process, in whatever container or under whatever user, so a number that nobody locks is swept
away. Whoever can write the folder can push in; so can whoever can take the lock itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from perfgate.conductor.workers.logs import one_line

# How long a look at the folder waits for another's; one that was stopped in the middle must not stop the line.
_GUARD_SECONDS = 2.0
_GUARD_POLL = 0.01
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Ticket:
    """A place in line. Without a descriptor there is no line: the folder could not be written."""

    def __init__(self, folder: Path, number: int = 0, descriptor: int | None = None) -> None:
        self._folder = folder
        self._number = number
        self._descriptor = descriptor

    def ahead(self) -> list[str]:
        """Return who is before us and since when, the first first; sweep away who is no more."""
        if self._descriptor is None:
            return []
        with suppress(OSError), _guarded(self._folder):
            return [who for number in _numbers(self._folder) if number < self._number and (who := self._alive(number))]
        return []

    def give_back(self) -> None:
        """Leave the line."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            _path(self._folder, self._number).unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _alive(self, number: int) -> str | None:
        """Return who waits with a number; a ticket that can be locked is nobody's, and goes."""
        path = _path(self._folder, number)
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return one_line(os.pread(descriptor, 400, 0).decode(errors="replace"), limit=400) or "another perfgate"
        except OSError:
            return None
        else:
            with suppress(OSError):
                path.unlink()
            return None
        finally:
            os.close(descriptor)


def take_ticket(lock: Path, who: str) -> Ticket:
    """Take the next number in the folder beside a lock; where that cannot be, a ticket without a place."""
    folder = lock.with_name(f"{lock.name}.queue")
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o777)  # runners of other users share the machine
        with _guarded(folder):
            number = 1 + max(_numbers(folder), default=0)
            descriptor = os.open(_path(folder, number), _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return Ticket(folder)
    with suppress(OSError):  # a full disk loses the name and not the place
        os.pwrite(
            descriptor,
            f"{who}, waiting since {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S UTC}".encode(errors="replace"),
            0,
        )
    return Ticket(folder, number, descriptor)


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Hold the folder for a moment. Raises BlockingIOError where somebody else does not let go of it."""
    guard = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        deadline = time.monotonic() + _GUARD_SECONDS
        while True:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_GUARD_POLL)
        yield
    finally:
        os.close(guard)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.name.isascii())


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}"
