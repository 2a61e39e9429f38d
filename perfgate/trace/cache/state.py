"""Whether a recording or its readers have changed since it was read, without reading it again."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from perfgate.trace.model.communication import added_communication

# A change within the same tick of a file system's clock leaves no mark (git: Documentation/technical/racy-git.txt). FAT has the
# coarsest clock, of two seconds.
SETTLED_NS = 2_000_000_000
# The parts of the package that make a recording and the answers about it.
_READING = ("trace", "flows/trace", "flows/shared", "document")


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """The stat fields of a file, or of a folder, which changes with the names in it.

    No program can set the time of the last change of an inode (``changed_ns``), so that it also shows a file which was
    replaced by one of the same size and time of modification.
    """

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


class EntryState(msgspec.Struct, frozen=True, array_like=True):
    """Which content an entry has: the reader, the question, and the states of the files read."""

    reader: str
    question: tuple[str, ...]
    files: list[FileState]

    def is_of(self, question: tuple[str, ...]) -> bool:
        """Whether it is about this question, and read by the present reader."""
        return (self.reader, self.question) == (reader_state(), question)


class KeptEntry(msgspec.Struct, frozen=True, array_like=True):
    """A kept recording or answer, encoded, with the state that identifies it."""

    state: EntryState
    content: msgspec.Raw


def states_of(paths: Iterable[Path]) -> list[FileState]:
    """Raises OSError for a path that is missing."""
    return [state_of(str(path.absolute())) for path in paths]


def state_of(path: str) -> FileState:
    """The present state of a file or folder. Raises OSError for one that is missing."""
    # NFS answers stat from its cache until a process opens the file (nfs(5), "Close-to-open cache consistency").
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        stat = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return FileState(path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def are_unchanged(states: Iterable[FileState]) -> bool:
    """Whether all files are still in these states."""
    try:
        return all(state_of(state.path) == state for state in states)
    except OSError:
        return False


def are_settled(states: Iterable[FileState], now_ns: int) -> bool:
    """Whether the last change of every file is so long ago that a later one is bound to show."""
    return all(max(state.modified_ns, state.changed_ns) < now_ns - SETTLED_NS for state in states)


def question_of(path: Path) -> tuple[str, ...]:
    """Everything besides the files that determines a recording's content; notes contain the path as it was written."""
    return (str(path), str(path.absolute()), *added_communication())


def entry_name(question: Iterable[str]) -> str:
    """The name of what is kept of a question. If two share one, the later replaces the other: an entry is checked against the
    whole question.
    """
    text = "\0".join(question).encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(text):08x}{zlib.adler32(text):08x}"


@cache
def reader_state() -> str:
    """Which perfgate reads: another version, or a checkout with other readers, may read and answer otherwise."""
    total = 0
    package = Path(__file__).parents[2]
    for part in _READING:
        for folder, _, names in os.walk(package / part):
            for name in sorted(names):
                if name.endswith((".py", ".so")):
                    stat = os.stat(f"{folder}/{name}")  # noqa: PTH116 - of a hundred files, on the way of every question
                    total = zlib.crc32(f"{name} {stat.st_size} {stat.st_mtime_ns}".encode(), total)
    return f"{total:08x}"
