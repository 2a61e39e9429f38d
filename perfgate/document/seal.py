"""Evidence that a side ran unmodified code: its checkout, its imports, and the
libraries linked into it.
"""

from __future__ import annotations

from perfgate.document.records import FrozenStruct


class Seal(FrozenStruct, kw_only=True):
    """A side's readable code and weights, before code of the change ran and after the
    last turn.

    ``entries`` files and folders were compared, by inode, size and times. ``before``
    and ``after`` are SHA-256 of the expected and of the found state; they are equal if
    only the side itself changed files. ``changed`` names some of the differences
    (``base/model.py``; imported files by their whole path), ``own`` some files that the
    side wrote into its own checkout, and ``left_out`` folders with too many files to
    compare.
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
