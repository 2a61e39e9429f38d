"""The folder in which recordings are kept: one file of columns each, the least recently used leave first."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.errors import PerfgateError
from perfgate.trace.cache.columns import ColumnFile, ColumnWriter, DamagedColumnsError
from perfgate.trace.cache.records import StoredRecording, restored, stored
from perfgate.trace.cache.state import FileState, are_settled, are_unchanged, states_of
from perfgate.trace.model.communication import added_communication
from perfgate.trace.model.recording import Recording

# A smaller recording is read as fast as it is recalled.
LEAST_BYTES = 4 << 20
# A recording of 1.5 GB takes 0.13 GB.
MOST_BYTES = 4 << 30
# On the disk, for everybody else.
_FREE_BYTES = 1 << 30
_SUFFIX = ".columns"
_TEMPORARY = ".tmp"
_ABANDONED_S = 3600
_DAMAGES = "damaged.log"


class CacheUse(NamedTuple):
    """How many recordings are kept, in how many bytes, and how many of all those ever kept turned out damaged."""

    recordings: int
    size: int
    damaged: int


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """``reader`` and ``question`` identify the content of the columns, ``files`` are the states of the files read."""

    reader: str
    question: tuple[str, ...]
    files: list[FileState]
    recording: msgspec.Raw


class RecordingCache:
    """Keeps recordings in a folder of this user. A full or read-only disk only means that nothing is kept."""

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = MOST_BYTES,
        least_bytes: int = LEAST_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder, self._most, self._least, self._clock = folder, most_bytes, least_bytes, clock

    def read(self, path: Path) -> Recording:
        """Like ``salvage``, but from kept columns if there are any. Raises the errors of ``salvage``."""
        recalled = self._recalled(path)
        if recalled is not None:
            return recalled
        from perfgate.trace.readers.damaged import salvage  # a cached recording needs no reader

        before = _files_of(path)
        recording = salvage(path)
        # A file that changes during the read may be half old and half new.
        if before and self._is_worth(before) and before == _files_of(path):
            with suppress(OSError, ValueError):
                self._keep(path, before, recording)
        return recording

    def use(self) -> CacheUse:
        """How full the folder is."""
        sizes = [stat.st_size for _, stat in self._entries()]
        try:
            damaged = (self._folder / _DAMAGES).read_text(errors="replace").count("\n")
        except OSError:
            damaged = 0
        return CacheUse(len(sizes), sum(sizes), damaged)

    def clear(self) -> None:
        """Remove all entries. Raises OSError if the folder cannot be written to."""
        for file, _ in self._entries():
            file.unlink(missing_ok=True)
        (self._folder / _DAMAGES).unlink(missing_ok=True)

    def _is_worth(self, files: list[FileState]) -> bool:
        """Whether files are large enough to be kept, and unchanged for so long that another change will show."""
        return sum(file.size for file in files) >= self._least and are_settled(files, self._clock())

    def _recalled(self, path: Path) -> Recording | None:
        """The kept recording; None if there is none, or anything has changed since."""
        file = self._entry(path)
        try:
            columns = ColumnFile(file)
            if columns.owner != os.geteuid():
                return None  # another user with write access to the folder could forge entries
            entry = msgspec.msgpack.decode(columns.content, type=_Entry)
            if (entry.reader, entry.question) != (_reader(), _question(path)) or not are_unchanged(entry.files):
                return None
            recording = restored(msgspec.msgpack.decode(entry.recording, type=StoredRecording), columns, path)
        except OSError:
            return None
        except (DamagedColumnsError, msgspec.MsgspecError, ValueError, IndexError, KeyError):
            self._note_damage(file)
            return None
        with suppress(OSError):
            os.utime(file)
        return recording

    def _keep(self, path: Path, files: list[FileState], recording: Recording) -> None:
        """Raises OSError if it cannot be written, ValueError for data that a file of columns cannot hold."""
        columns = ColumnWriter()
        record = msgspec.Raw(msgspec.msgpack.encode(stored(recording, columns)))
        content = msgspec.msgpack.encode(_Entry(_reader(), _question(path), files, record))
        pieces = list(columns.pieces(content))
        size = sum(map(len, pieces))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._make_room(size):
            return
        temporary = self._folder / f"{os.urandom(8).hex()}{_TEMPORARY}"
        try:
            with temporary.open("xb") as out:
                out.writelines(pieces)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(self._entry(path))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

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
        for file in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                yield file, file.stat()

    def _entry(self, path: Path) -> Path:
        question = "\0".join(_question(path)).encode("utf-8", "surrogateescape")
        # If two share a name, the later one replaces the other: an entry is checked against the whole question.
        return self._folder / f"{zlib.crc32(question):08x}{zlib.adler32(question):08x}{_SUFFIX}"

    def _note_damage(self, file: Path) -> None:
        with suppress(OSError):
            file.unlink(missing_ok=True)
            with (self._folder / _DAMAGES).open("a") as log:
                log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {file.name}\n")


def _question(path: Path) -> tuple[str, ...]:
    """Everything besides the files that determines a recording's content; notes contain the path as it was written."""
    return (str(path), str(path.absolute()), *added_communication())


def _reader() -> str:
    """Which perfgate read it: another version, or a checkout with other readers, may read otherwise."""
    total = 0
    for folder, _, names in os.walk(Path(__file__).parents[1]):
        for name in names:
            if name.endswith((".py", ".so")):
                stat = os.stat(f"{folder}/{name}")  # noqa: PTH116 - of a hundred files, on the way of every question
                total = zlib.crc32(f"{name} {stat.st_size} {stat.st_mtime_ns}".encode(), total)
    return f"{total:08x}"


def _files_of(path: Path) -> list[FileState]:
    """The states of all files that a reader looks at; none if there is no reader, or a file is gone."""
    from perfgate.trace.readers.reader import reader_of

    with suppress(OSError, PerfgateError):
        return states_of(reader_of(path).files(path))
    return []
