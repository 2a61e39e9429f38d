"""The code of a workload file and of the modules beside it that it imports: as one hash, and where two of them differ."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path

from perfgate.conductor.sides.code_changes import changes, parse, statements


def code_hash(file: Path, *, importable: Collection[Path]) -> str:
    """Return the SHA-256 of what the head's harness brings to both sides; comments and docstrings are no part of it.

    Modules in the ``importable`` folders are each side's own code, and so none of it. Empty where there is no file.
    """
    files = _with_siblings(file, importable)
    return hashlib.sha256(b"\0".join(_code(found) for found in files)).hexdigest() if files else ""


def changed_lines(base: Path, head: Path, *, importable: tuple[Collection[Path], Collection[Path]]) -> list[str]:
    """Return where the code of two harnesses differs: ``file:line`` of head for the first statement of every change.

    Files are named as beside the workload file; what was only removed is named by the statement that stands there now.
    """
    before = {found.relative_to(base.parent): found for found in _with_siblings(base, importable[0])}
    after = {found.relative_to(head.parent): found for found in _with_siblings(head, importable[1])}
    # A workload file may have been renamed.
    before[head.relative_to(head.parent)] = base
    return [
        f"{name.as_posix()}:{change.at}"
        for name, file in after.items()
        for change in changes(statements(before.get(name, base.parent / name)), statements(file))
    ]


def _with_siblings(file: Path, importable: Collection[Path]) -> list[Path]:
    """Return the file and every module beside it that it or one of these imports, in the order they are met."""
    found = [file] if file.is_file() else []
    if file.parent.resolve() in {folder.resolve() for folder in importable}:
        return found
    for module in found:
        for name in _imported(module):
            beside = [file.parent / f"{name}.py", *sorted((file.parent / name).rglob("*.py"))]
            found += [path for path in beside if path.is_file() and path not in found]
    return found


def _imported(file: Path) -> Iterator[str]:
    tree = parse(file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _code(file: Path) -> bytes:
    """Return a file's code without comments, docstrings and formatting; its bytes where that cannot be had."""
    tree = parse(file)
    try:
        return file.read_bytes() if tree is None else ast.dump(tree).encode(errors="replace")
    except RecursionError:  # too deep to be written out
        return file.read_bytes()
