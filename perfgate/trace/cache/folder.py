"""Recordings that are kept: one file of columns each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from perfgate.errors import PerfgateError
from perfgate.trace.cache.columns import ColumnFile, ColumnWriter, DamagedColumnsError, content_of
from perfgate.trace.cache.entries import COLUMNS, MOST_BYTES, CacheUse, EntryFolder
from perfgate.trace.cache.records import StoredRecording, restored, stored
from perfgate.trace.cache.stacks import KeptStacks
from perfgate.trace.cache.state import (
    EntryState,
    FileState,
    KeptEntry,
    are_settled,
    are_unchanged,
    entry_name,
    question_of,
    reader_state,
    states_of,
)
from perfgate.trace.model.recording import Recording

# A smaller recording is read as fast as it is recalled.
LEAST_BYTES = 4 << 20


class RecordingCache:
    """Keeps recordings in a folder of this user."""

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = MOST_BYTES,
        least_bytes: int = LEAST_BYTES,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._entries, self._least, self._clock = EntryFolder(folder, most_bytes=most_bytes), least_bytes, clock

    def read(self, path: Path) -> Recording:
        """Like ``salvage``, but from kept columns if there are any. Raises the errors of ``salvage``."""
        recalled = self._recalled(path)
        if recalled is not None:
            return recalled
        from perfgate.trace.readers.damaged import salvage  # a cached recording needs no reader

        before = _files_of(path)
        recording = salvage(path)
        # Files are kept if they are large enough, and unchanged for so long that another change will show.
        is_worth = sum(file.size for file in before) >= self._least and are_settled(before, self._clock())
        # A file that changes during the read may be half old and half new.
        if before and is_worth and before == _files_of(path):
            with suppress(OSError, ValueError):
                return self._keep(path, EntryState(reader_state(), question_of(path), before), recording)
        return recording

    def files_of(self, path: Path) -> list[FileState]:
        """The files of a recording that is kept, as they were when it was read; none if it is not kept."""
        with suppress(OSError, DamagedColumnsError, msgspec.MsgspecError):
            state = msgspec.msgpack.decode(content_of(self._file(path)), type=KeptEntry).state
            if state.is_of(question_of(path)):
                return state.files
        return []

    def use(self) -> CacheUse:
        """How full the folder is."""
        return self._entries.use()

    def clear(self) -> None:
        """Remove all entries. Raises OSError if the folder cannot be written to."""
        self._entries.clear()

    def _recalled(self, path: Path) -> Recording | None:
        """The kept recording; None if there is none, or anything has changed since."""
        file = self._file(path)
        try:
            columns = ColumnFile(file)
            if columns.owner != os.geteuid():
                return None  # another user with write access to the folder could forge entries
            entry = msgspec.msgpack.decode(columns.content, type=KeptEntry)
            state = entry.state
            if not state.is_of(question_of(path)) or not are_unchanged(state.files):
                return None
            recording = restored(msgspec.msgpack.decode(entry.content, type=StoredRecording), columns, path)
        except OSError:
            return None
        except (DamagedColumnsError, msgspec.MsgspecError, ValueError, IndexError, KeyError):
            self._entries.note_damage(file)
            return None
        self._entries.note_use(file)
        return self._with_stacks(recording, state)

    def _keep(self, path: Path, state: EntryState, recording: Recording) -> Recording:
        """The recording, which keeps its stacks from now on.

        Raises OSError if it cannot be written, ValueError for data that a file of columns cannot hold.
        """
        columns = ColumnWriter()
        record = msgspec.Raw(msgspec.msgpack.encode(stored(recording, columns)))
        content = msgspec.msgpack.encode(KeptEntry(state, record))
        self._entries.keep(self._file(path).name, list(columns.pieces(content)))
        return self._with_stacks(recording, state)

    def _with_stacks(self, recording: Recording, state: EntryState) -> Recording:
        name = entry_name(state.question)
        keepers = (KeptStacks(self._entries, f"{name}-{place}", state) for place in range(len(recording.timelines)))
        timelines = tuple(replace(one, stacks=keeper) for one, keeper in zip(recording.timelines, keepers))
        return replace(recording, timelines=timelines)

    def _file(self, path: Path) -> Path:
        return self._entries.file(f"{entry_name(question_of(path))}{COLUMNS}")


def _files_of(path: Path) -> list[FileState]:
    """The states of all files that a reader looks at; none if there is no reader, or a file is gone."""
    from perfgate.trace.readers.reader import reader_of

    with suppress(OSError, PerfgateError):
        return states_of(reader_of(path).files(path))
    return []
