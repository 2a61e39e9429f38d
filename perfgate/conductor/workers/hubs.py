"""The caches of model hubs in the user's home, which workers find in their separate home: to read, never to change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Default locations below ~/.cache: models and code. Tokens lie next to these folders, not in them.
HUB_CACHES = (
    "huggingface/hub",
    "huggingface/modules",
    "torch/hub",
    "modelscope/hub",
    "openmind/hub",
)
# Where a hub's cache may lie instead; workers get these variables.
HUB_VARIABLES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "TORCH_HOME",
    "MODELSCOPE_CACHE",
    "OPENMIND_HUB_CACHE",
)
# A hub writes large files under another name and then moves them; small files (refs, locks) it may write in place.
_COPIED_BYTES = 64 * 1024


def show_hub_caches(environ: Mapping[str, str], home: Path) -> None:
    """Make the hubs' caches of a user appear in a worker's home.

    Folders and small files are copied and large files linked, so a hub's writes stay in the worker's home.
    """
    for name, source in _hubs_of_user(environ).items():
        _mirror(source, home / ".cache" / name, top=source)


def shared_caches(environ: Mapping[str, str]) -> list[Path]:
    """The hubs' caches that both sides read: the user's, with links to its large files, and the environment's."""
    caches = list(_hubs_of_user(environ).values())
    for name in HUB_VARIABLES:
        folder = Path(environ.get(name) or "/nonexistent")
        if folder.is_dir():
            caches.append(folder.resolve())
    return caches


def _hubs_of_user(environ: Mapping[str, str]) -> dict[str, Path]:
    caches = Path(
        environ.get("XDG_CACHE_HOME")
        or Path(environ.get("HOME", "/nonexistent"), ".cache")
    )
    return {
        name: (caches / name).resolve()
        for name in HUB_CACHES
        if (caches / name).is_dir()
    }


def _mirror(source: Path, copy: Path, *, top: Path) -> None:
    copy.mkdir(parents=True)
    with (
        suppress(OSError),
        os.scandir(source) as entries,
    ):  # workers do not see files that the user may not read
        for entry in entries:
            path, there = Path(entry.path), copy / entry.name
            if entry.is_symlink():
                target = Path(os.path.normpath(source / path.readlink()))
                there.symlink_to(path.readlink() if top in target.parents else target)
            elif entry.is_dir():
                _mirror(path, there, top=top)
            elif entry.is_file() and entry.stat().st_size > _COPIED_BYTES:
                there.symlink_to(path)
            elif entry.is_file():
                with suppress(OSError):
                    shutil.copyfile(path, there)
