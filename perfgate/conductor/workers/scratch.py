"""The scratch folder of a bench. Its lock ends with its process, so what a killed one left is swept away by the next."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfgate.errors import MeasuringError
from perfgate.system.folders import remove_folder

PREFIX = "perfgate-scratch-"
_UNLOCKED = "perfgate-new-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder and remove it at the end; those of processes that are no more are removed first.

    Raises MeasuringError where none can be made.
    """
    try:
        made = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    except OSError as error:
        raise MeasuringError(
            f"no scratch folder can be made ({error.strerror or error}); free space, or set TMPDIR to another folder"
        ) from error
    for left in made.parent.glob(f"{PREFIX}*"):
        _sweep(left)
    lock = os.open(made, _FLAGS)
    try:
        # Locked before it has the name by which it is swept.
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = made.rename(made.with_name(made.name.replace(_UNLOCKED, PREFIX)))
        try:
            yield scratch
        finally:
            remove_folder(scratch)
    finally:
        os.close(lock)


def _sweep(left: Path) -> None:
    """Remove a folder of this user that nobody holds."""
    try:
        lock = os.open(left, _FLAGS)
    except OSError:  # gone in the meantime, a link, or another user's
        return
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(left)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
