"""Whether a document says everything that its writer writes: a field that is left out must not read as its default."""

from __future__ import annotations

from typing import Any

import msgspec


def left_out(value: Any, record: msgspec.Struct) -> str | None:
    """Return the JSON path of a field of ``record`` that the parsed ``value`` it was read from lacks, None where none is."""
    return _left_out(value, msgspec.to_builtins(record), "$")


def _left_out(value: Any, whole: Any, path: str) -> str | None:
    if isinstance(whole, dict):
        absent = next((key for key in whole if key not in value), None)
        if absent is not None:
            return f"{path}.{absent}"
        inside = ((value[key], part, f"{path}.{key}") for key, part in whole.items())
    elif isinstance(whole, list):
        inside = ((value[index], part, f"{path}[{index}]") for index, part in enumerate(whole))
    else:
        return None
    return next((found for found in (_left_out(*one) for one in inside) if found), None)
