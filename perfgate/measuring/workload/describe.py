"""What a workload measures, as text that two sides can be compared by; nothing is built or called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

from perfgate.measuring.workload.workload import Workload

FUNCTIONS = ("build", "inputs", "call", "train_step", "preprocess", "preprocess_on_device", "check")


def describe_shapes(workload: Workload) -> dict[str, str]:
    """Each shape's arguments as text, e.g. ``length=512``."""
    return {
        name: ", ".join(f"{argument}={value!r}" for argument, value in sorted(arguments.items()))
        for name, arguments in workload.shapes.items()
    }


def describe_functions(workload: Workload) -> dict[str, str]:
    """The functions that are given, each with a hash of its code: 16 hex digits of SHA-256; and ``grad`` where it is on.

    It covers the function's own byte code, constants, names and defaults, so an edited comment changes nothing. What it
    calls is not covered. Two Python versions give two hashes. What has no code of its own, as a class, counts by its name.
    """
    functions = {name: getattr(workload, name) for name in FUNCTIONS}
    hashes = {name: _hash(function) for name, function in functions.items() if function is not None}
    return {**hashes, "grad": "on"} if workload.grad else hashes


def _hash(function: Callable[..., Any] | Mapping[str, Callable[..., Any]]) -> str:
    digest = hashlib.sha256()
    for part in _parts_of_stages(function) if isinstance(function, Mapping) else _parts(function):
        digest.update(part.encode(errors="replace") + b"\0")
    return digest.hexdigest()[:16]


def _parts_of_stages(stages: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    for name, function in stages.items():
        yield name
        yield from _parts(function)


def _parts(function: Any) -> Iterator[str]:
    code: object | None = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        yield from _code_parts(code)
        yield from map(_stable, getattr(function, "__defaults__", None) or ())
        yield from map(_stable, (getattr(function, "__kwdefaults__", None) or {}).items())
    else:
        kind = type(function)
        yield f"{getattr(function, '__module__', kind.__module__)}.{getattr(function, '__qualname__', kind.__qualname__)}"


def _code_parts(code: CodeType) -> Iterator[str]:
    # Neither file name nor line numbers: they differ between two checkouts of the same code.
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    # The first constant may be the docstring, which measures nothing.
    constants = code.co_consts[1:] if code.co_consts and isinstance(code.co_consts[0], str) else code.co_consts
    for constant in constants:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield _stable(constant)


def _stable(value: object) -> str:
    if isinstance(value, (frozenset, set)):
        return f"{type(value).__name__}{sorted(map(_stable, value))}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}{[_stable(member) for member in value]}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__}{sorted((_stable(k), _stable(v)) for k, v in value.items())}"
    return (
        repr(value)
        if isinstance(value, (str, bytes, int, float, complex, type(None), type(...)))
        else type(value).__name__
    )
