"""The tests and workloads that are closest to code that no workload runs, by the
imports and names in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path, PurePosixPath

from perfgate.conductor.code.code_changes import MAX_BYTES, PACKAGE_FOLDERS
from perfgate.config import WorkloadReference
from perfgate.document.coverage import ChangedFunction

_MOST_NAMED = 3
# Larger repositories are not searched as a whole.
_MOST_FILES = 3_000
_SKIPPED = frozenset({"site-packages", ".git"})


def nearest_users(
    root: Path,
    functions: Sequence[ChangedFunction],
    references: Sequence[WorkloadReference],
) -> list[str]:
    """The users of missed functions: tests that name one or import its file, then
    workloads that import its file.

    Tests are named like ``tests/test_ops.py::test_fused``, workloads by their name.
    """
    names: set[str] = set()
    modules: set[str] = set()
    for function in functions:
        modules.add(_module_of(function.line.rpartition(":")[0]))
        if function.function:
            names.add(function.function.rpartition(".")[2])
    naming: set[str] = set()
    importing: list[str] = []
    for path in _test_files(root):
        file, tree = path.relative_to(root).as_posix(), _parsed(path)
        if tree is None:
            continue
        tests: list[str] = []
        for node in ast.walk(tree):
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and node.name.startswith("test")
                and _uses_any(node, names)
            ):
                tests.append(f"{file}::{node.name}")
        naming.update(tests)
        if not tests and _imported(tree) & modules:
            importing.append(file)
    ranked = [*sorted(naming), *sorted(importing)]
    workloads = [
        reference.name
        for reference in references
        if _imports_any(root, reference.file, modules)
    ]
    return [*ranked[:_MOST_NAMED], *workloads[:_MOST_NAMED]]


def _test_files(root: Path) -> Iterator[Path]:
    """The test files among the first Python files of a repository."""
    count = 0
    for path in root.rglob("*.py"):
        if _SKIPPED.intersection(path.relative_to(root).parts):
            continue
        if count == _MOST_FILES:
            return
        count += 1
        if path.name.startswith("test_") or path.name.endswith("_test.py"):
            yield path


def _parsed(path: Path) -> ast.Module | None:
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _uses_any(test: ast.AST, names: set[str]) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id in names:
            return True
        if isinstance(node, ast.Attribute) and node.attr in names:
            return True
    return False


def _imports_any(root: Path, file: str, modules: set[str]) -> bool:
    """Whether a file imports one of the modules, directly or through others of the
    project.
    """
    visited: set[str] = set()
    waiting = [file]
    while waiting:
        at = waiting.pop()
        if at in visited or len(visited) > _MOST_FILES:
            continue
        visited.add(at)
        tree = _parsed(root / at)
        if tree is None:
            continue
        imported = _imported(tree)
        if imported & modules:
            return True
        folders = (".", *sorted(PACKAGE_FOLDERS), str(PurePosixPath(at).parent))
        for module, folder in product(imported, folders):
            inside = module.replace(".", "/")
            for name in (f"{inside}.py", f"{inside}/__init__.py"):
                path = PurePosixPath(folder, name)
                if (root / path).is_file():
                    waiting.append(path.as_posix())
    return False


def _imported(tree: ast.Module) -> set[str]:
    """The modules that a file imports; of ``from a import b`` both ``a`` and ``a.b``."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def _module_of(file: str) -> str:
    parts = list(PurePosixPath(file).with_suffix("").parts)
    if parts[0] in PACKAGE_FOLDERS:
        parts = parts[1:]
    if len(parts) > 1 and parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)
