"""One public class name, one meaning: a name in the language of the package must not depend on the file it stands in."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from perfgate.system.folders import PACKAGE
from tests.source import package_modules, source

# Code of the demo and of the doctor's example project, each a program of its own.
EXAMPLES = ("demo", "doctor/main")


def test_public_classes__name_in_two_files__none() -> None:
    places: dict[str, set[Path]] = defaultdict(set)
    for path in package_modules():
        if not path.relative_to(PACKAGE).as_posix().startswith(EXAMPLES):
            # What looks like a class to the text may stand in a string, so two places are looked at again.
            for name in re.findall(r"^\s*class\s+([^\W_]\w*)", source(path), re.MULTILINE):
                places[name].add(path)
    assert len(places) > 500
    twice = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    classes = {path: _classes(path) for files in twice.values() for path in files}
    defined = {name: [path for path in files if name in classes[path]] for name, files in twice.items()}
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}


def _classes(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(source(path))) if isinstance(node, ast.ClassDef)}
