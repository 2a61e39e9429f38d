"""The numbers that a program wrote to a file, in base units."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.errors import ResultsError


class Number(NamedTuple):
    """One number; ``samples`` are what it was made of, in the same unit, where the file has them."""

    name: str
    value: float
    unit: str
    better: Literal["lower", "higher"]
    samples: tuple[float, ...] = ()


class Results(NamedTuple):
    """The numbers of a file, and in ``work`` the counts that must be equal on both sides."""

    numbers: list[Number]
    work: dict[str, int]
    format: str


class _Line(msgspec.Struct):
    name: str
    value: float
    unit: str = "1"
    better: Literal["lower", "higher"] = "lower"


def read_results(path: Path, *, format: str = "auto", not_before: float | None = None) -> Results:  # noqa: A002 - as it is called in perfgate.toml
    """Read a file that is not older than ``not_before`` (seconds of the epoch).

    Raises ResultsError, with what is wrong, where and what to do.
    """
    if format not in ("auto", "json_lines"):
        raise ResultsError(f"no format {format!r} is known; the formats are auto, json_lines")
    try:
        age, text = path.stat().st_mtime, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"the results {path} cannot be read: {error}") from error
    if not_before is not None and age < not_before:
        raise ResultsError(f"{path} is older than this run of the program, which did not write it")
    numbers = [_number(path, line, text) for line, text in enumerate(text.splitlines(), start=1) if text.strip()]
    if not numbers:
        raise ResultsError(f"{path} holds no number")
    return Results(numbers, {}, "json_lines")


def _number(path: Path, line: int, text: str) -> Number:
    try:
        read = msgspec.json.decode(text, type=_Line)
    except msgspec.DecodeError as error:
        example = '{"name": "step", "value": 0.012, "unit": "s", "better": "lower"}'
        raise ResultsError(f"{path}:{line}: {error}; a line reads {example}") from error
    if not (math.isfinite(read.value) and read.value >= 0):
        raise ResultsError(f"{path}:{line}: {read.name} is {read.value}, which is no measurement")
    return Number(read.name, read.value, read.unit, read.better)
