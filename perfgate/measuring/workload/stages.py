"""The stages of a workload's preprocessing: what they are called, how they run, and on which line each one starts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from perfgate.measuring.workload.workload import Workload

# The name of a preprocessing that is one function without a name of its own.
WHOLE = "preprocess"


class Stage(NamedTuple):
    """One function of the preprocessing; it takes what the stage before it returned."""

    name: str
    run: Callable[[Any], Any]


def stages_of(workload: Workload) -> tuple[Stage, ...]:
    """The stages in the order they run; none where the workload has no preprocessing."""
    preprocess = workload.preprocess
    if preprocess is None:
        return ()
    if isinstance(preprocess, Mapping):
        return tuple(Stage(name, run) for name, run in preprocess.items())
    name = getattr(preprocess, "__name__", WHOLE)
    return (Stage(WHOLE if name == "<lambda>" else name, preprocess),)


def line_of(function: Callable[..., Any], root: Path) -> str | None:
    """Where a function starts, ``data/resize.py:12``; None for what is not Python code below ``root``.

    A partial is what it wraps; an object that can be called is its ``__call__``.
    """
    code = _code(function)
    if code is None:
        return None
    try:
        file = Path(code.co_filename).resolve().relative_to(root.resolve())
    except ValueError:
        return None
    return f"{file.as_posix()}:{code.co_firstlineno}"


def _code(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    for candidate in (function, type(function).__call__):
        code = getattr(candidate, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
