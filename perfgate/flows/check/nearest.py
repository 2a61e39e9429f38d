"""The tests and workloads that are closest to code that no workload runs, by the imports and names in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from perfgate.conductor.code.code_changes import MAX_BYTES, PACKAGE_FOLDERS
from perfgate.config import WorkloadReference

_MOST_NAMED = 3
# Larger repositories are not searched as a whole.
_MOST_FILES = 3_000


def nearest_users(
    root: Path, functions: Sequence[tuple[str, str]], references: Sequence[WorkloadReference]
) -> list[str]:
    """The users of missed functions, each a file and a function: tests that name one, then workloads that import its file.

    Tests are named like ``tests/test_ops.py::test_fused``, workloads by their name.
    """
    names = {function.rpartition(".")[2] for _, function in functions if function}
    modules = {_module_of(file) for file, _ in functions}
    tests: dict[str, int] = {}
    for path in _python_files(root):
        file = path.relative_to(root).as_posix()
        tree = None
        if _holds_tests(file):
            tree = _parsed(path)
        for test, rank in _users_in(tree, names, modules) if tree is not None else ():
            tests[f"{file}::{test}" if test else file] = rank
    ranked = sorted(tests, key=lambda test: (tests[test], test))
    workloads = [reference.name for reference in references if _imports_any(root, reference.file, modules)]
    return [*ranked[:_MOST_NAMED], *workloads[:_MOST_NAMED]]


def _python_files(root: Path) -> list[Path]:
    skipped = {"site-packages", ".git"}
    files = (path for path in root.rglob("*.py") if not skipped & set(path.relative_to(root).parts))
    return [path for path, _ in zip(files, range(_MOST_FILES))]


def _holds_tests(file: str) -> bool:
    path = PurePosixPath(file)
    return path.name.startswith("test_") or path.name.endswith("_test.py")


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes()) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _users_in(tree: ast.Module, names: set[str], modules: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the tests that use one of the names, and the file as a whole if it imports one of the modules."""
    is_named = False
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            used |= {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
            if used & names:
                is_named = True
                yield node.name, 0
    if not is_named and _imported(tree) & modules:
        yield "", 1


def _imports_any(root: Path, file: str, modules: set[str]) -> bool:
    """Whether a file imports one of the modules, directly or through others of the project."""
    visited: set[str] = set()
    waiting = [file]
    while waiting:
        at = waiting.pop()
        if at in visited or len(visited) > _MOST_FILES:
            continue
        visited.add(at)
        tree = _parsed(root / at)
        imported = _imported(tree) if tree is not None else set()
        if imported & modules:
            return True
        for module in imported:
            waiting += _files_of(root, at, module)
    return False


def _files_of(root: Path, importer: str, module: str) -> Iterator[str]:
    inside = module.replace(".", "/")
    for folder in ("", *(f"{name}/" for name in sorted(PACKAGE_FOLDERS)), f"{PurePosixPath(importer).parent}/"):
        for file in (f"{folder}{inside}.py", f"{folder}{inside}/__init__.py"):
            if (root / file).is_file():
                yield PurePosixPath(file).as_posix()


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
