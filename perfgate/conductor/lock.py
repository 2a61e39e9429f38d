"""One measurement at a time on a machine: a file lock with a visible queue."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Callable

from perfgate.errors import MeasuringError

POLL_SECONDS = 0.25


def lock_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the machine's lock file; PERFGATE_LOCK names another, e.g. on a disk that two containers share."""
    return Path(environ.get("PERFGATE_LOCK") or Path(tempfile.gettempdir()) / "perfgate.lock")


@contextmanager
def machine_lock(path: Path, *, purpose: str, say: Callable[[str], None], timeout: float = 3600.0) -> Iterator[None]:
    """Hold the machine while measuring; wait for whoever holds it and say so.

    The lock dies with its holder, so a killed job never blocks the next. Raises MeasuringError after ``timeout`` seconds.
    """
    descriptor = _open(path)
    try:
        _acquire(descriptor, path, say, timeout)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}: {purpose}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        # Without O_CREAT first: in a sticky folder the kernel may refuse to "create" a file another user owns
        # (sysctl fs.protected_regular).
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _cannot_open(path, error) from error
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.chmod(path, 0o666)  # noqa: PTH101 - runners of other users share the machine
    except OSError as error:
        raise _cannot_open(path, error) from error
    return descriptor


def _cannot_open(path: Path, error: OSError) -> MeasuringError:
    return MeasuringError(f"the machine lock {path} cannot be opened ({error}); set PERFGATE_LOCK to a file you can write")


def _acquire(descriptor: int, path: Path, say: Callable[[str], None], timeout: float) -> None:
    started = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            return
        if not told:
            holder = os.pread(descriptor, 400, 0).decode(errors="replace").strip() or "another perfgate"
            say(f"waiting for the machine: {holder} is measuring (lock {path}); two at once would spoil both")
            told = True
        if time.monotonic() - started > timeout:
            raise MeasuringError(f"the machine was busy for {timeout:.0f} s (lock {path}); try again later")
        time.sleep(POLL_SECONDS)
