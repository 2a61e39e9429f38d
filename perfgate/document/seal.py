"""The proof that what a side ran stayed what it was: its checkout, what it imports, and what is linked into it."""

from __future__ import annotations

import msgspec


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What a side could read as code or weights, before code of the change ran and after the last turn.

    ``entries`` files and folders were compared, by inode, size and times. ``before`` and ``after`` are SHA-256 of what was
    expected and of what was found; they are equal where nothing else than the side itself changed anything. ``changed`` names
    some of what differs (``base/model.py``; what is imported by its whole path), ``own`` some files that the side wrote into
    its own checkout, and ``left_out`` folders with too many files to compare.
    """

    entries: int
    before: str
    after: str
    changed: list[str] = []
    own: list[str] = []
    left_out: list[str] = []

    @property
    def broken(self) -> bool:
        return self.before != self.after or bool(self.changed)
