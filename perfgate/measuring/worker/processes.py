"""What Linux offers to keep a family of processes together: prctl, process groups, the list of children."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent does, and end at once if ``parent`` is already gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take ``die_with_parent`` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of every process below us whose own parent ends, also of those in other sessions."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return our child processes, ended ones included that nobody has waited for."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _parent(folder) == os.getpid()]


def kill_group(pid: int) -> None:
    """Kill a process group, if there is one."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _parent(process: Path) -> int:
    try:
        # proc(5): the name in parentheses may hold anything, the fields after the last one are state, ppid …
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
