"""A project's own metadata: its name, the import name of its package, and the Python that it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from perfgate.errors import UsageError
from perfgate.flows.init.requirements import (
    PYPROJECT,
    SETUP_CFG,
    ProjectTable,
    read_pyproject,
    read_setup_cfg,
)

_PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
# Packages next to the project's own that are never measured.
_NOT_THE_PACKAGE = {
    "tests",
    "test",
    "docs",
    "doc",
    "examples",
    "scripts",
    "benchmarks",
    "tools",
    "perf",
}


@dataclass(frozen=True)
class NewProject:
    """``name`` and ``package`` (the import name) may be empty; ``python_path`` is empty if the default finds the package."""

    name: str
    package: str
    python_path: Sequence[str]
    python: str


def read_project(folder: Path) -> NewProject:
    """Read pyproject.toml and setup.cfg of ``folder``. Raises UsageError for an unreadable one."""
    file, cfg = read_pyproject(folder / PYPROJECT), read_setup_cfg(folder)
    table = file.project or ProjectTable()
    name = (
        table.name or file.tool.poetry.name or cfg.get("metadata", "name", fallback="")
    )
    package, parent = _find_package(folder, re.sub(r"[-.]+", "_", name))
    python_path: Sequence[str] = ()
    if parent not in ("", ".", "src"):
        python_path = [".", parent]
    return NewProject(
        name=name,
        package=package,
        python_path=python_path,
        python=_python(
            table.requires_python,
            cfg.get("options", "python_requires", fallback=""),
            folder,
        ),
    )


def _find_package(folder: Path, name: str) -> tuple[str, str]:
    """The import name of the package, and the folder that must be on Python's path for it."""
    if name:
        subfolders = sorted(
            path.name
            for path in folder.iterdir()
            if path.is_dir() and path.name[0] not in "._"
        )
        for parent in (".", "src", *subfolders):
            if (folder / parent / name / "__init__.py").is_file() or (
                folder / parent / f"{name}.py"
            ).is_file():
                return name, parent
    for parent in ("src", "."):
        packages = {
            path.parent.name for path in (folder / parent).glob("*/__init__.py")
        }
        candidates = packages - _NOT_THE_PACKAGE
        if len(candidates) == 1:
            return candidates.pop(), parent
    return "", ""


def _python(table_says: str, cfg_says: str, folder: Path) -> str:
    """The running Python's version if the project supports it, because the pins are from here; else the oldest supported."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions, path = cfg_says, folder / SETUP_CFG
    if table_says:
        versions, path = table_says, folder / PYPROJECT
    try:
        takes = SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise UsageError(
            "{path}: the Python that the project requires cannot be read: {error}",
            path=path,
            error=error,
        ) from error
    # Compare the newest patch release of each: ">=3.10.4" accepts a current 3.10.
    fitting = [
        version for version in (running, *_PYTHONS) if takes.contains(f"{version}.99")
    ]
    if not fitting:
        raise UsageError(
            "{path}: requires-python = {wanted!r} takes no Python that perfgate runs on (3.10 or later)",
            path=path,
            wanted=versions,
        )
    return fitting[0]
