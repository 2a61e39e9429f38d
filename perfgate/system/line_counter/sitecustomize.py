"""Counts the lines of Python that a process runs, in all its threads; Python imports it
at its start from ``PYTHONPATH``.

``PERFGATE_LINES`` names a folder. Every process counts into a new file there, mapped
into memory, so that a count is there however the process ends; a forked one begins its
own. A Python that has another hook of this name runs that one too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import mmap
import os
import sys
import tempfile
import threading

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any

_FOLDER = os.environ.get("PERFGATE_LINES", "")
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes long to import


def _new_count() -> memoryview[int]:
    descriptor, _ = tempfile.mkstemp(dir=_FOLDER)
    os.ftruncate(descriptor, 8)
    count = memoryview(mmap.mmap(descriptor, 8)).cast("Q")
    os.close(descriptor)
    return count


def _begin() -> None:
    count = _new_count()

    def begin_anew() -> None:
        nonlocal count
        count = _new_count()

    os.register_at_fork(after_in_child=begin_anew)
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:

        def trace(_frame: object, event: str, _argument: object) -> Any:
            if event == "line":
                count[0] += 1
            return trace

        threading.settrace(trace)
        sys.settrace(trace)
        return

    def count_line(_code: object, _line: int) -> None:
        count[0] += 1

    tool = 4  # one of two that no kind of tool has for itself (sys.monitoring)
    monitoring.use_tool_id(tool, "perfgate")
    monitoring.register_callback(tool, monitoring.events.LINE, count_line)
    monitoring.set_events(tool, monitoring.events.LINE)


def _run_own_hook() -> None:
    """Run the hook of this name that the environment has itself."""
    own = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec(__name__, own)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_own_hook()
if _FOLDER and os.path.isdir(_FOLDER):  # noqa: PTH112
    _begin()
