"""Find projects: the nearest folder upwards with a perfgate.toml, and those below a
folder without one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from perfgate.errors import UsageError

CONFIG_NAME = "perfgate.toml"
# How deep below the root of a repository projects are looked for.
_DEPTH = 3
_NEVER = frozenset({"node_modules", "site-packages", "build", "dist"})


def find_project(start: Path) -> Path:
    """The folder itself or the nearest one above it with a perfgate.toml, within the
    repository; itself if there is none.

    Raises UsageError if the current folder is gone.
    """
    try:
        folder = start.resolve()
    except FileNotFoundError:
        raise UsageError(
            "the current folder was removed; go to one that exists"
        ) from None
    project = None
    for above in (folder, *folder.parents):
        if project is None and (above / CONFIG_NAME).is_file():
            project = above
        if (above / ".git").exists():
            return start / os.path.relpath(project or folder, folder)
    return start


def projects_below(root: Path) -> list[str]:
    """The folders below one that hold a perfgate.toml, relative to it and with slashes."""
    projects = []
    folders = [root]
    for _ in range(_DEPTH):
        below: list[Path] = []
        for folder in folders:
            below += _folders(folder)
        folders = sorted(below)
        for folder in folders:
            with suppress(OSError):  # a folder that may not be entered
                if (folder / CONFIG_NAME).is_file():
                    projects.append(folder.relative_to(root).as_posix())
    return projects


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        for child in os.scandir(folder):
            is_searched = child.name not in _NEVER and not child.name.startswith(".")
            if is_searched and child.is_dir(follow_symlinks=False):
                yield Path(child.path)


def below(prefix: str, name: str) -> str:
    """The path of a file of the project in the folder ``prefix`` of a repository, from
    the repository's top.
    """
    if prefix:
        return f"{prefix}/{name}"
    return name


def choices(projects: list[str]) -> str:
    """How to name one of several projects on the command line: ``-C a or -C b``."""
    return " or ".join(f"-C {project}" for project in projects)
