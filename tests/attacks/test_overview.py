"""The overview in README.md: every test it names is there, and every item has one."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
OVERVIEW = (HERE / "README.md").read_text(encoding="utf-8")


def test_overview__every_test_it_names__is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", OVERVIEW)
    assert len(named) > 30
    missing = [
        (file, test)
        for file, test in named
        if file != "test_overview.py"
        and (not (TESTS / file).exists() or f"def {test}" not in (TESTS / file).read_text())
    ]
    assert missing == []


def test_overview__every_item__is_attacked() -> None:
    assert re.findall(r"^\| (\d+) \|.*`\w+/", OVERVIEW, re.MULTILINE) == [str(item) for item in range(1, 15)]
