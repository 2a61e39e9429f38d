"""Answers about large recordings, kept with the recordings: the same question again reads neither them nor their columns."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

import msgspec

from perfgate.trace.cache import cache_folder
from perfgate.trace.cache.entries import ANSWER, EntryFolder
from perfgate.trace.cache.state import (
    EntryState,
    FileState,
    KeptEntry,
    are_settled,
    are_unchanged,
    entry_name,
    question_of,
    reader_state,
)

_MAGIC = b"perfgate answer\0"
_SUM_BYTES = 4
_Answer = TypeVar("_Answer")
_Detail = str | int | float | bool | None
_FILES: ContextVar[tuple[FileState, ...]] = ContextVar("files_behind_answer", default=())


def kept_answer(
    paths: Sequence[Path],
    details: Iterable[_Detail],
    kind: type[_Answer],
    work_out: Callable[[], _Answer],
    *,
    clock: Callable[[], int] = time.time_ns,
) -> _Answer:
    """The answer to a question about recordings: the kept one, else the result of ``work_out``, which is then kept.

    ``details`` are all that the answer depends on besides the recordings. An answer is kept only if the columns of all its
    recordings are. Raises the errors of ``work_out``.
    """
    folder = cache_folder()
    if folder is None:
        return work_out()
    question = (*map(repr, details), *(part for path in paths for part in question_of(path)))
    answers = _Answers(EntryFolder(folder), question)
    recalled = answers.recalled(kind)
    if recalled is not None:
        answer, files = recalled
        _FILES.set(tuple(files))
        return answer
    began = clock()
    answer = work_out()
    with suppress(OSError, ValueError):
        files = _files_read(folder, paths, began)
        answers.keep(answer, files)
        _FILES.set(tuple(files))
    return answer


def files_behind_answer() -> tuple[FileState, ...]:
    """The files of the recordings that the last answer is about, as they were read; none if it was not kept."""
    return _FILES.get()


def _files_read(folder: Path, paths: Sequence[Path], began: int) -> list[FileState]:
    """The files of recordings, if the columns of all are kept, and no file has changed since before the answer began."""
    from perfgate.trace.cache.folder import RecordingCache

    files: list[FileState] = []
    for path in paths:
        kept = RecordingCache(folder).files_of(path)
        if not kept or not are_settled(kept, began) or not are_unchanged(kept):
            return []
        files += kept
    return files


class _Answers:
    """The kept answer of one question."""

    def __init__(self, entries: EntryFolder, question: tuple[str, ...]) -> None:
        self._entries, self._question = entries, question
        self._name = f"{entry_name(question)}{ANSWER}"

    def recalled(self, kind: type[_Answer]) -> tuple[_Answer, list[FileState]] | None:
        """The answer, and the files that it is about; None if there is none, or anything has changed since."""
        file = self._entries.file(self._name)
        try:
            with file.open("rb") as stream:
                if os.fstat(stream.fileno()).st_uid != os.geteuid():
                    return None  # another user with write access to the folder could forge entries
                content = stream.read()
            body = memoryview(content)[len(_MAGIC) + _SUM_BYTES :]
            head = _MAGIC + zlib.crc32(body).to_bytes(_SUM_BYTES, "little")
            if not content.startswith(head):
                raise ValueError("other bytes than were written")
            kept = msgspec.msgpack.decode(body, type=KeptEntry)
            if not kept.state.is_of(self._question) or not are_unchanged(kept.state.files):
                return None
            answer = msgspec.msgpack.decode(kept.content, type=kind)
        except OSError:
            return None
        except (msgspec.MsgspecError, ValueError):
            self._entries.note_damage(file)
            return None
        self._entries.note_use(file)
        return answer, kept.state.files

    def keep(self, answer: object, files: list[FileState]) -> None:
        """Raises OSError if it cannot be written."""
        if not files:
            return
        state = EntryState(reader_state(), self._question, files)
        body = msgspec.msgpack.encode(KeptEntry(state, msgspec.Raw(msgspec.msgpack.encode(answer))))
        self._entries.keep(self._name, [_MAGIC + zlib.crc32(body).to_bytes(_SUM_BYTES, "little"), body])
