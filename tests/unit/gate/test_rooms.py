"""The rooms of the gate: documents end in evidence, and everything behind it takes rows."""

from __future__ import annotations

import ast
from pathlib import Path

from perfgate.judging import gate

GATE = Path(gate.__file__).parent
# The doors that take documents from outside.
DOORS = {"decide.py", "look.py"}


def files_behind_evidence() -> list[Path]:
    rooms = [file for room in ("compare", "plan", "explain") for file in (GATE / room).glob("*.py")]
    return [*rooms, *(file for file in GATE.glob("*.py") if file.name not in DOORS)]


def names_in(file: Path) -> set[str]:
    """Return the names that a module imports and reads, as attributes too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.alias):
            names.add(node.name)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


def test_rooms__behind_evidence__take_no_document() -> None:
    files = files_behind_evidence()
    assert len(files) > 40
    readers = {file.name for file in files if names_in(file) & {"RunDocument", "run", "runs"}}
    assert readers == set()


def test_rooms__behind_evidence__take_its_tables_and_not_the_index() -> None:
    rooms = [file for room in ("compare", "plan", "explain") for file in (GATE / room).glob("*.py")]
    assert {file.name for file in rooms if names_in(file) & {"Evidence", "RunIndex"}} == set()


def test_rooms__doors_and_evidence__take_documents() -> None:
    assert "RunDocument" in names_in(GATE / "decide.py")
    assert {"RunDocument", "run"} <= names_in(GATE / "evidence" / "index.py")
