"""The root conftest.py leaves out folders that are named after a marker; so all tests in them must have it."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_folders__named_after_a_marker__hold_only_modules_with_it(pytestconfig: pytest.Config) -> None:
    markers = [line.partition(":")[0] for line in pytestconfig.getini("markers")]
    modules = {path: name for name in markers for path in (TESTS / name).rglob("test_*.py")}
    assert len(set(modules.values())) >= 6
    assert [str(path) for path, name in modules.items() if "\npytestmark = " not in path.read_text("utf-8")] == []
    assert [str(path) for path, name in modules.items() if f"pytest.mark.{name}" not in path.read_text("utf-8")] == []
