"""One measurement at a time on a machine: a file lock, and in front of it a queue that
everybody can see.

The queue is a folder of numbered tickets, each locked by the process that waits. A
ticket's lock ends with its process, in any container and under any user, so an unlocked
number is swept away. A process with write access to the folder can jump the queue, as
it can take the lock itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from perfgate.errors import MachineBusyError, MeasuringError
from perfgate.system.interrupts import held_back, safe_point
from perfgate.system.logs import one_line

POLL_SECONDS = 0.25
LOCK_SECONDS = 3600.0
# How long a look at the folder waits for another's; one that was stopped in the middle
# must not stop the queue.
_GUARD_SECONDS = 2.0
_GUARD_POLL = 0.01
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# The locks that this process holds: the gates and counts of a bisection measure under
# the lock of the search.
_HELD: set[Path] = set()


def lock_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The machine's lock file; PERFGATE_LOCK names another, e.g. on a disk that two
    containers share.
    """
    return Path(
        environ.get("PERFGATE_LOCK") or Path(tempfile.gettempdir()) / "perfgate.lock"
    )


@contextmanager
def machine_lock(
    path: Path,
    *,
    purpose: str,
    say: Callable[[str], None],
    timeout: float = LOCK_SECONDS,
) -> Iterator[float]:
    """Hold the machine while measuring; wait in line for the holder, and report it.

    Yields the seconds of that wait.

    Lock and place in line die with their process, so a killed job never blocks the
    next. First come, first served, if the folder next to the lock is writable;
    otherwise the first to poll a free lock gets it. A context inside one of this
    process does not wait. Raises MachineBusyError after ``timeout`` seconds.
    """
    place = path.absolute()
    if place in _HELD:
        yield 0.0
        return
    began = time.monotonic()
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
            _HELD.add(place)
            try:
                yield time.monotonic() - began
            finally:
                _HELD.discard(place)
                _write(descriptor, "")
        finally:
            os.close(descriptor)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _open(path: Path) -> int:
    try:
        try:
            # Without O_CREAT first: in a sticky folder the kernel may refuse to
            # "create" a file another user owns (sysctl fs.protected_regular).
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o666)
            os.fchmod(descriptor, 0o666)  # runners of other users share the machine
    except OSError as error:
        raise _cannot_open(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _cannot_open(path, "it is not a regular file")
    return descriptor


def _cannot_open(path: Path, reason: str) -> MeasuringError:
    return MeasuringError(
        "the machine lock {path} cannot be opened: {reason}; set PERFGATE_LOCK to a file you can write",
        path=path,
        reason=reason,
    )


def _write(descriptor: int, text: str) -> None:
    """Write the holder's name for those in the queue; a full disk loses the name but
    not the lock.
    """
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(errors="replace"), 0)


def _acquire(
    descriptor: int,
    ticket: Ticket,
    path: Path,
    say: Callable[[str], None],
    timeout: float,
) -> None:
    started = time.monotonic()
    status: str | None = None
    while True:
        ahead = ticket.ahead()
        if not ahead and _locked(descriptor, path):
            return
        safe_point()
        holder = _owner(descriptor)
        new_status = _waiting(holder, ahead, path)
        if new_status != status:
            say(new_status)
            status = new_status
        if time.monotonic() - started > timeout:
            behind = f", with {len(ahead)} more in line before us" if ahead else ""
            raise MachineBusyError(
                "the machine was busy for {timeout:.0f} s: {holder} holds it{behind} (lock {path}); try again later",
                timeout=timeout,
                holder=holder,
                behind=behind,
                path=path,
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


def _owner(descriptor: int) -> str:
    return (
        one_line(os.pread(descriptor, 400, 0).decode(errors="replace"), limit=400)
        or "another perfgate"
    )


def _waiting(holder: str, ahead: list[str], path: Path) -> str:
    reason = f"(lock {path}); two at once would spoil both"
    if not ahead:
        return f"waiting for the machine: next in line, {holder} is measuring {reason}"
    number = len(ahead) + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    if number % 100 in (11, 12, 13):
        ending = "th"
    place = f"{number}{ending}"
    return f"waiting for the machine: {place} in line behind {'; '.join(ahead)}; {holder} is measuring {reason}"


# --- the queue


@dataclass(frozen=True)
class Ticket:
    """A place in line. Without a descriptor there is no line: the folder could not be
    written.
    """

    folder: Path
    number: int = 0
    descriptor: int | None = None

    def ahead(self) -> list[str]:
        """The waiters before us and their start times, in order; tickets of dead
        processes are swept away.
        """
        if self.descriptor is None:
            return []
        with suppress(OSError), _guarded(self.folder):
            return [
                who
                for number in _numbers(self.folder)
                if number < self.number and (who := self._alive(number))
            ]
        return []

    def give_back(self) -> None:
        if self.descriptor is None:
            return
        with suppress(OSError):
            _path(self.folder, self.number).unlink()
        os.close(self.descriptor)

    def _alive(self, number: int) -> str | None:
        """The waiter with a number; a ticket that can be locked has no owner and is
        removed.
        """
        path = _path(self.folder, number)
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _owner(descriptor)
        except OSError:
            return None
        else:
            with suppress(OSError):
                path.unlink()
            return None
        finally:
            os.close(descriptor)


def take_ticket(lock: Path, who: str) -> Ticket:
    """Take the next number in the folder next to a lock, or a ticket without a place if
    that is impossible.
    """
    folder = lock.with_name(f"{lock.name}.queue")
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o777)  # runners of other users share the machine
        with _guarded(folder):
            number = 1 + max(_numbers(folder), default=0)
            descriptor = os.open(
                _path(folder, number), _FLAGS | os.O_CREAT | os.O_EXCL, 0o666
            )
            os.fchmod(descriptor, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return Ticket(folder)
    with suppress(OSError):  # a full disk loses the name and not the place
        os.pwrite(
            descriptor, f"{who}, waiting since {_now()}".encode(errors="replace"), 0
        )
    return Ticket(folder, number, descriptor)


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Hold the folder for a moment.

    Raises BlockingIOError if another process does not release it.
    """
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
    return sorted(
        int(path.name)
        for path in folder.iterdir()
        if path.name.isdecimal() and path.name.isascii()
    )


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}"
