"""One measurement at a time on a machine: a file lock, and in front of it a queue that everybody can see."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from perfgate.conductor.machine.queue import Ticket, take_ticket
from perfgate.conductor.workers.logs import one_line
from perfgate.errors import MachineBusyError, MeasuringError
from perfgate.system.interrupts import held_back, safe_point

POLL_SECONDS = 0.25
LOCK_SECONDS = 3600.0


def lock_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the machine's lock file; PERFGATE_LOCK names another, e.g. on a disk that two containers share."""
    return Path(environ.get("PERFGATE_LOCK") or Path(tempfile.gettempdir()) / "perfgate.lock")


@contextmanager
def machine_lock(
    path: Path, *, purpose: str, say: Callable[[str], None], timeout: float = LOCK_SECONDS
) -> Iterator[None]:
    """Hold the machine while measuring; wait in line for whoever holds it, and say so.

    Lock and place in line die with their process, so a killed job never blocks the next. First come, first served, where
    the folder beside the lock can be written; else whoever looks at the right moment. Raises MachineBusyError after
    ``timeout`` seconds.
    """
    with held_back():
        descriptor = _open(path)
        try:
            who = f"process {os.getpid()} on {socket.gethostname()}: {purpose}"
            ticket = take_ticket(path, who)
            try:
                _acquire(descriptor, ticket, path, say, timeout)
            finally:
                ticket.give_back()
            _write(descriptor, f"{who}, since {_now()}\n")
            try:
                yield
            finally:
                _write(descriptor, "")
        finally:
            os.close(descriptor)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


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


def _acquire(descriptor: int, ticket: Ticket, path: Path, say: Callable[[str], None], timeout: float) -> None:
    started = time.monotonic()
    told: str | None = None
    while True:
        ahead = ticket.ahead()
        if not ahead and _locked(descriptor, path):
            return
        safe_point()
        holder = _holder(descriptor)
        waiting = _waiting(holder, ahead, path)
        if waiting != told:
            say(waiting)
            told = waiting
        if time.monotonic() - started > timeout:
            behind = f", with {len(ahead)} more in line before us" if ahead else ""
            raise MachineBusyError(
                f"the machine was busy for {timeout:.0f} s: {holder} holds it{behind} (lock {path}); try again later"
            )
        time.sleep(POLL_SECONDS)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _cannot_open(path, f"it cannot be locked ({error.strerror})") from error
    return True


def _holder(descriptor: int) -> str:
    return one_line(os.pread(descriptor, 400, 0).decode(errors="replace"), limit=400) or "another perfgate"


def _waiting(holder: str, ahead: list[str], path: Path) -> str:
    """Return our place in line, who is before us, and who measures."""
    why = f"(lock {path}); two at once would spoil both"
    if not ahead:
        return f"waiting for the machine: next in line, {holder} is measuring {why}"
    place = _ordinal(len(ahead) + 1)
    return f"waiting for the machine: {place} in line behind {'; '.join(ahead)}; {holder} is measuring {why}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
