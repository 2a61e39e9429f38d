"""Read recordings of any profiler: each member of ``formats`` recognises its own files
and folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

from perfgate.errors import DocumentError
from perfgate.plugins import READERS, load_members
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers import formats
from perfgate.trace.readers.foreign import refuse_foreign, refuse_foreign_below


class Reader(Protocol):
    """A module in ``formats``, or one that another package names under the entry points
    ``perfgate.readers``.

    ``READS`` describes its files for the list of formats. Of several readers that
    recognise a path, the reader with the highest ``PRIORITY`` reads it.
    """

    READS: str
    PRIORITY: int

    def recognises(self, path: Path) -> bool:
        """Whether the reader can read a path; cheap, and never raises."""

    def read(self, path: Path) -> Recording:
        """Raises DocumentError, which names the fault, its place and the next step, for
        a damaged recording.
        """


def all_readers() -> list[Reader]:
    """All readers, highest priority first."""
    members = cast(list[Reader], load_members(formats, READERS))
    return sorted(members, key=lambda reader: -reader.PRIORITY)


def read(path: Path) -> Recording:
    """Read a file or folder of any supported profiler.

    Raises DocumentError, which names the fault, its place and the next step, if no
    reader can.
    """
    return reader_of(path).read(path)


def reader_of(path: Path) -> Reader:
    """The reader of a file or folder.

    Raises DocumentError if there is none, or the file is known to be something else.
    """
    if not path.exists():
        raise DocumentError(
            "{path} does not exist; name a profiler's output folder or trace file",
            path=path,
        )
    refuse_foreign(path)
    members = all_readers()
    for reader in members:
        if reader.recognises(path):
            return reader
    if path.is_dir():
        refuse_foreign_below(path)
    formats = "; ".join(reader.READS for reader in members)
    raise DocumentError(
        "{path} is not profiler output that perfgate can read; it reads: {formats}",
        path=path,
        formats=formats,
    )
