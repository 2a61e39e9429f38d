"""Texts that are kept in files: a test compares, and writing them is never a test that passed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

WRITE = "PERFGATE_WRITE_GOLDEN"


def compare(text: str, path: Path) -> None:
    """Compare with a kept text. With PERFGATE_WRITE_GOLDEN=1 write it instead, and fail: nobody has read it yet."""
    if os.environ.get(WRITE):
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} is written anew: read its difference, then run the test without {WRITE}")
    assert text == path.read_text(encoding="utf-8")
