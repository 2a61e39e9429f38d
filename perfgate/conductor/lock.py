"""One measurement at a time on a machine: a file lock with a visible queue."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable

from perfgate.conductor.logs import one_line
from perfgate.errors import MeasuringError
from perfgate.interrupts import held_back, safe_point

POLL_SECONDS = 0.25


def lock_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the machine's lock file; PERFGATE_LOCK names another, e.g. on a disk that two containers share."""
    return Path(environ.get("PERFGATE_LOCK") or Path(tempfile.gettempdir()) / "perfgate.lock")


@contextmanager
def machine_lock(path: Path, *, purpose: str, say: Callable[[str], None], timeout: float = 3600.0) -> Iterator[None]:
    """Hold the machine while measuring; wait for whoever holds it and say so.

    The lock dies with its holder, so a killed job never blocks the next. Raises MeasuringError after ``timeout`` seconds.
    """
    with held_back():
        descriptor = _open(path)
        try:
            _acquire(descriptor, path, say, timeout)
            _write(descriptor, f"process {os.getpid()}: {purpose}\n")
            try:
                yield
            finally:
                _write(descriptor, "")
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            # Without O_CREAT first: in a sticky folder the kernel may refuse to "create" a file another user owns
            # (sysctl fs.protected_regular).
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o666)
            os.fchmod(descriptor, 0o666)  # runners of other users share the machine
    except OSError as error:
        raise _cannot_open(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _cannot_open(path, "it is not a regular file")
    return descriptor


def _cannot_open(path: Path, why: str) -> MeasuringError:
    return MeasuringError(f"the machine lock {path} cannot be opened: {why}; set PERFGATE_LOCK to a file you can write")


def _write(descriptor: int, text: str) -> None:
    """Say who holds the lock, for those who wait; a disk that is full loses the name and not the lock."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(errors="replace"), 0)


def _acquire(descriptor: int, path: Path, say: Callable[[str], None], timeout: float) -> None:
    started = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError as error:
            raise _cannot_open(path, f"it cannot be locked ({error.strerror})") from error
        else:
            return
        safe_point()
        if not told:
            holder = one_line(os.pread(descriptor, 400, 0).decode(errors="replace")) or "another perfgate"
            say(f"waiting for the machine: {holder} is measuring (lock {path}); two at once would spoil both")
            told = True
        if time.monotonic() - started > timeout:
            raise MeasuringError(f"the machine was busy for {timeout:.0f} s (lock {path}); try again later")
        time.sleep(POLL_SECONDS)
