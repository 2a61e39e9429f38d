"""What user code may leave behind: processes that outlived their worker, and folders that resist being removed."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

_ROUNDS = 20


def kill_leftovers(scratch: Path) -> int:
    """Kill every process whose HOME is ``scratch`` and return how many there were.

    The fork server kills what its workers leave behind; this finds what is left when it was killed itself.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):  # a process may fork while we look
        found = set(_processes_at_home(scratch)) - {os.getpid()}
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        killed |= found
    return len(killed)


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, also where user code took the right to write away."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def _processes_at_home(scratch: Path) -> list[int]:
    marker = b"HOME=" + os.fsencode(scratch)
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if marker in _environment(folder)]


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to someone else
        return []
