"""Small JSON files of a profiler's folder, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfgate.errors import DocumentError

MAX_JSON_BYTES = 256 << 20
_Wanted = TypeVar("_Wanted")


def decode_file(path: Path, wanted: type[_Wanted]) -> _Wanted:
    """Return what a JSON file holds. Raises DocumentError where it cannot be read or holds something else."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise DocumentError(f"{path}: more than {MAX_JSON_BYTES} bytes of JSON; profile fewer steps")
        return msgspec.json.decode(path.read_bytes(), type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"{path}: is damaged: {error}; analyse the profile again") from error
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error}; check the path and its permissions") from error


def mapping_file(path: Path) -> dict[str, Any]:
    """Return a JSON object."""
    return decode_file(path, dict[str, Any])


def inner(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return an object inside others, empty where there is none."""
    for key in keys:
        found = values.get(key)
        values = found if isinstance(found, dict) else {}
    return values


def word(value: object) -> str | None:
    """Return a plain value as text, ``true`` for True, a list with commas; None for what is absent or not plain."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value) or None
    if isinstance(value, list):
        return ",".join(filter(None, (word(item) for item in value))) or None
    return None
