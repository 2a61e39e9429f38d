"""Which packages a side asks for: the files that define dependencies, and a hash of what each of them says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfgate.toml import tomllib

# Where a pyproject.toml says what to install (PEP 621, PEP 735, and the tables of Poetry, uv and PDM).
_DEPENDENCY_TABLES = (
    ("project", "dependencies"),
    ("project", "optional-dependencies"),
    ("dependency-groups",),
    ("tool", "poetry", "dependencies"),
    ("tool", "poetry", "dev-dependencies"),
    ("tool", "poetry", "group"),
    ("tool", "uv", "sources"),
    ("tool", "uv", "constraint-dependencies"),
    ("tool", "uv", "override-dependencies"),
    ("tool", "pdm", "dev-dependencies"),
)


def read_requirements(root: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of what each file says, by its path below ``root``; comments in it say nothing."""
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    said = {path.relative_to(root).as_posix(): _what_it_says(path) for path in sorted(files)}
    return {name: hashlib.sha256(text).hexdigest() for name, text in said.items() if text is not None}


def differing_files(base: Mapping[str, str], head: Mapping[str, str]) -> list[str]:
    """Return the files that do not say the same on both sides, in order."""
    return sorted(name for name in base.keys() | head.keys() if base.get(name) != head.get(name))


def _what_it_says(file: Path) -> bytes | None:
    """Return the part of a file that counts; None for a pyproject.toml that says nothing of dependencies."""
    data = file.read_bytes()
    if file.name == "pyproject.toml":
        return _dependencies(data)
    if file.suffix == ".txt":
        # pip, "Requirements File Format": a line that begins with # is a comment.
        lines = (line.strip() for line in data.splitlines())
        return b"\n".join(line for line in lines if line and not line.startswith(b"#"))
    return data


def _dependencies(data: bytes) -> bytes | None:
    try:
        tables = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return data
    found = {".".join(path): value for path in _DEPENDENCY_TABLES if (value := _look_up(tables, path)) is not None}
    return json.dumps(found, sort_keys=True, default=str).encode() if found else None


def _look_up(table: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(table, dict) or name not in table:
            return None
        table = table[name]
    return table
