"""Find projects: the nearest folder upwards with a perfgate.toml, and those below a folder without one."""

from __future__ import annotations

import os
from pathlib import Path

from perfgate.errors import UsageError

CONFIG_NAME = "perfgate.toml"
# How deep below the root of a repository projects are looked for.
_DEPTH = 3
_NEVER = frozenset({"node_modules", "site-packages", "build", "dist"})


def find_project(start: Path) -> Path:
    """The folder itself or the nearest one above it with a perfgate.toml, within the repository; itself if there is none.

    Raises UsageError if the current folder is gone.
    """
    try:
        here = start.resolve()
    except FileNotFoundError:
        raise UsageError("the current folder was removed; go to one that exists") from None
    lineage = [here, *here.parents]
    within = next((n + 1 for n, folder in enumerate(lineage) if (folder / ".git").exists()), 1)
    found = next((folder for folder in lineage[:within] if (folder / CONFIG_NAME).is_file()), here)
    return start if found == here else start / os.path.relpath(found, here)


def projects_below(root: Path) -> list[str]:
    """The folders below one that hold a perfgate.toml, relative to it and with slashes."""
    found = []
    level = [root]
    for _ in range(_DEPTH):
        level = sorted(child for folder in level for child in _folders(folder))
        found += [folder.relative_to(root).as_posix() for folder in level if (folder / CONFIG_NAME).is_file()]
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        children = list(os.scandir(folder))
    except OSError:
        return []
    named = [child for child in children if not child.name.startswith(".") and child.name not in _NEVER]
    return [Path(child.path) for child in named if child.is_dir(follow_symlinks=False)]


def choices(projects: list[str]) -> str:
    """How to name one of several projects on the command line: ``-C a or -C b``."""
    return " or ".join(f"-C {project}" for project in projects)
