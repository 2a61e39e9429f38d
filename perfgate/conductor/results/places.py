"""Numbers that perfgate.toml names one by one: by a path in JSON, a column of CSV, or a
pattern in the output.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

from perfgate.conductor.results.result import ResultNumber, text_of
from perfgate.errors import ResultsError
from perfgate.job_settings import UNITS, NumberSettings
from perfgate.locale import Activity

# Commas only between thousands: where "9,75" and "10,5" are written with a decimal
# comma, leaving it out would make the second a ninth of the first.
_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+"
_PLAIN = re.compile(rf"[+-]?({_THOUSANDS}|\d[\d_]*)?(\.\d+)?([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.]*,\d+")
_PART = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


def find_number(
    name: str, settings: NumberSettings, *, output: str, file: Path | None
) -> ResultNumber:
    """The number at its place, in base units. Raises ResultsError if there is none."""
    values: list[object]
    if settings.column:
        assert file is not None, "the configuration is checked"
        values = _column(file, settings.column)
    elif settings.json:
        values = [_at_path(_json(output, file), settings.json)]
    else:
        text: str = output
        where: str = Activity("the output")
        if file is not None:
            text, where = text_of(file), file.name
        matches = re.findall(settings.pattern, text)
        if not matches:
            raise ResultsError(
                "nothing matches the pattern {pattern!r} in {where}; let the program print it, or correct `pattern`",
                pattern=settings.pattern,
                where=where,
            )
        values = [str(matches[-1])]
    unit, factor = UNITS[settings.unit]
    numbers = [_checked(name, value) * factor for value in values]
    samples = tuple(numbers) if len(numbers) > 1 else ()
    return ResultNumber(
        name, math.fsum(numbers) / len(numbers), unit, settings.better, samples
    )


def _checked(name: str, value: object) -> float:
    if (
        isinstance(value, str)
        and _PLAIN.fullmatch(value.strip())
        and any(map(str.isdigit, value))
    ):
        value = float(value.strip().replace(",", "").replace("_", ""))
    if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip()):
        raise ResultsError(
            "number {name} is {value!r}, with a decimal comma; let the program write a point, as with LC_ALL=C",
            name=name,
            value=value,
        )
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ResultsError(
            "number {name} is {value!r}, not a number", name=name, value=value
        )
    if not math.isfinite(value) or value <= 0:
        raise ResultsError(
            "number {name} is {value}, not a valid measurement", name=name, value=value
        )
    return float(value)


def _json(output: str, file: Path | None) -> Any:
    """The file's content, or the last line of the output that is a JSON object."""
    if file is not None:
        try:
            return json.loads(text_of(file))
        except ValueError as error:
            raise ResultsError(
                "{name} is not JSON: {error}; let the program write one document to it",
                name=file.name,
                error=error,
            ) from error
    for line in reversed(output.splitlines()):
        if line.lstrip().startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    raise ResultsError(
        "no line of the output is a JSON object; print one at the end, or name `file`"
    )


def _at_path(document: Any, path: str) -> object:
    value, walked = document, ""
    parts = _PART.findall(path)
    while parts:
        key, index = parts[0]
        used = 1
        if key and isinstance(value, dict):
            key, used = _key_in(value, parts)
        try:
            value = value[key] if key else value[int(index)]
        except (KeyError, IndexError, TypeError):
            names = ""
            if isinstance(value, dict) and value:
                names = Activity(
                    "; there are {names}", names=", ".join(map(str, list(value)[:8]))
                )
            raise ResultsError(
                "the JSON has no {path}: nothing at {missing} below {above}{known}; correct `json` of the number, or let "
                "the program write it",
                path=path,
                missing=key or index,
                above=walked or Activity("the top level"),
                known=names,
            ) from None
        parts = parts[used:]
        if not key:
            walked += f"[{index}]"
        elif walked:
            walked += f".{key}"
        else:
            walked = key
    return value


def _key_in(value: dict[str, Any], parts: list[tuple[str, str]]) -> tuple[str, int]:
    """The next key of a path, and the number of its parts: keys of some programs
    contain dots, such as ``p99.9``.
    """
    key, used = parts[0][0], 1
    longer = key
    for number, (part, _) in enumerate(parts[1:], start=2):
        if not part:
            break
        longer += f".{part}"
        if longer in value:
            key, used = longer, number
    return key, used


def _column(file: Path, column: str) -> list[object]:
    rows = list(csv.DictReader(text_of(file).splitlines()))
    if not rows:
        raise ResultsError(
            "{name} has no row below its header; let the program write its numbers to it",
            name=file.name,
        )
    if column not in rows[0]:
        raise ResultsError(
            "{name} has no column {column!r}; its columns are {columns}",
            name=file.name,
            column=column,
            columns=", ".join(map(str, rows[0])),
        )
    cells: list[object] = []
    for number, row in enumerate(rows, start=1):
        # Loggers of training leave cells of metrics empty that a step has not.
        cell = row[column] or ""
        if not cell.strip():
            raise ResultsError(
                "{name} has no {column} in row {number} below its header; let the program write it in every row, or name "
                "a file of its own for it",
                name=file.name,
                column=column,
                number=number,
            )
        cells.append(cell)
    return cells
