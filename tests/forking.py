"""Processes forked from the tests' own: what they import is there already, where a new Python takes a second of CPU."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Do it in a process of its own, which prints what it raises; return the process's id."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - it may not become the tests' own
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
