"""The columns of large recordings, kept after the first read: the next question about the same recording maps them into memory.

An entry holds the state of every file that was read. It answers only as long as all of them are unchanged.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfgate.trace.model.recording import Recording

_FOLDER: ContextVar[Path | None] = ContextVar("recording_cache", default=None)


def use_cache(folder: Path | None) -> None:
    """Keep recordings in this folder from now on; in none for None."""
    _FOLDER.set(folder)


def cache_folder() -> Path | None:
    """The folder of kept recordings; None if the cache is off."""
    return _FOLDER.get()


def recall(path: Path) -> Recording:
    """Like ``salvage``, but from kept columns if there are any. Raises the errors of ``salvage``."""
    folder = _FOLDER.get()
    if folder is not None:
        from perfgate.trace.cache.folder import RecordingCache

        return RecordingCache(folder).read(path)
    from perfgate.trace.readers.damaged import salvage

    return salvage(path)
