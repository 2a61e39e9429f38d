"""One public class name, one meaning: a name in the language of the package must not depend on the file it stands in."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import perfgate

ROOT = Path(perfgate.__file__).parent
# Code of the demo and of the doctor's example project, each a program of its own.
EXAMPLES = ("demo", "doctor/main")


def test_public_classes__name_in_two_files__none() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(EXAMPLES):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].add(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
