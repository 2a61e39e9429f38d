"""Reduce recordings to small tables, which can be stored.

Tasks run in other processes, or on the machine with a recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path

import msgspec

from perfgate import trace
from perfgate.document.files import write_atomically
from perfgate.document.message import spoken
from perfgate.document.trace import LeftOutRecording
from perfgate.errors import ClusterRefusedError, DocumentError, PerfgateError
from perfgate.trace.analysis.rank_table import RankTable, reduce_timeline
from perfgate.trace.model.communication import add_communication, added_communication
from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.folder import read_rank
from perfgate.trace.readers.ascend.layout import analysed_folders
from perfgate.trace.readers.contradictions import contradictions, impossible_times
from perfgate.trace.readers.formats import chrome
from perfgate.trace.readers.formats.kineto import trace_files
from perfgate.version import __version__

# Written next to its recording, by `perfgate trace reduce` only.
KEPT = ".perfgate-rank.msgpack"
# Increased with every change to the contents of a table or of an answer.
_LAYOUT = 6
_MADE_BY = f"{__version__}, layout {_LAYOUT}"
_MOST_DIGITS = 7


class KeptTables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one recording, and the state of its files when they were made."""

    version: str
    files: list[tuple[str, int, int]]
    tables: list[RankTable]


class ReducedRecording(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one recording, their path, and whether they could be written there;
    ``host`` is the node of that path.
    """

    tables: list[RankTable]
    kept_at: str
    kept: bool
    host: str | None = None


Reduced = ReducedRecording | LeftOutRecording


class _Origin(msgspec.Struct, frozen=True, array_like=True):
    """The perfgate that ran a task: the first field of each answer, which every version
    can read.
    """

    version: str = _MADE_BY


class TaskAnswer(_Origin, frozen=True, array_like=True):
    """The recordings below a folder, or the tables of one, or why it could not be read."""

    recordings: list[str] = []
    reduced: ReducedRecording | None = None
    left_out: LeftOutRecording | None = None


def list_task(path: Path) -> bytes:
    """The recordings below a folder."""
    try:
        recordings = [str(recording) for recording in recordings_below(path)]
    except (OSError, PerfgateError) as error:
        return _answer(LeftOutRecording(path=str(path), reason=str(error)))
    return msgspec.msgpack.encode(TaskAnswer(recordings=recordings))


def reduce_task(path: Path, patterns: tuple[str, ...], *, keeps: bool) -> bytes:
    """The kept tables of a recording, or new tables, stored next to it if it ``keeps``
    them.

    ``patterns`` are further names of kernels that communicate.
    """

    def reduced() -> Reduced:
        add_communication(patterns)
        return kept_tables(path) or reduce_recording(path, keeps=keeps)

    # A worker of a cluster also serves other users, with other patterns.
    return _answer(copy_context().run(reduced))


def _answer(reduced: Reduced) -> bytes:
    if isinstance(reduced, ReducedRecording):
        return msgspec.msgpack.encode(TaskAnswer(reduced=reduced))
    return msgspec.msgpack.encode(TaskAnswer(left_out=reduced))


def read_answer(answer: bytes) -> TaskAnswer:
    """Raises ClusterRefusedError if another version of perfgate ran the task."""
    theirs = msgspec.msgpack.decode(answer, type=_Origin).version
    if theirs != _MADE_BY:
        raise ClusterRefusedError(
            "the workers of the cluster run perfgate {theirs}, this is {ours}; install the same version there",
            theirs=theirs,
            ours=_MADE_BY,
        )
    return msgspec.msgpack.decode(answer, type=TaskAnswer)


def recordings_below(path: Path) -> list[Path]:
    """The recordings below a folder, and stored tables of recordings that are not
    there; a file itself.
    """
    if not path.is_dir():
        return [path] if path.is_file() else []
    recordings = (
        analysed_folders(path)
        or trace_files(path, below=True)
        or chrome.trace_files(path, below=True)
    )
    tables = set(path.rglob(f"*{KEPT}"))
    alone = tables.difference(_kept_at(recording) for recording in recordings)
    return [*recordings, *sorted(alone)]


def _kept_at(recording: Path) -> Path:
    if recording.is_dir():
        return recording / KEPT
    return recording.with_name(recording.name + KEPT)


def kept_tables(recording: Path) -> Reduced | None:
    """The stored tables of a recording; None if they are missing or outdated."""
    if recording.name.endswith(KEPT):
        return _tables_alone(recording)
    kept_at = _kept_at(recording)
    with suppress(OSError, DocumentError):
        kept = _read_kept(kept_at)
        if (kept.version, kept.files) == (_kept_by(), _state(recording)):
            return ReducedRecording(tables=kept.tables, kept_at=str(kept_at), kept=True)
    return None


def _tables_alone(file: Path) -> Reduced:
    """Stored tables that came without their recording."""
    try:
        kept = _read_kept(file)
    except (OSError, DocumentError) as error:
        return LeftOutRecording(path=str(file), reason=str(error))
    if kept.version != _kept_by():
        reason = f"{file}: made by perfgate {kept.version}, this is {_kept_by()}; reduce the recording again"
        return LeftOutRecording(path=str(file), reason=reason)
    return ReducedRecording(tables=kept.tables, kept_at=str(file), kept=True)


def reduce_recording(recording: Path, *, keeps: bool) -> Reduced:
    """New tables of a recording; with ``keeps`` they are written next to it if its
    folder allows that.
    """
    try:
        return _reduced_anew(recording, keeps=keeps)
    except (OSError, PerfgateError) as error:
        return LeftOutRecording(path=str(recording), reason=str(error))


def _reduced_anew(recording: Path, *, keeps: bool) -> ReducedRecording:
    kept_at = _kept_at(recording)
    files = _state(recording)
    if recording.is_dir():
        # An analysed folder has tables, which take a fraction of the time to read that
        # its timeline takes.
        content = read_rank(recording, tables_suffice=True)
    else:
        content = trace.read(recording)
    for timeline in content.timelines:
        for doubt in impossible_times(timeline):
            raise DocumentError(
                "{path}: {why}; record it again", path=recording, why=spoken(doubt)
            )
    world = _world(content)
    tables = []
    for timeline in content.timelines:
        doubts = [*content.incomplete, *contradictions(timeline), *content.notes]
        tables.append(
            reduce_timeline(timeline, str(recording), world=world, doubts=doubts)
        )
    kept = keeps
    if keeps:
        try:
            keep_tables(kept_at, tables, files)
        except PerfgateError:
            kept = False
    return ReducedRecording(tables=tables, kept_at=str(kept_at), kept=kept)


def _world(recording: Recording) -> int | None:
    """The number of ranks of the job, None if the recording does not give it."""
    size = recording.settings.get("world_size", "")
    if not size.isdecimal() or len(size) >= _MOST_DIGITS:
        return None
    return int(size)


def keep_tables(
    path: Path, tables: list[RankTable], files: list[tuple[str, int, int]]
) -> None:
    """Write the tables of a recording. Raises PerfgateError if the file cannot be
    written.
    """
    write_atomically(
        path,
        msgspec.msgpack.encode(
            KeptTables(version=_kept_by(), files=files, tables=tables)
        ),
    )


def _read_kept(path: Path) -> KeptTables:
    """Raises OSError, and DocumentError for a damaged file or one of another perfgate
    version.
    """
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=KeptTables)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentError(
            "{path}: not a table of a rank ({error}); remove it, or reduce the recording again",
            path=path,
            error=error,
        ) from error


def _kept_by() -> str:
    """The origin of a table: version of the program, and the patterns of communication
    kernels.
    """
    patterns = added_communication()
    if not patterns:
        return _MADE_BY
    return f"{_MADE_BY}, --comm {' '.join(patterns)}"


def _state(recording: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of every file that is read."""
    files: Iterable[Path] = recording.iterdir() if recording.is_dir() else [recording]
    state = []
    for file in files:
        if file.is_file() and not file.name.endswith(KEPT):
            stat = file.stat()
            state.append((file.name, stat.st_size, stat.st_mtime_ns))
    return sorted(state)
