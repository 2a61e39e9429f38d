"""The folders that workers live in: a house for each interpreter, and in it a room for each checkout."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.hubs import show_hub_caches
from perfgate.system.walls import Room

# In a room: the home of what runs there, and the recordings of its profiler. Stacks of its workers lie next to them.
HOME, RECORDINGS = "home", "recordings"


class Rooms:
    """The houses below the scratch folder. Caches of compilers start empty for base and head alike."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._houses: dict[Path | None, Path] = {}
        self._rooms: dict[tuple[Path | None, Path | None], Path] = {}

    def house(self, python: Path | None) -> Path:
        """The folder of an interpreter: if packages of a side are in it, all of its processes stay in there."""
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
        """Yield a new room for a worker: its home has no files that other workers compiled or chose."""
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
