"""The folder of all that is kept of recordings: files written as a whole, of which the least recently used leave first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# A recording of 1.5 GB takes 0.13 GB.
MOST_BYTES = 4 << 30
COLUMNS, STACKS, ANSWER = ".columns", ".stacks", ".answer"
# On the disk, for everybody else.
_FREE_BYTES = 1 << 30
_TEMPORARY = ".tmp"
_ABANDONED_S = 3600
_DAMAGES = "damaged.log"


class CacheUse(NamedTuple):
    """How many recordings are kept, in how many bytes, and how many entries ever kept turned out damaged."""

    recordings: int
    size: int
    damaged: int


class EntryFolder:
    """Entries of this user by name. A full or read-only disk only means that nothing is kept."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most = folder, most_bytes

    def file(self, name: str) -> Path:
        return self._folder / name

    def keep(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write an entry, unless it is too large. Raises OSError if it cannot be written."""
        size = sum(map(len, pieces))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._make_room(size):
            return
        temporary = self._folder / f"{os.urandom(8).hex()}{_TEMPORARY}"
        try:
            with temporary.open("xb") as out:
                # Not waiting for the disk: an entry that a crash left incomplete does not have its sum, and is not used.
                out.writelines(pieces)
            temporary.replace(self._folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def use(self) -> CacheUse:
        """How full the folder is."""
        entries = list(self._entries())
        try:
            damaged = (self._folder / _DAMAGES).read_text(errors="replace").count("\n")
        except OSError:
            damaged = 0
        recordings = sum(file.suffix == COLUMNS for file, _ in entries)
        return CacheUse(recordings, sum(stat.st_size for _, stat in entries), damaged)

    def clear(self) -> None:
        """Remove all entries. Raises OSError if the folder cannot be written to."""
        for file, _ in self._entries():
            file.unlink(missing_ok=True)
        (self._folder / _DAMAGES).unlink(missing_ok=True)

    def note_use(self, file: Path) -> None:
        with suppress(OSError):
            os.utime(file)

    def note_damage(self, file: Path) -> None:
        """Remove a damaged entry, and log that there was one."""
        with suppress(OSError):
            file.unlink(missing_ok=True)
            with (self._folder / _DAMAGES).open("a") as log:
                log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {file.name}\n")

    def _make_room(self, size: int) -> bool:
        """Remove the least recently used entries until ``size`` more bytes are within the bound; return whether they fit."""
        disk = os.statvfs(self._folder)
        if size > self._most or disk.f_bavail * disk.f_frsize < size + _FREE_BYTES:
            return False
        for file in self._folder.glob(f"*{_TEMPORARY}"):
            with suppress(OSError):
                if file.stat().st_mtime < time.time() - _ABANDONED_S:
                    file.unlink()
        entries = sorted(self._entries(), key=lambda entry: -entry[1].st_mtime)
        for file, stat in entries:
            size += stat.st_size
            if size > self._most:
                file.unlink(missing_ok=True)
        return True

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for suffix in (COLUMNS, STACKS, ANSWER):
            for file in self._folder.glob(f"*{suffix}"):
                with suppress(OSError):
                    yield file, file.stat()
