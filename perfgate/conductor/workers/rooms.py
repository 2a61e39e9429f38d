"""The folders that workers live in: a house for each interpreter, and in it a room for
each checkout.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from perfgate.conductor.workers.checkout import Checkout
from perfgate.system.walls import Room

# In a room: the home of what runs there, and the recordings of its profiler. Stacks of
# its workers lie next to them.
HOME, RECORDINGS = "home", "recordings"


class Rooms:
    """The houses below the scratch folder.

    Caches of compilers start empty for base and head alike.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._houses: dict[Path | None, Path] = {}
        self._rooms: dict[tuple[Path | None, Path | None], Path] = {}

    def house(self, python: Path | None) -> Path:
        """The folder of an interpreter: if packages of a side are in it, all of its
        processes stay in there.
        """
        if python not in self._houses:
            self._houses[python] = Path(
                tempfile.mkdtemp(prefix="house-", dir=self.scratch)
            )
        return self._houses[python]

    def of(self, checkout: Checkout) -> Path:
        return self._room(checkout.python, checkout.root)

    def ours(self, python: Path | None) -> Path:
        """The room of an interpreter's workers that run no code of a checkout."""
        return self._room(python, None)

    @contextmanager
    def empty(self, checkout: Checkout) -> Iterator[Path]:
        """Yield a new room for a worker: its home has no files that other workers
        compiled or chose.
        """
        with tempfile.TemporaryDirectory(
            prefix="empty-room-", dir=self.house(checkout.python)
        ) as folder:
            _furnish(Path(folder), has_hubs=True)
            yield Path(folder)

    def walls(self, folder: Path) -> Room:
        """The walls around a room or a house."""
        return Room(closed=str(self.scratch), folder=str(folder))

    def _room(self, python: Path | None, root: Path | None) -> Path:
        if (python, root) not in self._rooms:
            room = Path(tempfile.mkdtemp(prefix="room-", dir=self.house(python)))
            _furnish(room, has_hubs=root is not None)
            self._rooms[python, root] = room
        return self._rooms[python, root]


def _furnish(room: Path, *, has_hubs: bool) -> None:
    for name in (HOME, RECORDINGS):
        (room / name).mkdir(mode=0o700)
    if has_hubs:
        show_hub_caches(os.environ, room / HOME)


# --- the caches of model hubs in the user's home


# Default locations below ~/.cache: models and code. Tokens lie next to these folders,
# not in them.
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
# A hub writes large files under another name and then moves them; small files (refs,
# locks) it may write in place.
_COPIED_BYTES = 64 * 1024


def show_hub_caches(environ: Mapping[str, str], home: Path) -> None:
    """Make the hubs' caches of a user appear in a worker's home.

    Folders and small files are copied and large files linked, so a hub's writes stay in
    the worker's home.
    """
    for name, source in _hubs_of_user(environ).items():
        _mirror(source, home / ".cache" / name, top=source)


def shared_caches(environ: Mapping[str, str]) -> list[Path]:
    """The hubs' caches that both sides read: the user's, with links to its large files,
    and the environment's.
    """
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
