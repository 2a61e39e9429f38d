"""Recordings of real machines, which lie beside this checkout where somebody has them; without them a test is skipped."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared"


def recorded(*parts: str, folder: str = "ascend-samples") -> Path:
    """Return a recorded file or folder as it lies there; skips the test where it is absent."""
    path = _BESIDE.joinpath(folder, *parts)
    if not path.exists():
        pytest.skip(f"the recordings are not beside this checkout (../shared/{folder})")
    return path


def unpacked(target: Path, *parts: str) -> Path:
    """Copy a recorded folder to ``target``, its gzipped files unpacked as the profiler left them, and return it."""
    shutil.copytree(recorded(*parts), target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return target
