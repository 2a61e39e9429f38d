"""Processes forked from the tests' own: what they import is there already, where a new Python takes a second of CPU."""

from __future__ import annotations

import os
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Do it in a process of its own; return the process's id."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
