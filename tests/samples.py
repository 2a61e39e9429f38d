"""Recordings of real machines and forges, which lie beside this checkout where somebody has them.

A test that reads them has the marker ``recordings``: ``make test`` leaves it out, ``make test-recordings`` runs it.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

# Another folder of recordings than the one beside this checkout.
SETTING = "PERFGATE_RECORDINGS"
_BESIDE = Path(__file__).parents[2] / "shared"


class CurrentTest:
    """Whether the test that runs may read recordings; conftest.py sets it before each test."""

    marked = True


def recordings() -> Path:
    """Return the folder of all recordings; nobody promises that it is there."""
    return Path(os.environ.get(SETTING) or _BESIDE)


def recorded(*parts: str, folder: str = "ascend-samples") -> Path:
    """Return a recorded file or folder as it lies there; skips the test where it is absent."""
    assert CurrentTest.marked, "a test that reads recordings needs @pytest.mark.recordings"
    path = recordings().joinpath(folder, *parts)
    if not path.exists():
        pytest.skip(f"no recordings: {path} is missing; they lie in ../shared, or where {SETTING} says")
    return path


def unpacked(target: Path, *parts: str) -> Path:
    """Copy a recorded folder to ``target``, its gzipped files unpacked as the profiler left them, and return it."""
    shutil.copytree(recorded(*parts), target)
    for packed in target.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return target
