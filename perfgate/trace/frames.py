"""What an event of a trace is called in a stack, and where in the source it stands."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

import numpy as np

from perfgate.trace.analysis import NOTHING_AROUND, IntColumn
from perfgate.trace.events import KINDS, EventKind, EventTable

# torch.profiler words a Python function ``file.py(12): name``, 12 being the line where it begins (torch 2.13), a module
# ``nn.Module: Linear_0``, and a function in C ``<built-in method relu of type object at 0x7f9a0a8cea40>``.
_FUNCTION = re.compile(r"(?P<file>[^<].*?)\((?P<line>\d{1,9})\): (?P<name>.+)", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Steps and requests are numbered; what happened in them makes one stack.
_NUMBERED = re.compile(r"(ProfilerStep|request)#.*", re.DOTALL)
_PACKAGES = re.compile(r"(?:.*/)?(?:site-packages|dist-packages|lib/python[\d.]+)/")
_FRAMEWORKS = frozenset({
    "torch", "torch_npu", "torchair", "torchvision", "torchaudio", "transformers", "accelerate", "numpy", "perfgate",
})  # fmt: skip
# sys.stdlib_module_names is there since Python 3.10; these are what PyTorch's own stacks run through.
_STANDARD_LIBRARY = frozenset(
    getattr(sys, "stdlib_module_names", ("contextlib", "functools", "importlib", "threading", "typing", "weakref"))
)


class Frame(NamedTuple):
    """What an event is called, without what differs from run to run; ``place`` is where its Python function begins."""

    name: str
    place: str | None = None

    @property
    def is_project(self) -> bool:
        """Return whether it is a Python function that belongs neither to Python itself nor to a framework."""
        if self.place is None:
            return False
        file = self.place.rpartition(":")[0]
        top = file.partition("/")[0].partition(".py")[0]
        return not (_PACKAGES.match(file) or file.startswith("<") or top in _FRAMEWORKS or top in _STANDARD_LIBRARY)


def frame(name: str, kind: EventKind) -> Frame:
    """Return the frame of an event by its name and kind.

    The line is no part of the name: it moves when code above it comes or goes, and the function is the same.
    """
    if kind == "python" and (function := _FUNCTION.fullmatch(name)):
        return Frame(f"{function['file']}: {function['name']}", f"{function['file']}:{function['line']}")
    if kind == "python":
        return Frame(_ADDRESS.sub("", name))
    numbered = _NUMBERED.fullmatch(name)
    return Frame(numbered[1] if numbered else name)


def project_places(events: EventTable, around: IntColumn) -> tuple[IntColumn, list[str]]:
    """Return for each event the nearest function of the project around it, as a position in the list of their places.

    NOTHING_AROUND where there is none; ``around`` are positions as of ``stacks.Stacks``.
    """
    places: dict[str, int] = {}
    own = np.full(len(events.names) + 1, NOTHING_AROUND, dtype=np.int64)
    python = events.kind == KINDS.index("python")
    for name in np.unique(events.name[python]).tolist():
        found = frame(events.names[name], "python")
        if found.is_project and found.place is not None:
            own[name] = places.setdefault(found.place, len(places))
    nearest = np.where(python, own[events.name], NOTHING_AROUND)
    above = around.copy()
    missing = np.flatnonzero((nearest == NOTHING_AROUND) & (above != NOTHING_AROUND))
    direct = nearest.copy()
    while missing.size:
        nearest[missing] = direct[above[missing]]
        above[missing] = around[above[missing]]
        missing = missing[(nearest[missing] == NOTHING_AROUND) & (above[missing] != NOTHING_AROUND)]
    return nearest, list(places)
