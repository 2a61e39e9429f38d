"""Time the modules and the project's functions that a call runs, each with all that it calls.

The interpreter tells of every Python function that begins and ends (``sys.setprofile``), in the thread that calls. Torch's own
hooks would tell of modules too, but compiled code is guarded by whether there are any.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from perfgate.catalogue.names import FUNCTION_TIME, MODULE_TIME
from perfgate.measuring.counting.profile import CallTimes, typical_times
from perfgate.measuring.counting.source_lines import SourceLines
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload

# The layers of a stack are one subroutine: a change of their code slows them all.
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class SubroutineTimes:
    """Times calls of a workload, and keeps the times until it is asked for them.

    On a device with a queue these are the times of the host, which launches and does not wait.
    """

    def __init__(self, workload: BoundWorkload, device: Device, root: Path) -> None:
        self._device = device
        self._callers = {shape: workload.caller(shape) for shape in workload.shapes}
        self._names = _Names(SourceLines(root))
        self._calls: dict[str, list[CallTimes]] = {shape: [] for shape in workload.shapes}

    def run(self, shape: str, *, calls: int) -> None:
        """Time some calls of a shape. Raises KeyError for an unknown one."""
        for _ in range(calls):
            watch = _Watch(self._names, self._device.clock_ns)
            before = sys.getprofile()
            sys.setprofile(watch.tell)
            try:
                self._callers[shape]()
            finally:
                sys.setprofile(before)
            self._device.synchronize()
            self._calls[shape].append(watch.times)

    def typical_times(self) -> dict[str, dict[str, float]]:
        """Per shape the seconds that every subroutine takes in a typical call."""
        return {shape: typical_times(calls) for shape, calls in self._calls.items() if calls}


class _Names:
    """What is timed, and what it is called."""

    def __init__(self, lines: SourceLines) -> None:
        from torch.nn import Module

        self._lines = lines
        self._entry = Module._call_impl.__code__
        self._functions: dict[CodeType, str | None] = {}
        # With the module itself: the number of one that is gone may be that of another.
        self._modules: dict[int, tuple[Any, str]] = {}

    def of(self, frame: FrameType) -> str | None:
        """The name of what begins with this frame; None for what is not timed."""
        code = frame.f_code
        if code is self._entry:
            return self._module(frame.f_locals["self"])
        if code not in self._functions:
            self._functions[code] = self._function(code)
        return self._functions[code]

    def _function(self, code: CodeType) -> str | None:
        line = self._lines.at(code.co_filename, code.co_firstlineno)
        # Python 3.10 knows no qualified names.
        return line and f"{FUNCTION_TIME}{line.rpartition(':')[0]}:{getattr(code, 'co_qualname', code.co_name)}"

    def _module(self, module: Any) -> str:
        if id(module) not in self._modules:
            # Whatever is called first names its children too.
            top = f"{MODULE_TIME}{type(module).__name__}"
            for path, child in module.named_modules():
                name = _NUMBER.sub("*", f"{top}.{path}") if path else top
                self._modules.setdefault(id(child), (child, name))
        return self._modules[id(module)][1]


class _Watch:
    """The subroutines of one call: nanoseconds of each run of each, in order. One inside itself counts once."""

    def __init__(self, names: _Names, clock_ns: Callable[[], int]) -> None:
        self._names = names
        self._clock_ns = clock_ns
        self._running: list[tuple[FrameType, str, int]] = []
        self._depth: Counter[str] = Counter()
        self.times: CallTimes = {}

    def tell(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note that a function begins or ends: what the interpreter calls."""
        if event == "call":
            name = self._names.of(frame)
            if name is not None:
                self._depth[name] += 1
                self._running.append((frame, name, self._clock_ns()))
        elif event == "return" and self._running and self._running[-1][0] is frame:
            ended = self._clock_ns()
            _, name, began = self._running.pop()
            self._depth[name] -= 1
            if not self._depth[name]:
                self.times.setdefault(name, []).append(float(ended - began))
